"""GGUF files: what they say about the model, and their weights."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .._errors import make_error
from ._blocks import Rows, unpacked
from ._model import Shape

_ARCHITECTURES = ("llama", "qwen2", "qwen3")
_MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


def _unsupported(path: str, what: str) -> Exception:
    return make_error(105, f"COIL-E105: '{path}': {what}\n  hint: import-gguf reads decoders that are built as Llama's: {', '.join(_ARCHITECTURES)}; export others from PyTorch")


def open_file(path: str | os.PathLike) -> Any:
    """The reader of PyPI's gguf. Raises COIL-E402 without it, COIL-E001 and COIL-E013 for files that are none."""
    try:
        import gguf
    except ImportError:
        raise make_error(402, "COIL-E402: reading GGUF files needs the Python package gguf\n  hint: pip install gguf") from None
    if not os.path.isfile(path):
        raise make_error(1, f"COIL-E001: there is no file '{os.fspath(path)}'")
    try:
        return gguf.GGUFReader(path)
    except Exception as error:  # noqa: BLE001 - the reader ends with whatever its arrays say of a damaged file
        raise make_error(13, f"COIL-E013: '{os.fspath(path)}' is no GGUF file that can be read: {type(error).__name__}: {error}\n  hint: download it again") from None


def shape_of(reader: Any, path: str) -> Shape:
    def field(name: str, default: Any = None) -> Any:
        found = reader.fields.get(name)
        value = default if found is None else found.contents()
        if value is None:
            raise make_error(13, f"COIL-E013: '{path}' does not say its {name}\n  hint: make it with a current convert_hf_to_gguf.py")
        return value

    arch = field("general.architecture")
    if arch not in _ARCHITECTURES:
        raise _unsupported(path, f"its architecture is '{arch}'")
    if field(f"{arch}.expert_count", 0):
        raise _unsupported(path, "it is a mixture of experts")
    width, heads = int(field(f"{arch}.embedding_length")), field(f"{arch}.attention.head_count")
    key_heads = field(f"{arch}.attention.head_count_kv", heads)
    if not all(isinstance(n, int) for n in (heads, key_heads)):
        raise _unsupported(path, "its layers have different numbers of heads")
    size = int(field(f"{arch}.attention.key_length", width // heads))
    if int(field(f"{arch}.rope.dimension_count", size)) != size or int(field(f"{arch}.attention.value_length", size)) != size:
        raise _unsupported(path, "only a part of each head is turned by its place, or values have another size than keys")
    scaling = field(f"{arch}.rope.scaling.type", "none")
    if scaling not in ("none", "linear"):
        raise _unsupported(path, f"its rotary embedding is scaled by '{scaling}'")
    scale = float(field(f"{arch}.rope.scaling.factor", 1.0)) if scaling == "linear" else 1.0
    return Shape(arch, int(field(f"{arch}.block_count")), width, heads, key_heads, size, float(field(f"{arch}.attention.layer_norm_rms_epsilon")),
                 float(field(f"{arch}.rope.freq_base", 10000.0)), scale, int(field(f"{arch}.context_length", 4096)))


def _in_halves(value: Rows | np.ndarray, heads: int) -> Rows | np.ndarray:
    """Rows of a Llama file's q and k, whose heads have the two parts of a complex number side by side, with the parts in the two halves of a head."""
    n = value.numbers.shape[0] if isinstance(value, Rows) else value.shape[0]
    order = np.arange(n).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)
    return value.reordered(order) if isinstance(value, Rows) else np.ascontiguousarray(value[order])


def weights_of(reader: Any, shape: Shape, path: str) -> dict[str, Rows | np.ndarray]:
    """The weights by their names. Raises COIL-E105 for those that such a model has no place for, COIL-E013 for ones that are missing."""
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
    weights = {name: unpacked(tensor) for name, tensor in tensors.items()}
    for name, value in weights.items():
        for part, heads in (("attn_q.", shape.heads), ("attn_k.", shape.key_heads)):
            if shape.architecture == "llama" and part in name:
                weights[name] = _in_halves(value, heads)
        if not name.endswith(tuple(f"{m}.weight" for m in (*_MATRICES, "token_embd", "output"))) and isinstance(value, Rows):
            raise _unsupported(path, f"its vector '{name}' is quantised")
    return weights
