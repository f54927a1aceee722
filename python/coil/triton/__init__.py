"""Kernels that the user wrote in Triton, in programs that coil compiles.

`_rewrite.py` finds them in a graph and makes operators of them, `_compile.py` has Triton compile them for the targets of the package, without a GPU.
The package then runs without Triton. docs/triton.md describes it for users.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Mapping

from ._exported import decompose_exported, graphs_of, has_triton, is_launch
from ._rewrite import refuse_on_cpu, rewrite_graph

__all__ = ["has_triton", "is_launch", "prepare", "refuse_on_cpu", "rewrite_graph", "save"]


def prepare(program: Any, targets: str) -> tuple[Any, list[str]]:
    """An exported program whose Triton kernels are operators of coil's, compiled for the targets; the registrations of these as JSON."""
    if any(target.strip().partition(":")[0] == "cpu" for target in targets.split(",")):
        for graph in graphs_of(program):
            refuse_on_cpu(graph, fallback=False)
    program = decompose_exported(program)
    registrations: dict[str, None] = {}
    renamed: dict[str, str] = {}
    for graph in graphs_of(program):
        registrations.update(dict.fromkeys(rewrite_graph(graph, targets, renamed)))
    for old, new in renamed.items():
        program.graph_signature.replace_all_uses(old, new)
    program.graph_module.recompile()
    return program, list(registrations)


def save(program: Any, path: str | os.PathLike, target: str, extra_files: Mapping[str, Any] | None = None) -> None:
    """Writes an exported program as torch.export.save does, for `coil compile` with the same target: its Triton kernels are compiled, and in the file
    (extra/coil_kernels.json). No GPU is needed."""
    torch = importlib.import_module("torch")
    kernels: list[str] = []
    if has_triton(program):
        program, kernels = prepare(program, target)
    text = "[" + ",\n".join(kernels) + "]"
    torch.export.save(program, os.fspath(path), extra_files={**(extra_files or {}), "coil_kernels.json": text})
