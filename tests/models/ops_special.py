"""Small programs of special functions, order statistics, histograms, scatters with reductions, losses, windows and random numbers."""

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import BF16, BOOL, F32, F64, I16, I32, I64, distinct, rand, registry

PROGRAMS, op = registry(__file__)
AUTO = Dim.AUTO
NAN, INF = float("nan"), float("inf")

# Points on both sides of what the functions' formulas change at, their poles, and what is no number.
LINE = torch.cat([torch.linspace(-9.7, 9.7, 117, dtype=F64), torch.tensor([0.0, -0.0, 0.5, 1.0, -1.0, 2.0, -2.0, 8.0, -8.0, 1e-8, 30.0, INF, -INF, NAN], dtype=F64)])
line = lambda dtype=F64: lambda: (LINE.to(dtype),)
inner = lambda: (torch.cat([torch.linspace(-9.7, 9.7, 117, dtype=F64), torch.tensor([0.5, 1.0, 2.0, 8.0, 1e-8, 30.0], dtype=F64)]),)

for name, f in {"i0": torch.i0, "i0e": torch.special.i0e, "i1": torch.special.i1, "i1e": torch.special.i1e, "digamma": torch.digamma, "ndtr": torch.special.ndtr,
                "log_ndtr": torch.special.log_ndtr, "entr": torch.special.entr, "sinc": torch.sinc, "erfcx": torch.special.erfcx}.items():
    op(f"special_{name}", f, line(), tolerance=1e-8)
    op(f"special_{name}_f32", f, lambda: (LINE[20:-5].to(F32),), dynamic=({0: AUTO},), sets={"two": lambda: (rand(2),), "many": lambda: (rand(1003),)})
for name in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1",
             "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "airy_ai", "spherical_bessel_j0"):
    op(f"special_{name}", getattr(torch.special, name), inner, tolerance=1e-5)  # eager's own error in float64 is up to 4e-6, ours 1e-15
op("special_ndtri", lambda x: torch.special.ndtri(x), lambda: (torch.cat([torch.linspace(-0.1, 1.1, 49, dtype=F64), torch.tensor([0, 1, 1e-30, 1e-300, NAN], dtype=F64)]),), tolerance=1e-9)
op("special_zeta", torch.special.zeta, lambda: (torch.tensor([2.0, 3.5, 1.0, 0.5, 2.0, 3.0, 4.0, 60.0, NAN], dtype=F64), torch.tensor([1.0, 0.3, 2.0, 2.0, -2.5, -7.3, -3.0, 20.0, 1.0], dtype=F64)), tolerance=1e-9)
op("special_polygamma", lambda x: (torch.polygamma(2, x), torch.polygamma(5, x)), lambda: (torch.linspace(-4.3, 9, 41, dtype=F64),), tolerance=1e-9)
op("special_trigamma", lambda x: torch.polygamma(1, x), lambda: (torch.linspace(-4.3, 9, 41),))
op("special_mvlgamma", lambda x: torch.mvlgamma(x, 3), lambda: (rand(7, 5, low=1.5, high=9),))
op("special_igamma", lambda a, x: (torch.igamma(a, x), torch.igammac(a, x)),
   lambda: (torch.tensor([0.0, 0.1, 1.0, 3.0, 30.0, 300.0, 3.0, 3.0, INF, 2.0, NAN, -1.0, 0.5], dtype=F64), torch.tensor([1.0, 0.05, 1.0, 8.0, 25.0, 310.0, 0.0, INF, 1.0, 2.0, 1.0, 1.0, 700.0], dtype=F64)), tolerance=1e-9)
for letter in "tuvw":
    op(f"special_chebyshev_{letter}", lambda x, n, f=getattr(torch.special, f"chebyshev_polynomial_{letter}"): f(x, n),
       lambda: (torch.tensor([-1.5, -1.0, -0.3, 0.0, 0.9, 1.0, 1.5], dtype=F64)[:, None], torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.7, 7.0, 12.0], dtype=F64)), tolerance=1e-9)
op("special_hermite", lambda x, n: (torch.special.hermite_polynomial_h(x, n), torch.special.hermite_polynomial_he(x, n), torch.special.hermite_polynomial_h(x, 4)),
   lambda: (rand(7, 1, dtype=F64), torch.arange(-1.0, 9.0, dtype=F64)), tolerance=1e-9)
op("special_laguerre_legendre", lambda x, n: (torch.special.laguerre_polynomial_l(x, n), torch.special.legendre_polynomial_p(x, n)),
   lambda: (rand(7, 1, dtype=F64, low=-1, high=1), torch.arange(-1.0, 9.0, dtype=F64)), tolerance=1e-9)

# The make-up of numbers
op("frexp", torch.frexp, lambda: (torch.tensor([0.0, -0.0, 1.0, -3.7, 0.5, 1e-40, 3e38, INF, -INF, NAN, 7.999]),))
op("nextafter", torch.nextafter, lambda: (torch.tensor([0.0, 1.0, 1.0, -2.0, 3e38, INF, 1e-45, NAN, 5.0]), torch.tensor([1.0, 2.0, 0.0, 0.0, INF, 0.0, -1.0, 1.0, 5.0])))
op("nextafter_f64", torch.nextafter, lambda: tuple(t.repeat(2) for t in (torch.tensor([0.0, 1.0, 1.0, -2.0, -2.0, 1.7e308, INF, -INF, 5e-324, -5e-324, NAN, 5.0, 0.0, 3.0, 2.2250738585072014e-308],
   dtype=F64), torch.tensor([1.0, 2.0, 0.0, 0.0, -9.0, INF, 0.0, 0.0, -1.0, 1.0, 1.0, 5.0, -1.0, NAN, 0.0], dtype=F64))), tolerance=0.0)
op("nextafter_bf16", torch.nextafter, lambda: (torch.tensor([0.0, 1.0, 1.0, -2.0, INF], dtype=BF16), torch.tensor([1.0, 2.0, 0.0, 0.0, 0.0], dtype=BF16)))
op("gcd_lcm", lambda x, y: (torch.gcd(x, y), torch.lcm(x, y)), lambda: (torch.tensor([0, 12, -18, 7, 0, 89, 100], dtype=I16), torch.tensor([0, 18, 12, 0, 5, 55, 75], dtype=I16)))
op("isclose", lambda x, y: (torch.isclose(x, y), torch.isclose(x, y, equal_nan=True), torch.isclose(x, y, rtol=0.5)), lambda: (torch.tensor([1.0, NAN, INF, -INF, 2.0, 0.0]), torch.tensor([1.0 + 1e-6, NAN, INF, INF, 3.0, 1e-9])))
op("logaddexp2_ldexp", lambda x, y: (torch.logaddexp2(x, y), torch.ldexp(x, y), torch.float_power(x.abs(), y)), lambda: (rand(5, 9), rand(5, 9)))
op("angle", torch.angle, lambda: (torch.tensor([0.0, -1.0, 2.0, NAN, -INF]),))

# Order
op("median_nan", lambda x: (*x.median(1), x.median(), *x.nanmedian(1), x.nanmedian()), lambda: (torch.tensor([[3.0, 1.0, 2.0, 9.0], [NAN, 4.0, 5.0, 6.0]]),))
op("mode", lambda x: (x.mode(1).values, x.mode(0, keepdim=True).values), lambda: (rand(7, 30, dtype=I64, low=0, high=5),))
for how in ("linear", "lower", "higher", "nearest", "midpoint"):
    op(f"quantile_{how}", lambda x, q, how=how: (x.quantile(q, 1, interpolation=how), x.quantile(0.3, interpolation=how), x.nanquantile(0.55, 0, True, interpolation=how)),
       lambda: (distinct(6, 19), torch.tensor([0.0, 0.25, 0.61, 1.0])))
op("quantile_nan", lambda x: (x.quantile(0.5, 1), x.nanquantile(0.5, 1)), lambda: (torch.tensor([[3.0, 1.0, 2.0], [NAN, 4.0, 5.0], [NAN, NAN, NAN]]),))
op("msort", torch.msort, lambda: (distinct(6, 19),))
op("searchsorted_sorter", lambda b, x, s: torch.searchsorted(b, x, sorter=s), lambda: (torch.tensor([3.0, 1.0, 2.0]), rand(9), torch.tensor([1, 2, 0])))
op("histogram", lambda x, e: (torch.histc(x, 7), torch.histc(x, 5, -1, 1), *torch.histogram(x, 6), *torch.histogram(x, e, density=True)), lambda: (rand(40, 5), torch.tensor([-2.0, -0.5, 0.0, 1.0])))
op("histogram_one_value", lambda x: (torch.histc(x, 4), *torch.histogram(x, 4)), lambda: (torch.full((6,), 2.5),))

# Writes that join
for how in ("sum", "prod", "mean", "amax", "amin"):
    op(f"scatter_reduce_{how}", lambda x, i, v, how=how: (x.scatter_reduce(0, i, v, how), x.scatter_reduce(0, i, v, how, include_self=False)),
       lambda: (rand(5, 8), rand(9, 8, dtype=I64, low=0, high=4), rand(9, 8)))
    if how != "sum":
        op(f"index_reduce_{how}", lambda x, i, v, how=how: (x.index_reduce(0, i, v, how), x.index_reduce(0, i, v, how, include_self=False)),
           lambda: (rand(9, 8), torch.tensor([0, 4, 4]), rand(3, 8)))
op("scatter_mean_i64", lambda x, i, v: x.scatter_reduce(1, i, v, "mean"), lambda: (rand(5, 8, dtype=I64), rand(5, 9, dtype=I64, low=0, high=8), rand(5, 9, dtype=I64)))
op("scatter_scalars", lambda x, i, v: (x.scatter(0, i, v), x.scatter_add(0, i, v), x.gather(0, i), x.index_add(0, i, v)), lambda: (torch.tensor(1.5), torch.tensor(0), torch.tensor(-2.0)))
op("scatter_empty", lambda x, i, v: (x.scatter(0, i, v), x.scatter_add(0, i, v)), lambda: (rand(5, 3), torch.empty(0, 3, dtype=I64), rand(0, 3)))
op("put", lambda x, i, v: (x.put(i, v), x.put(i, v, accumulate=True)), lambda: (rand(4, 5), torch.tensor([[0, 3], [-1, 7]]), rand(2, 2)))
op("masked_scatter", lambda x, m, v: x.masked_scatter(m, v), lambda: (rand(7, 9), rand(7, 9, dtype=BOOL), rand(70)), dynamic=({0: AUTO}, {0: AUTO}, None), sets={"short": lambda: (rand(2, 9), rand(2, 9, dtype=BOOL), rand(70))})
op("put_masked", lambda x, m, v: (x.index_put((m,), torch.tensor(2.0)), x.index_put((m,), v), x.index_put((m,), v, accumulate=True)), lambda: (rand(6, 4), torch.tensor([True, False, True, False, False, True]), rand(3, 4)))
op("as_strided_scatter", lambda x, y: torch.as_strided_scatter(x, y, (3, 4), (8, 2), 1), lambda: (rand(6, 8), rand(3, 4)))
op("as_strided_scatter_scalar", lambda x, y: torch.as_strided_scatter(x, y, (), (), 2), lambda: (rand(4), torch.tensor(3.0)))
op("nonzero_static", lambda x: torch.nonzero_static(x, size=9, fill_value=-5), lambda: (rand(4, 5, dtype=I64, low=0, high=2),))

# Made of others
op("gradient", lambda x, t: (*torch.gradient(x), *torch.gradient(x, spacing=0.5, edge_order=2), *torch.gradient(x, spacing=(t,), dim=1, edge_order=2)), lambda: (rand(5, 7), torch.tensor([0.0, 1.0, 1.5, 3.0, 4.0, 4.5, 6.0])))
op("trapezoid", lambda y, x: (torch.trapezoid(y), torch.trapezoid(y, x), torch.cumulative_trapezoid(y, x, dim=0), torch.trapezoid(y, dx=2.5, dim=0)), lambda: (rand(6, 6), rand(6, 6)))
op("dist_renorm", lambda x, y: (torch.dist(x, y), torch.dist(x, y, 1), torch.dist(x, y, INF), x.renorm(2, 0, 1.5), x.trace(), F.pdist(x)), lambda: (rand(5, 5), rand(5, 5)))
op("kron_block", lambda x, y: (torch.kron(x, y), torch.block_diag(x, y, x[0]), torch.cartesian_prod(x[0], y[0], x[1]), torch.combinations(x[0], 3)), lambda: (rand(3, 4), rand(2, 5)))
op("triangles", lambda x: (torch.tril_indices(4, 5), torch.triu_indices(5, 4, 1), torch.vander(x), torch.vander(x, 3, True), torch.diagflat(x, 1)), lambda: (rand(4),))
op("products", lambda x, y, v: (torch.addr(x, v, v, beta=0.5), torch.addbmm(x, y, y, alpha=2), torch.inner(x, x), torch.linalg.vecdot(x, x, dim=0), torch.linalg.multi_dot([x, x, v]), torch.linalg.matrix_power(x, 3)),
   lambda: (rand(4, 4), rand(3, 4, 4), rand(4)))
op("diff_zero", lambda x: (x.diff(n=0), x.diff(n=9), x.diff(n=2, prepend=x[:, :1])), lambda: (rand(3, 5),))
op("linspace_whole", lambda x: (x + torch.linspace(0, 10, 33, dtype=I64), torch.linspace(-3, 8, 33, dtype=I32), torch.logspace(0, 2, 33), torch.linspace(x[0], 9.0, 5)), lambda: (rand(33),))
op("pad_circular_cut", lambda x: (F.pad(x, (2, -1), mode="circular"), F.pad(x, (-2, 1), mode="circular")), lambda: (rand(2, 3, 9),))
op("logit_wide_eps", lambda x: torch.logit(x, 0.7), lambda: (rand(20, low=0, high=1),))
op("roll_empty", lambda x: (x.roll(2, 1), x.roll(1)), lambda: (rand(3, 0),))
op("tensordot_ones", lambda x, y: torch.tensordot(x, y, ([0, 1], [2, 0])), lambda: (rand(1, 1, 3), rand(2, 3, 2)))
op("einsum_dots", lambda x, y: (torch.einsum("...ij,...jk->...ik", x, y), torch.einsum("...ij->...ji", x), torch.einsum("i...,i...->...", x, x)), lambda: (rand(2, 3, 4), rand(3, 4, 5)[:1].expand(2, 4, 5)))
op("add_bool_alpha", lambda x, y: (torch.add(x, y, alpha=False), torch.add(x, y, alpha=True)), lambda: (rand(9, dtype=BOOL), rand(9, dtype=BOOL)))

# Losses and windows
margins = lambda: (rand(6, 5), rand(6, 5), torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, 1.0]))
op("losses_margin", lambda x, y, t: (F.margin_ranking_loss(x[:, 0], y[:, 0], t, 0.3), F.hinge_embedding_loss(x[:, 0], t), F.cosine_embedding_loss(x, y, t, 0.1), F.triplet_margin_loss(x, y, y.flip(0), swap=True)), margins)
op("losses_classes", lambda x, t: (F.multi_margin_loss(x, t[:, 0]), F.multi_margin_loss(x, t[:, 0], p=2, reduction="none"), F.multilabel_margin_loss(x, t), F.soft_margin_loss(x, x.sign())),
   lambda: (rand(4, 5), torch.tensor([[0, 2, -1, 1, 1], [4, -1, 0, 0, 0], [1, 2, 3, 4, 0], [3, 0, -1, -1, 2]])))
op("losses_poisson", lambda x, y: (F.poisson_nll_loss(x, y), F.poisson_nll_loss(x, y, log_input=False, full=True, reduction="sum")), lambda: (rand(6, 5, low=0.1, high=3), rand(6, 5, low=0, high=4)))
op("cross_entropy_shares", lambda x, t: (F.cross_entropy(x, t), F.cross_entropy(x, t, label_smoothing=0.2, reduction="none"), F.cross_entropy(x, t, weight=t[0])), lambda: (rand(6, 5), rand(6, 5).softmax(1)))
op("fold_unfold", lambda x: (F.unfold(x, (2, 3), dilation=(2, 1), padding=1, stride=(1, 2)), F.fold(F.unfold(x, 3), (7, 8), 3)), lambda: (rand(2, 3, 7, 8),))
op("unpool", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), lambda: (rand(2, 3, 6, 8),))
op("adaptive_max_pool_indices", lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True), lambda: (distinct(2, 3, 7, 9),))
op("upsample_antialias", lambda x: (F.interpolate(x, (5, 17), mode="bilinear", antialias=True), F.interpolate(x, (4, 20), mode="bicubic", antialias=True)), lambda: (rand(2, 3, 13, 11),))
op("batch_norm_training", lambda x, m, v: (F.batch_norm(x, m, v, training=True, momentum=0.3), F.instance_norm(x, m, v, use_input_stats=True), m * 1, v * 1), lambda: (rand(5, 3, 4, 4), rand(3), rand(3, low=0.5, high=2)))
op("linear_vector_weight", lambda x, w: F.linear(x, w), lambda: (rand(4, 7), rand(7)))
bags = lambda: (rand(11, 6), rand(9, dtype=I64, low=0, high=11), torch.tensor([0, 2, 2, 7]))
op("embedding_bag", lambda w, i, o: tuple(F.embedding_bag(i, w, o, mode=m) for m in ("sum", "mean", "max")), bags)
op("embedding_bag_more", lambda w, i, o: (F.embedding_bag(i, w, o, mode="sum", per_sample_weights=i * 0.5), F.embedding_bag(i, w, o, mode="mean", padding_idx=3), F.embedding_bag(i, w, o, mode="sum", include_last_offset=True)), bags)


try:
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions
except ImportError:  # PyTorch has it since 2.14
    LinearCrossEntropyOptions = None


def chunked(x, w, t, b):
    options = LinearCrossEntropyOptions(batch_chunk_size=4)
    loss = lambda target=t, **more: F.linear_cross_entropy(x, w, target, options=options, **more)  # noqa: E731
    return (loss(), loss(linear_bias=b), loss(reduction="sum"), loss(reduction="none"), loss(weight=b.abs() + 0.5, ignore_index=3), loss(label_smoothing=0.2), loss(torch.softmax(x @ w.t(), 1)))


if LinearCrossEntropyOptions:
    op("linear_cross_entropy_chunked", chunked, lambda: (rand(16, 8), rand(64, 8), rand(16, dtype=I64, low=0, high=64), rand(64)))

LAST, LAST_3D = torch.channels_last, torch.channels_last_3d
op("resized_formats", lambda x, y: (x.clone().resize_((2, 3, 4, 5), memory_format=LAST), x.clone().resize_((1, 3, 4, 5), memory_format=LAST), x.clone().resize_((5, 4, 3, 2), memory_format=torch.contiguous_format),
                                    x.clone(memory_format=LAST).resize_((2, 3, 4, 5), memory_format=torch.contiguous_format), x.clone(memory_format=LAST).resize_((4, 3, 2, 5)),
                                    x.clone().resize_as_(y), x.clone().resize_as_(y, memory_format=LAST), x.clone().resize_as_(y.to(memory_format=LAST), memory_format=torch.preserve_format),
                                    x[0].clone().resize_((1, 2, 3, 2, 5), memory_format=LAST_3D) * 2), lambda: (rand(2, 3, 4, 5), rand(2, 5, 3, 4)))
PROGRAMS[-1].forms = ("aten",)  # PyTorch's decomposition forgets the format
op("split_anywhere", lambda x: (*torch.tensor_split(x, (5, 2, -1)), *torch.hsplit(x, [3, 0, 2]), *torch.vsplit(x, [7, 4, 4]), *torch.tensor_split(x, (20, 3), 1)), lambda: (rand(8, 6),))
op("shifted_twice", lambda x: (torch.fft.fftshift(x, (0, 0)), torch.fft.ifftshift(x, (1, 0, 1)), torch.fft.fftshift(x)), lambda: (rand(5, 7),))
