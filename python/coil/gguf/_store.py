"""Where a file's weights lie once they are taken apart: in the file itself, or in a temporary one, tensor by tensor, so that they take none of the memory that the
system could not take back."""

from __future__ import annotations

import concurrent.futures
import os
import tempfile
import threading
from typing import Any, Callable, Sequence

import numpy as np

from .._errors import make_error

_PAGE = 1 << 16   # of all systems
_SMALL = 1 << 16  # bytes that are kept in memory
_CHUNK = 1 << 20  # bytes of the file that a thread takes apart at a time
_THREADS = 4      # at most: each has some such chunks in memory


class Store:
    """Arrays of any size. `folder`: where the temporary file is made, which has no name and is gone with the arrays; None: where the system has such files."""

    def __init__(self, folder: str | os.PathLike | None = None):
        self._folder = os.fspath(folder or tempfile.gettempdir())
        try:
            self._file = tempfile.TemporaryFile(dir=self._folder)
        except OSError as error:
            raise self._unwritable(error) from None
        self._end = 0
        self._own = threading.local()
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None

    @property
    def scratch(self) -> dict[Any, Any]:
        """A thread's memory for some rows of one tensor after the other: much of such memory, freed, would not go back to the system."""
        if not hasattr(self._own, "scratch"):
            self._own.scratch = {}
        return self._own.scratch

    def each(self, work: Callable[[int], None], places: range) -> None:
        """Calls work for all places, on several threads: NumPy computes, and files are written, without Python's lock."""
        count = min(_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
        if count == 1 or len(places) < 2:
            for place in places:
                work(place)
            return
        if self._threads is None:
            self._threads = concurrent.futures.ThreadPoolExecutor(count, "coil.gguf")
        for _ in self._threads.map(work, places):  # raises what one of them raised
            pass

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
    """An array that is written some rows at a time, in any order, and read when it is whole."""

    def __init__(self, store: Store, shape: tuple[int, ...], dtype: np.dtype):
        self._store, self._shape, self._dtype = store, shape, dtype
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self._own = np.zeros(shape, dtype) if size <= _SMALL else None
        self._begin = 0 if self._own is not None else store._take(size)

    def put(self, first: int, rows: np.ndarray) -> None:
        """Rows from `first` on."""
        if self._own is not None:
            self._own[first : first + len(rows)] = rows
        elif len(rows) > 0:
            rows = np.ascontiguousarray(rows, self._dtype)
            self._store.write(self._begin + first * rows[0].nbytes, memoryview(rows).cast("B"))

    def whole(self) -> np.ndarray:
        if self._own is not None:
            return self._own
        return np.memmap(self._store._file, self._dtype, "r", self._begin, self._shape)


def by_rows(data: np.ndarray, order: np.ndarray | None, take: Callable[[np.ndarray], Sequence[np.ndarray | None]], store: Store) -> list[np.ndarray | None]:
    """The arrays that `take` makes of rows of data, put together, a few rows at a time. order: of the rows; None: as they are."""
    count, step = len(data), max(1, _CHUNK // max(data[0].nbytes, 1))
    made: list[WrittenRows | None] = []

    def some(begin: int) -> None:
        parts = take(data[begin : begin + step] if order is None else data[order[begin : begin + step]])
        if begin == 0:
            made.extend(None if p is None else store.empty((count, *p.shape[1:]), p.dtype) for p in parts)
        for rows, part in zip(made, parts):
            if rows is not None and part is not None:
                rows.put(begin, part)

    if count > 0:
        some(0)
    store.each(some, range(step, count, step))
    return [None if rows is None else rows.whole() for rows in made]
