"""Where a file's weights lie once they are taken apart: in the file itself, or in a temporary one, tensor by tensor, so that they take none of the memory that the
system could not take back."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Callable, Sequence

import numpy as np

from .._errors import make_error

_PAGE = 1 << 16   # of all systems
_SMALL = 1 << 16  # bytes that are kept in memory
_CHUNK = 1 << 20  # bytes of the file that are taken apart at a time


class Store:
    """Arrays of any size. `folder`: where the temporary file is made, which has no name and is gone with the arrays; None: where the system has such files."""

    def __init__(self, folder: str | os.PathLike | None = None):
        self._folder = os.fspath(folder or tempfile.gettempdir())
        try:
            self._file = tempfile.TemporaryFile(dir=self._folder)
        except OSError as error:
            raise self._unwritable(error) from None
        self._end = 0
        self.scratch: dict[Any, Any] = {}  # what is made of some rows of one tensor after the other: much of such memory, freed, would not go back to the system

    def empty(self, shape: Sequence[int], dtype: Any) -> "WrittenRows":
        return WrittenRows(self, tuple(shape), np.dtype(dtype))

    def _unwritable(self, error: OSError) -> Exception:
        return make_error(3, f"COIL-E003: a temporary file for the weights in '{self._folder}' cannot be written: {error.strerror}\n  hint: it takes up to six times the "
                             "model's file; write the package where there is room")

    def write(self, at: int, data: memoryview) -> None:
        try:
            while data:
                done = os.pwrite(self._file.fileno(), data, at)
                at, data = at + done, data[done:]
        except OSError as error:
            raise self._unwritable(error) from None

    def _take(self, size: int) -> int:
        at = self._end
        self._end += -(-size // _PAGE) * _PAGE
        return at


class WrittenRows:
    """An array that is written row by row, first to last, and read when it is whole."""

    def __init__(self, store: Store, shape: tuple[int, ...], dtype: np.dtype):
        self._store, self._shape, self._dtype = store, shape, dtype
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._own: list[np.ndarray] | None = [] if size <= _SMALL else None
        self._begin = self._at = 0 if self._own is not None else store._take(size)

    def add(self, rows: np.ndarray) -> None:
        if self._own is not None:
            self._own.append(np.array(rows, self._dtype))  # the next rows may come in the same memory
            return
        rows = np.ascontiguousarray(rows, self._dtype)
        self._store.write(self._at, memoryview(rows).cast("B"))
        self._at += rows.nbytes

    def whole(self) -> np.ndarray:
        if self._own is not None:
            return np.concatenate(self._own).reshape(self._shape) if self._own else np.zeros(self._shape, self._dtype)
        return np.memmap(self._store._file, self._dtype, "r", self._begin, self._shape)


def by_rows(data: np.ndarray, order: np.ndarray | None, take: Callable[[np.ndarray], Sequence[np.ndarray | None]], store: Store) -> list[np.ndarray | None]:
    """The arrays that `take` makes of rows of data, put together, a few rows at a time. order: of the rows; None: as they are."""
    count, step = len(data), max(1, _CHUNK // max(data[0].nbytes, 1))
    made: list[WrittenRows | None] = []
    for begin in range(0, count, step):
        parts = take(data[begin : begin + step] if order is None else data[order[begin : begin + step]])
        if begin == 0:
            made = [None if p is None else store.empty((count, *p.shape[1:]), p.dtype) for p in parts]
        for rows, part in zip(made, parts):
            if rows is not None and part is not None:
                rows.add(part)
    return [None if rows is None else rows.whole() for rows in made]
