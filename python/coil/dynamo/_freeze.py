"""Weights that a graph for inference holds: folded and packed once, as in a package, instead of in each call.

They are taken at the first call. Each call looks whether they are still those: by their addresses, and by the versions that PyTorch counts
when a tensor is written to. What changed is taken anew; where that happens again and again they become inputs for good. A write that PyTorch
does not count (through `.data`, or by foreign code) goes unnoticed: that is what freezing means.
"""

from __future__ import annotations

import logging
from typing import Any, Callable

import torch
from torch.fx import Graph, Node

log = logging.getLogger("coil")

MOST_CHANGES = 3


def weights_of(graph: Graph) -> dict[int, Node]:
    """The placeholders that are the module's parameters and buffers, by their positions; without those that the graph's call writes to."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    if metadata is None:
        return {}
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    if len(metadata.input_info) != len(placeholders):  # tensors that share memory came as one
        return {}
    return {i: placeholders[i] for i in metadata.static_input_indices
            if i < len(placeholders) and not (metadata.input_info[i].mutates_data or metadata.input_info[i].mutates_metadata) and _fixed(placeholders[i])}


def _fixed(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and type(value).__name__ == "FakeTensor" and all(isinstance(n, int) for n in (*value.shape, *value.stride()))


class FrozenGraph:
    """A boxed function. `build` makes it for values of some inputs."""

    _boxed_call = True

    def __init__(self, weights: dict[int, Node], build: Callable[[dict[Node, torch.Tensor]], Callable[[list], Any]]):
        self.positions, self.nodes, self.build = list(weights), list(weights.values()), build
        self.seen: list[tuple[int, int]] | None = None
        self.changes = -1
        self.function: Callable[[list], Any] | None = None

    def __call__(self, inputs: list) -> Any:
        if self.changes < MOST_CHANGES:
            now = [_mark(inputs[i]) for i in self.positions]
            if now != self.seen:
                self.refresh(inputs, now)
        assert self.function is not None
        return self.function(inputs)

    def refresh(self, inputs: list, now: list[tuple[int, int]]) -> None:
        self.changes += 1
        if self.seen is not None:
            changed = [n.name for n, a, b in zip(self.nodes, self.seen, now) if a != b]
            log.warning("frozen weights changed (%s%s): %s", ", ".join(changed[:3]), ", ..." if len(changed) > 3 else "",
                        "they are taken anew" if self.changes < MOST_CHANGES else "as before; from now on they are inputs of each call")
        keep = self.changes < MOST_CHANGES
        self.function = self.build({n: inputs[i] for n, i in zip(self.nodes, self.positions)} if keep else {})
        self.seen = now


def _mark(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version
