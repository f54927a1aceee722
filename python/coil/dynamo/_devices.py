"""Graphs of a GPU that also have tensors of the CPU. PyTorch lets operators of the GPU read numbers of the CPU, and positions: coil's programs have one device."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ._decompositions import draws
from ._places import origin_of
from ._split import tensors_of

aten = torch.ops.aten


def on_the_gpu(graph: Graph, device: torch.device) -> list[Node]:
    """What PyTorch makes on the CPU (scales that follow from sizes, ranges, constants) is made on the GPU for the GPU's operators. What else they read on the
    CPU is copied: these copies, which PyTorch makes before any program runs that reads them."""
    _make_on_gpu(graph, device)
    return _copy_to_gpu(graph, device)


def _make_on_gpu(graph: Graph, device: torch.device) -> None:
    made: dict[Node, None] = {}  # what depends on nothing but constants and sizes
    for node in graph.nodes:
        if _can_move(node) and (_constant(node) is not None or all(n in made for n in _tensor_inputs(node))):
            made[node] = None
    wanted: set[Node] = set()
    for node in reversed(list(made)):
        if any(user in wanted or _runs_on(user, device) for user in node.users):
            wanted.add(node)
    for node in reversed(list(made)):
        if node in wanted:
            _leave_to_others(graph, node, wanted, device)
    for node in made:
        if node in wanted:
            _move(node, device)


def _leave_to_others(graph: Graph, node: Node, wanted: set[Node], device: torch.device) -> None:
    """Where others than the GPU's operators read a node as well (it is a result of the graph), these get one like it on the CPU."""
    others = {user for user in node.users if user not in wanted and not _runs_on(user, device)}
    if others:
        with graph.inserting_after(node):
            like = graph.node_copy(node)
        node.replace_all_uses_with(like, delete_user_cb=others.__contains__)


def _runs_on(node: Node, device: torch.device) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and _is_on(node.meta.get("val"), device)


def _tensor_inputs(node: Node) -> list[Node]:
    return [n for n in node.all_input_nodes if any(True for _ in tensors_of(n.meta.get("val")))]


def _can_move(node: Node) -> bool:
    """Whether a node of the CPU only makes something, or computes with tensors: neither draws random numbers nor writes."""
    tensors = list(tensors_of(node.meta.get("val")))
    if node.op != "call_function" or not tensors or any(t.device.type != "cpu" or t.layout != torch.strided for t in tensors):
        return False
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return (_takes_device(node) or bool(_tensor_inputs(node))) and not node.target._schema.is_mutable and not draws(node)


def _takes_device(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and any(argument.name == "device" for argument in node.target._schema.arguments)


def _move(node: Node, device: torch.device) -> None:
    constant, mode = _constant(node), next(tensors_of(node.meta["val"])).fake_mode  # type: ignore[attr-defined]
    if constant is not None and not constant.dim():
        with unset_fake_temporarily():  # a compiler of AOTAutograd's runs under its fake mode, which takes no tensor of a module
            number = constant.item()
        node.target, node.args, node.kwargs = aten.scalar_tensor.default, (number,), {"dtype": constant.dtype}
    elif constant is not None:
        node.args = (_constant_on(node, constant, device, mode),)
    if _takes_device(node):
        node.kwargs = {**{k: v for k, v in node.kwargs.items() if k != "pin_memory"}, "device": device}
    with mode:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        node.meta["val"] = node.target(*args, **kwargs)  # type: ignore[operator]


def _constant_on(node: Node, constant: torch.Tensor, device: torch.device, mode: Any) -> Node:
    """A copy of a constant of the graph's module, beside it in the module."""
    module = node.graph.owning_module
    name = f"{node.args[0].target}_on_{device.type}".replace(".", "_")  # type: ignore[union-attr]
    with mode:
        value = torch.empty_strided(constant.shape, constant.stride(), dtype=constant.dtype, device=device)
    with unset_fake_temporarily():
        if not hasattr(module, name):
            module.register_buffer(name, constant.to(device), persistent=False)  # type: ignore[union-attr]
    with node.graph.inserting_before(node):
        copied = node.graph.get_attr(name)
    copied.meta["val"] = value
    return copied


def _constant(node: Node) -> torch.Tensor | None:
    """The value of a copy of a constant of the graph's module."""
    if node.target is not aten.lift_fresh_copy.default or node.args[0].op != "get_attr":  # type: ignore[union-attr]
        return None
    value = getattr(node.graph.owning_module, node.args[0].target, None)  # type: ignore[union-attr, arg-type]
    return value if type(value) is torch.Tensor and value.device.type == "cpu" and value.layout == torch.strided else None


def _is_on(value: Any, device: torch.device) -> bool:
    tensors = list(tensors_of(value))
    return bool(tensors) and all(t.device == device for t in tensors)


def _copy_to_gpu(graph: Graph, device: torch.device) -> list[Node]:
    copies: dict[Node, Node] = {}
    for node in list(graph.nodes):
        if not _runs_on(node, device) or node.target is aten._to_copy.default or node.target._schema.is_mutable:  # type: ignore[union-attr]
            continue
        for read in node.all_input_nodes:
            value = read.meta.get("val")
            if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout == torch.strided:
                if read not in copies:
                    copies[read] = _copied(graph, read, device)
                node.replace_input_with(read, copies[read])
    return list(copies.values())


def _copied(graph: Graph, read: Node, device: torch.device) -> Node:
    after = read
    while after.op == "placeholder" and after.next.op == "placeholder":  # placeholders stay together
        after = after.next
    with graph.inserting_after(after):
        copy = graph.call_function(aten._to_copy.default, (read,), {"device": device})
    with read.meta["val"].fake_mode:
        copy.meta.update(origin_of(read), val=read.meta["val"].to(device))
    return copy
