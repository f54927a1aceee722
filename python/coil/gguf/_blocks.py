"""Blocks of GGUF's quantised types, taken apart: every number is (q - zero) * scale, with one scale (and zero) for a group of neighbours in a row."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import math
import mmap
import warnings
from typing import Any, Callable

import numpy as np
import torch

from ._codebooks import CODEBOOKS, half, least_of_q2_k, looked_up
from ._store import Store, by_rows


@dataclasses.dataclass
class Rows:
    """A matrix [n, k], or a list of such, as it is stored: numbers int8 [n, k], scale and zero [n, k / group]."""

    numbers: np.ndarray
    scale: np.ndarray
    zero: np.ndarray | None

    @property
    def group(self) -> int:
        return self.numbers.shape[-1] // self.scale.shape[-1]

    def cut(self, begin: int, end: int) -> "Rows":
        return Rows(self.numbers[begin:end], self.scale[begin:end], None if self.zero is None else self.zero[begin:end])


def _is_mapped(data: np.ndarray) -> bool:
    """Whether it lies in a file that is mapped for reading alone."""
    base: Any = data
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return False
        base = base.base
    return isinstance(base, mmap.mmap)


class FileParts:
    """What the compiler reads of a mapped file itself, when it packs it. Its arrays have sizes and addresses, and no memory."""

    def __init__(self) -> None:
        self.sources: dict[int, Any] = {}  # by the address of the array
        self._kept: list[np.ndarray] = []

    def rows(self, kind: str, data: np.ndarray, shape: list[int], group: int, order: np.ndarray | None) -> "FileRows":
        """Of the matrix (or list of such) of a tensor's blocks, data [rows, bytes]. order: which rows those are; None: all."""
        parts = importlib.import_module("coil._compiler").block_parts(kind, data.__array_interface__["data"][0], data.nbytes, _is_mapped(data), shape[-1], [] if order is None else order.tolist())
        self._kept.append(data)
        small = [*shape[:-1], shape[-1] // group]
        numbers, scale, zero = (None if part is None else self._array(sizes, kind_of, part)
                                for part, sizes, kind_of in zip(parts, (shape, small, small), (np.int8, np.float32, np.float32)))
        assert numbers is not None and scale is not None
        return FileRows(numbers, scale, zero, functools.partial(self._cut, kind, data, shape, group, order))

    def _cut(self, kind: str, data: np.ndarray, shape: list[int], group: int, order: np.ndarray | None, begin: int, end: int) -> "FileRows":
        return self.rows(kind, data, [end - begin, shape[-1]], group, (np.arange(len(data)) if order is None else order)[begin:end])

    def _array(self, sizes: list[int], dtype: Any, part: Any) -> np.ndarray:
        array = np.zeros(sizes, dtype)  # pages that nobody writes take no memory
        assert array.nbytes == len(part)
        self.sources[array.__array_interface__["data"][0]] = part
        self._kept.append(array)
        return array


@dataclasses.dataclass
class FileRows(Rows):
    """Arrays of FileParts, and how to have some of their rows."""

    take: Callable[[int, int], "FileRows"]

    def cut(self, begin: int, end: int) -> Rows:
        return self.take(begin, end)


def _nibbles(packed: np.ndarray, less: int = 0) -> np.ndarray:
    """[..., b] bytes to [..., 2, b] numbers of 4 bits, less `less`: the low ones, then the high ones."""
    high = np.array(packed, order="C")  # whole vectors of a contiguous array are five times as fast as pieces of b
    low = high & 15
    high >>= 4
    if less:
        low -= np.uint8(less)
        high -= np.uint8(less)
    piece = np.dtype(f"V{packed.shape[-1]}")
    made = np.empty((*packed.shape[:-1], 2), piece)
    made[..., 0], made[..., 1] = low.view(piece)[..., 0], high.view(piece)[..., 0]
    return made.view(np.uint8).reshape(*packed.shape[:-1], 2, -1)


def _fifth_bits(bits: np.ndarray) -> np.ndarray:
    """[..., 4] bytes to the 32 bits in them, [..., 2, 16], each in its place as the fifth of a number."""
    return (np.unpackbits(bits, axis=-1, bitorder="little") << 4).reshape(*bits.shape[:-1], 2, 16)


def _with_least(q: np.ndarray, scale: np.ndarray, least: np.ndarray, middle: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q * scale + least of groups [..., g] as (numbers - zero) * scale, the numbers less `middle`. A scale of 0 leaves `least` alone."""
    flat = scale == 0
    divisor = np.where(flat, np.float32(1), scale)
    numbers = q.astype(np.int8) - np.int8(middle)
    numbers[flat] = 0
    zero = np.where(flat, -least, -least / divisor - middle).astype(np.float32)
    return numbers, divisor, zero


def _q4_0(b: np.ndarray) -> tuple:
    return _nibbles(b[..., 2:18], 8).view(np.int8).reshape(*b.shape[:-1], 1, 32), half(b, 0)[..., None], None


def _q5_0(b: np.ndarray) -> tuple:
    q = (_nibbles(b[..., 6:22]) | _fifth_bits(b[..., 2:6])).astype(np.int8) - np.int8(16)
    return q.reshape(*b.shape[:-1], 1, 32), half(b, 0)[..., None], None


def _q8_0(b: np.ndarray) -> tuple:
    return b[..., None, 2:34].view(np.int8), half(b, 0)[..., None], None


def _q4_1(b: np.ndarray) -> tuple:
    q = _nibbles(b[..., 4:20]).reshape(*b.shape[:-1], 1, 32)
    return _with_least(q, half(b, 0)[..., None].astype(np.float32), half(b, 2)[..., None].astype(np.float32), 8)


def _q5_1(b: np.ndarray) -> tuple:
    q = (_nibbles(b[..., 8:24]) | _fifth_bits(b[..., 4:8])).reshape(*b.shape[:-1], 1, 32)
    return _with_least(q, half(b, 0)[..., None].astype(np.float32), half(b, 2)[..., None].astype(np.float32), 16)


def _scales_of_k(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eight scales and least numbers of a block of Q4_K or Q5_K: 6 bits each, in 12 bytes."""
    s = b[..., 4:16]
    scale = np.concatenate([s[..., :4] & 63, (s[..., 8:] & 15) | (s[..., :4] >> 6 << 4)], -1)
    least = np.concatenate([s[..., 4:8] & 63, (s[..., 8:] >> 4) | (s[..., 4:8] >> 6 << 4)], -1)
    d, m = half(b, 0).astype(np.float32)[..., None], half(b, 2).astype(np.float32)[..., None]
    return d * scale, -(m * least)


def _q4_k(b: np.ndarray) -> tuple:
    q = _nibbles(b[..., 16:].reshape(*b.shape[:-1], 4, 32)).reshape(*b.shape[:-1], 8, 32)
    return _with_least(q, *_scales_of_k(b), 8)


def _q5_k(b: np.ndarray) -> tuple:
    fifth = (b[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1) << 4
    q = _nibbles(b[..., 48:].reshape(*b.shape[:-1], 4, 32)).reshape(*b.shape[:-1], 8, 32) | fifth
    return _with_least(q, *_scales_of_k(b), 16)


def _q6_k(b: np.ndarray) -> tuple:
    low = _nibbles(b[..., :128].reshape(*b.shape[:-1], 2, 64)).reshape(*b.shape[:-1], 2, 4, 32)
    high = b[..., 128:192].reshape(*b.shape[:-1], 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    q = (low | high << 4).astype(np.int8) - np.int8(32)
    scale = half(b, 208).astype(np.float32)[..., None] * np.ascontiguousarray(b[..., 192:208]).view(np.int8)
    return q.reshape(*b.shape[:-1], 16, 16), scale, None


def _codebook(kind: str) -> Callable[[np.ndarray], tuple]:
    def taken(b: np.ndarray) -> tuple:
        numbers, scale = looked_up(kind, b), CODEBOOKS[kind][1](b)
        return _with_least(numbers, scale, least_of_q2_k(b), 0) if kind == "Q2_K" else (numbers, scale, None)

    return taken


# Bytes of a block, and how it is taken apart: [..., bytes] to numbers [..., groups, size], scale and zero [..., groups].
_BLOCKS: dict[str, tuple[int, Callable[[np.ndarray], tuple]]] = {
    "Q4_0": (18, _q4_0), "Q4_1": (20, _q4_1), "Q5_0": (22, _q5_0), "Q5_1": (24, _q5_1), "Q8_0": (34, _q8_0),
    "Q4_K": (144, _q4_k), "Q5_K": (176, _q5_k), "Q6_K": (210, _q6_k),
    **{kind: (size, _codebook(kind)) for kind, size in (
        ("Q2_K", 84), ("Q3_K", 110), ("TQ1_0", 54), ("TQ2_0", 66), ("MXFP4", 17), ("NVFP4", 36), ("IQ4_NL", 18), ("IQ4_XS", 136), ("IQ3_XXS", 98), ("IQ3_S", 110),
        ("IQ2_XXS", 66), ("IQ2_XS", 74), ("IQ2_S", 82), ("IQ1_S", 50), ("IQ1_M", 56))},
}


# Types of the file that are floats themselves, and how they are read.
_FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def _floats(tensor: Any, shape: list[int], store: Store, order: np.ndarray | None, dtype: torch.dtype) -> torch.Tensor:
    """Floats of a file, where they are if they can stay as they are."""
    kind = _FLOATS[tensor.tensor_type.name]
    raw = np.asarray(tensor.data).view(np.uint8).reshape(math.prod(shape[: max(1, len(shape) - 1)]), -1)
    if kind != dtype or order is not None:
        def converted(rows: np.ndarray) -> tuple[np.ndarray]:
            given = mapped(rows).view(kind)
            if dtype not in store.scratch or store.scratch[dtype].numel() < given.numel():
                store.scratch[dtype] = torch.empty(given.numel(), dtype=dtype)
            made = store.scratch[dtype][: given.numel()].view(given.shape)
            return (made.copy_(given).view(torch.uint8).numpy(),)

        (raw,) = by_rows(raw, order, converted, store)
    return mapped(raw).view(dtype).reshape(shape)


def mapped(array: np.ndarray) -> torch.Tensor:
    """A tensor over an array, which may be a mapped file: nobody writes to it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(array)


def readable(tensor: Any) -> bool:
    """Whether the tensor is of a type that `unpacked` knows, or the package gguf dequantises."""
    from gguf import quants

    name = tensor.tensor_type.name
    if name in _FLOATS or name in _BLOCKS:
        return True
    try:
        quants.dequantize(np.zeros((1, 0), np.uint8), tensor.tensor_type)
    except NotImplementedError:
        return False
    except Exception:  # noqa: BLE001 - it knows the type, and a row of no blocks is too short for it
        return True
    return True


def unpacked(tensor: Any, store: Store | None = None, order: np.ndarray | None = None, dtype: torch.dtype = torch.float32,
             parts: FileParts | None = None) -> Rows | torch.Tensor:
    """What a tensor of a GGUF file holds: quantised rows as they are, or floats (also of types that have no such form: those are dequantised), as `dtype`.
    order: of the rows; None: as they are. parts: takes the types that the compiler reads itself."""
    store = store or Store()
    kind, shape = tensor.tensor_type.name, [int(n) for n in reversed(tensor.shape)]
    if kind in _FLOATS:
        return _floats(tensor, shape, store, order, dtype)
    data = np.asarray(tensor.data)
    data = data.reshape(-1, data.shape[-1])
    if kind not in _BLOCKS:
        from gguf import quants

        def dequantised(rows: np.ndarray) -> tuple[np.ndarray]:
            return (mapped(quants.dequantize(rows, tensor.tensor_type).astype(np.float32)).to(dtype).view(torch.uint8).numpy(),)

        (floats,) = by_rows(data, order, dequantised, store)
        return mapped(floats).view(dtype).reshape(shape)
    size, take_apart = _BLOCKS[kind]
    if parts is not None and importlib.import_module("coil._compiler").has_block_form(kind) and data.flags.c_contiguous:
        return parts.rows(kind, data, shape, 16 if kind == "Q6_K" else 32, order)

    def taken(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        q, scale, zero = take_apart(rows.reshape(rows.shape[0], -1, size))
        wide = scale.reshape(len(rows), -1).astype(np.float32)  # the program's own conversion would be made in memory when it is compiled
        return q.reshape(len(rows), -1), wide, None if zero is None else zero.reshape(len(rows), -1)

    numbers, scale, zero = (None if part is None else part.reshape(*shape[:-1], -1) for part in by_rows(data, order, taken, store))
    return Rows(numbers, scale, zero)
