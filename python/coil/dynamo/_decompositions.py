"""Which operators AOTAutograd takes apart before coil sees them: those that PyTorch can and coil has no code for."""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable

import torch

from ._fake_quantization import GRADIENTS_OF_FAKE_QUANTISATION
from ._references import REFERENCES
from ._resizing import GRADIENTS_OF_RESIZING

aten = torch.ops.aten


def operator_name(op: Any) -> str:
    """"aten.add.Tensor", "higher_order.cond", as coil's tables have it."""
    if not isinstance(op, torch._ops.OpOverload):
        return f"higher_order.{op.name()}" if isinstance(op, torch._ops.HigherOrderOperator) else str(op)
    return f"{op.namespace}.{op._opname}.{op._overloadname}"


def is_random(op: Any) -> bool:
    return isinstance(op, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in op.tags


def draws(node: torch.fx.Node) -> bool:
    """Whether a node draws random numbers: attention without dropout does not."""
    if not is_random(node.target):
        return False
    for position, parameter in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if parameter.name == "dropout_p":
            value = node.args[position] if position < len(node.args) else node.kwargs.get("dropout_p", parameter.default_value)
            return value != 0
    return True


# What coil computes for inference only.
_TRAINING = (aten._native_batch_norm_legit_functional.default, aten.native_batch_norm.default, aten._native_batch_norm_legit.default,
             aten._batch_norm_with_update_functional.default, aten._native_batch_norm_legit.no_stats)
# What PyTorch's table would take apart in another way than eager computes it, or into more than it saves.
_KEPT = {"aten._scaled_dot_product_flash_attention_for_cpu.default"}


def _zeros_and_scatter(shape: list[int], indices: list[torch.Tensor], values: torch.Tensor) -> torch.Tensor:
    """The gradient of what a score function of flex_attention looks up."""
    return aten.index_put(values.new_zeros(shape), indices, values, True)


@functools.lru_cache(maxsize=None)
def decompositions() -> dict[Any, Callable[..., Any]]:
    has_lowering = importlib.import_module("coil._compiler").has_lowering
    tables = importlib.import_module("torch._decomp")
    table = {}
    for op, function in tables._core_aten_decompositions_post_autograd().items():
        name = operator_name(op) if isinstance(op, torch._ops.OpOverload) else ""
        if name and name not in _KEPT and not is_random(op) and not has_lowering(name):
            table[op] = function
    # A detach is an alias: what is one the partitioner may compute anew, and a detach it would always save.
    for op in (*_TRAINING, aten.detach.default):
        table[op] = tables.decomposition_table[op]
    table.update(REFERENCES)
    table.update(GRADIENTS_OF_RESIZING)
    table.update(GRADIENTS_OF_FAKE_QUANTISATION)
    importlib.import_module("torch._dynamo._trace_wrapped_higher_order_op")  # where the next operator comes from
    if hasattr(torch.ops.flex_lib, "zeros_and_scatter"):
        table[torch.ops.flex_lib.zeros_and_scatter.default] = _zeros_and_scatter
    return table
