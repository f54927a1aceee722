"""Operators that AOTAutograd would take apart before a backend's own tables are asked, kept whole: they are called below autograd, with gradients of our own.

Left to itself it makes tables of positions of resizing, whose gradients are writes by data, and as many products as a row has elements of cumprod's gradient.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ._masks import attention, is_attention, leave_out_masks
from ._references import wide
from ._resizing import find_resizing

aten = torch.ops.aten


def keep_operators_whole(gm: GraphModule) -> None:
    """In a graph of Dynamo, and in those inside of it."""
    for module in gm.modules():
        if not isinstance(module, GraphModule):
            continue
        changed = leave_out_masks(module)
        depth = 0  # of torch.func's transforms, which go by their own rules for each operator
        for node in module.graph.nodes:
            depth += _levels_opened(node)
            function = None if depth else _find(node)
            if function is not None:
                node.op, node.target = "call_function", function
                changed = True
        if changed:
            module.recompile()


def _levels_opened(node: Node) -> int:
    """1 where a transform of torch.func (vmap, grad, jvp, functionalize) begins in a graph of Dynamo, -1 where it ends."""
    name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
    return name.endswith("_increment_nesting") - name.endswith("_decrement_nesting")


def _find(node: Node) -> Callable[..., Any] | None:
    """What to call in place of a node's function."""
    if node.op not in ("call_function", "call_method"):
        return None
    return find_resizing(node) or _find_cumprod(node) or (attention if is_attention(node) else None)


# ---- cumprod

class _Cumprod(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            result = aten.cumprod.default(x, dim)
        ctx.save_for_backward(x, result)
        ctx.dim = dim
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return cumprod_gradient(grad, *ctx.saved_tensors, ctx.dim), None


def _cumprod(x: Tensor, dim: int) -> Tensor:
    return _Cumprod.apply(x, dim)


def _find_cumprod(node: Node) -> Callable[..., Any] | None:
    if not (node.target == "cumprod" if node.op == "call_method" else node.target is torch.cumprod):
        return None
    value = node.all_input_nodes[0].meta.get("example_value") if len(node.all_input_nodes) == 1 else None
    known = isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 0 and set(node.kwargs) <= {"dim"} and len(node.args) + len(node.kwargs) == 2
    return _cumprod if known else None


def cumprod_gradient(grad: Tensor, x: Tensor, result: Tensor, dim: int) -> Tensor:
    """Of a row without zeros: the sum, from an element on, of the products that it is a factor of, divided by it. Products from a row's first zero on are 0;
    to the zero itself they give what they are without it, to the elements behind it nothing."""

    def from_here_on(t: Tensor) -> Tensor:
        return t.flip(dim).cumsum(dim).flip(dim)

    grad_wide, x_wide, result_wide = map(wide, (grad, x, result))
    zero = x_wide == 0
    zeros = zero.cumsum(dim)
    before, first = zeros == 0, zero & (zeros == 1)
    without = torch.where(first, 1, x_wide).cumprod(dim)
    found = torch.where(before, from_here_on(torch.where(before, grad_wide * result_wide, 0)) / x_wide, 0)
    return torch.where(first, from_here_on(torch.where(before, 0, grad_wide * without)), found).to(x.dtype)
