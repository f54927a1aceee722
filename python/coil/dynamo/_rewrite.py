"""Graphs made easier to split before they are."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from ._places import origin_of
from ._split import STRIDED, base_of, is_view, tensors_of, writes_input

aten = torch.ops.aten


def separate_gradients(graph: Graph) -> None:
    """Results that are views of one memory become memory of their own, but for one of them. A parameter keeps the gradient that it is
    given, as it is: what is then done to one gradient in place (clipping) must not be done to another."""
    output = next(n for n in graph.nodes if n.op == "output")
    groups: dict[Node, dict[Node, None]] = {}
    for node in output.all_input_nodes:
        if isinstance(node.meta.get("val"), torch.Tensor):
            groups.setdefault(_memory_of(node), {})[node] = None
    copies: dict[Node, Node] = {}
    for sharing in groups.values():
        for node in list(sharing)[1:]:
            with graph.inserting_before(output):
                copy = copies[node] = graph.call_function(aten.clone.default, (node,))
            copy.meta.update(origin_of(node), val=aten.clone.default(node.meta["val"]))
    if copies:
        output.args = torch.fx.map_arg(output.args, lambda n: copies.get(n, n))


def _memory_of(node: Node) -> Node:
    """The node whose memory a node's value lies in."""
    while True:
        operator_ = node.args[0] if node.target is operator.getitem else node
        target = operator_.target
        returned = target._schema.returns if isinstance(target, torch._ops.OpOverload) else ()
        if not returned or returned[0].alias_info is None or not operator_.args or not isinstance(operator_.args[0], Node):
            return node
        node = operator_.args[0]


_UNWRITTEN = {aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default, aten.empty_permuted.default, aten.new_empty.default,
              aten.new_empty_strided.default}


def fill_unwritten(graph: Graph) -> None:
    """Memory that nobody has written holds what eager fills it with where algorithms are to be deterministic: NaN, or the largest integer."""
    if not (torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory):  # type: ignore[attr-defined]
        return
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.target not in _UNWRITTEN or value.layout != torch.strided:
            continue
        with graph.inserting_after(node):
            filled = graph.call_function(aten.fill.Scalar, (node, _unwritten(value.dtype)))
        filled.meta.update(origin_of(node), val=value)
        node.replace_all_uses_with(filled, delete_user_cb=lambda user, filled=filled: user is not filled)


def _unwritten(dtype: torch.dtype) -> float | int | bool:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype == torch.bool else torch.iinfo(dtype).max


def return_written_inputs(graph: Graph) -> None:
    """Where the result of a write to an input is a result of the graph (`out=`), that is the input itself."""
    output = next(n for n in graph.nodes if n.op == "output")
    written = {node: node.args[0] for node in output.all_input_nodes if writes_input(node)}
    if written:
        output.args = torch.fx.map_arg(output.args, lambda n: written.get(n, n))


def read_whole_storages(graph: Graph) -> None:
    """as_strided of a view sees the storage that the view is in: it becomes as_strided of what was computed into that storage."""
    for node in graph.nodes:
        if node.target not in (aten.as_strided.default, aten.as_strided_copy.default):
            continue
        source = node.args[0]
        base = base_of(source)
        while base.target is aten.as_strided.default:
            base = base_of(base.args[0])  # type: ignore[arg-type]
        if base is source or base.op != "call_function" or not isinstance(base.meta.get("val"), torch.Tensor):
            continue
        given = node.args[3] if len(node.args) > 3 else node.kwargs.get("storage_offset")
        offset = source.meta["val"].storage_offset() if given is None else given
        if isinstance(offset, (int, Node)):
            node.args = (base, node.args[1], node.args[2], offset)
            node.kwargs = {}


def close_gaps(graph: Graph) -> None:
    """Results that would lie in memory with gaps (a copy of what a slice holds) lie there without, where only operators read them: these read
    elements, not memory."""
    closed: set[Node] = set()
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op != "call_function":
            continue
        if is_view(node):
            if node.args[0] in closed:
                _trace_anew(node)
                closed.add(node)
        elif isinstance(value, torch.Tensor) and value.layout == torch.strided and not torch._prims_common.is_non_overlapping_and_dense_or_false(value) \
                and isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.is_mutable and all(_reads_elements(reader, node) for reader in _readers(node)):
            node.meta["val"] = torch.empty_like(value)
            closed.add(node)


def _readers(node: Node) -> list[Node]:
    """Those of a value and of its views, and the views that are lists."""
    return [reader for user in node.users for reader in (_readers(user) if is_view(user) else [user])]


def _reads_elements(reader: Node, value: Node) -> bool:
    """Whether it does not matter to the reader how the value lies in memory."""
    if reader.op != "call_function" or not isinstance(reader.target, torch._ops.OpOverload) or reader.target is aten.view.dtype:
        return False
    return reader.target not in STRIDED or base_of(reader.args[0]) is not value  # type: ignore[arg-type]


def _trace_anew(view: Node) -> None:
    with next(tensors_of(view.args[0].meta["val"])).fake_mode:  # type: ignore[union-attr, attr-defined]
        arguments = torch.fx.map_arg((view.args, view.kwargs), lambda n: n.meta["val"])
        view.meta["val"] = view.target(*arguments[0], **arguments[1])  # type: ignore[operator]
