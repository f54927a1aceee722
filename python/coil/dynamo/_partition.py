"""What of a training step the forward graph hands to the backward one, and what that computes anew.

The cheapest cut is PyTorch's. But a number that is computed in two programs need not be the same to the last bit: sums run in other orders, and
of 16-bit numbers a kernel keeps more digits than it writes. Gradients of the largest number (amax, scatter_reduce, an infinite norm) look for it by
its value: if none is equal, they divide by a count of zero.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from ._split import is_view

aten = torch.ops.aten

_EQUALITIES = {aten.eq.Tensor, aten.ne.Tensor}
# What gives the same numbers from the same numbers everywhere: nothing of it is rounded.
_EXACT = {aten.gather.default, aten.index.Tensor, aten.index_select.default, aten.clone.default, aten._unsafe_view.default, aten.flip.default,
          aten.abs.default, aten.neg.default, aten.relu.default}


def partition(joint: GraphModule, inputs: Any, **settings: Any) -> tuple[GraphModule, GraphModule]:
    keep_what_is_compared(joint.graph)
    forget_unread_statistics(joint.graph)
    return min_cut_rematerialization_partition(joint, inputs, **settings)


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


def forget_unread_statistics(graph: Graph) -> None:
    """The gradient of a batch norm in training is given the running statistics and does not read them. Without these arguments the forward graph
    has nothing to hand over: it writes the new statistics where they belong, and nowhere else."""
    for node in graph.nodes:
        if node.target is aten.native_batch_norm_backward.default and node.args[7] is True:
            arguments = list(node.args)
            arguments[3] = arguments[4] = None
            node.args = tuple(arguments)


def _source(value: Any) -> Node | None:
    while isinstance(value, Node) and (is_view(value) or value.target in _EXACT):
        value = value.args[0]
    return value if isinstance(value, Node) else None


def _is_floating(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()
