"""A page about a model: where the time of a call goes, and why."""

from __future__ import annotations

import json
import os
import time
import weakref
from typing import Any

from . import _runtime
from ._arguments import number_of, path_of, said, text_of
from ._errors import _shown, make_error, option_error


def report_json(model: Any, args: tuple, kwargs: dict, calls: int | None, title: str | None, record: str | os.PathLike | None) -> str:
    """Measures `calls` calls after three others (None: 20, or as many as fit into two seconds, but 3 at least); the data of a report."""
    calls = None if calls is None else number_of(calls, "calls", least=1)
    if not hasattr(model, "_runtime"):
        raise option_error(f"a report is of a coil.Model, not of {said(model)}")
    tuning = (model.report or {}).get("tuning")  # what this process's compilation timed
    text = _text_of_file(record) if record is not None else json.dumps(tuning) if tuning else ""
    for _ in range(3):
        model(*args, **kwargs)
    with model.profile(all_calls=True) as profile:
        end = time.monotonic() + 2
        for number in range(calls or 20):
            if calls is None and number >= 3 and time.monotonic() > end:
                break
            model(*args, **kwargs)
            if calls is None:
                model.synchronize()
        model.synchronize()
    return _runtime.report_json(model._runtime, profile._recorded(), _shown(title or model._path or model.name), text)


def _text_of_file(record: Any) -> str:
    path = path_of(record, "record")
    try:
        with open(path, encoding="utf-8") as file:
            return text_of(file.read(), "record")
    except OSError as error:
        raise make_error(1, f"COIL-E001: cannot read the tuning record {said(path)}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise make_error(11, f"COIL-E011: the tuning record {said(path)} is not text") from None


def report(path: str | os.PathLike, models: Any, *args: Any, calls: int | None = None, record: str | os.PathLike | None = None, **kwargs: Any) -> None:
    """Writes one self-contained page (HTML, at most 2 MB) about calls of a `Model` with these arguments, or of a list of two side by side.

    It shows times of kernels beside what the machine can do, the graph, the lines of the model, memory over a call, the generated code,
    and what could be done. `calls`: how many are measured; None: 20, or as many as fit into two seconds. `record`: a tuning record, whose times of variants are shown too."""
    several = list(models) if isinstance(models, (list, tuple)) else [models]
    if not 1 <= len(several) <= 2:
        raise option_error(f"a report is of one model or two, not of {len(several)}")
    path = path_of(path, "path")
    page = _runtime.report_page([report_json(m, args, kwargs, calls, None, record) for m in several])
    _runtime.write_file(path, page.encode())


class ModelReport(dict):
    """What a compilation measured, and, called, the page of the model that it made."""

    def __init__(self, model: Any, measured: dict):
        super().__init__(measured)
        self._model = weakref.ref(model)

    def __call__(self, path: str | os.PathLike, *args: Any, calls: int | None = None, record: str | os.PathLike | None = None, **kwargs: Any) -> None:
        """Writes a page about calls with these arguments; see `coil.report`."""
        model = self._model()
        if model is None:
            raise option_error("the model of this report is gone")
        report(path, model, *args, calls=calls, record=record, **kwargs)
