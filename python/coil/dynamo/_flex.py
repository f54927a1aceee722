"""flex_attention: its score and mask functions are applied to all scores, as eager does it; so its gradients, and those of what the
functions read, come from autograd, and the whole is compiled like any formula."""

from __future__ import annotations

import importlib

from torch.fx import GraphModule


def spell_out_flex_attention(gm: GraphModule) -> None:
    """In a graph of Dynamo, and in those inside of it."""
    for module in gm.modules():
        if not isinstance(module, GraphModule):
            continue
        found = [n for n in module.graph.nodes if n.op == "call_function" and getattr(n.target, "__name__", "") == "flex_attention"]
        for node in found:
            node.target = importlib.import_module("torch._higher_order_ops.flex_attention").sdpa_dense
        if found:
            module.recompile()
