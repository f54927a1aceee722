"""Models with an encoder and a decoder: their steps as examples to trace, and the encoder as `generate` calls it."""

from __future__ import annotations

import copy
import functools
from typing import Any, Callable

import torch
from torch.utils._sympy.value_ranges import ValueRanges
from transformers.exporters.utils import _capture_forward


def encoder_steps(model: Any, inputs: Any, generation_config: Any = None) -> dict[str, tuple[Any, dict]]:
    """What is traced for generation: the encoder, the first step of the decoder, and a later one. transformers' own decomposition has no encoder, which
    `generate` calls beside the model; and its later step is the second one, whose cache has one row: a trace is fixed to sizes of 1, so here it is the third.
    """
    settings = copy.deepcopy(generation_config if generation_config is not None else model.generation_config)
    settings.max_new_tokens = settings.min_new_tokens = 3
    encoder = model.get_encoder()
    with _capture_forward(encoder) as encoded, _capture_forward(model) as steps:
        model.generate(**copy.deepcopy(dict(inputs)), generation_config=settings)
    for step in steps:
        step.pop("logits_to_keep", None)
    parts = {"encoder": (encoder, encoded[0])} if encoded else {}  # none where the example has the encoder's results
    return {**parts, "prefill": (copy.copy(model), steps[0]), "decode": (copy.copy(model), steps[2])}


def from_one_row_on(program: Any, steps: dict) -> Any:
    """The program of later steps, also for a cache of the one row that the first step has written. Rows of a cache are only put before new ones and
    attended to, which is the same for one; PyTorch takes sizes of traced dimensions to be 2 and more."""
    past = getattr(steps.get("past_key_values"), "self_attention_cache", None)
    rows = {tuple(leaf.shape) for leaf in torch.utils._pytree.tree_leaves(past) if isinstance(leaf, torch.Tensor) and leaf.dim() == 4}
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if not (node.name.startswith("past_key_values") and isinstance(value, torch.Tensor) and value.dim() == 4):
            continue
        symbol = getattr(getattr(value.shape[2], "node", None), "expr", None)
        hint = tuple(getattr(getattr(s, "node", None), "hint", s) for s in value.shape)
        known = program.range_constraints.get(symbol)
        if hint in rows and known is not None and known.lower == 2:
            program.range_constraints[symbol] = ValueRanges(1, known.upper)
    return program


class Encoder:
    """The encoder's program, called as the module is."""

    def __init__(self, call: Callable[..., Any], forward: Callable[..., Any]):
        self.call = call
        # generate asks the signature which arguments there are.
        self.forward = functools.wraps(forward)(call)

    def __call__(self, **kwargs: Any) -> Any:
        return self.call(**kwargs)
