"""Results that are no tensors, and tensors that nobody reads: settled before a graph is split.

Operators may give None, numbers, sizes, generators' states and lists of such beside tensors; fused attention gives all of these. A number
that tracing knows is a constant, a size is an expression of the inputs' sizes; so no program and no operator has to hand it on.
"""

from __future__ import annotations

import operator
from typing import Any, Collection

import sympy
import torch
from torch.fx import Graph, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from ._control import inner_graphs, is_control
from ._split import size_sources

aten = torch.ops.aten

# Fused attention: positions of results that only dropout and debugging fill (seeds, offsets, the drawn mask).
_ATTENTION = {
    "_scaled_dot_product_flash_attention": (6, 7, 8), "_scaled_dot_product_cudnn_attention": (6, 7, 8),
    "_scaled_dot_product_fused_attention_overrideable": (6, 7, 8), "_scaled_dot_product_efficient_attention": (2, 3),
    "_scaled_dot_product_flash_attention_for_cpu": (),
}
# Arguments of their gradients that nobody reads without dropout, and without sequences of several lengths.
_FOR_DROPOUT = {"philox_seed", "philox_offset", "cum_seq_q", "cum_seq_k"}


def attention_kernel(node: Node) -> str | None:
    """"forward" or "backward" of a fused attention."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return None
    name = node.target._opname
    if name in _ATTENTION:
        return "forward"
    return "backward" if name.endswith("_backward") and name.removesuffix("_backward") in _ATTENTION else None


def argument(node: Node, name: str) -> Any:
    """The argument of an operator by its name in the schema; its default where it is not given."""
    for position, parameter in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if parameter.name == name:
            return node.args[position] if position < len(node.args) else node.kwargs.get(name, parameter.default_value if parameter.has_default_value() else None)
    return None


def unread_arguments(node: Node) -> set[str]:
    """Names of arguments that the operator does not look at, as it is called here."""
    return _FOR_DROPOUT if attention_kernel(node) == "backward" and argument(node, "dropout_p") == 0 else set()


def read_nodes(node: Node) -> list[Node]:
    """The nodes that an operator reads: those of its arguments, without those that it only passes by."""
    unread = unread_arguments(node)
    if not unread:
        return list(node.all_input_nodes)
    found: dict[Node, None] = {}
    for position, parameter in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if parameter.name not in unread:
            value = node.args[position] if position < len(node.args) else node.kwargs.get(parameter.name)
            torch.fx.map_arg(value, lambda n: found.setdefault(n))
    return list(found)


def read_results(node: Node) -> set[int] | None:
    """The positions among an operator's results that somebody reads; None: it gives one value, or one list."""
    value = node.meta.get("val")
    if not isinstance(value, (list, tuple)) or not isinstance(node.target, torch._ops.OpOverload) or len(node.target._schema.returns) < 2:
        return None
    if any(user.target is not operator.getitem for user in node.users):
        return set(range(len(value)))
    return {user.args[1] for user in node.users if user.users}  # type: ignore[misc]


def settle_results(graph: Graph, of_pytorch: Collection[str] = ()) -> None:
    """Of the graph, and of those inside of it. `of_pytorch`: see torch_nodes; results of PyTorch's kernels lie as these leave them."""
    sizes = size_sources(graph)
    for node in list(graph.nodes):
        if attention_kernel(node) and argument(node, "dropout_p") == 0:
            _without_dropout(graph, node, "attention" in of_pytorch)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is operator.getitem:
            whole = node.args[0].meta.get("val")  # type: ignore[union-attr]
            if "val" not in node.meta and isinstance(whole, (list, tuple)):  # tracing follows tensors and symbols only
                node.meta["val"] = whole[node.args[1]]  # type: ignore[index]
            if "val" in node.meta:
                _settle(graph, node, sizes)
        elif is_control(node):
            for inner in inner_graphs(node):
                settle_results(inner.graph)


def _settle(graph: Graph, node: Node, sizes: dict[sympy.Symbol, tuple[Node, int | None]]) -> None:
    """An element that is None or a number, by what it is known to be."""
    value = node.meta["val"]
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        expression = value.node.expr
        if value.node.is_constant():
            value = _plain(value)
        elif isinstance(value, torch.SymInt) and all(symbol in sizes for symbol in expression.free_symbols):
            value = _computed(graph, node, expression, sizes)
        else:
            return
    elif not (value is None or isinstance(value, (bool, int, float))):
        return
    for user in list(node.users):
        user.args = torch.fx.map_arg(user.args, lambda n: value if n is node else n)
        user.kwargs = torch.fx.map_arg(user.kwargs, lambda n: value if n is node else n)
    graph.erase_node(node)


def _plain(value: Any) -> bool | int | float:
    return bool(value) if isinstance(value, torch.SymBool) else int(value) if isinstance(value, torch.SymInt) else float(value)


def _computed(graph: Graph, before: Node, expression: sympy.Expr, sizes: dict[sympy.Symbol, tuple[Node, int | None]]) -> Node:
    """Nodes that compute an expression of the inputs' sizes."""
    with graph.inserting_before(before):
        tracer = GraphAppendingTracer(graph)
        values: dict[sympy.Symbol, Proxy] = {}
        for symbol in sorted(expression.free_symbols, key=str):
            node, dimension = sizes[symbol]
            if dimension is not None:
                size = node.meta["val"].shape[dimension]
                node = graph.call_function(aten.sym_size.int, (node, dimension))
                node.meta["val"] = size
            values[symbol] = Proxy(node, tracer)
        known = set(graph.nodes)
        result = sympy_interp(PythonReferenceAnalysis, values, expression).node
    for node in graph.nodes:
        if node not in known:
            node.meta["val"] = node.target(*torch.fx.map_arg(node.args, lambda n: n.meta["val"]), **node.kwargs)  # type: ignore[operator]
    return result


def _without_dropout(graph: Graph, node: Node, of_pytorch: bool) -> None:
    """Seeds that no kernel reads are tensors without contents, as PyTorch's kernels leave them; gradients that coil computes are dense."""
    value = node.meta.get("val")
    if not isinstance(value, (list, tuple)):
        return
    if attention_kernel(node) == "backward":
        if of_pytorch:
            return
        dense = [item if not isinstance(item, torch.Tensor) or torch._prims_common.is_non_overlapping_and_dense_or_false(item)
                 else torch.empty_like(item, memory_format=torch.contiguous_format) for item in value]
        node.meta["val"] = tuple(dense)
        for user in node.users:
            if user.target is operator.getitem:
                user.meta["val"] = dense[user.args[1]]  # type: ignore[index]
        return
    for user in list(node.users):
        seed = user.meta.get("val")
        if user.target is not operator.getitem or user.args[1] not in _ATTENTION[node.target._opname] or not isinstance(seed, torch.Tensor):  # type: ignore[union-attr]
            continue
        if not all(isinstance(n, int) for n in seed.shape):
            continue
        with graph.inserting_before(node):
            device = seed.device if seed.device.type != "meta" else value[0].device
            made = graph.call_function(aten.empty.memory_format, (list(seed.shape),), {"dtype": seed.dtype, "device": device})
        made.meta["val"] = seed if seed.device == device else seed.new_empty(seed.shape, device=device)
        user.replace_all_uses_with(made)
        graph.erase_node(user)
