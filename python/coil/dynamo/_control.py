"""Operators that have graphs as arguments: branches and loops."""

from __future__ import annotations

import operator
from typing import Any, Callable, Iterator

import torch
from torch.fx import GraphModule, Node

# Those that the compiler takes, by the names that a `.pt2` has for them.
_KNOWN = {"cond", "while_loop", "scan", "associative_scan", "map_impl"}


def is_control(node: Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, torch._ops.HigherOrderOperator) and node.target.name() in _KNOWN


def graph_behind(node: Any) -> GraphModule | None:
    """The graph that a node stands for."""
    if not isinstance(node, Node) or node.op != "get_attr":
        return None
    owner = node.graph.owning_module
    found = getattr(owner, str(node.target), None) if owner is not None else None
    return found if isinstance(found, GraphModule) else None


def inner_graphs(node: Node) -> Iterator[GraphModule]:
    for argument in node.args:
        graph = graph_behind(argument)
        if graph is not None:
            yield graph


def inner_nodes(node: Node) -> Iterator[Node]:
    """The operators inside of a control operator's graphs, and inside of theirs."""
    for graph in inner_graphs(node):
        for inner in graph.graph.nodes:
            if inner.op == "call_function" and inner.target is not operator.getitem:
                yield inner
                if is_control(inner):
                    yield from inner_nodes(inner)


def control_reason(node: Node, reason_of: Callable[[Node], str | None]) -> str | None:
    """Why a control operator stays in PyTorch: for the sake of something inside of it."""
    for inner in inner_nodes(node):
        if is_control(inner):
            continue
        reason = reason_of(inner)
        if reason:
            return f"of {inner.target} inside of it: {reason}"
    return None
