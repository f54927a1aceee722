"""Resizing stays one operator, and its gradient becomes a sum over the few pixels of the result that a pixel of the image went into.

Left to itself AOTAutograd takes resizing apart before anything else: into tables of positions and reads by them, whose gradients are writes by data,
pixel by pixel, four (bilinear) to sixteen (bicubic) for each. What went where is known: along each dimension a pixel's readers are neighbours.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node

from ._references import wide

aten = torch.ops.aten


class Filter(NamedTuple):
    """Which pixels of an image a point between them reads: those from `first` to `last`, counted from the one before the point."""

    first: int
    last: int
    rounds: bool = False  # points are where pixels begin, or lie in their middle ("exact")


NEAREST, EXACT, LINEAR, CUBIC = Filter(0, 0, True), Filter(0, 0), Filter(0, 1), Filter(-1, 2)
# F.interpolate's mode: (operator for images of 1, 2 and 3 dimensions, its filter)
MODES: dict[str, tuple[tuple[Any, ...], Filter]] = {
    "nearest": ((aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d), NEAREST),
    "nearest-exact": ((aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d), EXACT),
    "linear": ((aten.upsample_linear1d,), LINEAR),
    "bilinear": ((None, aten.upsample_bilinear2d), LINEAR),
    "trilinear": ((None, None, aten.upsample_trilinear3d), LINEAR),
    "bicubic": ((None, aten.upsample_bicubic2d), CUBIC),
}


# ---- in graphs of Dynamo

class _Resize(torch.autograd.Function):
    """An operator of resizing that AOTAutograd does not take apart; its other arguments are sizes, flags and factors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, op: Any, backward: Any, out: list[int], rest: tuple[Any, ...]) -> Tensor:
        ctx.backward_of = (backward, out, list(x.shape), rest)
        with torch._C._AutoDispatchBelowAutograd():
            return op(x, out, *rest)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        backward, out, sizes, rest = ctx.backward_of
        return backward(grad, out, sizes, *rest), None, None, None, None


def find_resizing(node: Node) -> Callable[..., Any] | None:
    """What to call in a graph of Dynamo in place of F.interpolate, where it is one operator and the sizes of the image are numbers."""
    return _interpolate if node.target is F.interpolate and _is_known(node) else None


def _is_known(node: Node) -> bool:
    """Floats, or bytes that eager resizes by whole numbers, of sizes that are numbers, in a mode that is one operator; some images (PyTorch 2.15 cannot
    infer the operator's sizes for none)."""
    tensors = [node.meta.get("example_value"), *(n.meta.get("example_value") for n in node.all_input_nodes)]
    if len(tensors) != 2 or not all(isinstance(t, torch.Tensor) and type(t.shape[-1]) is int and 3 <= t.dim() <= 5 for t in tensors):
        return False
    given = _arguments(*node.args, **node.kwargs)
    if given["mode"] not in MODES or given["antialias"] or not isinstance(given["scale_factor"], (int, float, list, tuple, type(None))):
        return False
    has_type = all(t.is_floating_point() or (t.dtype == torch.uint8 and t.device.type == "cpu" and given["mode"] in ("bilinear", "bicubic")) for t in tensors)
    return has_type and all(t.layout == torch.strided and _sizes_known(t.shape) for t in tensors)


def _sizes_known(shape: torch.Size) -> bool:
    return all(type(n) is int and n > 0 for n in shape[2:]) and not any(type(n) is int and n == 0 for n in shape)


def _arguments(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
               recompute_scale_factor: bool | None = None, antialias: bool = False) -> dict[str, Any]:
    return dict(size=size, scale_factor=scale_factor, mode=mode, align_corners=align_corners, recompute_scale_factor=recompute_scale_factor, antialias=antialias)


def _interpolate(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """F.interpolate, whose arguments Dynamo has tried already."""
    given = _arguments(x, *args, **kwargs)
    dims = x.dim() - 2
    factor = given["scale_factor"]
    factors = list(factor) if isinstance(factor, (list, tuple)) else [factor] * dims
    if factor is None:
        size = given["size"]
        out = list(size) if isinstance(size, (list, tuple)) else [size] * dims
    else:
        out = [math.floor(float(n * f)) for n, f in zip(x.shape[2:], factors)]
    scales = [None if given["recompute_scale_factor"] or f is None else float(f) for f in factors]
    operators, filter = MODES[given["mode"]]
    rest = scales if filter.last == 0 else [bool(given["align_corners"]), *scales]
    op = operators[dims - 1]
    return _Resize.apply(x, op.default, _backward_of(op), out, tuple(rest))


# ---- gradients

def _backward_of(op: Any) -> Any:
    return getattr(aten, f"{op._qualified_op_name.partition('::')[2]}_backward").default


def _gradient(filter: Filter) -> Callable[..., Any]:
    def backward(grad: Tensor, output_size: list[int], input_size: list[int], *rest: Any) -> Tensor:
        align, scales = (False, rest) if filter.last == 0 else (rest[0], rest[1:])
        dims = len(output_size)
        scales = tuple(scales) + (None,) * (dims - len(scales))
        if not all(type(n) is int and n > 0 for n in (*output_size, *input_size[2:])):
            return NotImplemented
        found = wide(grad)
        for i in reversed(range(dims)):
            size, out, scale = input_size[2 + i], output_size[i], scales[i]
            if filter.last == 0 and _whole_factor(size, out, scale, dims):
                found = found.unflatten(2 + i, (size, out // size)).sum(3 + i)
            else:
                found = _along(found, 2 + i, size, out, filter, align, scale)
        return found.to(grad.dtype)

    return backward


def _whole_factor(size: int, out: int, scale: float | None, dims: int) -> bool:
    """As the forward operators have it (`whole_factor` in lower/resampling.cc)."""
    return out % size == 0 and (scale is None or scale == out // size or (dims == 2 and out <= 2 * size))


def _along(grad: Tensor, dim: int, size: int, out: int, filter: Filter, align: bool, scale: float | None) -> Tensor:
    """The gradient along one dimension: of `size` pixels of the image, from `out` of the result."""
    if align:
        step = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        step = 1 / scale if scale else size / out
    begins, terms = _readers(size, out, filter, align, step)
    pixel = torch.arange(size, device=grad.device)
    begin = begins(pixel.to(torch.float64)).clamp(0, out - 1).to(torch.int64)
    place = begin + torch.arange(terms, device=grad.device).unsqueeze(1)  # rows of first, second, ... readers: neighbours beside each other
    weights = _weights(place, pixel, size, filter, align, step, grad.dtype)
    weights = torch.where(place < out, weights, 0).view([terms, size] + [1] * (grad.dim() - dim - 1))
    read = grad.index_select(dim, place.clamp(max=out - 1).view(-1)).unflatten(dim, (terms, size))
    return (read * weights).sum(dim)


def _readers(size: int, out: int, filter: Filter, align: bool, step: float) -> tuple[Callable[[Any], Any], int]:
    """Where the readers of a pixel begin, as a formula of it, and the most that a pixel has. A little before and after, since places are rounded."""
    slack = 1e-3
    shift = 0.0 if align or filter.rounds else 0.5
    if step == 0:
        return lambda pixel: pixel * 0, out

    def place(point: float) -> float:  # whose point it is
        return (point + (shift if filter.last else 0.0)) / step - shift

    def begins(pixel: Any) -> Any:
        at = place(pixel - filter.last) - slack
        return at.ceil() if isinstance(at, Tensor) else math.ceil(at)

    terms = 1
    for pixel in range(size):
        begin = min(max(begins(pixel), 0), out - 1)
        # The first and the last pixel stand for those outside of the image, too.
        end = out - 1 if pixel == size - 1 else min(math.floor(place(pixel - filter.first + 1) + slack), out - 1)
        terms = max(terms, end - (0 if pixel == 0 else begin) + 1)
    return begins, min(terms, out)


def _weights(place: Tensor, pixel: Tensor, size: int, filter: Filter, align: bool, step: float, dtype: torch.dtype) -> Tensor:
    """How much of a pixel the points at `place` read, as the forward operators compute it."""
    at = place.to(dtype)
    if filter.last == 0:
        at = (at if filter.rounds else at + 0.5) * step
        return (at.floor().to(torch.int64).clamp(max=size - 1) == pixel).to(dtype)
    source = at * step if align else (at + 0.5) * step - 0.5
    if filter is LINEAR and not align:
        source = source.clamp(min=0)
    before = source.floor()
    share = source - before
    shares = [1 - share, share] if filter is LINEAR else _cubic(share)
    read = [torch.where((before.to(torch.int64) + k).clamp(0, size - 1) == pixel, weight, 0) for k, weight in enumerate(shares, filter.first)]
    return functools.reduce(torch.add, read)


def _cubic(share: Tensor) -> list[Tensor]:
    """Keys' cubic with A = -0.75, as PyTorch has it, at the distances 1 + share, share, 1 - share, 2 - share."""
    a = -0.75

    def near(t: Tensor) -> Tensor:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: Tensor) -> Tensor:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return [far(share + 1), near(share), near(1 - share), far(2 - share)]


GRADIENTS_OF_RESIZING: dict[Any, Callable[..., Any]] = {
    _backward_of(op): _gradient(filter) for operators, filter in MODES.values() for op in operators if op is not None
}
