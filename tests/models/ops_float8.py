"""float8 numbers: converted both ways, moved, compared; codes go in and come out as bytes, which are compared exactly."""

import torch
import torch.nn.functional as F

from case import BF16, F16, F32, F64, I32, I64, U8, registry

PROGRAMS, add = registry(__file__)
TYPES = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]


def codes():
    return torch.arange(256).to(U8)


def bits(*values):
    """float32 with these bits, each with and without its sign."""
    return torch.tensor([b - (1 << 32) if b >> 31 else b for v in values for b in (v, v | 1 << 31)], dtype=I64).to(I32).view(F32)


def numbers(kind):
    """Around every number of the type: the middle between neighbours, a little beside it, and what no type holds."""
    table = codes().view(kind).to(F32)
    table = table[table.isfinite()].double().abs().unique()
    middles = torch.cat([(table[1:] + table[:-1]) / 2, table, table[-1:] * torch.tensor([1.01, 1.03125, 1.0625, 1.2, 1.5, 2, 1e6])]).to(F32)
    near = torch.cat([middles, middles.nextafter(torch.tensor(float("inf"))), middles.nextafter(torch.tensor(0.0))])
    odd = bits(0, 1, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x00400000, 0x00400001, 0x00200000, 0x00600000, 0x00800000)
    return torch.cat([near, -near, odd, torch.randn(200) * torch.randn(200).exp()])


def finite(x):
    return torch.where(x.isnan(), 0.0, x)  # what sign NaN has in 16 bits depends on the machine


def as_bytes(x):
    return x.view(U8)


for kind in TYPES:
    tail = str(kind).removeprefix("torch.float8_")
    add(f"float8_values_{tail}", lambda c, k=kind: [c.view(k).to(t) for t in (F32, F16, BF16, F64)], lambda: (codes(),), tolerance=0.0)
    add(f"float8_rounding_{tail}", lambda x, k=kind: [*(as_bytes(x.to(t).to(k)) for t in (F32, F64)), *(as_bytes(finite(x).to(t).to(k)) for t in (F16, BF16))], lambda k=kind: (numbers(k),))
    add(f"float8_whole_numbers_{tail}", lambda x, y, k=kind: [as_bytes(x.to(k)), as_bytes(y.to(k)), as_bytes((x > 0).to(k)), as_bytes(x.to(torch.int8).to(k))],
        lambda: (torch.arange(-600, 600), torch.arange(256).to(U8)))
    add(f"float8_to_others_{tail}", lambda c, k=kind: [as_bytes(c.view(k).to(t)) for t in TYPES if t != k], lambda: (codes(),))


def moved(c):
    x = c.view(torch.float8_e4m3fn).reshape(16, 16)
    y = (x.to(F32) * 0.5).to(torch.float8_e4m3fn)
    where = torch.where(x.to(F32) > 1, x, y)
    parts = [torch.cat([x, y], 1), torch.stack([x, y]), where, x.t().contiguous(), x[3:9, ::2].clone(), x.flip(0), F.pad(x, (1, 2), value=1.7),
             torch.full_like(x, 3.3), torch.zeros_like(x), torch.ones(3, dtype=x.dtype), x[torch.tensor([5, 2, 2])], x.index_select(1, torch.tensor([7, 0])),
             torch.slice_scatter(x, y[:2], 0, 4, 6), x.repeat(2, 1), x.unfold(0, 2, 3).clone(), x.clone().fill_(0.3), x.roll(3, 1)]
    return [as_bytes(p) for p in parts]


add("float8_moved", moved, lambda: (codes(),))
add("float8_compared", lambda c: [f(c.view(k)) for k in TYPES for f in (torch.isnan, torch.isinf, torch.isfinite, lambda x: x == x.roll(1), lambda x: x != 0.3)], lambda: (codes(),))
add("bits_of_numbers", lambda x, y: (x.view(I32), y.view(I64), x.view(I32).view(F32) + 1, y.view(I64).bitwise_and(-8).view(F64), x.view(I32).to(torch.int8).view(U8)),
    lambda: (torch.randn(33), torch.randn(7, dtype=F64)))
