"""Small programs of complex numbers: arithmetic, functions, movement, reductions, products; as inputs, results, constants and state."""

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import F32, F64, I64, rand, registry

PROGRAMS, add = registry(__file__)
C64, C128 = torch.complex64, torch.complex128


def op(name, function, inputs, tolerance=2e-5, **options):
    add(f"complex_{name}", function, inputs, tolerance=tolerance, **options)


def crand(*shape, dtype=C64, scale=1.0):
    part = F32 if dtype is C64 else F64
    return torch.complex(rand(*shape, dtype=part) * scale, rand(*shape, dtype=part) * scale)


FUNCTIONS = {
    "exponential": (torch.exp, torch.expm1, torch.log, torch.log2, torch.log10, torch.log1p, torch.sigmoid),
    "roots": (torch.sqrt, torch.rsqrt, torch.reciprocal, torch.square, torch.sgn, torch.neg),
    "trigonometric": (torch.sin, torch.cos, torch.tan, torch.asin, torch.acos, torch.atan),
    "hyperbolic": (torch.sinh, torch.cosh, torch.tanh, torch.asinh, torch.acosh, torch.atanh),
    "measures": (torch.abs, torch.angle, torch.real, torch.imag, torch.conj_physical, torch.view_as_real, torch.isreal, torch.isnan),
}
for group, functions in FUNCTIONS.items():
    op(group, lambda z, functions=functions: tuple(f(z) for f in functions), lambda: (crand(6, 13),), tolerance=5e-5)
    op(f"{group}_c128", lambda z, functions=functions: tuple(f(z) for f in functions), lambda: (crand(5, 7, dtype=C128),), tolerance=1e-12)
op("large", lambda z: (z.tanh(), z.sqrt(), z.abs(), z.log(), 1 / z), lambda: (crand(5, 9) * 1e15,))
op("small", lambda z: (z.expm1(), z.log1p(), z.sqrt(), z.abs(), 1 / z), lambda: (crand(5, 9) * 1e-12,))
op("zeros", lambda z: (z.sqrt(), z.exp(), z.abs(), z.sgn(), z.angle(), z.sinh(), z ** 2, z ** 0.7),
   lambda: (torch.tensor([0j, complex(-0.0, 0.0), complex(0.0, -0.0), 1 + 0j, -1 + 0j, 1j, -1j, 2 - 3j]),))

op("arithmetic", lambda a, b: (a + b, a - b, a * b, a / b, a.add(b, alpha=2), torch.rsub(a, b), a == b, a != b, a ** b),
   lambda: (crand(5, 9), crand(5, 9)), tolerance=5e-5)
op("broadcast", lambda a, b: (a + b, a * b, a / b), lambda: (crand(3, 1, 7), crand(4, 1, dtype=C128)))
op("scalars", lambda z: (z + 1, z * 2.5, z * (1 + 2j), z / 2j, 1 / z, z - 3j, z ** 2, z ** 3, z ** -1, z ** 0.5, z ** (1 + 1j), 2.0 ** z),
   lambda: (crand(4, 6),), tolerance=5e-5)
op("mixed", lambda z, x, n: (z * x, x - z, x / z, z + n, torch.where(x > 0, z, x), n * z),
   lambda: (crand(4, 5), rand(4, 5), rand(5, dtype=I64)))
op("combined", lambda z, a, b: (torch.addcmul(z, a, b, value=0.5), torch.addcdiv(z, a, b), torch.lerp(z, a, 0.3), torch.lerp(z, a, b)),
   lambda: (crand(4, 5), crand(4, 5), crand(4, 5)))
op("make", lambda x, y: (torch.complex(x, y), torch.polar(x.abs(), y), torch.view_as_complex(torch.stack([x, y], -1)), x.to(C64), x.to(C128)),
   lambda: (rand(4, 6), rand(4, 6)))
op("casts", lambda z: (z.to(C128), z.to(C128).to(C64), z.bool(), z.real.double()), lambda: (crand(4, 6),))
op("tests", lambda z: (torch.isfinite(z), torch.isinf(z), torch.isnan(z), z.logical_not(), z.logical_and(z.conj())),
   lambda: (torch.tensor([1 + 2j, complex(float("nan"), 1), complex(0, float("inf")), 0j, complex(2, float("nan"))]),))

op("movement", lambda z: (z.permute(2, 0, 1), z.flip(1), z[:, 1:, ::2], z.reshape(4, -1), z.roll(2, 1), z.unsqueeze(1).expand(4, 2, 3, 5), z.repeat(1, 2, 1),
                          z.tril(), z.diagonal(0, 1, 2), F.pad(z, (1, 2, 0, 1)), F.pad(z, (1, 1), value=2.0), z.mT, z.adjoint(), z.unfold(2, 3, 2)),
   lambda: (crand(4, 3, 5),))
op("joins", lambda z, x: (torch.cat([z, z * 2], 1), torch.stack([z, z], 0), torch.cat([z, x], 0), torch.diag_embed(z), *z.split(2, 1)),
   lambda: (crand(3, 5), rand(2, 5)))
op("indexing", lambda z, i: (z[i], z.index_select(1, i), z.gather(0, i.reshape(1, 3).expand(1, 3)), z.take(i), F.embedding(i, z), z.masked_fill(z.real > 0, 1.5),
                             z.scatter(0, i.reshape(1, 3), z[:1, :3]), z.index_put((i,), z[:3] * 2), z.index_add(0, i, z[:3])),
   lambda: (crand(4, 6), torch.tensor([2, 0, 3])))
op("creation", lambda z: (torch.zeros_like(z), torch.ones_like(z), torch.full_like(z, 1 - 2j), torch.full((2, 3), 3.0, dtype=C64), torch.eye(3, dtype=C64),
                          torch.zeros(2, dtype=C128) + z[0, :2]), lambda: (crand(4, 6),))
op("strided", lambda z, w: (z + w.mT, z * 2), lambda: (crand(6, 8)[:, ::2], crand(4, 6)))
op("transposed_result", lambda z: (z.mT.contiguous() + 1, (z * 2).mT), lambda: (crand(6, 4),))
op("views", lambda x: torch.view_as_complex(x.reshape(3, 4, 2)) * 2, lambda: (rand(3, 8),))

op("sums", lambda z: (z.sum(), z.sum(1), z.mean(0, keepdim=True), z.cumsum(1), z.cumprod(0), z.prod(1), z.any(1), z.all(), z.count_nonzero(), z.var(1), z.std(),
                      z.sum((0, 1)), torch.linalg.vector_norm(z), torch.linalg.vector_norm(z, 1, 1), z.norm(3)),
   lambda: (crand(5, 7),), tolerance=5e-5)
INFINITIES = torch.tensor([[complex(float("-inf"), 1), 1 + 2j, -2 - 1j], [complex(float("-inf"), 0), complex(float("-inf"), 0), complex(float("-inf"), 0)]])
op("logsumexp", lambda z, w: (z.logsumexp(1), (z + 1000).logsumexp((0, 1), True), z[0, 0].logsumexp(0), w.logsumexp(1), torch.linalg.vector_norm(z, 3, 1, dtype=C64)),
   lambda: (crand(3, 5, scale=3), INFINITIES))
op("logsumexp_c128", lambda z: z.logsumexp(0), lambda: (crand(3, 5, dtype=C128),), tolerance=1e-12)
op("sum_of_reals", lambda x: (x.sum(1, dtype=C64), x.to(C64).mean()), lambda: (rand(4, 5),))
op("empty", lambda z: (z + 1, z.sum(0), z * z, z @ z.mT), lambda: (crand(0, 4),))
op("rank_0", lambda z: (z + 1, z.exp(), z.abs(), z.sum()), lambda: (torch.tensor(1.5 - 2j),))

op("matmul", lambda a, b, v: (a @ b, a @ v, v @ b, torch.mm(a, b), torch.addmm(b[:1], a, b, beta=0.5, alpha=2), torch.outer(v, v), torch.dot(v, v), torch.vdot(v, v)),
   lambda: (crand(5, 7), crand(7, 7), crand(7)))
op("bmm", lambda a, b: (torch.bmm(a, b), a @ b, torch.einsum("bij,bjk->bik", a, b), torch.baddbmm(a @ b, a, b), a @ b.adjoint().adjoint(), a.mT.conj() @ a),
   lambda: (crand(3, 4, 5), crand(3, 5, 6)))
op("bmm_c128", lambda a, b: (a @ b, torch.einsum("bij,bjk->kib", a, b)), lambda: (crand(2, 4, 5, dtype=C128), crand(2, 5, 3, dtype=C128)), tolerance=1e-12)
op("matmul_dynamic", lambda a, b: (a @ b, (a * 2).abs(), a.mT), lambda: (crand(6, 33), crand(33, 17)), dynamic=({0: Dim("rows", min=1, max=64)}, None),
   sets={"few": lambda: (crand(1, 33), crand(33, 17)), "many": lambda: (crand(64, 33), crand(33, 17))})


class Layers(torch.nn.Module):
    """Complex weights: a constant matrix and convolutions."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 6, dtype=C64)
        self.conv = torch.nn.Conv2d(2, 4, 3, padding=1, dtype=C64)
        self.grouped = torch.nn.Conv1d(4, 8, 3, groups=2, stride=2, dtype=C64)
        self.transposed = torch.nn.ConvTranspose1d(4, 2, 3, stride=2, dtype=C64)

    def forward(self, z):
        y = self.conv(z)
        line = y.flatten(2)
        return self.linear(z), y, self.grouped(line), self.transposed(line)


op("layers", Layers, lambda: (crand(2, 2, 8, 8),))


class State(torch.nn.Module):
    """A complex buffer that every call changes, and an in-place write to an input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3, dtype=C64))

    def forward(self, z):
        self.total.add_(z.sum(0))
        z.mul_(2j)
        return self.total + 1, z.abs()


op("state", State, lambda: (crand(4, 3),))
op("rotary", lambda x, angle: torch.view_as_real(torch.view_as_complex(x.reshape(2, 5, 3, 4, 2)) * torch.polar(torch.ones_like(angle), angle)[None, :, None]).flatten(3),
   lambda: (rand(2, 5, 3, 8), rand(5, 4)))

op("zero_powers", lambda b, e: (b ** e, b.exp()), lambda: (torch.zeros(6, dtype=C64), torch.tensor([0, 1j, 2, 2 + 1j, -1, 3 - 1j])))
op("near_the_cut", lambda z: z.atanh(), lambda: (torch.tensor([-0.99197083 - 0.02410423j, 0.9999 + 1e-5j, -1 + 1e-4j, -3 - 1j, 0j, 0.25 - 4j]),), tolerance=1e-6)
op("distances", lambda a, b: (torch.dist(a, b), torch.dist(a, b, 1), F.pairwise_distance(a, b), F.l1_loss(a, b), torch.renorm(a, 2, 0, 1.5), torch.isclose(a, a + 1e-9), torch.isclose(a, b),
                              F.triplet_margin_loss(a, b, b * 2)), lambda: (crand(4, 6), crand(4, 6)))
op("sums_of_products", lambda m, a, b, x, y: (torch.addr(m, a, b, beta=2j, alpha=1 - 1j), torch.addbmm(m, x, y, beta=0.5, alpha=1j), torch.inner(m, m), torch.kron(a, b),
                                              torch.addmm(m, m, m.mT, beta=1j)), lambda: (crand(4, 4), crand(4), crand(4), crand(2, 4, 3), crand(2, 3, 4)), tolerance=1e-4)
op("ranges", lambda y, x: (torch.linspace(1 + 2j, 4, 7), torch.logspace(0, 1j, 5), torch.trapezoid(y, dx=0.5), torch.trapezoid(y, x), torch.cumulative_trapezoid(y), *torch.gradient(y, spacing=0.5),
                           y.softmax(1, dtype=F64), y.log_softmax(0, dtype=F32)), lambda: (crand(4, 6), crand(6)), tolerance=1e-4)
op("more_functions", lambda z, e: (F.silu(z), torch.sinc(z), torch.logaddexp(z, z.flip(0)), torch.ldexp(z, torch.tensor(3)), e.nan_to_num(posinf=2.0, neginf=-3.0), e.nan_to_num()),
   lambda: (crand(5, 6), torch.tensor([complex(float("inf"), 1), complex(2, float("nan")), complex(float("nan"), float("-inf"))])), tolerance=1e-4)
op("more_movement", lambda z, m: (torch.block_diag(z, z.real, z[:2]), torch.cartesian_prod(z[0], z[1]), torch.combinations(z[0]), torch.diagflat(z), z.masked_scatter(m, z.flip(0)),
                                  torch.put(z, torch.tensor([1, 5]), z[0, :2], accumulate=True), F.unfold(z[None, None], 2), torch.hsplit(z, 2)[1], F.pad(z, (1, 2), value=2.0),
                                  z.real.sum_to_size(1, 4), z.sum_to_size(4)), lambda: (crand(4, 4), rand(4, 4) > 0))
