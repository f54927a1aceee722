"""Timing of calls: warmed up, repeated, as quantiles."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, Sequence

from ._arguments import listed, said
from ._errors import option_error

_LONGEST = 86_400_000  # milliseconds: a day
_STATISTICS = ("median", "mean", "min", "max", "all")


def do_bench(function: Callable[[], Any], *, warmup: float = 25, rep: float = 100, quantiles: Sequence[float] | None = None, return_mode: str = "median",
             synchronize: Callable[[], Any] | None = None) -> float | list[float]:
    """Milliseconds that a call of `function` takes.

    `warmup`, `rep`: milliseconds to spend before and on the measurement; at least one and three calls. `quantiles`: a list of
    numbers in [0, 1]; the answer is then a list of the like length, otherwise `return_mode` says which number it is: "median", "mean", "min",
    "max", or "all" of them as a list in order. `synchronize`: waits for what a call enqueued; None: torch.cuda.synchronize if PyTorch is loaded and uses CUDA.
    Calls shorter than 20 microseconds are timed several at a time, since reading the clock takes a part of that.
    """
    if return_mode not in _STATISTICS:
        raise option_error(f"'return_mode' is {said(return_mode)}", ", ".join(_STATISTICS))
    if not callable(function) or not (synchronize is None or callable(synchronize)):
        raise option_error(f"'function' and 'synchronize' are called, got {said(function)} and {said(synchronize)}")
    quantiles = None if quantiles is None else [_number(q, "quantiles", 1) for q in listed(quantiles, "quantiles")]
    warmup, rep = _number(warmup, "warmup", _LONGEST), _number(rep, "rep", _LONGEST)
    wait = synchronize or _waiter()
    once = _spend(function, wait, warmup / 1e3, 1, 1)[-1]
    times = sorted(t * 1e3 for t in _spend(function, wait, rep / 1e3, 3, max(1, int(20e-6 / max(once, 1e-9)))))
    if quantiles is not None:
        return [_quantile(times, q) for q in quantiles]
    if return_mode == "all":
        return times
    return {"median": _quantile(times, 0.5), "mean": sum(times) / len(times), "min": times[0], "max": times[-1]}[return_mode]


def _number(value: Any, argument: str, most: float) -> float:
    if isinstance(value, (bool, str, bytes)) or not (hasattr(type(value), "__float__") or hasattr(type(value), "__index__")) or not 0 <= float(value) <= most:
        raise option_error(f"'{argument}' is {said(value)}", f"a number from 0 to {most}")
    return float(value)


def _spend(function: Callable[[], Any], wait: Callable[[], Any], seconds: float, fewest: int, batch: int) -> list[float]:
    """Seconds a call, of as many batches as fit."""
    times: list[float] = []
    wait()
    end = time.perf_counter() + seconds
    while len(times) < fewest or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(batch):
            function()
        wait()
        times.append((time.perf_counter() - start) / batch)
    return times


def _waiter() -> Callable[[], Any]:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.synchronize
    return lambda: None


def _quantile(times: list[float], q: float) -> float:
    """Between the neighbours, as numpy.quantile."""
    at = q * (len(times) - 1)
    low = int(at)
    high = min(low + 1, len(times) - 1)
    return times[low] + (times[high] - times[low]) * (at - low)
