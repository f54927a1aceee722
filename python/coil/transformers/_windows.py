"""Caches of layers with a window."""

from __future__ import annotations

from typing import Any

from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer


def forget_windows(cache: Any) -> None:
    """Layers with a window keep all rows: programs are traced so, and their masks leave the window only."""
    for i, layer in enumerate(getattr(cache, "layers", ())):
        if type(layer) is DynamicSlidingWindowLayer and layer.is_initialized:
            plain = DynamicLayer()
            plain.dtype, plain.device, plain.keys, plain.values, plain.is_initialized = layer.dtype, layer.device, layer.keys, layer.values, True
            cache.layers[i] = plain
