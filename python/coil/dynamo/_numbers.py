"""Floating numbers that follow from sizes which are known at run time (the n / (n - 1) of a batch norm's variance, a scale of x.shape[-1] ** -0.5): programs
take them as tensors of one element, which Python fills before any program runs."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ._decompositions import draws
from ._places import origin_of
from ._split import tensors_of

aten = torch.ops.aten


def numbers_as_tensors(graph: Graph) -> list[Node]:
    """The nodes of such tensors, in a graph whose operators read them where they can: as they are where a tensor may stand, by the overload that takes one, or
    spelled out."""
    made: dict[tuple[Node, torch.dtype], Node] = {}
    filled = []
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload) or next(tensors_of(value), None) is None:
            continue
        if isinstance(value, torch.Tensor) and _is_of_a_number(node):
            _evaluate(node)
            continue
        if not any(_is_late(a) for a in (*node.args, *node.kwargs.values())):
            continue
        if node.target is aten.scalar_tensor.default:
            filled.append(node)
        elif not (isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16) and not value.dim()):  # a number would decide the type of these
            _take_tensors(graph, node, made)
    return [*made.values(), *filled]


def _is_late(argument: Any) -> bool:
    return isinstance(argument, Node) and isinstance(argument.meta.get("val"), torch.SymFloat)


def _is_of_a_number(node: Node) -> bool:
    """Whether an operator of tensors has a constant in place of them (vmap's copy of a number, the conjugate that a gradient multiplies by)."""
    operator, value = node.target, node.meta["val"]
    first = operator._schema.arguments[0] if operator._schema.arguments else None  # type: ignore[union-attr]
    return first is not None and str(first.type) == "Tensor" and bool(node.args) and isinstance(node.args[0], (bool, int, float, complex)) \
        and value.layout == torch.strided and not value.dim() and not node.all_input_nodes and not draws(node)


def _evaluate(node: Node) -> None:
    value = node.meta["val"]
    with unset_fake_temporarily():
        number = node.target(*node.args, **{**node.kwargs, "device": "cpu"} if "device" in node.kwargs else node.kwargs).item()  # type: ignore[operator]
    node.target, node.args, node.kwargs = aten.scalar_tensor.default, (number,), {"dtype": value.dtype, "device": value.device}


def _take_tensors(graph: Graph, node: Node, made: dict[tuple[Node, torch.dtype], Node]) -> None:
    example = next(tensors_of(node.meta["val"]))
    double = torch.float64 in [t.dtype for n in [node, *node.all_input_nodes] for t in tensors_of(n.meta.get("val"))]
    dtype = torch.float64 if double or example.dtype == torch.complex128 else torch.float32

    def tensor(number: Any) -> Any:
        if not _is_late(number):
            with graph.inserting_before(node):
                return _new(graph, node, aten.scalar_tensor.default, (number,), {"dtype": dtype, "device": example.device}, example.new_empty([], dtype=dtype))
        if (number, dtype) not in made:
            with graph.inserting_after(number):
                made[number, dtype] = _new(graph, number, aten.scalar_tensor.default, (number,), {"dtype": dtype, "device": example.device}, example.new_empty([], dtype=dtype))
        return made[number, dtype]

    for position, parameter in enumerate(node.target._schema.arguments[:len(node.args)]):  # type: ignore[union-attr]
        if str(parameter.type) == "Tensor" and _is_late(node.args[position]):
            node.update_arg(position, tensor(node.args[position]))
    if node.target in _SPELLED_OUT:
        _spell_out(graph, node, tensor)
    elif any(_is_late(a) for a in node.args) and not any(_is_late(a) for a in node.kwargs.values()):
        _by_overload(node, tensor)


def _new(graph: Graph, of: Node, target: Any, args: tuple, kwargs: dict, value: Any) -> Node:
    made = graph.call_function(target, args, kwargs)
    made.meta.update(origin_of(of), val=value)
    return made


def _by_overload(node: Node, tensor: Any) -> None:
    """The overload with the same parameters of which numbers are tensors (mul.Scalar: mul.Tensor)."""
    packet, schema = node.target.overloadpacket, node.target._schema  # type: ignore[union-attr]
    for name in packet.overloads():
        other = getattr(packet, name)
        if other._schema.is_mutable != schema.is_mutable or len(other._schema.arguments) != len(schema.arguments):
            continue
        places = _numbers_that_are_tensors(schema.arguments, other._schema.arguments)
        if places is not None and all(i in places for i, a in enumerate(node.args) if _is_late(a)):
            node.target = other
            node.args = tuple(tensor(a) if i in places and a is not None else a for i, a in enumerate(node.args))
            return


def _numbers_that_are_tensors(ours: Any, theirs: Any) -> set[int] | None:
    """Where the second operator's parameters are tensors and the first one's numbers; None where they differ otherwise."""
    places = set()
    for i, (a, b) in enumerate(zip(ours, theirs)):
        mine, other = str(a.type), str(b.type)
        if mine in ("number", "Optional[number]") and other == mine.replace("number", "Tensor"):
            places.add(i)
        elif mine != other or a.name != b.name:
            return None
    return places


def _spell_out(graph: Graph, node: Node, tensor: Any) -> None:
    """Formulas of operators whose numbers no overload takes as tensors. In half precision they would round once more than eager does."""
    value = node.meta["val"]
    if node.target not in (aten.full.default, aten.full_like.default, aten.scatter.value) and value.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        return
    with graph.inserting_before(node):
        def step(target: Any, *args: Any, **kwargs: Any) -> Node:
            with next(tensors_of(value)).fake_mode:  # type: ignore[attr-defined]
                given = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
                result = target(*given[0], **given[1])
            return _new(graph, node, target, args, kwargs, result)

        def times(a: Node, number: Any) -> Node:
            return a if isinstance(number, (int, float)) and number == 1 else step(aten.mul.Tensor, a, tensor(number))

        whole = _SPELLED_OUT[node.target](step, times, tensor, *node.args, **node.kwargs)
    whole.meta["val"] = value
    node.replace_all_uses_with(whole)
    graph.erase_node(node)


def _sum(target: Any) -> Any:
    return lambda step, times, tensor, a, b, alpha=1: step(target, a, times(b, alpha))


def _product(target: Any) -> Any:
    def formula(step: Any, times: Any, tensor: Any, a: Node, b: Node, c: Node, *, beta: Any = 1, alpha: Any = 1) -> Node:
        product = times(step(target, b, c), alpha)
        return product if isinstance(beta, (int, float)) and beta == 0 else step(aten.add.Tensor, times(a, beta), product)

    return formula


def _outer(step: Any, times: Any, tensor: Any, a: Node, b: Node, c: Node, *, beta: Any = 1, alpha: Any = 1) -> Node:
    product = step(aten.mul.Tensor, step(aten.unsqueeze.default, times(b, alpha), 1), c)
    return product if isinstance(beta, (int, float)) and beta == 0 else step(aten.add.Tensor, times(a, beta), product)


def _scatter(step: Any, times: Any, tensor: Any, a: Node, dim: int, index: Node, number: Any) -> Node:
    values = step(aten.full_like.default, index, 0, dtype=a.meta["val"].dtype)
    return step(aten.scatter.src, a, dim, index, step(aten.fill.Tensor, values, tensor(number)))


def _full(target: Any) -> Any:
    return lambda step, times, tensor, a, number, **how: step(aten.fill.Tensor, step(target, a, 0, **how), tensor(number))


_SPELLED_OUT = {
    aten.add.Tensor: _sum(aten.add.Tensor),
    aten.sub.Tensor: _sum(aten.sub.Tensor),
    aten.addcmul.default: lambda step, times, tensor, a, b, c, value=1: step(aten.add.Tensor, a, step(aten.mul.Tensor, times(b, value), c)),
    aten.addcdiv.default: lambda step, times, tensor, a, b, c, value=1: step(aten.add.Tensor, a, step(aten.div.Tensor, times(b, value), c)),
    aten.addmm.default: _product(aten.mm.default),
    aten.baddbmm.default: _product(aten.bmm.default),
    aten.addmv.default: _product(aten.mv.default),
    aten.addr.default: _outer,
    aten.full.default: _full(aten.full.default),
    aten.full_like.default: _full(aten.full_like.default),
    aten.scatter.value: _scatter,
    aten.rsub.Scalar: lambda step, times, tensor, a, number, alpha=1: step(aten.sub.Tensor, tensor(number), times(a, alpha)),
}
