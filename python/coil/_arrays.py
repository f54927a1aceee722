"""Memory for results that are not torch tensors."""

from __future__ import annotations

import importlib
from typing import Any

DTYPES = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 8: "complex32", 9: "complex64",
          10: "complex128", 11: "bool", 15: "bfloat16", 27: "uint16", 28: "uint32", 29: "uint64", 23: "float8_e5m2", 24: "float8_e4m3fn", 25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz",
          44: "float8_e8m0fnu"}


def numpy_dtype(number: int) -> Any:
    """The dtype of results, by the runtime's number."""
    numpy = importlib.import_module("numpy")
    name = DTYPES[number]
    if name != "bfloat16" and not name.startswith("float8"):
        return numpy.dtype(name)
    try:
        return numpy.dtype(getattr(importlib.import_module("ml_dtypes"), name))
    except ImportError:
        raise TypeError(f"a result is {name}, which NumPy has only with the package ml_dtypes; install it, or pass torch tensors") from None


def empty_numpy(sizes: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Any:
    """An array with these strides, which are some order of dense dimensions."""
    numpy = importlib.import_module("numpy")
    order = sorted(range(len(sizes)), key=lambda d: (-strides[d], -sizes[d]))
    array = numpy.empty([sizes[d] for d in order], dtype)
    return array.transpose([order.index(d) for d in range(len(sizes))])


def empty_like(like: Any, sizes: tuple[int, ...], strides: tuple[int, ...], dtype: int, on_cuda: bool) -> Any:
    """An array of the library that `like` comes from, for the results of a call."""
    library = namespace_of(like)
    if not on_cuda:
        return library.from_dlpack(empty_numpy(sizes, strides, numpy_dtype(dtype)))
    order = sorted(range(len(sizes)), key=lambda d: (-strides[d], -sizes[d]))
    array = library.empty(tuple(sizes[d] for d in order), dtype=getattr(library, DTYPES[dtype]))
    return array.transpose(tuple(order.index(d) for d in range(len(sizes)))) if sizes else array


def namespace_of(array: Any) -> Any:
    """The library of an array: what its standard method says, else the module of its type."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    for name in (type(array).__module__.split(".")[0], "numpy"):
        module = importlib.import_module(name)
        if hasattr(module, "from_dlpack"):
            return module
    raise TypeError(f"{type(array)} comes from a library without from_dlpack")
