"""The schedule of a program: its kernels in order with their statements, loops and buffers, and where memory lies."""

from __future__ import annotations

from . import Artifact, count

artifact = Artifact(__name__, stock=True)


def show(name: str, plan: str) -> None:
    if artifact.wanted_in_full():
        artifact.write(f"{name}: schedule\n{plan.rstrip()}", in_full=True)
    elif artifact.wanted():
        kernels = sum(line.startswith("kernel ") for line in plan.splitlines())
        artifact.write(f"{name}: {count(kernels, 'kernel')} (TORCH_LOGS=+coil.logs.schedule shows them)")
