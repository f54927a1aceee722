"""GGUF files: what they say about the model, and their weights."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
import torch

from .._errors import make_error
from ._blocks import FileParts, Rows, readable, unpacked
from ._forms import Shape, damaged, unsupported
from ._store import Store


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
        raise damaged(os.fspath(path), f"it ends too early, or what stands before its weights is wrong (it has {os.path.getsize(path)} bytes)") from None
    return reader


_VERSIONS = (2, 3)  # of the format, that the reader knows


def _check_head(path: str) -> None:
    """Raises COIL-E013 for a file that does not begin as one of a known version does."""
    with open(path, "rb") as file:
        head = file.read(8)
    if not head:
        raise damaged(path, "it is empty")
    if head[:4] != b"GGUF"[: len(head)]:
        raise make_error(13, f"COIL-E013: '{path}' is no GGUF file: it does not begin with the letters GGUF\n  hint: other files of weights are exported from PyTorch")
    if len(head) < 8:
        raise damaged(path, f"it ends after {len(head)} bytes")
    version = int.from_bytes(head[4:], "little")
    if int.from_bytes(head[4:], "big") in _VERSIONS:
        raise make_error(13, f"COIL-E013: '{path}' has its numbers in the order of another machine (big endian)\n  hint: convert it with gguf-convert-endian")
    if version not in _VERSIONS:
        raise make_error(13, f"COIL-E013: '{path}' has version {version} of the format, and {_VERSIONS[0]} and {_VERSIONS[1]} are known\n  hint: make it with a current convert_hf_to_gguf.py")


_FACTORS = ("rope_freqs", "rope_factors_long", "rope_factors_short")  # of frequencies


def _perceptron(shape: Shape, block: str, tensors: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The sizes of the matrices of a layer's perceptron, or of its mixture of them; the inner sizes are the file's."""
    def inner_of(name: str) -> int:
        return int(tensors[block + name].shape[0])

    width, gated = shape.width, shape.form.gated
    if f"{block}ffn_gate_inp.weight" not in tensors or not shape.experts:
        inner = inner_of("ffn_down.weight") if f"{block}ffn_down.weight" in tensors else 1
        doubled = gated and f"{block}ffn_gate.weight" not in tensors and f"{block}ffn_up.weight" in tensors and int(tensors[f"{block}ffn_up.weight"].shape[-1]) == 2 * inner
        sizes: dict[str, tuple[int, ...]] = {"ffn_up.weight": (2 * inner if doubled else inner, width), "ffn_down.weight": (width, inner)}
        return sizes | ({"ffn_gate.weight": (inner, width)} if gated and not doubled else {})
    inner = inner_of("ffn_down_exps.weight") if f"{block}ffn_down_exps.weight" in tensors else 1
    sizes = {"ffn_gate_inp.weight": (shape.experts, width), "ffn_down_exps.weight": (shape.experts, width, inner)}
    if f"{block}ffn_gate_up_exps.weight" in tensors:
        sizes["ffn_gate_up_exps.weight"] = (shape.experts, 2 * inner, width)
    else:
        sizes |= {"ffn_gate_exps.weight": (shape.experts, inner, width), "ffn_up_exps.weight": (shape.experts, inner, width)}
    if f"{block}ffn_down_shexp.weight" in tensors:  # one that all tokens have
        inner = inner_of("ffn_down_shexp.weight")
        sizes |= {"ffn_up_shexp.weight": (inner, width), "ffn_down_shexp.weight": (width, inner), "ffn_gate_shexp.weight": (inner, width)}
        if f"{block}ffn_gate_inp_shexp.weight" in tensors:
            sizes["ffn_gate_inp_shexp.weight"] = (width,)
    return sizes


def _layer_parts(shape: Shape, block: str, tensors: dict[str, Any]) -> tuple[dict[str, tuple[int, ...]], set[str]]:
    """The sizes of what a layer may have, without "blk.N.", and which of it has to be there."""
    rows, keys, width, form = shape.heads * shape.head_size, shape.key_heads * shape.head_size, shape.width, shape.form
    sizes: dict[str, tuple[int, ...]] = {"attn_output.weight": (width, rows), **_perceptron(shape, block, tensors)}
    fused = f"{block}attn_qkv.weight" in tensors
    sizes.update({"attn_qkv.weight": (rows + 2 * keys, width)} if fused else {f"attn_{c}.weight": (n, width) for c, n in (("q", rows), ("k", keys), ("v", keys))})
    needed = set(sizes)
    sizes.update({name.replace("weight", "bias"): size[:1] for name, size in sizes.items() if "_exps" not in name and "_inp" not in name})
    if not form.weightless:
        norms = {"attn_norm", "ffn_norm"} | ({"post_attention_norm", "post_ffw_norm"} if form.post else set())
        sizes.update({f"{n}.{kind}": (width,) for n in norms for kind in (("weight", "bias") if form.norm == "layer" else ("weight",))})
        if form.post:
            needed |= {"post_attention_norm.weight", "post_ffw_norm.weight"}
        else:
            needed |= {"attn_norm.weight"} | (set() if shape.parallel or shape.architecture == "stablelm" else {"ffn_norm.weight"})
    return sizes, needed


def _check_tensors(tensors: dict[str, Any], shape: Shape, path: str) -> None:
    """Raises COIL-E105 for the first tensor that such a model has no place for, COIL-E013 for one that is missing or has another size than the file's numbers
    say."""
    def missing(name: str) -> Exception:
        return make_error(13, f"COIL-E013: '{path}' has no tensor '{name}'\n  hint: files of a model in several parts have to be joined first (llama-gguf-split --merge)")

    if "token_embd.weight" not in tensors:
        raise missing("token_embd.weight")
    vocabulary = int(tensors["token_embd.weight"].shape[-1])
    sizes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, shape.width), "output.weight": (vocabulary, shape.width), "output.bias": (vocabulary,)}
    sizes.update({f"{name}.weight": (shape.turned_size // 2,) for name in _FACTORS})
    needed = {"token_embd.weight"}
    if not shape.form.weightless:
        sizes.update({"output_norm.weight": (shape.width,), "output_norm.bias": (shape.width,)})
        needed.add("output_norm.weight")
    if shape.form.turned == "none":
        sizes["position_embd.weight"] = (shape.context, shape.width)
        needed.add("position_embd.weight")
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        own, must = _layer_parts(shape, block, tensors)
        for part, heads in (("q", shape.heads), ("k", shape.key_heads)):  # of each head, or of all together
            name = f"attn_{part}_norm.weight"
            own[name] = (shape.head_size,) if f"{block}{name}" in tensors and int(tensors[f"{block}{name}"].shape[0]) == shape.head_size else (heads * shape.head_size,)
        sizes.update({block + name: size for name, size in own.items()})
        needed |= {block + name for name in must}
    for name in sorted(tensors.keys() - sizes.keys()):
        raise unsupported(path, f"it has a tensor '{name}', which such a model has no place for")
    for name in sorted(needed - tensors.keys()):
        raise missing(name)
    for name, tensor in tensors.items():
        have = tuple(int(n) for n in reversed(tensor.shape))
        if have != sizes[name] or 0 in have:
            raise damaged(path, f"its tensor '{name}' has the sizes {list(have)}, where {list(sizes[name])} are needed")


def _in_halves(n: int, heads: int, turned: int) -> np.ndarray:
    """The order of the n rows of q or k whose heads have the two parts of a turned pair side by side, that puts them into the halves of a head's turned part."""
    rows = np.arange(n).reshape(heads, -1)
    pairs = rows[:, :turned].reshape(heads, -1, 2).swapaxes(1, 2).reshape(heads, -1)
    return np.concatenate([pairs, rows[:, turned:]], 1).reshape(-1)


def _order_of(name: str, shape: Shape, n: int) -> np.ndarray | None:
    """The order in which a tensor's rows are read; None: as they are."""
    if not shape.form.pairs:
        return None
    for part, heads in ((".attn_q.", shape.heads), (".attn_k.", shape.key_heads)):
        if part in name:
            return _in_halves(n, heads, shape.turned_size)
    if ".attn_qkv." in name:
        rows, keys = shape.heads * shape.head_size, shape.key_heads * shape.head_size
        return np.concatenate([_in_halves(rows, shape.heads, shape.turned_size), rows + _in_halves(keys, shape.key_heads, shape.turned_size), np.arange(rows + keys, n)])
    return None


def _cut(name: str, value: Rows | torch.Tensor, shape: Shape) -> dict[str, Rows | torch.Tensor]:
    """Matrices and vectors that the file has as one, by rows."""
    rows, keys = shape.heads * shape.head_size, shape.key_heads * shape.head_size
    ends: tuple[tuple[str, int], ...] = ((name, 0),)
    count = len(value.numbers) if isinstance(value, Rows) else len(value)
    if ".attn_qkv." in name:
        ends = tuple((name.replace("attn_qkv", f"attn_{c}"), end) for c, end in (("q", rows), ("k", rows + keys), ("v", rows + 2 * keys)))
    elif ".ffn_up." in name and shape.form.gated:
        ends = ((name.replace("ffn_up", "ffn_gate"), count // 2), (name, count))
    made: dict[str, Rows | torch.Tensor] = {}
    begin = 0
    for part, end in ends:
        if isinstance(value, Rows):
            made[part] = value.cut(begin, end)
        else:
            made[part] = value[begin:end]
        begin = end
    return made


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


def weights_of(reader: Any, shape: Shape, path: str, store: Store, dtype: torch.dtype, parts: FileParts | None = None) -> dict[str, Rows | torch.Tensor]:
    """The weights by their names, floats as `dtype`. parts: for what the compiler reads itself. Raises COIL-E105 for those that such a model has no place for, COIL-E013 for ones that are missing."""
    tensors = {t.name: t for t in reader.tensors}
    _check_tensors(tensors, shape, path)
    weights: dict[str, Rows | torch.Tensor] = {}
    for name, tensor in tensors.items():
        if not readable(tensor):
            raise unsupported(path, f"its tensor '{name}' is of the type {tensor.tensor_type.name}, which is not read", "make a file of another type with llama-quantize, for example Q8_0")
        factors = name.removesuffix(".weight") in _FACTORS
        value = unpacked(tensor, store, _order_of(name, shape, int(tensor.shape[-1])), torch.float32 if factors else dtype, parts)
        _let_go(tensor)
        if isinstance(value, Rows) and (len(tensor.shape) == 1 or name == "position_embd.weight"):
            raise unsupported(path, f"its vector '{name}' is quantised")
        doubled = ".ffn_up." in name and name.replace("ffn_up", "ffn_gate") not in tensors
        weights.update(_cut(name, value, shape) if ".attn_qkv." in name or (doubled and shape.form.gated) else {name: value})
    return weights
