"""What a report of torch.compile's programs says beyond their packages: the graph that a program is a part of, and what of it stays in PyTorch."""

from __future__ import annotations

import dataclasses
import weakref
from typing import Any, Iterable

from ..logs.graphs import Row


@dataclasses.dataclass
class Note:
    title: str
    """"forward graph 0/1, program 1 of 2": compilation 1 of frame 0, as PyTorch's logs count them."""
    graph: dict
    """{"kind", "operators", "in_torch": [{"node", "operator", "reason", "source"}]}"""


_notes: "weakref.WeakKeyDictionary[Any, Note]" = weakref.WeakKeyDictionary()


def note_graph(kind: str, compile_id: str, models: Iterable[Any], rows: Iterable[Row]) -> None:
    """`models`: of the graph's programs, in order. One that several graphs share is of the last of them."""
    models, rows = list(models), list(rows)
    theirs = [{"node": row.node, "operator": row.operator, "reason": row.reason, "source": row.source} for row in rows if row.program is None and row.reason]
    graph = {"kind": kind, "operators": len(rows), "in_torch": theirs}
    name = f"{kind} graph {compile_id}".rstrip()
    for number, model in enumerate(models):
        _notes[model] = Note(name if len(models) == 1 else f"{name}, program {number + 1} of {len(models)}", graph)


def note_of(key: int) -> Note | None:
    """Of the model that `model.key` identifies."""
    return next((note for model, note in list(_notes.items()) if model.key == key), None)
