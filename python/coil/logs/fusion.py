"""Which operators share a kernel, and what was not fused, with the reason that the scheduler had."""

from __future__ import annotations

import collections
import logging

log = logging.getLogger(__name__)
_NOT_FUSED = "not fused: "


def show(name: str, plan: str) -> None:
    """`plan`: the text of a schedule."""
    if not log.isEnabledFor(logging.INFO):
        return
    kernels = collections.Counter(line[len("kernel "):].strip() for line in plan.splitlines() if line.startswith("kernel "))
    apart = collections.Counter(line[len(_NOT_FUSED):] for line in plan.splitlines() if line.startswith(_NOT_FUSED))
    lines = [f"  {count} x {kernel}" for kernel, count in kernels.items()] + [f"  not fused, {count} x: {row}" for row, count in apart.items()]
    log.info("%s: %d kernels\n%s", name, kernels.total(), "\n".join(lines))
