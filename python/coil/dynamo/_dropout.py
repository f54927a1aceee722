"""Dropout as a mask times a number. The mask does not depend on the input: coil's kernels draw it where they read it, or PyTorch draws it ahead of the program,
in the order and the layout in which eager draws it; so coil's program is not cut in two."""

from __future__ import annotations

import operator
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node

from ._decompositions import draws
from ._generator import Drawing, drawing, kept_scale
from ._places import origin_of

aten = torch.ops.aten
Sizes = dict[sympy.Symbol, tuple[Node, int | None]]


def draw_masks(graph: Graph, sizes: Sizes, in_kernels: bool) -> None:
    """`sizes`: where the graph's inputs tell a size; `in_kernels`: whether coil may draw on a GPU. (In a CUDA graph the generator's state is PyTorch's alone.)"""
    state: Node | None = None  # of dropouts that follow one another
    for node in list(graph.nodes):
        if node.op != "call_function" or not draws(node):
            continue
        how = _drawing_of(node) if in_kernels else None
        if how is None:
            state = None  # what this one draws comes between
            if node.target is aten.native_dropout.default:
                _draw_by_pytorch(graph, node, sizes)
            continue
        if state is None:
            state = _state_before(graph, node)
        _draw_in_kernels(graph, node, state, how)


def _is_random(node: Node) -> bool:
    _, p, train = node.args
    return train is not False and 0 < p < 1 and node.args[0].meta["val"].layout == torch.strided  # type: ignore[union-attr,operator]


def _drawing_of(node: Node) -> Drawing | None:
    """Of a dropout on a GPU whose tensor has fixed sizes and no gaps."""
    if node.target is not aten.native_dropout.default or not _is_random(node):
        return None
    value = node.args[0].meta["val"]  # type: ignore[union-attr]
    if value.device.type != "cuda" or not _is_fixed(value) or not torch._prims_common.is_non_overlapping_and_dense_or_false(value):
        return None
    return drawing(value.numel(), value.dtype, node.args[1], value.device)  # type: ignore[arg-type]


def _is_fixed(value: torch.Tensor) -> bool:
    return all(isinstance(n, int) for n in (*value.shape, *value.stride()))


def _state_before(graph: Graph, node: Node) -> Node:
    value = node.args[0].meta["val"]  # type: ignore[union-attr]
    with graph.inserting_before(node):
        state = graph.call_function(torch.ops.coil.random_state.default, (0, value.device))
    state.meta.update(origin_of(node), val=value.new_empty((2,), dtype=torch.int64))
    return state


def _draw_in_kernels(graph: Graph, node: Node, state: Node, how: Drawing) -> None:
    value = node.args[0].meta["val"]  # type: ignore[union-attr]
    order = sorted(range(value.dim()), key=lambda d: (-value.stride(d), -value.shape[d]))  # of the dimensions in memory
    place = state.args[0]
    state.args = (place + how.offset, *state.args[1:])  # type: ignore[operator]
    with graph.inserting_before(node):
        sizes = [value.shape[d] for d in order]
        mask = drawn = graph.call_function(torch.ops.coil.dropout_mask.default, (state, place, sizes, how.vector, how.threads, how.below))
        drawn.meta["val"] = value.new_empty(sizes, dtype=torch.bool)
        if order != sorted(order):
            inverse = [order.index(d) for d in range(value.dim())]
            mask = graph.call_function(aten.permute.default, (drawn, inverse))
            mask.meta["val"] = drawn.meta["val"].permute(inverse)
    for made in (drawn, mask):
        made.meta.update(origin_of(node))
    _keep(graph, node, mask)


def _draw_by_pytorch(graph: Graph, node: Node, sizes: Sizes) -> None:
    """From a tensor that is only like the input."""
    x, p, _ = node.args
    like = _empty_like(graph, node, x.meta["val"], sizes) if _is_random(node) else None  # type: ignore[union-attr]
    if like is None:
        return
    with graph.inserting_before(node):
        drawn = graph.call_function(aten.native_dropout.default, (like, p, True))
        drawn.meta.update(origin_of(node), val=node.meta["val"])
        mask = graph.call_function(operator.getitem, (drawn, 1))
        mask.meta["val"] = node.meta["val"][1]
    _keep(graph, node, mask)


def _keep(graph: Graph, node: Node, mask: Node) -> None:
    """The dropout's results, in terms of the mask."""
    x, p, _ = node.args
    with graph.inserting_before(node):
        kept = graph.call_function(aten.mul.Tensor, (x, mask))
        scaled = graph.call_function(aten.mul.Tensor, (kept, kept_scale(p, x.meta["val"].dtype)))  # type: ignore[arg-type,union-attr]
    for product in (kept, scaled):
        product.meta.update(origin_of(node), val=node.meta["val"][0])
    parts = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    for index, result in ((0, scaled), (1, mask)):
        if index in parts:
            parts[index].replace_all_uses_with(result)
            graph.erase_node(parts[index])
    graph.erase_node(node)


def _empty_like(graph: Graph, before: Node, value: torch.Tensor, sizes: Sizes) -> Node | None:
    """A tensor with the sizes and strides of `value`, made of what is known from the inputs; None when they are not."""
    options = {"dtype": value.dtype, "device": value.device}
    fixed = _is_fixed(value)
    if not fixed and not torch._prims_common.is_contiguous_or_false(value):  # of sizes that only data decides it cannot be asked
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


def _size_node(graph: Graph, size: Any, sizes: Sizes) -> Node | int | None:
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
