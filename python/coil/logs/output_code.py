"""The C++ or CUDA C++ that was generated for a program: its kernels and its host program."""

from __future__ import annotations

import logging
from typing import Mapping

log = logging.getLogger(__name__)


def show(name: str, sources: Mapping[str, str]) -> None:
    """`sources`: texts by the names of their stages."""
    if log.isEnabledFor(logging.DEBUG):
        for stage, text in sources.items():
            log.debug("%s: %s\n%s", name, stage, text.rstrip())
    else:
        log.info("%s: %d bytes of generated code (TORCH_LOGS=+coil.logs.output_code shows it)", name, sum(map(len, sources.values())))
