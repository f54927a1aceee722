"""Operators of training that neither coil nor PyTorch's tables take apart, written in operators that coil computes.

Each is what PyTorch documents, with sums in float32 where the tensors are of 16 bits. They are traced, so sizes may be symbols.
"""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch import Tensor

aten = torch.ops.aten
MAX, MEAN = 2, 1  # of embedding_bag's modes


def wide(t: Tensor) -> Tensor:
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


# ---- weight_norm

def weight_norm_backward(grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """w = v * (g / |v|), the norms over all dimensions but `dim`."""
    grad, v, g, norms = map(wide, (grad_w, saved_v, saved_g, saved_norms))
    others = [d for d in range(v.dim()) if d != dim % v.dim()]
    along = (grad * v).sum(others, keepdim=True) if others else grad * v
    grad_v = g / norms * (grad - v * (along / (norms * norms)))
    return grad_v.to(saved_v.dtype), (along / norms).to(saved_g.dtype)


# ---- group_norm of 16 bits with weights of 32 (autocast): eager keeps the statistics in float32, tracing says otherwise

def group_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, *sizes: Any) -> Any:
    if weight is None or weight.dtype == x.dtype:
        return NotImplemented
    result, mean, rstd = aten.native_group_norm.default(wide(x), weight, bias, *sizes)
    return result.to(x.dtype), mean, rstd


def group_norm_backward(grad_out: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, *sizes: Any) -> Any:
    if weight is None or weight.dtype == x.dtype:
        return NotImplemented
    found = aten.native_group_norm_backward.default(wide(grad_out), wide(x), mean, rstd, weight, *sizes)
    return found[0] if found[0] is None else found[0].to(x.dtype), found[1], found[2]


# ---- antialiased resizing

def _aa_backward(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Resizing is a matrix for each of both dimensions: what `forward` makes of the unit vectors. The gradient takes them transposed."""

    def weights(size: int, out_size: int, align_corners: bool, scale: float | None, like: Tensor) -> Tensor:
        units = (torch.arange(size, device=like.device).unsqueeze(1) == torch.arange(size, device=like.device)).to(like.dtype)
        return forward(units.view(size, 1, 1, size), [1, out_size], align_corners, None, scale).view(size, out_size)

    def backward(grad_output: Tensor, output_size: list[int], input_size: list[int], align_corners: bool, scales_h: float | None = None,
                 scales_w: float | None = None) -> Tensor:
        grad = wide(grad_output)
        rows = weights(input_size[2], output_size[0], align_corners, scales_h, grad)
        columns = weights(input_size[3], output_size[1], align_corners, scales_w, grad)
        return torch.matmul(torch.matmul(rows, grad), columns.t()).to(grad_output.dtype)

    return backward


# ---- embedding_bag

def _bags_of(indices: Tensor, offsets: Tensor, count: int) -> Tensor:
    """For each index the bag that it lies in: the last that begins there or before."""
    places = torch.arange(indices.size(0), device=indices.device, dtype=offsets.dtype)
    return (torch.searchsorted(offsets.narrow(0, 0, count), places, right=True) - 1).to(offsets.dtype)


def embedding_bag(weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
                  per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int = -1) -> Any:
    """The bags, and what the gradients ask for: each index's bag, the numbers of indices in the bags, and where the largest numbers are."""
    bags = aten._embedding_bag_forward_only.default(weight, indices, offsets, scale_grad_by_freq, mode, False, per_sample_weights, include_last_offset, padding_idx)[0]
    count = offsets.size(0) - int(include_last_offset)
    bag = _bags_of(indices, offsets, count)
    counted = indices != padding_idx if padding_idx >= 0 else torch.ones_like(indices, dtype=torch.bool)
    sizes = torch.zeros([count], dtype=offsets.dtype, device=offsets.device).index_add(0, bag, counted.to(offsets.dtype))
    if mode != MAX:
        return bags, bag, sizes, torch.zeros_like(sizes)
    # The first of the largest in its bag.
    length = indices.size(0)
    rows = weight.index_select(0, indices)
    is_largest = (rows == bags.index_select(0, bag)) & counted.unsqueeze(1)
    places = torch.where(is_largest, torch.arange(length, device=indices.device).unsqueeze(1), length)
    first = torch.full([count, weight.size(1)], length, dtype=torch.int64, device=indices.device)
    first = first.scatter_reduce(0, bag.to(torch.int64).unsqueeze(1).expand(length, weight.size(1)), places, "amin")
    padded = torch.cat([indices, indices.new_zeros([1])])
    return bags, bag, sizes, padded.index_select(0, first.view(-1)).view(first.size(0), first.size(1)).to(offsets.dtype)


def embedding_bag_dense_backward(grad: Tensor, indices: Tensor, offset2bag: Tensor, bag_size: Tensor, maximum_indices: Tensor, num_weights: int,
                                 scale_grad_by_freq: bool, mode: int, per_sample_weights: Tensor | None, padding_idx: int = -1) -> Tensor:
    if mode == MAX:
        filled = torch.where((bag_size > 0).unsqueeze(1), wide(grad), 0)
        columns = torch.arange(grad.size(1), device=grad.device)
        table = torch.zeros([num_weights, grad.size(1)], dtype=filled.dtype, device=grad.device)
        return aten._unsafe_index_put(table, [maximum_indices.to(torch.int64), columns], filled, True).to(grad.dtype)
    rows = wide(grad).index_select(0, offset2bag)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if mode == MEAN:
        rows = rows / bag_size.index_select(0, offset2bag).clamp_min(1).unsqueeze(1)
    return aten.embedding_dense_backward(rows, indices, num_weights, padding_idx, scale_grad_by_freq).to(grad.dtype)


def embedding_bag_backward(grad: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, bag_size: Tensor, maximum_indices: Tensor, num_weights: int,
                           scale_grad_by_freq: bool, mode: int, sparse: bool, per_sample_weights: Tensor | None, padding_idx: int = -1) -> Tensor:
    return NotImplemented if sparse else embedding_bag_dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode,
                                                                      per_sample_weights, padding_idx)


def embedding_bag_per_sample_weights_backward(grad: Tensor, weight: Tensor, indices: Tensor, offsets: Tensor, offset2bag: Tensor, mode: int,
                                              padding_idx: int = -1) -> Tensor:
    products = wide(grad).index_select(0, offset2bag) * wide(weight).index_select(0, indices)
    found = products.sum(1)
    if padding_idx >= 0:
        found = torch.where(indices == padding_idx, 0, found)
    return found.to(grad.dtype)


# ---- logarithms of softmax

def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """In pieces, so that the backward graph can compute the logarithms anew from what they are of and two numbers a row: over a large vocabulary they are
    the largest tensor of a training step, and in float32 where the logits are of 16 bits."""
    if x.dim() == 0 or x.size(dim) == 0:
        return NotImplemented
    logits = x.float() if half_to_float else wide(x)
    shifted = logits - logits.amax(dim, True)
    found = shifted - shifted.exp().sum(dim, True).log()
    return found if half_to_float else found.to(x.dtype)


# ---- the gradient of the likelihood of classes

def nll_loss_backward(grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int, total_weight: Tensor) -> Tensor:
    """By comparing each class with the target. PyTorch's table writes ones into zeros, which depend on the targets alone: the forward graph would do that,
    and keep as much memory as all logits take."""
    dim = 0 if x.dim() < 2 else 1
    shape = [-1 if d == dim else 1 for d in range(max(x.dim(), 1))]
    if reduction == MEAN:
        grad = grad / total_weight
    target = target.unsqueeze(dim)
    if x.dim() > grad.dim() > 0:
        grad = grad.unsqueeze(dim)
    if weight is not None:
        grad = grad * weight.view(shape)
    chosen = (torch.arange(x.size(dim), device=x.device).view(shape) == target) & (target != ignore_index)
    return torch.where(chosen, -grad, 0).to(x.dtype)


# ---- rows of many lengths (nested tensors), one after the other or padded to one length

def jagged_to_padded(values: Tensor, offsets: list[Tensor], max_lengths: list[Any], padding_value: float = 0.0) -> Tensor:
    """Row `r` of the padded tensor has what lies between offsets[r] and offsets[r + 1]."""
    if len(offsets) != 1 or not _is_known(max_lengths[0]) or values.size(0) == 0:
        return NotImplemented
    starts, ends = offsets[0][:-1].unsqueeze(1), offsets[0][1:].unsqueeze(1)
    places = starts + torch.arange(max_lengths[0], device=values.device)
    held = places < ends
    rows = values.index_select(0, torch.where(held, places, 0).flatten()).view([*places.shape, *values.shape[1:]])
    return torch.where(held.view([*held.shape, *[1] * (values.dim() - 1)]), rows, padding_value)


def padded_to_jagged(dense: Tensor, offsets: list[Tensor], total: Any = None) -> Tensor:
    """What `jagged_to_padded` takes apart; what a row has beyond the padded length is 0."""
    if len(offsets) != 1 or total is None or not _is_known(total) or dense.size(0) == 0 or dense.size(1) == 0:
        return NotImplemented
    places = torch.arange(total, device=dense.device)
    row = torch.searchsorted(offsets[0], places.to(offsets[0].dtype), right=True) - 1
    row = row.clamp(0, dense.size(0) - 1)
    column = places - offsets[0].index_select(0, row)
    found = dense.flatten(0, 1).index_select(0, row * dense.size(1) + column.clamp_max(dense.size(1) - 1))
    return torch.where((column < dense.size(1)).view([-1, *[1] * (dense.dim() - 2)]), found, 0)


def _is_known(size: Any) -> bool:
    """Whether a size follows from the inputs' sizes, not from data."""
    return isinstance(size, int) or all(symbol.name.startswith("s") for symbol in size.node.expr.free_symbols)


# ---- leaky ReLUs with drawn slopes

def rrelu_with_noise_backward(grad: Tensor, x: Tensor, noise: Tensor, lower: float, upper: float, training: bool, self_is_result: bool) -> Tensor:
    if training and upper - lower > 1e-6:
        return grad * noise
    return aten.leaky_relu_backward(grad, x, (lower + upper) / 2, self_is_result)


# ---- forward mode

def zeros_for_tangent(tangent: Tensor, primal: Tensor, *, self_num_batch_dims: int = 0) -> Tensor:
    """The memory that a tangent is copied to so that it lies like its primal; vmap's dimensions, which the primal may lack, come first."""
    if not self_num_batch_dims:
        return torch.zeros_like(primal, dtype=tangent.dtype)
    return tangent.new_zeros([*tangent.shape[:self_num_batch_dims], *primal.shape])


# ---- slices in order: a negative dimension is told other sizes by tracing than by eager

def _by_dim(operator: Any) -> Callable[..., Any]:
    place = next(i for i, p in enumerate(operator._schema.arguments) if p.name == "dim")

    def counted_from_the_front(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        given = list(args)
        dim = kwargs.get("dim", given[place - 1] if len(given) >= place else None)
        if dim is None or dim >= 0:
            return NotImplemented
        if "dim" in kwargs:
            kwargs["dim"] = dim + x.dim()
        else:
            given[place - 1] = dim + x.dim()
        return operator(x, *given, **kwargs)

    return counted_from_the_front


REFERENCES: dict[Any, Callable[..., Any]] = {
    aten._jagged_to_padded_dense_forward.default: jagged_to_padded,
    aten._padded_dense_to_jagged_forward.default: padded_to_jagged,
    aten.unique_consecutive.default: _by_dim(aten.unique_consecutive.default),
    aten.unique_dim.default: _by_dim(aten.unique_dim.default),
    aten.rrelu_with_noise_backward.default: rrelu_with_noise_backward,
    aten._new_zeros_with_same_feature_meta.default: zeros_for_tangent,
    aten.native_group_norm.default: group_norm,
    aten.native_group_norm_backward.default: group_norm_backward,
    aten._weight_norm_interface_backward.default: weight_norm_backward,
    aten._upsample_bicubic2d_aa_backward.default: _aa_backward(aten._upsample_bicubic2d_aa.default),
    aten._upsample_bilinear2d_aa_backward.default: _aa_backward(aten._upsample_bilinear2d_aa.default),
    aten._log_softmax.default: log_softmax,
    aten.nll_loss_backward.default: nll_loss_backward,
    aten.nll_loss2d_backward.default: nll_loss_backward,
    aten._embedding_bag.default: embedding_bag,
    aten._embedding_bag_backward.default: embedding_bag_backward,
    aten._embedding_bag_dense_backward.default: embedding_bag_dense_backward,
    aten._embedding_bag_per_sample_weights_backward.default: embedding_bag_per_sample_weights_backward,
}
