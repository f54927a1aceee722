"""Channels last for the images of training graphs, where convolutions are faster so.

cuDNN's kernels for tensor cores read images with their channels side by side; of others they make copies. coil's own on a CPU read no others, and what
the forward program keeps for the backward program would be turned twice. The graph's values only say with which strides they come, so a graph is laid
out anew by giving the convolutions' operands other strides and asking tracing what follows from that: what stands around a convolution is then written
in that order in the first place. What the user gets keeps the strides that eager gives.
"""

from __future__ import annotations

import logging
import operator
from typing import Any, Callable, Collection, Sequence

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

from ._control import is_control
from ._decompositions import draws
from ._places import origin_of
from ._results import attention_kernel
from ._split import STRIDED, base_of, tensors_of, writes_input

log = logging.getLogger("coil")
aten = torch.ops.aten

CONVOLUTIONS = {aten.convolution.default: (0, 1), aten.convolution_backward.default: (0, 1, 2)}  # places of images, then of the weight
_VIEWS = {aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.as_strided.default}
_GROUPS = {aten.convolution.default: 8, aten.convolution_backward.default: 9}
_LARGEST_EXACT_DEPTHWISE = 3  # wider ones in exact float32 are slower with the channels last


class _GiveUp(Exception):
    pass


def lay_images_channels_last(graph: Graph, inputs: Sequence[Any], of_pytorch: Collection[str], device: torch.device, first_saved: int | None) -> tuple[Graph, list | None]:
    """A graph of the same values in other strides, and the strides of its results as AOTAutograd wants to be told them (None: as traced).

    `inputs`: tensors without memory for the placeholders, with the strides that they really come in. `first_saved`: the position of the first result that
    only the backward graph reads, and may have any strides.
    """
    on_cpu = device.type == "cpu"
    tensors = [t for node in graph.nodes for t in tensors_of(node.meta.get("val"))]
    known = [n for t in tensors for n in ((*t.stride(),) if on_cpu else (*t.shape, *t.stride()))]  # the number of images is in no stride
    if device.type not in ("cpu", "cuda") or any(not isinstance(n, int) for n in known):
        return graph, None
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    moved = any(_comes_otherwise(node, given) for node, given in zip(placeholders, inputs))
    chosen = {n for n in graph.nodes if n.target in CONVOLUTIONS and (_is_of_images(n) if on_cpu else "convolutions" in of_pytorch and _is_faster(n))}
    if not chosen and not moved:
        return graph, None
    try:
        laid = _Layout(graph, inputs, chosen, weights=not on_cpu)
        return laid.graph, laid.finish(first_saved)
    except (_GiveUp, RuntimeError, ValueError) as error:
        if moved:  # it has to be known how they come
            raise
        log.info("images keep their strides: %s", error)
        return graph, None


def _comes_otherwise(node: Node, given: Any) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and isinstance(given, torch.Tensor) and value.shape == given.shape and not same_strides(value, given)


def same_strides(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Without a question about sizes that only data decides: these have no answer while a graph is compiled."""
    return all(statically_known_true(x == y) or guard_or_false(size < 2) for size, x, y in zip(a.shape, a.stride(), b.stride()))


def _is_of_images(node: Node) -> bool:
    """With coil's own kernels on a CPU."""
    *images, weight = (node.args[i].meta["val"] for i in CONVOLUTIONS[node.target])  # type: ignore[index, union-attr]
    return weight.dim() == 4 and all(x.dim() == 4 for x in images)


def _is_faster(node: Node) -> bool:
    """As measured on an H100 (bench/log/gpu.md): in 16 bits forward 0.4 to 0.8 times the time, gradients 0.35 to 0.7, but groups of several channels
    1.7 times; TensorFloat-32 mostly faster, exact float32 1.05 to 1.8 times."""
    places = CONVOLUTIONS[node.target]  # type: ignore[index]
    image, weight = (node.args[i] for i in places[-2:])
    if base_of(weight).op == "get_attr" or len(image.meta["val"].shape) != 4:  # type: ignore[arg-type, union-attr]
        return False
    x, w = image.meta["val"], weight.meta["val"]  # type: ignore[union-attr]
    groups = node.args[_GROUPS[node.target]]  # type: ignore[index]
    depthwise = groups == x.shape[1] == w.shape[0] and groups > 1
    if x.dtype in (torch.bfloat16, torch.float16):
        return groups == 1 or depthwise
    if x.dtype != torch.float32:
        return False
    if depthwise:
        return max(w.shape[2:]) <= _LARGEST_EXACT_DEPTHWISE
    return groups == 1 and convolutions_in_tf32()


def convolutions_in_tf32() -> bool:
    """Whether PyTorch's float32 convolutions round their factors to TensorFloat-32: so unless it was changed."""
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # it was set in PyTorch's other way, for convolutions alone
        return torch.backends.cudnn.conv.fp32_precision == "tf32"


def products_in_tf32() -> bool:
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # it was set in PyTorch's other way, for products alone
        return torch.backends.cuda.matmul.fp32_precision == "tf32"


class _Layout:
    """`graph`: the new one. Values whose strides are other than they were traced have both versions on request. `weights`: those of the chosen
    convolutions have their channels last too; else only the images."""

    def __init__(self, graph: Graph, inputs: Sequence[Any], chosen: set[Node], weights: bool) -> None:
        self.graph = Graph()
        self._chosen = chosen
        self._weights = weights
        self._new: dict[Node, Node] = {}
        self._restored: dict[Node, Node] = {}
        self._laid: dict[Node, Node] = {}
        self._places = iter(inputs)
        self._mode = next(t.fake_mode for n in graph.nodes for t in tensors_of(n.meta.get("val")))  # type: ignore[attr-defined]
        for node in graph.nodes:
            if node.op == "output":
                self._output = node
            else:
                self._new[node] = self._placeholder(node) if node.op == "placeholder" else self._copied(node)

    def finish(self, first_saved: int | None) -> list:
        """The results: those that only the backward graph reads as they are, the others as traced."""
        old = self._output.args[0]
        assert isinstance(old, (list, tuple))
        results = [self._new[n] if first_saved is not None and i >= first_saved else self._as_traced(n, exactly=True) if isinstance(n, Node) else n
                   for i, n in enumerate(old)]
        self.graph.output(tuple(results)).meta.update(self._output.meta)
        vals = [n.meta.get("val") if isinstance(n, Node) else None for n in results]
        return [tuple(v.stride()) if isinstance(v, torch.Tensor) else None for v in vals]

    def _placeholder(self, node: Node) -> Node:
        copy = self.graph.node_copy(node)
        given = next(self._places, None)
        if _comes_otherwise(node, given):
            copy.meta["val"] = given if getattr(given, "fake_mode", None) is self._mode else self._mode.from_tensor(given)
        return copy

    def _copied(self, node: Node) -> Node:
        if node in self._chosen:
            return self._convolution(node, self._channels_last, last=self._weights)
        if node.op != "call_function" or not any(self._is_moved(n) for n in node.all_input_nodes):
            return self.graph.node_copy(node, self._new.__getitem__)
        if node.target in CONVOLUTIONS:
            return self._convolution(node, self._as_traced)
        if _reads_memory(node):
            return self.graph.node_copy(node, self._as_traced)
        return self._propagated(node)

    def _convolution(self, node: Node, operand: Callable[[Node], Node], last: bool = True) -> Node:
        places = CONVOLUTIONS[node.target]  # type: ignore[index]
        places = places if last else places[:-1]
        moved = {n: operand(n) for i, n in enumerate(node.args) if i in places}
        return self._retraced(node, lambda n: moved.get(n, self._new[n]))

    def _propagated(self, node: Node) -> Node:
        if writes_input(node):
            return self.graph.node_copy(node, self._new.__getitem__)
        if (value := _copied_value(node)) is not None and self._is_moved(value):
            return self._add(aten.clone.default, (self._new[value],), node)
        if node.target is aten.view.default:
            base, shape = node.args
            try:
                return self._retraced(node, self._new.__getitem__)
            except (RuntimeError, ValueError):  # the rows lie otherwise
                return self._add(aten.view.default, (self._contiguous(base), shape), node)  # type: ignore[arg-type]
        return self._retraced(node, self._new.__getitem__)

    def _retraced(self, node: Node, argument: Callable[[Node], Node]) -> Node:
        args, kwargs = torch.fx.map_arg(node.args, argument), torch.fx.map_arg(node.kwargs, argument)
        return self._add(node.target, args, node, kwargs)

    def _add(self, target: Any, args: tuple, like: Node, kwargs: dict | None = None) -> Node:
        """A node for what `like` computes, with the strides that tracing finds."""
        values, named = (torch.fx.map_arg(a, lambda n: n.meta["val"]) for a in (args, kwargs or {}))
        with self._mode:
            value = target(*values, **named)
        if not _same_kind(value, like.meta.get("val")):
            raise _GiveUp(f"{target} gives something else")
        made = self.graph.create_node("call_function", target, args, kwargs or {}, name=like.name if target is like.target else None)
        made.meta.update(like.meta, val=value)
        return made

    def _is_moved(self, node: Node, exactly: bool = False) -> bool:
        """`exactly`: also where the strides of dimensions of one element differ, which say nothing."""
        pairs = zip(tensors_of(node.meta.get("val")), tensors_of(self._new[node].meta.get("val")))
        return any(a.stride() != b.stride() if exactly else not same_strides(a, b) for a, b in pairs)

    def _channels_last(self, node: Node) -> Node:
        value = self._new[node].meta["val"]
        if value.is_contiguous(memory_format=torch.channels_last):
            return self._new[node]
        if node not in self._laid:
            self._laid[node] = self._add(aten.clone.default, (self._new[node],), node, {"memory_format": torch.channels_last})
        return self._laid[node]

    def _contiguous(self, node: Node) -> Node:
        return self._add(aten.clone.default, (self._new[node],), node, {"memory_format": torch.contiguous_format})

    def _as_traced(self, node: Node, exactly: bool = False) -> Node:
        """The value in the strides that it was traced with."""
        if not self._is_moved(node, exactly):
            return self._new[node]
        if node not in self._restored:
            old = node.meta["val"]
            if not isinstance(old, torch.Tensor) or not torch._prims_common.is_non_overlapping_and_dense_or_false(old):
                raise _GiveUp(f"{node} has gaps")
            order = sorted(range(old.dim()), key=lambda d: (-old.stride(d), -old.shape[d]))
            self._restored[node] = self._in_order(node, order)
            if not same_strides(self._restored[node].meta["val"], old):
                raise _GiveUp(f"{node} lies in no order of its dimensions")
        return self._restored[node]

    def _in_order(self, node: Node, order: list[int]) -> Node:
        if order == sorted(order):
            return self._contiguous(node)
        origin, made = origin_of(node), self._new[node]
        for target, args in ((aten.permute.default, (order,)), (aten.clone.default, ()), (aten.permute.default, ([order.index(d) for d in range(len(order))],))):
            kwargs = {} if args else {"memory_format": torch.contiguous_format}
            with self._mode:
                value = target(made.meta["val"], *args, **kwargs)
            made = self.graph.call_function(target, (made, *args), kwargs)
            made.meta.update(origin, val=value)
        return made


def _copied_value(node: Node) -> Node | None:
    """What `node` copies whole, where it asks for other strides and nobody needs those: gradients of slices and of writes in place come through such copies."""
    if any(user.target in _VIEWS for user in node.users):
        return None
    if node.target is aten.clone.default:
        return node.args[0] if node.kwargs.get("memory_format") is torch.contiguous_format else None  # type: ignore[return-value]
    if node.target is not aten.copy.default or not isinstance(node.args[1], Node):
        return None
    written, value = (n.meta["val"] for n in node.args[:2])  # type: ignore[union-attr]
    return node.args[1] if written.shape == value.shape and written.dtype == value.dtype and written.device == value.device else None


def _same_kind(a: Any, b: Any) -> bool:
    left, right = list(tensors_of(a)), list(tensors_of(b))
    return len(left) == len(right) and all(x.shape == y.shape and x.dtype == y.dtype and x.device == y.device for x, y in zip(left, right))


def _reads_memory(node: Node) -> bool:
    """Whether a result depends on how the operands lie: what is drawn goes through them in memory's order, and what is not PyTorch's own may."""
    if node.target is operator.getitem:
        return False
    if is_control(node) or not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace not in ("aten", "prims"):
        return True
    return draws(node) or attention_kernel(node) is not None or node.target in STRIDED or node.target is aten.view.dtype
