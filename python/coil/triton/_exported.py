"""Triton kernels in exported programs, which hold them as operators (`torch.library.triton_op`) or as launches (`wrap_triton`)."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Iterator
from unittest import mock

from ._tracing import tracing

_LAUNCHES = ("triton_kernel_wrapper_functional", "triton_kernel_wrapper_mutation")


def is_launch(target: Any) -> bool:
    name = getattr(target, "name", None)
    return callable(name) and getattr(target, "namespace", "") == "higher_order" and name() in _LAUNCHES


def is_triton_op(target: Any) -> bool:
    """Whether it is an operator of torch.library.triton_op."""
    known = getattr(sys.modules.get("torch._library.triton"), "triton_ops_to_kernels", None)
    return bool(known) and getattr(target, "_schema", None) is not None and target._schema.name in known


def graphs_of(program: Any) -> Iterator[Any]:
    for inner in program.graph_module.modules():
        if hasattr(inner, "graph"):
            yield inner.graph


def has_triton(program: Any) -> bool:
    return any(node.op == "call_function" and (is_launch(node.target) or is_triton_op(node.target)) for graph in graphs_of(program) for node in graph.nodes)


def decompose_exported(program: Any) -> Any:
    """The program with launches of kernels in the place of operators made of them, in functional form."""
    trace = importlib.import_module("torch.export._trace")
    # PyTorch keeps such operators whole in exported programs, because their files have no form for launches.
    with tracing(), mock.patch.object(trace, "custom_triton_ops_decomposition_disabled", lambda: False):
        return program.run_decompositions({})
