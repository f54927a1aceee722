"""Graphs made easier to split before they are."""

from __future__ import annotations

import operator
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node

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
            copy.meta.update(val=aten.clone.default(node.meta["val"]), stack_trace=node.meta.get("stack_trace"))
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


def draw_masks_first(graph: Graph, sizes: dict[sympy.Symbol, tuple[Node, int | None]]) -> None:
    """Dropout as a mask times a number. PyTorch draws the mask, from a tensor that is only like the input: so it can draw it before
    the input is known, in the order and the layout in which eager draws it, and coil's program is not cut in two."""
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not aten.native_dropout.default:
            continue
        x, p, train = node.args
        value = x.meta["val"]
        like = None if train is False or not 0 < p < 1 or value.layout != torch.strided else _empty_like(graph, node, value, sizes)
        if like is None:
            continue
        parts = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        with graph.inserting_before(node):
            drawn = graph.call_function(aten.native_dropout.default, (like, p, True))
            drawn.meta["val"] = node.meta["val"]
            mask = graph.call_function(operator.getitem, (drawn, 1))
            mask.meta["val"] = node.meta["val"][1]
            kept = graph.call_function(aten.mul.Tensor, (x, mask))
            scaled = graph.call_function(aten.mul.Tensor, (kept, 1.0 / (1.0 - p)))
            for product in (kept, scaled):
                product.meta.update(val=node.meta["val"][0], stack_trace=node.meta.get("stack_trace"))
        for index, result in ((0, scaled), (1, mask)):
            if index in parts:
                parts[index].replace_all_uses_with(result)
                graph.erase_node(parts[index])
        graph.erase_node(node)


def _empty_like(graph: Graph, before: Node, value: torch.Tensor, sizes: dict[sympy.Symbol, tuple[Node, int | None]]) -> Node | None:
    """A tensor with the sizes and strides of `value`, made of what is known from the inputs; None when they are not."""
    options = {"dtype": value.dtype, "device": value.device}
    fixed = all(isinstance(n, int) for n in (*value.shape, *value.stride()))
    if not fixed and not value.is_contiguous():
        return None
    with graph.inserting_before(before):
        if fixed:
            made = graph.call_function(aten.empty_strided.default, (list(value.shape), list(value.stride())), options)
        else:
            arguments = [_size_node(graph, n, sizes) for n in value.shape]
            if any(a is None for a in arguments):
                return None
            made = graph.call_function(aten.empty.memory_format, (arguments,), options)
    made.meta["val"] = value
    return made


def _size_node(graph: Graph, size: Any, sizes: dict[sympy.Symbol, tuple[Node, int | None]]) -> Node | int | None:
    if isinstance(size, int):
        return size
    source = sizes.get(size.node.expr)
    if source is None:
        return None
    node, dimension = source
    if dimension is None:
        return node
    made = graph.call_function(aten.sym_size.int, (node, dimension))
    made.meta["val"] = size
    return made
