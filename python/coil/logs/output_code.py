"""The C++ or CUDA C++ that was generated for a program: its kernels and its host program."""

from __future__ import annotations

from typing import Mapping

from . import Artifact

artifact = Artifact(__name__, stock=True)


def show(name: str, sources: Mapping[str, str]) -> None:
    """`sources`: texts by the names of their stages."""
    if artifact.wanted_in_full():
        for stage, text in sources.items():
            artifact.write(f"{name}: {stage}\n{text.rstrip()}", in_full=True)
    elif artifact.wanted():
        artifact.write(f"{name}: {sum(map(len, sources.values()))} bytes of generated code (TORCH_LOGS=+coil.logs.output_code shows it)")
