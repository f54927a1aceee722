"""What of a training step the forward graph hands to the backward one, and what that computes anew.

The cheapest cut is PyTorch's. But a number that is computed in two programs need not be the same to the last bit: sums run in other orders, and
of 16-bit numbers a kernel keeps more digits than it writes. Gradients of the largest number (amax, scatter_reduce, an infinite norm) look for it by
its value: if none is equal, they divide by a count of zero.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Iterator

import torch
from torch._functorch import partitioners
from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from ._split import is_view, writes_input

aten = torch.ops.aten

_EQUALITIES = {aten.eq.Tensor, aten.ne.Tensor}
# What gives the same numbers from the same numbers everywhere: nothing of it is rounded.
_EXACT = {aten.gather.default, aten.index.Tensor, aten.index_select.default, aten.clone.default, aten._unsafe_view.default, aten.flip.default,
          aten.abs.default, aten.neg.default, aten.relu.default}
# What PyTorch's cut does not know, since Inductor never sees it whole. Views and copies, which cost nothing or little to have again:
_COMPUTED_ANEW = {aten.transpose, aten.cat, aten.constant_pad_nd, aten.masked_fill, aten.flip, aten.repeat, aten.split_with_sizes, aten.unbind,
                  aten.diagonal, aten.tril, aten.index_select}
# Places of maxima, which are eight bytes each beside the two or four of an element: see keep_places_of_maxima.
_MAXIMA = {aten.max_pool2d_with_indices, aten.max_pool3d_with_indices, aten.adaptive_max_pool2d, aten.adaptive_max_pool3d}
_COMPUTED_ANEW |= _MAXIMA
_PRODUCTS = {aten.convolution.default, aten.addmm.default, aten.mm.default}
# What coil's kernels join with what it reads: that need not be in memory for it.
_JOINED = {aten._log_softmax_backward_data, aten._softmax_backward_data, aten.native_layer_norm_backward, aten.native_group_norm_backward, aten.nll_loss_forward,
           aten.nll_loss2d_forward, aten.silu_backward, aten.hardswish_backward, aten.hardsigmoid_backward, aten.elu_backward, aten.leaky_relu_backward,
           aten.hardtanh_backward, aten.mish_backward, aten.sigmoid_backward, aten.tanh_backward, aten.max_pool2d_with_indices_backward,
           aten.max_pool3d_with_indices_backward, aten.adaptive_max_pool2d_backward, aten.adaptive_max_pool3d_backward}


def partition(joint: GraphModule, inputs: Any, **settings: Any) -> tuple[GraphModule, GraphModule]:
    keep_what_was_overwritten(joint.graph)
    keep_what_is_compared(joint.graph)
    forget_unread_statistics(joint.graph)
    keep_places_of_maxima(joint.graph)
    with _coils_operators():
        return partitioners.min_cut_rematerialization_partition(joint, inputs, **settings)


@contextlib.contextmanager
def _coils_operators() -> Iterator[None]:
    """PyTorch's cut with coil's operators in its lists: it has no argument for them. (Dynamo compiles one graph at a time.)"""
    default = partitioners.get_default_op_list

    def extended() -> Any:
        kinds = default()
        return dataclasses.replace(kinds, fusible_ops=kinds.fusible_ops | _COMPUTED_ANEW | _JOINED, recomputable_ops=kinds.recomputable_ops | _COMPUTED_ANEW)

    partitioners.get_default_op_list = extended
    try:
        yield
    finally:
        partitioners.get_default_op_list = default


def keep_what_is_compared(graph: Graph) -> None:
    """Numbers whose equality is asked for are computed once: in the backward graph they, or the answers, are the forward graph's. Where the user has
    said what of checkpointed parts is computed anew, that holds."""
    for node in graph.nodes:
        if node.target not in _EQUALITIES:
            continue
        for operand in node.args:
            source = _source(operand)
            if source is not None and source.op == "call_function" and _is_floating(source):
                source.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)


def keep_what_was_overwritten(graph: Graph) -> None:
    """The forward graph writes new values into some of its inputs (counters, running means), and the backward one would find these. So what follows from an
    old value is not computed anew, and the old value itself, where a gradient asks for it, is a copy."""
    overwritten = [node.args[0] for node in graph.nodes if writes_input(node)]
    if not overwritten:
        return
    gradients: set[Node] = set()
    for node in graph.nodes:
        if partitioners._is_tangent(node) or any(source in gradients for source in node.all_input_nodes):
            gradients.add(node)
    for node in overwritten:
        readers = [user for user in node.users if user.op == "call_function" and not writes_input(user)]  # type: ignore[union-attr]
        behind = [user for user in readers if user in gradients or is_view(user)]
        for user in readers:
            if user not in behind:
                user.meta["recompute"] = CheckpointPolicy.MUST_SAVE
        if behind:
            with graph.inserting_before(behind[0]):
                copy = graph.call_function(aten.clone.default, (node,))
            copy.meta.update(val=node.meta["val"], recompute=CheckpointPolicy.MUST_SAVE)  # type: ignore[union-attr]
            for user in behind:
                user.replace_input_with(node, copy)  # type: ignore[arg-type]


def forget_unread_statistics(graph: Graph) -> None:
    """The gradient of a batch norm in training is given the running statistics and does not read them. Without these arguments the forward graph
    has nothing to hand over: it writes the new statistics where they belong, and nowhere else."""
    for node in graph.nodes:
        if node.target is aten.native_batch_norm_backward.default and node.args[7] is True:
            arguments = list(node.args)
            arguments[3] = arguments[4] = None
            node.args = tuple(arguments)


def keep_places_of_maxima(graph: Graph) -> None:
    """A pool of what a product's activation gives is computed anew: that is kept anyway, since the activation's gradient asks for its sign. Behind a norm it
    is not, and would be computed anew too: there the places are kept."""
    for node in graph.nodes:
        if getattr(node.target, "overloadpacket", None) not in _MAXIMA:
            continue
        source = _source(node.args[0])
        if source is not None and source.op == "call_function" and source.target not in _PRODUCTS:
            for kept in (node, *node.users):
                kept.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)


def _source(value: Any) -> Node | None:
    while isinstance(value, Node) and (is_view(value) or value.target in _EXACT):
        value = value.args[0]
    return value if isinstance(value, Node) else None


def _is_floating(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()
