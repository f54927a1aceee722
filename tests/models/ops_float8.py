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


def scaled(m, n, k, kinds=(torch.float8_e4m3fn, torch.float8_e4m3fn), rows=False):
    """Matrices and their scales, the second one turned as a Linear's weight is."""
    a, b = torch.randn(m, k).to(kinds[0]), torch.randn(n, k).to(kinds[1])
    scales = (torch.rand(m, 1) + 0.5, torch.rand(1, n) + 0.5) if rows else (torch.tensor(0.37), torch.tensor(1.7))
    return as_bytes(a), as_bytes(b), *scales


def product(a, b, scale_a, scale_b, kinds=(torch.float8_e4m3fn, torch.float8_e4m3fn), to=F32, **options):
    return torch._scaled_mm(a.view(kinds[0]), b.view(kinds[1]).t(), scale_a, scale_b, out_dtype=to, **options)


MIXED = (torch.float8_e5m2, torch.float8_e4m3fn)
for rows in (False, True):
    tail = "rows" if rows else "tensors"
    add(f"scaled_mm_{tail}", lambda *x: [product(*x, to=t) for t in (F32, BF16, F16)], lambda r=rows: scaled(32, 48, 64, rows=r))
    add(f"scaled_mm_{tail}_bias", lambda *x: [product(*x[:4], to=F32, bias=x[4]), product(*x[:4], to=BF16, bias=x[4].to(BF16))], lambda r=rows: (*scaled(16, 32, 48, rows=r), torch.randn(32)))
    add(f"scaled_mm_{tail}_to_float8", lambda *x: product(*x[:4], to=torch.float8_e4m3fn, scale_result=x[4]).to(F32), lambda r=rows: (*scaled(16, 32, 16, rows=r), torch.tensor(4.0)), tolerance=0.08)
add("scaled_mm_mixed", lambda *x: product(*x, MIXED), lambda: scaled(17, 48, 80, MIXED))
add("scaled_mm_row_major", lambda a, b: torch._scaled_mm(a.view(torch.float8_e4m3fn), b.view(torch.float8_e4m3fn), torch.tensor(0.5), torch.tensor([[0.25]]), out_dtype=F32),
    lambda: (as_bytes(torch.randn(16, 32).to(torch.float8_e4m3fn)), as_bytes(torch.randn(32, 16).to(torch.float8_e4m3fn))))


class Linear(torch.nn.Module):
    """As float8 inference is written: the weight kept in float8, the input quantised by its largest number."""

    def __init__(self):
        super().__init__()
        weight = torch.randn(64, 32)
        self.scale = torch.nn.Buffer(weight.abs().amax(1, keepdim=True).t() / 448)
        self.weight = torch.nn.Buffer((weight / self.scale.t()).to(torch.float8_e4m3fn))
        self.bias = torch.nn.Buffer(torch.randn(64).to(BF16))

    def forward(self, *inputs):
        (x,) = inputs
        scale = x.abs().amax(1, keepdim=True).float() / 448
        q = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        return torch._scaled_mm(q, self.weight.t(), scale, self.scale, bias=self.bias, out_dtype=BF16, use_fast_accum=True)


add("scaled_mm_linear", Linear, lambda: (torch.randn(8, 32).to(BF16),), dynamic=[{0: torch.export.Dim("rows", min=2)}], sets={"more": lambda: (torch.randn(33, 32).to(BF16),)})
add("scaled_mm_recipes", lambda a, b, s, t: F.scaled_mm(a.view(torch.float8_e4m3fn), b.view(torch.float8_e4m3fn).t(), s, F.ScalingType.RowWise, t, F.ScalingType.RowWise, output_dtype=F32),
    lambda: scaled(16, 32, 48, rows=True))
