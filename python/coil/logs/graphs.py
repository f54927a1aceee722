"""Graphs that Dynamo hands over: which operators become programs of coil's and which run in PyTorch, with the reason."""

from __future__ import annotations

import dataclasses
from typing import Iterable

from . import Artifact, count

artifact = Artifact(__name__)


@dataclasses.dataclass
class Row:
    """An operator of a graph."""

    node: str
    operator: str
    program: int | None
    """The number of coil's program that computes it; None: PyTorch does."""
    reason: str = ""
    """Why PyTorch does."""
    source: str = ""
    """"model.py:12": the line that it comes from."""

    def place(self) -> str:
        return f"program {self.program}" if self.program is not None else f"PyTorch: {self.reason}"


def text_of(kind: str, rows: Iterable[Row], programs: int, in_full: bool = True) -> str:
    """In full: every operator; otherwise those that run in PyTorch."""
    rows = list(rows)
    theirs = [row for row in rows if row.program is None]
    head = f"{kind} graph: {count(len(rows), 'operator')}, {count(programs, 'program')}, {count(len(theirs), 'operator')} in PyTorch"
    listed = rows if in_full else theirs
    width = [max((len(cell) for cell in column), default=0) for column in zip(*((row.node, row.operator) for row in listed))] or [0, 0]
    return "\n".join([head, *(f"  {row.node:{width[0]}}  {row.operator:{width[1]}}  {row.place()}{f'  {row.source}' if row.source else ''}" for row in listed)])


def show(kind: str, rows: Iterable[Row], programs: int) -> None:
    if artifact.wanted():
        in_full = artifact.wanted_in_full()
        artifact.write(text_of(kind, rows, programs, in_full), in_full)
