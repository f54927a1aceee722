"""Graphs that Dynamo hands over: which operators become programs of coil's and which run in PyTorch, with the reason."""

from __future__ import annotations

import logging
from typing import Any, Iterable, Mapping

log = logging.getLogger(__name__)


def show(kind: str, rows: Iterable[tuple[str, str, str]], programs: int, reasons: Mapping[Any, str]) -> str:
    """`rows`: (node, operator, place) of each operator, where the place is "program 0" or "PyTorch: reason". Returns the text."""
    rows = list(rows)
    head = f"{kind} graph: {len(rows)} operators, {programs} programs, {len(reasons)} operators in PyTorch"
    width = max((len(name) for name, _, _ in rows), default=0)
    text = "\n".join([head, *(f"  {name:{width}}  {operator}  {place}" for name, operator, place in rows)])
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s", text)
    else:
        in_torch = "".join(f"\n  {name}: {operator}: {place}" for name, operator, place in rows if place.startswith("PyTorch"))
        log.info("%s%s", head, in_torch)
    return text
