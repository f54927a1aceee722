"""What random programs (tests/fuzz_programs) found, made small: each was once wrong or ended the compiler."""

import torch
import torch.nn.functional as F

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
