"""What in a program costs speed and could be otherwise: the shapes that kernels dislike. (Operators that stay in PyTorch: the artifact graphs.)"""

from __future__ import annotations

from typing import Iterable

from . import Artifact

artifact = Artifact(__name__, stock=True)


def show(name: str, hints: Iterable[str]) -> None:
    if artifact.wanted():
        for hint in hints:
            artifact.write(f"{name}: {hint}")
