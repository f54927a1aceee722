"""Attention as PyTorch's math form has it after tracing: 16-bit numbers widened, scaled and multiplied in float32, a softmax whose empty rows are 0."""

import math

import torch
from torch.export import Dim

from case import BF16, BOOL, F16, F32, rand, registry

PROGRAMS, op = registry(__file__)
aten = torch.ops.aten
B, L = Dim("batch", min=1, max=32), Dim("length", min=2, max=300)


def spelled_out(q, k, v, mask=None, causal=False):
    """Of [batch, heads, rows, size], each a view of [batch, rows, heads, size]."""
    dtype, scale = q.dtype, math.sqrt(1 / math.sqrt(q.shape[-1]))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    if causal:
        row, column = torch.arange(q.shape[2]), torch.arange(k.shape[2])
        mask = column[None, :] <= row[:, None]
    if mask is not None and mask.dtype is BOOL:
        mask = aten.where(mask, aten.scalar_tensor(0.0, dtype=dtype), aten.scalar_tensor(-math.inf, dtype=dtype))
    scores = torch.matmul(aten.mul.Scalar(q.float(), scale), aten.mul.Scalar(k.float().transpose(-2, -1), scale))
    scores = scores if mask is None else scores + mask
    return torch.matmul(aten._safe_softmax(scores, -1), v.float()).to(dtype).transpose(1, 2)


def weights_too(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    weights = aten._safe_softmax(torch.matmul(q.float(), k.float().mT), -1)
    return weights, torch.matmul(weights, v.float()).to(q.dtype)


def operands(dtype, rows=33, columns=47, batch=2, heads=3, size=32):
    return rand(batch, rows, heads, size, dtype=dtype), rand(batch, columns, heads, size, dtype=dtype), rand(batch, columns, heads, size, dtype=dtype)


def holes(*shape):
    """Some rows see everything, some nothing."""
    mask = rand(*shape, dtype=BOOL)
    mask[..., 0, :], mask[..., -1, :] = False, True
    return mask


def lengths(mask, *shape):
    return torch.where(mask, 0.0, -math.inf).expand(*shape)


for dtype, name, tolerance in ((F32, "f32", 1e-4), (BF16, "bf16", 2e-2), (F16, "f16", 4e-3)):
    add = lambda case, function, inputs, name=name, tolerance=tolerance, **more: op(f"spelled_attention_{case}_{name}", function, inputs, tolerance=tolerance, **more)
    some = lambda *extra, dtype=dtype, **sizes: lambda: (*operands(dtype, **sizes), *(make() for make in extra))
    add("plain", spelled_out, some())
    add("wide", spelled_out, some(rows=9, columns=70, size=80))
    add("one_query", spelled_out, some(rows=1, columns=130, size=64))
    add("causal", lambda q, k, v: spelled_out(q, k, v, causal=True), some(rows=40, columns=40))
    add("rows_masked", spelled_out, some(lambda: holes(2, 1, 33, 47)))
    add("keys_masked", spelled_out, some(lambda: holes(2, 1, 1, 47)))
    add("heads_masked", spelled_out, some(lambda: holes(3, 33, 47)))
    add("bias", spelled_out, some(lambda dtype=dtype: rand(3, 33, 47, dtype=dtype)))
    add("wide_bias", spelled_out, some(lambda: rand(2, 1, 33, 47)))
    add("bias_with_holes", lambda q, k, v, m: spelled_out(q, k, v, lengths(m, 2, 1, 33, 47)), some(lambda: holes(2, 1, 1, 47)))
    add("all_positions", lambda q, k, v: spelled_out(q, k, v, (torch.arange(q.shape[1])[:, None] >= 0).expand(-1, k.shape[1])), some())
    add("dynamic", spelled_out, some(lambda: holes(1, 1, 33, 33), rows=33, columns=33), dynamic=({0: B, 1: L}, {0: B, 1: L}, {0: B, 1: L}, {2: L, 3: L}),
        sets={f"{b}x{n}": some(lambda n=n: holes(1, 1, n, n), rows=n, columns=n, batch=b) for b, n in ((1, 2), (3, 65), (2, 128))})
    # The weights are a result too: they have to be there.
    add("weights", weights_too, some())
