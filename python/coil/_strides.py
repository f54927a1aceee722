"""Inputs that lie in memory in another way than a program expects: copies that lie as it does."""

from __future__ import annotations

import importlib
from typing import Any, Callable, Sequence

from ._errors import InputError


def run_with_copies(run: Callable[[Sequence[Any]], list], flat: Sequence[Any], may_copy: Callable[[int], bool], is_written: Callable[[int], bool]) -> list:
    """Runs with copies of the inputs that an E205 complains of. Those that `may_copy` forbids, since the program writes to them, are
    left as they are, and so are those whose places in the program overlap: for them the error is raised. What `is_written` and has a lazy sign is
    computed in a copy without one, which is copied back: writing with the sign is PyTorch's."""
    inputs = [_resolved(x) if may_copy(i) or is_written(i) else x for i, x in enumerate(flat)]
    outputs = _run_copying(run, inputs, may_copy)
    for i, (given, used) in enumerate(zip(flat, inputs)):
        if used is not given and is_written(i):
            given.detach().copy_(used)
    return outputs


def _run_copying(run: Callable[[Sequence[Any]], list], inputs: list[Any], may_copy: Callable[[int], bool]) -> list:
    copied: set[int] = set()
    while True:
        try:
            return run(inputs)
        except InputError as error:
            index, strides = error.input, error.expected_strides
            if index is None or strides is None or index in copied or not may_copy(index):
                raise
            copy = _copy(inputs[index], strides)
            if copy is None:
                raise
        inputs[index] = copy
        copied.add(index)


def _resolved(value: Any) -> Any:
    """Without PyTorch's lazy signs, in the same strides, even if elements share places."""
    if not hasattr(value, "resolve_neg") or not (value.is_conj() or value.is_neg()) or not value.numel():
        return value
    reach = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride()))
    storage = value.as_strided((reach,), (1,), value.storage_offset()).resolve_conj().resolve_neg()
    return storage.as_strided(value.shape, value.stride())


def _copy(value: Any, strides: tuple[int, ...]) -> Any:
    """A copy with these strides; None when there can be none."""
    is_torch = hasattr(value, "resolve_neg")
    if _overlaps(tuple(value.shape), strides) or not (is_torch or type(value).__module__ == "numpy"):
        return None
    if is_torch:
        made = importlib.import_module("torch").empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
        return made.copy_(value.detach())
    numpy = importlib.import_module("numpy")
    reach = 1 + sum((n - 1) * s for n, s in zip(value.shape, strides)) if value.size else 0
    made = numpy.lib.stride_tricks.as_strided(numpy.empty(reach, value.dtype), value.shape, [s * value.itemsize for s in strides])
    made[...] = value
    return made


def _overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two elements may lie in one place, judged as PyTorch does: each stride is beyond what the smaller ones reach."""
    reach = 0
    for stride, size in sorted((s, n) for s, n in zip(strides, shape) if n > 1):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False
