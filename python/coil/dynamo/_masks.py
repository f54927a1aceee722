"""Masks of attention that would keep PyTorch from its fused kernels on a GPU, in half precision.

PyTorch takes attention apart where the mask's last dimension is not contiguous: products and a softmax in float32, whose probabilities are kept for the gradients
(sdp_utils_cpp.h, check_last_dim_stride_equals_1_dense). transformers' models have such masks only while they are traced: `q >= 0`, expanded along the keys. They
are left out where they are true everywhere and computed from numbers alone. Biases, such as T5's, are copied. Other booleans stay as they are: of a query that sees
no key fused kernels give other numbers than the zeros of the products.
"""

from __future__ import annotations

import math
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule, Node

_MOST_NODES, _MOST_ELEMENTS = 50, 1 << 24
# What masks are made of. Nothing draws, writes, or looks at what is not among its arguments.
_PURE = {"arange", "ones", "full", "zeros", "add", "sub", "mul", "ge", "le", "gt", "lt", "eq", "ne", "and_", "or_", "logical_and", "logical_or", "logical_not",
         "getitem", "expand", "unsqueeze", "squeeze", "view", "reshape", "transpose", "permute", "contiguous"}


def is_attention(node: Node) -> bool:
    return node.op == "call_function" and node.target in (F.scaled_dot_product_attention, torch._C._nn.scaled_dot_product_attention)


def fusible(query: Tensor) -> bool:
    """Whether PyTorch has fused kernels whose choice the mask decides: in half precision, which may be autocast's."""
    if query.device.type != "cuda":
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else query.dtype
    return dtype in (torch.float16, torch.bfloat16)


def attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, *args: Any, **kwargs: Any) -> Tensor:
    """F.scaled_dot_product_attention, while a graph is traced."""
    if attn_mask is None or attn_mask.dtype == torch.bool or attn_mask.stride(-1) == 1 or not fusible(query):
        return F.scaled_dot_product_attention(query, key, value, attn_mask, *args, **kwargs)
    result = F.scaled_dot_product_attention(query, key, value, attn_mask.contiguous(), *args, **kwargs)
    sees = (attn_mask.detach() != -math.inf).any(-1, keepdim=True)  # a query that sees no key gives zeros, as without fused kernels
    return torch.where(sees, result, 0)


def leave_out_masks(gm: GraphModule, wanted: Callable[[Node], bool] | None = None) -> bool:
    """Takes masks that are true everywhere from the attention in a graph of Dynamo; whether there was one. `wanted`: for which attention, by default on a GPU."""
    changed = False
    for node in gm.graph.nodes:
        if not is_attention(node) or not (wanted or _on_gpu)(node):
            continue
        mask = node.kwargs.get("attn_mask", node.args[3] if len(node.args) > 3 else None)
        if not isinstance(mask, Node) or not _true_everywhere(mask):
            continue
        if "attn_mask" in node.kwargs:
            node.kwargs = {**node.kwargs, "attn_mask": None}
        else:
            node.args = (*node.args[:3], None, *node.args[4:])
        changed = True
    return changed


def _on_gpu(node: Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, Tensor) and value.device.type == "cuda" and value.dtype in (torch.float16, torch.bfloat16)


def _true_everywhere(mask: Node) -> bool:
    value = mask.meta.get("example_value")
    if not isinstance(value, Tensor) or value.dtype != torch.bool:
        return False
    order = _needed(mask)
    if order is None:
        return False
    with torch.utils._python_dispatch._disable_current_modes(), torch.no_grad():
        results: dict[Node, Any] = {}
        for node in order:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: results[n])
            if "device" in kwargs:
                kwargs = {**kwargs, "device": "cpu"}
            results[node] = node.target(*args, **kwargs) if callable(node.target) else getattr(args[0], node.target)(*args[1:], **kwargs)
        return bool(results[mask].all())


def _needed(mask: Node) -> list[Node] | None:
    """What a value is computed from, itself the last; None: more than numbers."""
    order: list[Node] = []
    todo, seen = [(mask, False)], set()
    while todo:
        node, done = todo.pop()
        if done:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        value = node.meta.get("example_value")
        if node.op not in ("call_function", "call_method") or name not in _PURE or len(seen) > _MOST_NODES:
            return None
        if isinstance(value, Tensor) and not (isinstance(value.numel(), int) and value.numel() <= _MOST_ELEMENTS):
            return None
        todo.append((node, True))
        todo += [(n, False) for n in node.all_input_nodes]
    return order
