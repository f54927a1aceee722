"""The schedule of a program: its kernels in order with their statements, loops and buffers, and where memory lies."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


def show(name: str, plan: str) -> None:
    kernels = sum(line.startswith("kernel ") for line in plan.splitlines())
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s: schedule\n%s", name, plan.rstrip())
    else:
        log.info("%s: %d kernels (TORCH_LOGS=+coil.logs.schedule shows them)", name, kernels)
