"""A GGUF file to a package."""

from __future__ import annotations

import os
import warnings
from typing import Any, Mapping

import torch

from .._compile import compile as compile_programs
from .._errors import make_error
from ._blocks import FileParts
from ._forms import shape_of
from ._layers import traced_by_layer
from ._model import Decoder
from ._read import open_file, weights_of
from ._store import Store

_CONTEXT = 4096  # rows of the caches where nobody says; memory is used as rows are written


_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_gguf(path: str | os.PathLike, context: int | None = None, dtype: str = "float32", folder: str | os.PathLike | None = None) -> Decoder:
    """The model as a module: tokens [1, n] and their places [n] to logits [1, n, V], caches of `context` rows as buffers. dtype: of its floats ("float32",
    "bfloat16", "float16"). Its weights lie in the file, or in a temporary one in `folder`."""
    return _decoder(path, context, dtype, folder, None)


def _decoder(path: str | os.PathLike, context: int | None, dtype: str, folder: str | os.PathLike | None, parts: FileParts | None) -> Decoder:
    """parts: what the compiler reads of the file itself has no memory, and computes nothing in Python."""
    if dtype not in _DTYPES:
        raise make_error(402, f"COIL-E402: dtype is {dtype!r}, expected one of {', '.join(_DTYPES)}")
    reader = open_file(path)
    shape = shape_of(reader, os.fspath(path))
    rows = context or min(shape.context, _CONTEXT)
    if not 2 <= rows <= shape.context:
        raise make_error(402, f"COIL-E402: a context of {rows} tokens, and the model was trained for 2 to {shape.context}")
    weights = weights_of(reader, shape, os.fspath(path), Store(folder), _DTYPES[dtype], parts)
    return Decoder(shape, weights, rows, _DTYPES[dtype]).eval()


def programs(model: Decoder) -> dict[str, Any]:
    """The programs of any number of tokens, of single tokens, and of prompts: any number of tokens, of which the last one's logits alone are wanted."""
    n = torch.export.Dim("n", min=2, max=model.context)
    made = {}
    for name, count, dynamic in (("prefill", 3, ({1: n}, {0: n})), ("decode", 1, None), ("prefill_last", 3, ({1: n}, {0: n}))):
        model.last_only = name == "prefill_last"
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made[name] = torch.export.export(model, (torch.zeros(1, count, dtype=torch.int64), torch.arange(count)), dynamic_shapes=dynamic)
    model.last_only = False
    return made


def import_gguf(path: str | os.PathLike, output: str | os.PathLike, *, context: int | None = None, dtype: str = "float32",
                target: str | None = None, options: Mapping[str, Any] | None = None) -> str | None:
    """Compiles the model of a GGUF file to the package `output`, with a program for any number of tokens, one for single tokens and one for prompts. The path of the tokenizer.json
    that was written beside it, or None where transformers is missing or makes none of this file.

    `context`: rows of the caches; None: what the model was trained for, at most 4096. `dtype`: of floats, "float32", or "bfloat16" or "float16", with which
    weights that the file has in 16 bits stay so. Weights are taken apart tensor by tensor, into a temporary file beside the package. Raises COIL-E402 without the package gguf, COIL-E013 for
    damaged files, and COIL-E105 for models that are not built as Llama's.
    """
    folder, parts = os.path.dirname(os.path.abspath(output)), FileParts()
    made: dict[str, Any] = dict(traced_by_layer(_decoder(path, context, dtype, folder, parts), programs, parts.sources))
    compile_programs(made or programs(load_gguf(path, context, dtype, folder)), output, target=target, options=options)
    return write_tokenizer(path, output)


def write_tokenizer(path: str | os.PathLike, output: str | os.PathLike) -> str | None:
    """The file's tokenizer as a tokenizer.json beside the package."""
    if "tokenizer.ggml.tokens" not in open_file(path).fields:
        return None
    folder, name = os.path.split(os.path.abspath(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from transformers import AutoTokenizer

            tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name, local_files_only=True)
            backend = tokenizer.backend_tokenizer
    except Exception:  # noqa: BLE001 - no transformers, or no tokenizer in the file: the package takes tokens all the same
        return None
    base = os.fspath(output)
    for suffix in (".pt2", ".coil"):
        base = base.removesuffix(suffix)
    backend.save(f"{base}.tokenizer.json")
    return f"{base}.tokenizer.json"
