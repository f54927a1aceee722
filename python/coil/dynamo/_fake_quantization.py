"""Gradients of fake quantisation whose scale and zero point are learnt, as PyTorch's kernels have them (they are no table of PyTorch's)."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

aten = torch.ops.aten


def _gradients(grad: Tensor, x: Tensor, scale: Tensor, zero: Tensor, low: int, high: int, factor: float) -> tuple[Tensor, Tensor, Tensor]:
    """For each element, with its scale and zero point. Where it was cut off, the result follows the end of the range; elsewhere rounding counts as nothing."""
    inverse = 1.0 / scale
    place = torch.round(zero + x * inverse)
    is_cut = (place < low) | (place > high)
    kept = place.clamp(low, high) - zero
    by_scale = torch.where(is_cut, grad * kept, grad * (kept * scale - x) * inverse) * factor
    return torch.where(is_cut, 0, grad), by_scale, torch.where(is_cut, -grad * scale * factor, 0)


# Of one zero point eager rounds a half up here, though to even in the forward pass.
def per_tensor(grad: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, quant_min: int, quant_max: int, grad_factor: float = 1.0) -> Any:
    zero = (zero_point.view([]) + 0.5).clamp(quant_min, quant_max).trunc()
    to_x, to_scale, to_zero = _gradients(grad, x, scale.view([]), zero, quant_min, quant_max, grad_factor)
    return to_x, to_scale.sum().view([1]), to_zero.sum().view([1])


def per_channel(grad: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int, grad_factor: float = 1.0) -> Any:
    axis = axis % x.dim()
    shape = [-1 if d == axis else 1 for d in range(x.dim())]
    zero = zero_point.round().clamp(quant_min, quant_max)
    to_x, to_scale, to_zero = _gradients(grad, x, scale.view(shape), zero.view(shape), quant_min, quant_max, grad_factor)
    others = [d for d in range(x.dim()) if d != axis]
    return to_x, (to_scale.sum(others) if others else to_scale), (to_zero.sum(others) if others else to_zero)


GRADIENTS_OF_FAKE_QUANTISATION: dict[Any, Callable[..., Any]] = {
    aten._fake_quantize_learnable_per_tensor_affine_backward.default: per_tensor,
    aten._fake_quantize_learnable_per_channel_affine_backward.default: per_channel,
}
