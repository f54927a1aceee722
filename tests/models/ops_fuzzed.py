"""What random programs (tests/fuzz_programs) found, made small: each was once wrong or ended the compiler."""

import torch
import torch.nn.functional as F

from torch.export import Dim

from case import BF16, BOOL, F16, F32, F64, U8, rand, registry

PROGRAMS, add = registry(__file__)


def op(name, function, inputs, **options):
    add(f"fuzzed_{name}", function, inputs, **options)


# A loop that reads the beginning of what another makes does not run over the same points.
op("beginning_of_reduction", lambda x: (x.mean(0)[:17], x.mean(0).logsumexp(0)), lambda: (rand(5, 33, dtype=BF16),))
op("beginning_of_sum", lambda x: (x.sum(1)[:4] + 1, x.sum(1)), lambda: (rand(9, 7),))
op("beginning_padded", lambda x: (F.pad(x.exp(), (0, 2), value=1).logsumexp([0, 1], True), x * 0), lambda: (rand(2, 9),))
op("logical_of_bytes", lambda x: (x.any(1, True), x.all(0), x.any()), lambda: ((rand(7, 8) > 0.3).to(U8),))
op("sign_of_bools", lambda x: (x.sign() >= x, x.sgn() & x), lambda: (rand(33, dtype=BOOL),))
op("extremes_of_bools", lambda x: (x.amax([0, 1], True) == x, x.amin(1, True) != x, x.amax(0) ^ x), lambda: (rand(7, 35, dtype=BOOL),))
op("clamp_beyond_the_type", lambda x, y: (x.clamp(-1, 2), x.clamp(min=-300), x.clamp(max=300), y.clamp(-200, 5), y.clamp(-5, 200)),
   lambda: (torch.arange(256).to(U8), torch.arange(-128, 128).to(torch.int8)))
op("attention_of_one_query_batch", lambda q, k: (F.scaled_dot_product_attention(q, k, k), F.scaled_dot_product_attention(q[:, None], k[:, None], k[:, None])),
   lambda: (rand(1, 4, 8), rand(3, 5, 8)))
op("softmax_of_one_number", lambda x: (x.log_softmax(0), x.softmax(0), (x * 0).log_softmax(0)), lambda: (torch.tensor(float("inf")),))
op("cumulative_exponentials", lambda x: x.logcumsumexp(1),
   lambda: (torch.tensor([[-1000.0, 0, 1], [1, float("inf"), 2], [-float("inf"), -float("inf"), 3], [1, float("nan"), 2], [0, 1000, -1000], [90, -90, 89]]),))
op("product_of_nothing", lambda x: (x.mT @ x, x[:, :, :0] @ x.transpose(3, 4)), lambda: (torch.zeros(15, 8, 0, 3, 0, dtype=torch.float16),))
op("padding_beside_infinite_weights", lambda x, w: F.conv1d(x, w, None, 1, 2),
   lambda: (rand(3, 2, 9, dtype=torch.float64), torch.tensor([float("inf"), 1, -2, 3, float("nan"), 1, 2, 3, -1, 1, 4, 2], dtype=torch.float64).reshape(2, 2, 3)))
op("convolution_of_nothing", lambda x: torch.conv1d(x, x, None, 2, 2), lambda: (torch.zeros(4, 0, 4),))
op("strided_in_the_order_of_memory", lambda x: (x.t().as_strided((2, 3), (1, 2)), (x * 2).permute(1, 0).as_strided((4, 3), (1, 5), 2), x.t().as_strided((2,), (3,), 4)), lambda: (rand(5, 8),))
op("written_in_the_order_of_memory", lambda x, y: (x.t().as_strided_scatter(y, (2, 3), (1, 2), 3) + 1, (x + 1).as_strided_scatter(y, (2, 3), (1, 2), 3)), lambda: (rand(5, 8), rand(2, 3)))
op("resized", lambda x: (x.clone().resize_(2, 3), x.clone().resize_(3, 2) + 1, x.clone().resize_as_(x.sum(0))), lambda: (rand(4, 3),))


def written_results(x, y):
    out, flags = torch.empty(5, 7), torch.empty(5, 7, dtype=BOOL)
    torch.atan2(x, y, out=out)
    torch.lt(x, y, out=flags)
    return out + 1, flags


op("written_results", written_results, lambda: (rand(5, 7, dtype=F32), rand(5, 7, dtype=F32)))
op("signbit_of_nan", lambda x: (x.signbit(), x.half().signbit(), x.double().signbit(), torch.ones_like(x).copysign(x)),
   lambda: (torch.tensor([float("nan"), 0.0, -0.0, 1, -1, float("inf")]).repeat(4).mul(torch.tensor([1.0, -1.0]).repeat_interleave(12)).neg(),))
# PyTorch's decomposition copies the result to the strides that eager gives it.
op("lerp_of_layouts", lambda x, y, w: (torch.lerp(x, y, w), torch.lerp(x.mT, y, 0.3), torch.lerp(x.mT, y.mT, w)), lambda: (rand(5, 5).mT, rand(5, 5), rand(5, 1, low=0, high=1)))
# Beside 765 the exponential of 18 is no normal number of double precision; a row that ends higher must not take the digits of its beginning.
op("logcumsumexp_far_below", lambda x, b: (torch.logcumsumexp(x, 1), torch.logcumsumexp(x.flip(1), 1), torch.logcumsumexp(x.double() - 400, 1), torch.logcumsumexp(b * 3.0, 0)),
   lambda: (torch.tensor([[18.0, 18, 17, 25, 765, 3, 764], [-600, -601, 5, 5, 700, -20, float("-inf")], [float("-inf"), -1e4, 3, 1, 2, 2, 2]]), torch.tensor([6, 5, 8, 255, 254, 0, 255], dtype=U8)))


def sines(x):
    """More of them than a kernel of CUDA has inlined."""
    y, z = x, x.double()
    for _ in range(7):
        y, z = y.sin() + y.cos() * 0.5, z.cos() + z.tan().clamp(-1, 1) * 0.5
    return y, z


op("many_sines", sines, lambda: (torch.cat([rand(37) * 9, torch.tensor([0.0, -0.0, 1e6, -3e7, float("inf"), float("nan")])]),))


# Integers lose digits where they are looked up among floating-point numbers; unsigned ones are looked up among nothing else.
def look_up(a, u, b):
    return tuple(torch.bucketize(x, b.to(d), right=r) for x in (a, u) for d in (F16, BF16, F32, F64) for r in (False, True)) + (torch.searchsorted(u, b), torch.searchsorted(a, b.to(F16)))


op("searches_among_floats", look_up, lambda: (torch.tensor([1, 3, 257, 2049, 2050, 60001, 65535]), torch.tensor([1, 3, 257, 2049, 2050, 60001, 65535]).to(torch.uint16),
                                               torch.tensor([1.0, 2.5, 257, 2049, 60000])))
op("products_of_no_bools", lambda a, b, c: (a @ b, torch.mm(b.T, a.T), torch.bmm(a[None], b[None]), torch.mv(a, b[:, 0]), F.linear(a, b.T), torch.mm(c[:0], c)),
   lambda: (torch.ones(2, 0, dtype=BOOL), torch.ones(0, 3, dtype=BOOL), torch.ones(4, 4, dtype=BOOL)))
op("first_of_a_running_log_sum", lambda x: (torch.logcumsumexp(x, 1)[:, 0] == x[:, 0], torch.logcumsumexp(x, 1)), lambda: (torch.softmax(rand(9, 7), 0),))


def windows_written(x, y, z):
    """Windows of a tensor, of a part of one and of a transposed one."""
    x, y, z = x.clone(), y.clone(), z.clone()
    x.unfold(1, 2, 3).add_(1)
    y[1:].unfold(-1, 2, 2).mul_(2)
    z.t().unfold(0, 1, 2).zero_()
    return x, y, z


op("windows_written", windows_written, lambda: (rand(3, 8), rand(4, 7), rand(5, 6)))
PROGRAMS[-1].forms = ("aten",)  # PyTorch's decomposition makes zeros of what is in no window


# What lies further below a row's largest number than double precision reaches keeps its digits.
op("logcumsumexp_thousands_below", lambda x, y: (x.logcumsumexp(1), x.flip(1).logcumsumexp(1), x.logcumsumexp(0), x.double().logcumsumexp(1), y.logcumsumexp(0), y[:0].logcumsumexp(0), y[:, :0].logcumsumexp(0)),
   lambda: (torch.tensor([[-5000.0, -5000, -4000, -4001, 0, -3, 2000, 2000], [1e30, -1e38, 3, float("inf"), 1, 2, 3, 4], [float("-inf"), float("-inf"), -1e5, -1e5, float("nan"), 1, 2, 3]]),
            rand(700, 3, dtype=F16) * 9000), dynamic=(None, {0: Dim.AUTO}), sets={"short": lambda: (rand(3, 8) * 4000, rand(2, 3, dtype=F16))})


def exact(x):
    """Numbers that eager gives to the last digit: what follows may look for them."""
    s = torch.special
    one, zero, half, two = x * 0 + 1, x * 0, x * 0 + 0.5, x * 0 + 2
    ones = [f(zero) for f in (s.i0, s.i0e, s.bessel_j0, s.modified_bessel_i0, s.erfcx, s.spherical_bessel_j0, torch.sinc, s.erfc)]
    zeros = [*[f(zero) for f in (s.i1, s.i1e, s.bessel_j1, s.modified_bessel_i1, s.erf)], torch.lgamma(one), torch.lgamma(two), s.ndtri(half), s.logit(half), s.i0e(one / 0), s.i1e(one / 0)]
    families = [f(p, n) for f in (s.chebyshev_polynomial_t, s.chebyshev_polynomial_u, s.chebyshev_polynomial_v, s.chebyshev_polynomial_w, s.shifted_chebyshev_polynomial_t)
                for p in (zero, half, one, -one, two) for n in range(7)]
    return torch.stack([y == 1 for y in ones]), torch.stack([y == 0 for y in zeros]), torch.stack([y == y.round() for y in families]), torch.stack(families)


op("exact_points", exact, lambda: (rand(3, dtype=F64),), tolerance=1e-12)
op("counted_behind_parts", lambda x: ((x * 2)[1:].as_strided((2, 2), (6, 1), 1), (x + 1)[1:, 2:].as_strided((2, 2), (6, 1)), (x + 1).select(1, 2).as_strided((3,), (1,), 0), (x + 1).diagonal().as_strided((3,), (2,)),
                                      (x + 1).split(2)[1].as_strided((3,), (2,)), (x + 1).t()[2:][:, 1:].unsqueeze(0).as_strided((3, 2), (2, 6)),
                                      (x + 1)[1:, 1:].as_strided_scatter(torch.zeros(2, 2), (2, 2), (6, 1), 8)), lambda: (rand(4, 6),))
op("diagonals_filled", lambda x, y, z, b: (x.clone().fill_diagonal_(2), x.clone().fill_diagonal_(2, wrap=True), x.t().clone(memory_format=torch.contiguous_format).fill_diagonal_(2, wrap=True), x.t().clone().fill_diagonal_(3),
                                           y.clone().fill_diagonal_(-1.5), z.clone().fill_diagonal_(7, wrap=True), b.clone().fill_diagonal_(True)),
   lambda: (rand(9, 3), rand(4, 4, 4), torch.zeros(8, 2, dtype=torch.int64), torch.zeros(0, 3, dtype=BOOL)))
op("products_of_single_bools", lambda a, b, c, d: (torch.einsum("ij,jk->ik", a, b), torch.einsum("ij,jk->ik", c, d), torch.inner(c, d.T), torch.tensordot(c, d, 1), torch.einsum("i,j->ij", a[:, 0], b[0]), torch.addmm(a[:0], a[:0], b[:, :1])),
   lambda: (torch.tensor([[True], [False]]), torch.tensor([[True, False, True]]), torch.ones(2, 0, dtype=BOOL), torch.ones(0, 3, dtype=BOOL)))
op("searches_of_long_unsigned", lambda u, v: tuple(torch.searchsorted(u, v.to(d), right=r) for d in (F16, BF16, F32, F64) for r in (False, True)) + (torch.bucketize(u, v), torch.searchsorted(u, 5.5), torch.bucketize(v.double(), u, out_int32=True)),
   lambda: (torch.tensor([1, 5, 2**53 + 1, 2**60 + 1, -(2**62), -5]).to(torch.uint64), torch.tensor([0, 5, 5.5, 1e4, 9e15, 1.3e19])))
