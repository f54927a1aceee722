"""Tracing programs with Triton kernels on machines without a GPU."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any, Iterator

CAPABILITY = 90  # of the device that is not there: PyTorch asks when it looks for what a kernel writes to


class _NoDevice:
    """A driver that Triton can ask what it compiles for, and no more. PyTorch compiles each kernel to Triton's IR to learn which arguments it writes to."""

    def get_current_target(self) -> Any:
        return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", CAPABILITY, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_benchmarker(self) -> Any:
        return lambda *args, **kwargs: [0.0]

    def get_device_interface(self) -> Any:
        return importlib.import_module("torch").cuda

    def get_active_torch_device(self) -> Any:
        return importlib.import_module("torch").device("cuda", 0)


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Where PyTorch traces Triton kernels; a driver stands in where there is none."""
    driver = importlib.import_module("triton.runtime").driver
    try:
        driver.active.get_current_target()
        there = True
    except Exception:  # noqa: BLE001 - whatever the drivers say
        there = False
    if there:
        yield
        return
    before = getattr(driver, "_active", None)
    driver.set_active(_NoDevice())
    try:
        yield
    finally:
        driver._active = before
