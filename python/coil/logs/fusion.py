"""Which operators share a kernel, and what was not fused, with the reason that the scheduler had."""

from __future__ import annotations

import collections

from . import Artifact, count

artifact = Artifact(__name__, stock=True)
_NOT_FUSED = "not fused: "


def show(name: str, plan: str) -> None:
    """`plan`: the text of a schedule."""
    if not artifact.wanted():
        return
    kernels = collections.Counter(line[len("kernel "):].strip() for line in plan.splitlines() if line.startswith("kernel "))
    apart = collections.Counter(line[len(_NOT_FUSED):] for line in plan.splitlines() if line.startswith(_NOT_FUSED))
    lines = [f"  {times} x {kernel}" for kernel, times in kernels.items()] + [f"  not fused, {times} x: {row}" for row, times in apart.items()]
    artifact.write("\n".join([f"{name}: {count(kernels.total(), 'kernel')}", *lines]))
