"""view(dtype): the same bits as numbers of another type, of the same size and of others."""

import torch

from case import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, rand, registry

PROGRAMS, add = registry(__file__)
C64, C128 = torch.complex64, torch.complex128
TYPES = [U8, I8, I16, F16, BF16, I32, F32, torch.float8_e5m2, I64, F64, C64, C128]


def patterns(*shape):
    return torch.randint(-(2**63), 2**63 - 1, shape, dtype=I64)


def as_numbers(x):
    return x.view(I64) if x.element_size() < 16 else torch.view_as_real(x).view(I64).flatten(-2)


for kind in TYPES:
    tail = str(kind).removeprefix("torch.")
    # Every type from this one, each shown as whole numbers, so that nothing but bits is compared.
    add(f"bits_of_{tail}", lambda x, k=kind: [as_numbers(x.view(k).view(t)) for t in TYPES], lambda: (patterns(3, 4),))

add("bits_of_numbers", lambda x, y: (x.view(I32), y.view(I64), x.view(I32).view(F32) + 1, y.view(I64).bitwise_and(-8).view(F64), x.view(I32).to(torch.int8).view(U8)),
    lambda: (torch.randn(33), torch.randn(7, dtype=F64)))
add("bits_computed", lambda x, h: ((x * 2).view(U8), (x + 1).view(I16).float(), (h + 1).view(I16), (h * 3).view(I8), (h.view(I32) >> 16).to(I16).view(F16) * 2, (x > 0).view(U8), (x > 0).view(I16)),
    lambda: (torch.randn(5, 8), torch.randn(3, 6).to(F16)), tolerance=0.0)
add("bits_of_views", lambda x: (x.t().contiguous().view(U8), x[1:, 2:6].view(I64), x[:, :1].view(I16), x.view(U8)[..., 3].view(I8), x.select(0, 2).view(F64).view(I64), x.unsqueeze(0).view(I16).view(2, 3, 8)),
    lambda: (torch.randint(-(2**31), 2**31 - 1, (3, 8), dtype=I32),))
add("bits_single", lambda a, b: (a.view(I32), b.view(I64) + 1, a.view(I32).view(F32) * 2, torch.zeros(0, 4).view(U8), torch.zeros(0, 8, dtype=U8).view(F32)), lambda: (torch.tensor(1.5), torch.tensor(-2.5, dtype=F64)))
add("bits_truth", lambda x: (x.view(BOOL), x.view(BOOL).logical_not(), x.view(BOOL).sum()), lambda: (torch.tensor([0, 1, 1, 0, 1], dtype=U8),))
add("bits_dynamic", lambda x: (x.view(U8), x.view(I64), x.view(F16).view(I16)), lambda: (torch.randint(-99, 99, (4, 6), dtype=I32),), dynamic=[{0: torch.export.Dim("rows", min=2)}],
    sets={"more": lambda: (torch.randint(-99, 99, (9, 6), dtype=I32),)})
# Two numbers of 16 bits in one of 32, and quantised bytes unpacked: what programs use it for.
add("bits_packed", lambda a, b: (torch.stack([a, b], -1).view(I32), torch.stack([a, b], -1).view(I32).squeeze(-1).unsqueeze(-1).view(BF16).float()), lambda: (torch.randn(6).to(BF16), torch.randn(6).to(BF16)))


def other_names(x, y, z):
    """Operators that have two names, by the less common one; torch.export keeps it."""
    s = torch.special
    return (torch.clip(x, y, y + 1), torch.clip(x, min=y), torch.divide(x, y, rounding_mode="floor"), torch.divide(x, 3, rounding_mode="trunc"), torch.row_stack((x[0], y)),
            torch.row_stack((z, z)), s.logit(y.sigmoid()), s.logit(y, eps=0.1), s.round(x * 3), s.round(x * 3, decimals=1), s.xlogy(x, y.abs()), s.xlogy(x, 2.0), s.xlogy(2, y.abs()), s.log_softmax(x, 1),
            s.softmax(x, 0), s.softmax(x, 1, dtype=torch.float64), s.log_softmax(x, 1, dtype=torch.float64))


add("other_names", other_names, lambda: (rand(3, 4), rand(3, 4), torch.complex(rand(2, 3), rand(2, 3))))
