"""Unsigned numbers of 16, 32 and 64 bits, complex numbers of two float16, and divisors of integers: what PyTorch's CPU has of them."""

import itertools

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, registry

PROGRAMS, op = registry(__file__)
U16, U32, U64 = torch.uint16, torch.uint32, torch.uint64
WIDE = [U16, U32, U64]
NAN, INF = float("nan"), float("inf")


def bits(kind):
    """Small numbers, the largest ones, those around the signed type's end, and some between."""
    size = 8 * kind.itemsize
    signed = {16: I16, 32: I32, 64: I64}[size]
    numbers = [0, 1, 2, 3, 7, 255, 256, 1 << (size - 1), (1 << (size - 1)) - 1, (1 << (size - 1)) + 1025, (1 << size) - 1, (1 << size) - 2, (1 << 15) + 12345]
    edges = torch.tensor([n - (1 << size) if n >> (size - 1) else n for n in numbers], dtype=I64)
    return torch.cat([edges, torch.randint(-(1 << 62), 1 << 62, (35,)) * 5]).to(signed).view(kind)


def other(kind):
    return bits(kind).view({2: I16, 4: I32, 8: I64}[kind.itemsize]).roll(5).view(kind)


FLOATS = [0.0, -0.0, 1.9, -1.9, 255.5, 70000.7, -70000.7, 3e9, -3e9]

for kind in WIDE:
    tail = str(kind)[6:]
    op(f"{tail}_to_others", lambda x: [x.to(t) for t in (F32, F64, F16, BF16, I8, I16, I32, I64, U8, torch.bool, torch.complex64)], lambda k=kind: (bits(k),))
    op(f"{tail}_from_others", lambda x, y, z, k=kind: [x.to(k), y.to(k), z.to(k), (x > 0).to(k), x.to(F64).to(k), x.abs().to(F16).clamp(0, 300).to(k)],
       lambda: (torch.tensor(FLOATS), torch.arange(-300, 300), torch.arange(256).to(U8)))
    op(f"{tail}_to_wide", lambda x: [x.to(t) for t in WIDE], lambda k=kind: (bits(k),))
    op(f"{tail}_arithmetic", lambda x, y: (x * y, x & y, x | y, x ^ y, x * 3, x & 255, torch.maximum(x, y), torch.minimum(x, y), x.clamp(3, 30000), torch.fmax(x, y), x.relu(), x == y, x != y, x == 7),
       lambda k=kind: (bits(k), other(k)))
    op(f"{tail}_floats", lambda x, y: (x / y, x.sqrt(), x * 0.5, x.to(F32) + 1, torch.atan2(x, y), x.sigmoid(), x / 3), lambda k=kind: (bits(k), other(k)))
    op(f"{tail}_reduced", lambda x: (x.sum(), x.prod(), x.cumsum(0), x.any(), x.all(), x.reshape(6, 8).sum(1), x.reshape(6, 8).prod(0), (x == 0).sum()), lambda k=kind: (bits(k),))
    op(f"{tail}_ordered", lambda x: (*x.sort(stable=True), *x.reshape(6, 8).sort(dim=1, descending=True, stable=True), x.argsort(stable=True)), lambda k=kind: (bits(k),))
    op(f"{tail}_moved", lambda x, k=kind: (x.reshape(6, 8).t().contiguous(), torch.cat([x, x * 3]), torch.stack([x, x]), x[3:40:2].clone(), x.flip(0), F.pad(x, (1, 2), value=40000), x[torch.tensor([5, 2, 2, -1])],
                                          x.index_select(0, torch.tensor([7, 0])), x.gather(0, torch.tensor([3, 3, 9])), torch.where(x == 7, x, x * 2), x.roll(3), x.expand(2, 48).clone(), torch.full_like(x, 65535),
                                          torch.zeros(3, dtype=k), torch.ones_like(x), x.repeat(2), x.scatter(0, torch.tensor([1, 4]), x[:2] * 1)), lambda k=kind: (bits(k),))
    op(f"{tail}_dynamic", lambda x: (x * x, x.to(F32).sum(), x.sum()), lambda k=kind: (bits(k),), dynamic=({0: Dim("n", min=1, max=4000)},), sets={"one": lambda k=kind: (bits(k)[:1],), "many": lambda k=kind: (bits(k).repeat(70),)})
    op(f"{tail}_bits", lambda x, y: (x.view({2: I16, 4: I32, 8: I64}[x.element_size()]), x.view(U8), y.view(x.dtype)), lambda k=kind: (bits(k), bits(k).view({2: I16, 4: I32, 8: I64}[k.itemsize])))


def divisor_pairs(dtype):
    limits = torch.iinfo(dtype)
    values = [0, 1, 2, 3, 6, 7, 12, 18, 89, 100, 120, limits.max, limits.max - 1] + ([-1, -2, -6, -12, -100, limits.min + 1] if limits.min < 0 else [])
    a, b = zip(*itertools.product(values, values))
    many = torch.randint(max(limits.min, -(1 << 40)), min(limits.max, 1 << 40), (2, 200))
    return torch.cat([torch.tensor(a, dtype=dtype), many[0].to(dtype)]), torch.cat([torch.tensor(b, dtype=dtype), many[1].to(dtype)])


for dtype in (I8, I16, I32, I64, U8):
    op(f"divisors_{str(dtype)[6:]}", lambda a, b: (torch.gcd(a, b), torch.lcm(a, b), torch.gcd(a, torch.tensor(12, dtype=a.dtype)), torch.gcd(a[:0], b[:0])), lambda t=dtype: divisor_pairs(t))
# The least number has no absolute value. (lcm of it and some others ends eager's process.)
for dtype in (I8, I16, I32, I64):
    op(f"divisors_least_{str(dtype)[6:]}", lambda a, b: torch.gcd(a, b), lambda t=dtype: (torch.full((12,), torch.iinfo(t).min, dtype=t), torch.tensor([0, 1, 2, 3, 5, 6, 7, 64, 100, -3, -5, torch.iinfo(t).min], dtype=t)))
op("divisors_strided", lambda a, b: (torch.gcd(a.t(), b), torch.lcm(a[:, ::2], b[0, 0])), lambda: (torch.randint(-5000, 5000, (17, 17)), torch.randint(1, 600, (17, 17))))
op("divisors_constant", lambda a: (a + torch.gcd(torch.tensor([12, 18, 0]), torch.tensor([18, 12, 0])), a * torch.lcm(torch.tensor(4), torch.tensor(6))), lambda: (torch.arange(3),))


def halves(*shape):
    return torch.randn(*shape, 2).to(F16)


def seen(*numbers):
    return [torch.view_as_real(z.resolve_conj()) if z.is_complex() else z for z in numbers]


def half_complex(x, y):
    a, b = torch.view_as_complex(x), torch.view_as_complex(y)
    return seen(a + b, a - b, a * b, a * 2, a + 1.5, -a, a.abs(), a.conj(), a.real, a.imag, a == b, a != a.roll(1, 0), torch.cat([a, b]), a.t().contiguous(), a[1:, ::2].clone(), a.to(torch.complex64) * 2,
                b.to(torch.complex64).to(torch.complex32), x[..., 0].to(torch.complex32), torch.complex(x[..., 0], y[..., 1]), a.isnan(), torch.where(x[..., 0] > 0, a, b), a.sum(dtype=torch.complex64), a.sgn())


op("half_complex", half_complex, lambda: (halves(5, 7), halves(5, 7)))

# Bits of all elements, of rows, of columns, of no rows; and what bits floats have.
for dtype in (F32, F64, F16, I64, I32, I8, U8, BOOL):
    op(f"hash_{str(dtype)[6:]}", lambda x: (torch.hash_tensor(x), torch.hash_tensor(x, [1]), torch.hash_tensor(x.mT, [0, -1], keepdim=True), torch.hash_tensor(x[:, :0], 2)),
       lambda t=dtype: ((torch.randn(3, 40, 70) * 50).abs().to(t) if t in (U8, BOOL) else (torch.randn(3, 40, 70) * 50).to(t),))
op("hash_special", lambda x: (torch.hash_tensor(x), torch.hash_tensor(x.view(-1, 1), 1), torch.hash_tensor(x.float(), 0)), lambda: (torch.tensor([float("nan"), -0.0, float("inf"), 1e-310]).double(),))
