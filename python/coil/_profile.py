"""Times of calls, kernel by kernel."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from . import _runtime
from ._arguments import flag_of, number_of, path_of
from ._errors import option_error


class Profile:
    """The times of calls, kernel by kernel, of a model or of all models of the process.

        with model.profile() as p:
            model(x)
        p.save("trace.json")                 # for ui.perfetto.dev
        for k in p.kernels():
            print(k["name"], k["us"], k.get("gflop_s"))

    What is computed stays the same. Of many very short calls some are left out after the first ones, so that all together take no more
    than 2 % longer; `all_calls` records each. On CUDA a recorded call enqueues its kernels one by one, and is waited for with
    `all_calls` only; one that is captured in a CUDA graph is left out.
    """

    def __init__(self, model: "_runtime.Model | None" = None, calls: int = 0, counters: bool = False, all_calls: bool = False):
        self._model, self._calls, self._counters, self._all_calls = model, calls, counters, all_calls
        self._profile: _runtime.Profile | None = None

    def start(self) -> "Profile":
        """Begins anew; what was recorded before is forgotten."""
        self._profile = _runtime.start_profile(self._model, self._calls, self._counters, self._all_calls)
        return self

    def stop(self) -> None:
        """Calls that begin from now on are not recorded."""
        self._recorded().stop()

    def __enter__(self) -> "Profile":
        return self.start()

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def _recorded(self) -> "_runtime.Profile":
        if self._profile is None:
            raise option_error("the profile was not started", "use it in a `with` statement, or call its start()")
        return self._profile

    @property
    def num_calls(self) -> int:
        """Calls recorded so far."""
        return self._recorded().num_calls

    def save(self, path: str | os.PathLike) -> None:
        """Writes a trace in the Chrome format, which ui.perfetto.dev shows."""
        self._recorded().write(path_of(path, "path"))

    def report(self, path: str | os.PathLike) -> None:
        """Writes a page about the models that were called, those of `torch.compile` too: times, graph, memory, code; see `coil.report`."""
        reports = [_with_note(key, text) for key, text in self._recorded().reports()]
        if not reports:
            raise option_error("no call was recorded, or the models that were called are gone", "call a model before the profile ends, and keep it")
        _runtime.write_file(path_of(path, "path"), _runtime.report_page(reports).encode())

    def summary(self) -> dict:
        """All sums: {"models": [{"model", "calls", "call_us", "host_us", "kernels": [...]}]}; docs/profiling.md lists the keys."""
        return json.loads(self._recorded().table())

    def kernels(self) -> list[dict]:
        """The kernels of all models that ran, the busiest of each first: "name", "us" of a call, "share", "gb_s", "gflop_s", ..."""
        return [kernel for model in self.summary()["models"] for kernel in model["kernels"]]


def _with_note(key: int, text: str) -> str:
    """What torch.compile knows of one of its programs, beside what the package does."""
    notes = sys.modules.get("coil.dynamo._notes")
    note = notes.note_of(key) if notes else None
    if note is None:
        return text
    return json.dumps(json.loads(text) | {"title": note.title, "graph": note.graph})


def profile(*, calls: int = 0, counters: bool = False, all_calls: bool = False) -> Profile:
    """The calls of all models of this process, those that `torch.compile(backend="coil")` makes too. `calls`: no more than so many."""
    return Profile(None, number_of(calls, "calls"), flag_of(counters, "counters"), flag_of(all_calls, "all_calls"))
