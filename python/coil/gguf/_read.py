"""GGUF files: what they say about the model, and their weights."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
import torch

from .._errors import make_error
from ._blocks import Rows, readable, unpacked
from ._model import Shape
from ._store import Store

_ARCHITECTURES = ("llama", "qwen2", "qwen3")
_MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def _unsupported(path: str, what: str, hint: str = f"import-gguf reads decoders that are built as Llama's: {', '.join(_ARCHITECTURES)}; export others from PyTorch") -> Exception:
    return make_error(105, f"COIL-E105: '{path}': {what}\n  hint: {hint}")


def _damaged(path: str, what: str) -> Exception:
    return make_error(13, f"COIL-E013: '{path}' is damaged: {what}\n  hint: download it again")


def open_file(path: str | os.PathLike) -> Any:
    """The reader of PyPI's gguf. Raises COIL-E402 without it, COIL-E001 and COIL-E013 for files that are none."""
    try:
        import gguf
    except ImportError:
        raise make_error(402, "COIL-E402: reading GGUF files needs the Python package gguf\n  hint: pip install gguf") from None
    if not os.path.isfile(path):
        raise make_error(1, f"COIL-E001: there is no file '{os.fspath(path)}'")
    _check_head(os.fspath(path))
    try:
        reader = gguf.GGUFReader(path)
    except Exception:  # noqa: BLE001 - the reader ends with whatever its arrays say of a damaged file
        raise _damaged(os.fspath(path), f"it ends too early, or what stands before its weights is wrong (it has {os.path.getsize(path)} bytes)") from None
    return reader


_VERSIONS = (2, 3)  # of the format, that the reader knows


def _check_head(path: str) -> None:
    """Raises COIL-E013 for a file that does not begin as one of a known version does."""
    with open(path, "rb") as file:
        head = file.read(8)
    if not head:
        raise _damaged(path, "it is empty")
    if head[:4] != b"GGUF"[: len(head)]:
        raise make_error(13, f"COIL-E013: '{path}' is no GGUF file: it does not begin with the letters GGUF\n  hint: other files of weights are exported from PyTorch")
    if len(head) < 8:
        raise _damaged(path, f"it ends after {len(head)} bytes")
    version = int.from_bytes(head[4:], "little")
    if int.from_bytes(head[4:], "big") in _VERSIONS:
        raise make_error(13, f"COIL-E013: '{path}' has its numbers in the order of another machine (big endian)\n  hint: convert it with gguf-convert-endian")
    if version not in _VERSIONS:
        raise make_error(13, f"COIL-E013: '{path}' has version {version} of the format, and {_VERSIONS[0]} and {_VERSIONS[1]} are known\n  hint: make it with a current convert_hf_to_gguf.py")


def shape_of(reader: Any, path: str) -> Shape:
    def field(name: str, default: Any = None) -> Any:
        found = reader.fields.get(name)
        try:
            value = default if found is None else found.contents()
        except (ValueError, IndexError):  # no text, no such element
            value = None
        if value is None:
            raise make_error(13, f"COIL-E013: '{path}' does not say its {name}\n  hint: make it with a current convert_hf_to_gguf.py")
        return value

    def number(name: str, default: Any = None) -> int:
        value = field(name, default)
        if not (isinstance(value, int) and 0 < value < 1 << 31):
            raise _damaged(path, f"its {name} is {value!r}")
        return value

    arch = field("general.architecture")
    if arch not in _ARCHITECTURES:
        raise _unsupported(path, f"its architecture is '{arch}'")
    if field(f"{arch}.expert_count", 0):
        raise _unsupported(path, "it is a mixture of experts")
    if any(isinstance(field(f"{arch}.attention.{n}", 1), list) for n in ("head_count", "head_count_kv")):
        raise _unsupported(path, "its layers have different numbers of heads")
    width, heads = number(f"{arch}.embedding_length"), number(f"{arch}.attention.head_count")
    key_heads = number(f"{arch}.attention.head_count_kv", heads)
    size = number(f"{arch}.attention.key_length", max(width // heads, 1))
    if heads % key_heads or size % 2:
        raise _damaged(path, f"it has {heads} heads of {size} on {key_heads} of keys")
    if number(f"{arch}.rope.dimension_count", size) != size or number(f"{arch}.attention.value_length", size) != size:
        raise _unsupported(path, "only a part of each head is turned by its place, or values have another size than keys")
    scaling = field(f"{arch}.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise _unsupported(path, f"its rotary embedding is scaled by '{scaling}'")
    scale = float(field(f"{arch}.rope.scaling.factor", 1.0)) if scaling == "linear" else 1.0
    layers = number(f"{arch}.block_count")
    if layers > len(reader.tensors):
        raise _damaged(path, f"it says that it has {layers} layers, and has {len(reader.tensors)} tensors")
    return Shape(arch, layers, width, heads, key_heads, size, float(field(f"{arch}.attention.layer_norm_rms_epsilon")),
                 float(field(f"{arch}.rope.freq_base", 10000.0)), scale, number(f"{arch}.context_length", 4096))


def _check_sizes(tensors: dict[str, Any], shape: Shape, path: str) -> None:
    """Raises COIL-E013 for the first tensor that does not have the size that the file's numbers say."""
    rows, keys = shape.heads * shape.head_size, shape.key_heads * shape.head_size
    vocabulary, inner = (int(tensors[n].shape[-1]) for n in ("token_embd.weight", "blk.0.ffn_up.weight"))
    sizes = {"token_embd": (vocabulary, shape.width), "output": (vocabulary, shape.width), "output_norm": (shape.width,), "rope_freqs": (shape.head_size // 2,),
             "attn_norm": (shape.width,), "ffn_norm": (shape.width,), "attn_q_norm": (shape.head_size,), "attn_k_norm": (shape.head_size,),
             "attn_q": (rows, shape.width), "attn_k": (keys, shape.width), "attn_v": (keys, shape.width), "attn_output": (shape.width, rows),
             "ffn_gate": (inner, shape.width), "ffn_up": (inner, shape.width), "ffn_down": (shape.width, inner)}
    for name, tensor in tensors.items():
        part, kind = name.rsplit(".", 2)[-2:]
        want, have = sizes[part] if kind == "weight" else sizes[part][:1], tuple(int(n) for n in reversed(tensor.shape))
        if have != want or 0 in have:
            raise _damaged(path, f"its tensor '{name}' has the sizes {list(have)}, where {list(want)} are needed")


def _in_halves(n: int, heads: int) -> np.ndarray:
    """The order of the n rows of a Llama file's q and k, whose heads have the two parts of a complex number side by side, that puts them into a head's halves."""
    return np.arange(n).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)


def _let_go(tensor: Any) -> None:
    """The pages of a tensor that was read, of a file that is mapped: who reads them again gets them again."""
    memory, data = tensor.data, np.asarray(tensor.data)
    while isinstance(memory, np.ndarray) and not hasattr(memory, "_mmap"):
        memory = memory.base
    mapping = getattr(memory, "_mmap", None)
    if not isinstance(mapping, mmap.mmap):
        return
    begin = data.__array_interface__["data"][0] - np.frombuffer(mapping, np.uint8).__array_interface__["data"][0]
    first, end = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE, (begin + data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if 0 <= first < end <= len(mapping):
        mapping.madvise(mmap.MADV_DONTNEED, first, end - first)


def weights_of(reader: Any, shape: Shape, path: str, store: Store, dtype: torch.dtype) -> dict[str, Rows | torch.Tensor]:
    """The weights by their names, floats as `dtype`. Raises COIL-E105 for those that such a model has no place for, COIL-E013 for ones that are missing."""
    known = {"token_embd.weight", "output.weight", "output_norm.weight", "rope_freqs.weight"}
    needed = {"token_embd.weight", "output_norm.weight"}
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        needed |= {f"{block}{m}.weight" for m in (*_MATRICES, "attn_norm", "ffn_norm")}
        known |= {f"{block}attn_{c}.bias" for c in ("q", "k", "v", "output")} | {f"{block}attn_{c}_norm.weight" for c in "qk"}
    tensors = {t.name: t for t in reader.tensors}
    unknown, missing = sorted(tensors.keys() - known - needed), sorted(needed - tensors.keys())
    if unknown:
        raise _unsupported(path, f"it has a tensor '{unknown[0]}', which such a model has no place for")
    if missing:
        raise make_error(13, f"COIL-E013: '{path}' has no tensor '{missing[0]}'\n  hint: files of a model in several parts have to be joined first (llama-gguf-split --merge)")
    _check_sizes(tensors, shape, path)
    weights: dict[str, Rows | torch.Tensor] = {}
    for name, tensor in tensors.items():
        order = None
        for part, heads in (("attn_q.", shape.heads), ("attn_k.", shape.key_heads)):
            if shape.architecture == "llama" and part in name:
                order = _in_halves(int(tensor.shape[-1]), heads)
        if not readable(tensor):
            raise _unsupported(path, f"its tensor '{name}' is of the type {tensor.tensor_type.name}, which is not read", "make a file of another type with llama-quantize, for example Q8_0")
        weights[name] = value = unpacked(tensor, store, order, torch.float32 if name == "rope_freqs.weight" else dtype)
        _let_go(tensor)
        if not name.endswith(tuple(f"{m}.weight" for m in (*_MATRICES, "token_embd", "output"))) and isinstance(value, Rows):
            raise _unsupported(path, f"its vector '{name}' is quantised")
    return weights
