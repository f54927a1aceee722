"""What in a program costs speed and could be otherwise: the shapes that kernels dislike. (Operators that stay in PyTorch: the artifact graphs.)"""

from __future__ import annotations

import logging
from typing import Iterable

log = logging.getLogger(__name__)


def show(name: str, hints: Iterable[str]) -> None:
    for hint in hints:
        log.info("%s: %s", name, hint)
