"""Caches of layers with a window."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer


def forget_windows(cache: Any) -> None:
    """Layers with a window keep all rows: programs are traced so, and their masks leave the window only. Rows that eager has dropped come back as zeros,
    which no mask lets anybody see: layers with a window and without one then have as many rows, as programs that have both kinds take them."""
    for part in (getattr(cache, "self_attention_cache", cache), getattr(cache, "cross_attention_cache", None)):
        for i, layer in enumerate(getattr(part, "layers", ())):
            if type(layer) is DynamicSlidingWindowLayer and layer.is_initialized:
                plain, dropped = DynamicLayer(), max(layer.cumulative_length - layer.keys.shape[-2], 0)
                plain.keys, plain.values = (torch.nn.functional.pad(rows, (0, 0, dropped, 0)) if dropped else rows for rows in (layer.keys, layer.values))
                plain.dtype, plain.device, plain.is_initialized = layer.dtype, layer.device, True
                part.layers[i] = plain
