"""Memory as a kernel sees it: Triton's kernels get addresses and strides, coil's programs have dense row-major tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

aten = torch.ops.aten


def _row_major(tensor: torch.Tensor) -> bool:
    expected: Any = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride())):
        if statically_known_true(size == 1):
            continue
        if not statically_known_true(stride == expected):
            return False
        expected = expected * size
    return True


def _order(tensor: torch.Tensor) -> list[int] | None:
    """The order of the dimensions in which the tensor is dense and row-major; None: in no order."""
    identity = list(range(tensor.dim()))
    if _row_major(tensor):
        return identity
    hints = [stride if isinstance(stride, int) else stride.node.hint for stride in tensor.stride()]
    if any(h is None for h in hints):
        return None
    order = sorted(identity, key=lambda d: (-hints[d], d))
    return order if _row_major(tensor.permute(order)) else None


class Layouts:
    def __init__(self, graph: Graph, before: Node):
        """Nodes are inserted where the graph's insertion point is; `before`: whose source line they get."""
        self.graph, self.before = graph, before

    def dense(self, node: Node) -> tuple[Node | None, list[int]]:
        """(the node, with its dimensions in the order in which it is dense and row-major, that order); None if there is none."""
        order = _order(node.meta["val"])
        if order is None:
            return None, []
        return self._permuted(node, order), order

    def memory(self, node: Node) -> tuple[Node | None, Any]:
        """(a dense tensor, at which of its elements the node's memory begins; None: the first)."""
        dense, _ = self.dense(node)
        if dense is not None:
            return dense, None
        value, base = node.meta["val"], node
        while base.op == "call_function" and base.args and isinstance(base.args[0], Node) and self._same_storage(base.args[0], value):
            base = base.args[0]
            dense, _ = self.dense(base) if isinstance(base.meta["val"], torch.Tensor) else (None, [])
            if dense is not None:
                begin = value.storage_offset() - base.meta["val"].storage_offset()
                if isinstance(begin, torch.SymInt):
                    return None, None
                return dense, begin or None
        return None, None

    def owner(self, node: Node) -> Node:
        """The node that the memory of a value comes from."""
        value = node.meta["val"]
        while node.op == "call_function" and node.args and isinstance(node.args[0], Node) and self._same_storage(node.args[0], value):
            node = node.args[0]
        return node

    @staticmethod
    def _same_storage(base: Node, value: torch.Tensor) -> bool:
        """A list of views (split, unbind) has its base one step further."""
        other = base.meta.get("val")
        if isinstance(other, (tuple, list)):
            other = other[0]
        return isinstance(other, torch.Tensor) and other.untyped_storage()._cdata == value.untyped_storage()._cdata and other.dtype == value.dtype

    def _permuted(self, node: Node, order: list[int]) -> Node:
        if order == sorted(order):
            return node
        made = self.graph.call_function(aten.permute.default, (node, order))
        made.meta.update(val=node.meta["val"].permute(order), stack_trace=self.before.meta.get("stack_trace"))
        return made

    def restore(self, result: Node, order: list[int]) -> Node:
        """The dimensions in their own order again."""
        return self._permuted(result, sorted(range(len(order)), key=lambda i: order[i]))

    @staticmethod
    def empty(like: torch.Tensor) -> torch.Tensor:
        """A dense row-major tensor that stands for a result."""
        with like.fake_mode:  # type: ignore[attr-defined]
            return torch.empty(like.shape, dtype=like.dtype, device=like.device)
