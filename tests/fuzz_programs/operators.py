"""The operators of random programs: for each a function that picks arguments among the values at hand.

A choice is (operator, arguments, parameters) in plain data: numbers of values, and numbers. It need not be valid: the generator tries it with PyTorch and
takes another one where that fails.
"""

import torch

FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTS = ["int64", "int32", "int16", "int8", "uint8"]
DTYPES = [*FLOATS, *INTS, "bool"]
F = torch.nn.functional


class Chooser:
    """What a choice may ask."""

    def __init__(self, rng, values):
        self.rng, self.values = rng, values

    def any(self, test=lambda t: True):
        """The number of a value, rather a late one."""
        fit = [i for i, v in enumerate(self.values) if test(v)]
        if not fit:
            raise LookupError
        return max(self.rng.choice(fit), self.rng.choice(fit))

    def floating(self, rank=None):
        return self.any(lambda t: t.is_floating_point() and (rank is None or t.dim() == rank))

    def integer(self):
        return self.any(lambda t: not t.is_floating_point() and t.dtype is not torch.bool)

    def ranked(self, least, dtype=None):
        return self.any(lambda t: t.dim() >= least and (dtype is None or t.dtype is dtype))

    def like(self, i):
        """A value that may go with value i: the same dtype rather than not."""
        same = [j for j, v in enumerate(self.values) if v.dtype == self.values[i].dtype]
        return self.rng.choice(same) if self.rng.random() < 0.8 else self.any()

    def dim(self, i):
        rank = self.values[i].dim()
        return self.rng.randrange(-rank, rank) if rank else 0

    def dims(self, i):
        rank = self.values[i].dim()
        return sorted(self.rng.sample(range(rank), self.rng.randint(1, rank))) if rank else []

    def number(self):
        return self.rng.choice([0.5, 1.0, 2.0, -1.0, 3.0, -0.25])

    def int(self, low, high):
        return self.rng.randint(low, high)

    def bool(self):
        return self.rng.random() < 0.5


TABLE = {}  # name: (function of tensors and parameters, choice, discontinuous)


def operator(name, function, choice, jumps=False, weight=1):
    TABLE[name] = (function, choice, jumps, weight)


# Parts of names of operators whose results are rounded by their nature, even where a test's numbers are small eighths.
ROUNDING = ("fft", "norm", "var", "std", "softmax", "mean", "logsumexp", "cdist", "attention", "complex_abs")


def rounds(name):
    return any(part in name for part in ROUNDING)


def resolve(name):
    place = torch
    for part in name.split("."):
        place = getattr(place, part)
    return place


for n in ["neg", "abs", "square", "nn.functional.relu", "sigmoid", "tanh", "exp", "sin", "cos", "log1p", "rsqrt", "sqrt", "erf", "expm1", "nn.functional.gelu",
          "nn.functional.silu", "nn.functional.softplus", "nn.functional.elu", "nn.functional.hardswish", "reciprocal", "atan", "log", "nn.functional.leaky_relu", "exp2"]:
    operator(n, resolve(n), lambda c: ([c.floating()], []), weight=0.5)
for n in ["asinh", "acosh", "atanh", "asin", "acos", "sinh", "cosh", "tan", "erfc", "log2", "log10", "sinc", "deg2rad", "special.ndtr", "special.i0e", "special.log_ndtr",
          "nn.functional.relu6", "nn.functional.selu", "nn.functional.celu", "nn.functional.mish", "nn.functional.logsigmoid", "nn.functional.softsign",
          "nn.functional.tanhshrink", "nn.functional.hardsigmoid", "nn.functional.hardtanh", "nan_to_num", "positive"]:
    operator(n, resolve(n), lambda c: ([c.floating()], []), weight=0.25)
for n in ["abs", "neg", "square", "exp", "sin", "sqrt", "sigmoid", "nn.functional.relu"]:  # of integers too
    operator(n + "_any", resolve(n), lambda c: ([c.any()], []), weight=0.5)
for n in ["frac", "sgn", "isinf", "nn.functional.softshrink", "nn.functional.hardshrink"]:
    operator(n, resolve(n), lambda c: ([c.any()], []), jumps=True, weight=0.25)
for n in ["floor", "ceil", "round", "trunc", "sign", "isnan", "isfinite", "logical_not"]:
    operator(n, resolve(n), lambda c: ([c.any()], []), jumps=True, weight=0.5)
operator("bitwise_not", torch.bitwise_not, lambda c: ([c.any(lambda t: not t.is_floating_point())], []))
for n in ["add", "sub", "mul", "maximum", "minimum"]:
    operator(n, resolve(n), lambda c: ([i := c.any(), c.like(i)], []), weight=3)
for n in ["div", "pow", "atan2", "hypot"]:
    operator(n, resolve(n), lambda c: ([i := c.floating(), c.like(i)], []))
# What sign a NaN has that was computed depends on the instructions.
operator("signbit", lambda x: torch.where(x.isnan(), 1, x).signbit(), lambda c: ([c.any()], []), jumps=True, weight=0.25)
operator("copysign", lambda x, y: torch.copysign(x, torch.where(y.isnan(), 1, y)), lambda c: ([i := c.floating(), c.like(i)], []))
for n in ["floor_divide", "remainder", "fmod", "eq", "lt", "ge", "ne", "logical_and", "logical_xor"]:
    operator(n, resolve(n), lambda c: ([i := c.any(), c.like(i)], []), jumps=True)
for n in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
    operator(n, resolve(n), lambda c: ([c.any(lambda t: not t.is_floating_point()), c.any(lambda t: not t.is_floating_point())], []))
for n in ["bitwise_left_shift", "bitwise_right_shift"]:
    operator(n, resolve(n), lambda c: ([c.integer()], [c.int(0, 5)]), weight=0.5)
for n in ["logaddexp", "logaddexp2", "xlogy", "fmax", "fmin"]:
    operator(n, resolve(n), lambda c: ([i := c.floating(), c.like(i)], []), weight=0.5)
for n in ["le", "gt", "logical_or", "heaviside", "nextafter"]:
    operator(n, resolve(n), lambda c: ([i := c.any(), c.like(i)], []), jumps=True, weight=0.5)
for n in ["floor", "trunc"]:
    operator("div_" + n, lambda a, b, n=n: torch.div(a, b, rounding_mode=n), lambda c: ([i := c.any(), c.like(i)], []), jumps=True)
operator("shift_by", lambda a, b: a << (b & 7), lambda c: ([c.integer(), c.integer()], []), weight=0.5)
operator("add_alpha", lambda a, b, k: torch.add(a, b, alpha=k), lambda c: ([i := c.any(), c.like(i)], [c.int(-2, 3)]))
operator("addcmul", lambda a, b, d, k: torch.addcmul(a, b, d, value=k), lambda c: ([i := c.any(), c.like(i), c.like(i)], [c.int(-2, 3)]))
operator("addcdiv", lambda a, b, d: torch.addcdiv(a, b, d, value=0.5), lambda c: ([i := c.floating(), c.like(i), c.like(i)], []), weight=0.5)
operator("lerp", torch.lerp, lambda c: ([i := c.floating(), c.like(i)], [c.number()]), weight=0.5)
operator("fmod_scalar", torch.fmod, lambda c: ([c.any()], [c.rng.choice([2, 3, -2, 1.5])]), jumps=True, weight=0.5)
operator("scalar_pow", lambda x, k: torch.pow(k, x), lambda c: ([c.any()], [c.rng.choice([0, 1, 2, 0.5])]), weight=0.5)
operator("add_scalar", torch.add, lambda c: ([c.any()], [c.number() if c.bool() else c.int(-3, 3)]), weight=2)
operator("mul_scalar", torch.mul, lambda c: ([c.any()], [c.number() if c.bool() else c.int(-3, 3)]), weight=2)
operator("div_scalar", torch.div, lambda c: ([c.any()], [c.number()]))
operator("pow_scalar", torch.pow, lambda c: ([c.any()], [c.rng.choice([0, 1, 2, 3, 0.5, -1.0])]))
operator("rsub", torch.rsub, lambda c: ([c.any()], [c.int(-3, 3)]))
operator("remainder_scalar", torch.remainder, lambda c: ([c.any()], [c.rng.choice([2, 3, -2, 1.5])]), jumps=True)
operator("clamp", torch.clamp, lambda c: ([c.any()], [-1, c.int(0, 3)]))
operator("where", lambda m, a, b: torch.where(m != 0, a, b), lambda c: ([c.any(), i := c.any(), c.like(i)], []), jumps=True, weight=2)
operator("masked_fill", lambda x, m, v: x.masked_fill(m > 0, v), lambda c: ([c.any(), c.any()], [c.int(-2, 2)]), jumps=True)
operator("to", lambda x, d: x.to(getattr(torch, d)), lambda c: ([c.any()], [c.rng.choice(DTYPES)]), jumps=True, weight=4)

# reductions and scans
for n in ["sum", "mean", "amax", "amin", "logsumexp"]:
    operator(n, resolve(n), lambda c: ([i := c.any(), ], [c.dims(i), c.bool()]), weight=1.5)
for n in ["var", "std"]:
    operator(n, lambda x, d, u, k, f=resolve(n): f(x, d, unbiased=u, keepdim=k), lambda c: ([i := c.floating()], [c.dims(i), c.bool(), c.bool()]))
operator("prod", torch.prod, lambda c: ([i := c.any()], [c.dim(i), c.bool()]))
operator("sum_all", lambda x: x.sum(), lambda c: ([c.any()], []))
for n in ["any", "all", "argmax", "argmin"]:
    operator(n, resolve(n), lambda c: ([i := c.any()], [c.dim(i), c.bool()]), jumps=True)
operator("count_nonzero", torch.count_nonzero, lambda c: ([i := c.any()], [c.dim(i)]), jumps=True)
for n in ["cumsum", "cumprod"]:
    operator(n, resolve(n), lambda c: ([i := c.any()], [c.dim(i)]))
operator("cummax", lambda x, d: torch.cummax(x, d).values, lambda c: ([i := c.any()], [c.dim(i)]), jumps=True)
operator("cummin", lambda x, d: torch.cummin(x, d).values, lambda c: ([i := c.any()], [c.dim(i)]), jumps=True)
operator("logcumsumexp", torch.logcumsumexp, lambda c: ([i := c.floating()], [c.dim(i)]))
operator("cumsum_as", lambda x, d, t: torch.cumsum(x, d, dtype=getattr(torch, t)), lambda c: ([i := c.any()], [c.dim(i), c.rng.choice(["float32", "float64", "int64"])]), jumps=True)
operator("sum_as", lambda x, d, k, t: torch.sum(x, d, k, dtype=getattr(torch, t)), lambda c: ([i := c.any()], [c.dims(i), c.bool(), c.rng.choice(["float32", "float64", "int64"])]), jumps=True)
for n in ["nansum", "nanmean"]:
    operator(n, resolve(n), lambda c: ([i := c.floating()], [c.dims(i), c.bool()]), weight=0.5)
for n in ["prod", "mean", "amax", "std"]:
    operator(n + "_all", lambda x, f=resolve(n): f(x), lambda c: ([c.any()], []), weight=0.5)
for n in ["max", "min"]:
    operator(n + "_positions", lambda x, d, k, f=resolve(n): f(x, d, k).indices, lambda c: ([i := c.any()], [c.dim(i), c.bool()]), jumps=True, weight=0.5)
operator("argmax_all", torch.argmax, lambda c: ([c.any()], []), jumps=True, weight=0.5)
operator("aminmax", lambda x, d, k: torch.sub(*torch.aminmax(x, dim=d, keepdim=k)), lambda c: ([i := c.any()], [c.dim(i), c.bool()]))
operator("var_mean", lambda x, d, k: torch.add(*torch.var_mean(x, d, correction=k)), lambda c: ([i := c.floating()], [c.dims(i), c.int(0, 1)]))
for n in ["median", "nanmedian"]:
    operator(n, lambda x, d, k, f=resolve(n): f(x, d, k).values, lambda c: ([i := c.any()], [c.dim(i), c.bool()]), jumps=True, weight=0.5)
operator("kthvalue", lambda x, n, d: x.kthvalue(n, d).values, lambda c: ([i := c.any()], [c.int(1, 3), c.dim(i)]), jumps=True, weight=0.5)
operator("diff", lambda x, n, d: torch.diff(x, n, d), lambda c: ([i := c.ranked(1)], [c.int(1, 2), c.dim(i)]))
operator("norm", lambda x, p, d: torch.linalg.vector_norm(x, p, d), lambda c: ([i := c.floating()], [c.rng.choice([0, 1, 3, float("inf"), float("-inf")]), c.dims(i)]), jumps=True, weight=0.5)
operator("normalize", F.normalize, lambda c: ([i := c.floating()], [2.0, c.dim(i)]), weight=0.5)
operator("rms_norm", lambda x: F.rms_norm(x, x.shape[-1:]), lambda c: ([c.floating()], []), weight=0.5)
operator("group_norm", lambda x, g: F.group_norm(x, g), lambda c: ([c.floating()], [c.int(1, 3)]))
operator("instance_norm", lambda x: F.instance_norm(x), lambda c: ([c.floating()], []), weight=0.5)
operator("softmax_as", lambda x, d: torch.softmax(x, d, dtype=torch.float32), lambda c: ([i := c.any()], [c.dim(i)]), weight=0.5)
for n in ["softmax", "log_softmax"]:
    operator(n, resolve(n), lambda c: ([i := c.floating()], [c.dim(i)]))
operator("layer_norm", lambda x: F.layer_norm(x, x.shape[-1:]), lambda c: ([c.ranked(1)], []))
operator("vector_norm", lambda x, d: torch.linalg.vector_norm(x, 2, d), lambda c: ([i := c.floating()], [c.dims(i)]))

# products
operator("matmul", torch.matmul, lambda c: ([i := c.ranked(1), c.like(i)], []), weight=3)
operator("matmul_t", lambda a, b: torch.matmul(a, b.mT), lambda c: ([i := c.ranked(2), c.like(i)], []), weight=3)
operator("linear", F.linear, lambda c: ([i := c.ranked(1), c.like(i)], []), weight=2)
operator("outer", lambda a, b: torch.einsum("...i,...j->...ij", a, b), lambda c: ([i := c.ranked(1), c.like(i)], []))
operator("addmm", lambda s, a, b: torch.addmm(s, a, b.mT, beta=0.5, alpha=2), lambda c: ([i := c.floating(), c.like(i), c.like(i)], []))
operator("matmul_views", lambda a, b: torch.matmul(a[..., 1:].mT, b[..., :-1].flip(-1)), lambda c: ([i := c.ranked(2), c.like(i)], []))
operator("square_product", lambda a: torch.matmul(a.mT, a), lambda c: ([c.ranked(2)], []))
operator("baddbmm", lambda s, a, b: torch.baddbmm(s, a, b.mT, beta=2, alpha=0.5), lambda c: ([i := c.floating(3), c.like(i), c.like(i)], []))
operator("tensordot", lambda a, b, n: torch.tensordot(a, b.permute(*range(b.dim() - 1, -1, -1)), n), lambda c: ([i := c.ranked(1), c.like(i)], [c.int(1, 2)]))
operator("attention", lambda q, k, causal: F.scaled_dot_product_attention(q, k, k, is_causal=causal), lambda c: ([i := c.ranked(3), c.like(i)], [c.bool()]))
operator("kron", torch.kron, lambda c: ([i := c.any(), c.like(i)], []), weight=0.3)
operator("cdist", torch.cdist, lambda c: ([i := c.floating(), c.like(i)], []), weight=0.3)
operator("grouped_conv1d", lambda x, s, p, d: F.conv1d(x, x[:, :1, :3].transpose(0, 1).expand(x.shape[1], 1, -1), None, s, p, d, x.shape[1]),
         lambda c: ([c.floating(3)], [c.int(1, 3), c.int(0, 2), c.int(1, 2)]))
operator("own_conv2d", lambda x, s, p, d: F.conv2d(x, x[..., :3, :2].flip(0), x[:, 0, 0, 0], s, p, d), lambda c: ([c.floating(4)], [c.int(1, 3), c.int(0, 2), c.int(1, 2)]), weight=2)
operator("conv_transpose1d", lambda x, s, p, o: F.conv_transpose1d(x, x[..., :3].transpose(0, 1).expand(-1, 2, -1)[: x.shape[1]], None, s, p, o),
         lambda c: ([c.floating(3)], [c.int(1, 3), c.int(0, 1), c.int(0, 1)]))
operator("conv_transpose2d", lambda x, w, s, p: F.conv_transpose2d(x, w, None, s, p), lambda c: ([c.floating(4), c.floating(4)], [c.int(1, 2), c.int(0, 1)]))
# Coil leaves out what lies on the padding, eager multiplies it by 0: a weight that is no number shows the difference.
operator("conv1d", lambda x, w, s, p: F.conv1d(x, w.nan_to_num(1.0, 2.0, -2.0), None, s, p), lambda c: ([c.floating(3), c.floating(3)], [c.int(1, 2), c.int(0, 2)]), weight=2)
operator("conv2d", lambda x, w, s, p: F.conv2d(x, w.nan_to_num(1.0, 2.0, -2.0), None, s, p), lambda c: ([c.floating(4), c.floating(4)], [c.int(1, 2), c.int(0, 2)]), weight=2)
for n in ["max_pool2d", "avg_pool2d"]:
    operator(n, lambda x, k, s, p, f=getattr(F, n): f(x, k, s, p), lambda c: ([c.floating()], [c.int(1, 3), c.int(1, 2), c.int(0, 1)]))
operator("adaptive_avg_pool1d", F.adaptive_avg_pool1d, lambda c: ([c.floating()], [c.int(1, 4)]))
operator("avg_pool1d", lambda x, k, s, p, u, i: F.avg_pool1d(x, k, s, p, u, i), lambda c: ([c.floating()], [c.int(1, 4), c.int(1, 3), c.int(0, 1), c.bool(), c.bool()]))
operator("max_pool1d", lambda x, k, s, d, u: F.max_pool1d(x, k, s, 0, d, u), lambda c: ([c.floating()], [c.int(1, 3), c.int(1, 3), c.int(1, 2), c.bool()]))
operator("pool_ceil", lambda x, k, s, u: F.avg_pool2d(x, (k, 2), (s, 1), (0, 1), True, u), lambda c: ([c.floating()], [c.int(1, 3), c.int(1, 3), c.bool()]))
operator("adaptive_max_pool1d", F.adaptive_max_pool1d, lambda c: ([c.floating()], [c.int(1, 4)]), weight=0.5)
operator("adaptive_avg_pool2d", F.adaptive_avg_pool2d, lambda c: ([c.floating()], [[c.int(1, 4), c.int(1, 4)]]), weight=0.5)
operator("im2col", lambda x, k, p, s: F.unfold(x, (k, 2), padding=p, stride=s), lambda c: ([c.floating(4)], [c.int(1, 3), c.int(0, 1), c.int(1, 2)]), weight=0.5)
operator("resample", lambda x, a, b, m, k: F.interpolate(x, size=(a, b), mode=m, align_corners=k),
         lambda c: ([c.floating(4)], [c.int(1, 9), c.int(1, 9), c.rng.choice(["bilinear", "bicubic"]), c.bool()]))
operator("interpolate", lambda x, s: F.interpolate(x, scale_factor=s, mode="nearest"), lambda c: ([c.floating()], [c.int(1, 3)]))

# views
operator("transpose", torch.transpose, lambda c: ([i := c.ranked(2)], [c.dim(i), c.dim(i)]), weight=3)
operator("permute", torch.permute, lambda c: ([i := c.ranked(2)], [c.rng.sample(range(c.values[i].dim()), c.values[i].dim())]), weight=2)
operator("flatten", torch.flatten, lambda c: ([i := c.any()], [c.dim(i), -1]))
operator("reshape", lambda x, k: x.reshape(-1, k), lambda c: ([c.any()], [c.int(1, 4)]))
operator("unflatten", lambda x, d, k: x.unflatten(d, (k, -1)), lambda c: ([i := c.ranked(1)], [c.dim(i), c.int(1, 4)]))
operator("unsqueeze", torch.unsqueeze, lambda c: ([i := c.any()], [c.int(-1, c.values[i].dim())]), weight=2)
operator("squeeze", torch.squeeze, lambda c: ([i := c.any()], [c.dim(i)]))
operator("expand", lambda x, k: x.expand(k, *x.shape), lambda c: ([c.any()], [c.int(1, 3)]))
operator("expand_one", lambda x, k: x[..., :1].expand(*x.shape[:-1], k), lambda c: ([c.ranked(1)], [c.int(1, 5)]))
operator("slice", lambda x, d, a, b, s: x[(slice(None),) * (d % x.dim()) + (slice(a, b, s),)],
         lambda c: ([i := c.ranked(1)], [c.dim(i), c.int(-3, 3), c.rng.choice([None, -1, 2, 5]), c.int(1, 3)]), weight=3)
operator("select", torch.select, lambda c: ([i := c.ranked(1)], [c.dim(i), c.int(-2, 1)]), weight=2)
operator("narrow", torch.narrow, lambda c: ([i := c.ranked(1)], [c.dim(i), c.int(0, 2), c.int(0, 3)]))
operator("flip", torch.flip, lambda c: ([i := c.ranked(1)], [c.dims(i)]))
operator("roll", torch.roll, lambda c: ([i := c.ranked(1)], [c.int(-3, 3), c.dim(i)]))
operator("unfold", lambda x, d, n, s: x.unfold(d, n, s), lambda c: ([i := c.ranked(1)], [c.dim(i), c.int(1, 3), c.int(1, 2)]))
operator("diagonal", torch.diagonal, lambda c: ([c.ranked(2)], [c.int(-1, 1), 0, 1]))
operator("chunk", lambda x, n, d, k: (p := torch.chunk(x, n, d))[k % len(p)], lambda c: ([i := c.ranked(1)], [c.int(1, 3), c.dim(i), c.int(0, 2)]))
operator("contiguous", torch.Tensor.contiguous, lambda c: ([c.any()], []))
operator("tril", torch.tril, lambda c: ([c.ranked(2)], [c.int(-1, 1)]))
operator("triu", torch.triu, lambda c: ([c.ranked(2)], [c.int(-1, 1)]))
operator("repeat", lambda x, k: x.repeat(*([1] * (x.dim() - 1)), k), lambda c: ([c.ranked(1)], [c.int(1, 3)]))
operator("repeat_interleave", lambda x, k, d: x.repeat_interleave(k, d), lambda c: ([i := c.ranked(1)], [c.int(1, 3), c.dim(i)]))

operator("movedim", torch.movedim, lambda c: ([i := c.ranked(2)], [c.dim(i), c.dim(i)]))
operator("split", lambda x, n, d, k: (p := torch.split(x, n, d))[k % len(p)], lambda c: ([i := c.ranked(1)], [c.int(1, 4), c.dim(i), c.int(0, 2)]))
operator("tensor_split", lambda x, n, d, k: torch.tensor_split(x, n, d)[k % n], lambda c: ([i := c.ranked(1)], [c.int(1, 4), c.dim(i), c.int(0, 3)]), weight=0.5)
operator("unbind_sum", lambda x, d: sum(torch.unbind(x, d)[:4]), lambda c: ([i := c.ranked(1)], [c.dim(i)]))
operator("as_strided", lambda x, n, s, o: x.contiguous().as_strided((n, 2), (s, 1), o), lambda c: ([c.any()], [c.int(1, 4), c.int(0, 3), c.int(0, 2)]), jumps=True)
operator("rot90", torch.rot90, lambda c: ([c.ranked(2)], [c.int(-1, 3), [0, 1]]), weight=0.5)
operator("reverse_strides", lambda x: x.permute(*range(x.dim() - 1, -1, -1)), lambda c: ([c.ranked(2)], []))
operator("pixel_shuffle", F.pixel_shuffle, lambda c: ([c.ranked(3)], [2]), weight=0.5)
operator("tile", lambda x, a, b: x.tile(a, b), lambda c: ([c.any()], [c.int(1, 3), c.int(1, 2)]))
operator("slices", lambda x, a, b, d: x[a::d, ..., b:], lambda c: ([c.ranked(2)], [c.int(0, 2), c.int(-3, 2), c.int(1, 3)]), weight=2)
operator("bits", lambda x: x.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]), lambda c: ([c.any(lambda t: t.dtype is torch.float32)], []), jumps=True, weight=0.3)

# complex numbers on the way
operator("complex_product", lambda a, b: torch.view_as_real(torch.complex(a, a + 1) * torch.complex(b, 1 - b)), lambda c: ([i := c.floating(), c.like(i)], []), weight=0.7)
operator("complex_abs", lambda a: torch.view_as_complex(torch.stack([a, 2 - a], -1)).abs(), lambda c: ([c.floating()], []), weight=0.7)
operator("complex_sum", lambda a, d, k: torch.complex(a, -a).conj().sum(d, k).imag, lambda c: ([i := c.floating()], [c.dims(i), c.bool()]), weight=0.7)
# Of infinities the library that eager calls makes NaN where the formula does not.
operator("complex_matmul", lambda a: (z := torch.complex(a := a.nan_to_num(1.0, 2.0, -2.0), a.flip(-1))).matmul(z.mH).real, lambda c: ([c.floating()], []), weight=0.5)
operator("rfft", lambda x, d: torch.view_as_real(torch.fft.rfft(x, dim=d)), lambda c: ([i := c.ranked(1)], [c.dim(i)]), weight=0.7)
operator("fft_there_and_back", lambda x, d: torch.fft.ifft(torch.fft.fft(x, dim=d) * 2, dim=d).real, lambda c: ([i := c.ranked(1)], [c.dim(i)]), weight=0.5)

# joins, padding, positions
operator("cat", lambda a, b, d: torch.cat([a, b], d), lambda c: ([i := c.ranked(1), c.like(i)], [c.dim(i)]), weight=3)
operator("cat3", lambda a, b, x, d: torch.cat([a, b, x], d), lambda c: ([i := c.ranked(1), c.like(i), i], [c.dim(i)]))
operator("stack", lambda a, b, d: torch.stack([a, b], d), lambda c: ([i := c.any(), c.like(i)], [0 if c.bool() else -1]), weight=2)
operator("pad", lambda x, a, b, v: F.pad(x, (a, b), value=v), lambda c: ([c.ranked(1)], [c.int(-1, 2), c.int(-1, 2), c.int(0, 2)]), weight=2)
for n in ["reflect", "replicate", "circular"]:
    operator("pad_" + n, lambda x, a, b, n=n: F.pad(x, (a, b), mode=n), lambda c: ([c.floating()], [c.int(0, 2), c.int(0, 2)]))
operator("pad_two", lambda x, a, b, d, e: F.pad(x, (a, b, d, e), value=-1), lambda c: ([c.ranked(2)], [c.int(-1, 2), c.int(-1, 2), c.int(-1, 2), c.int(-1, 2)]))
operator("pad_both_ways", lambda x, a, b, m: F.pad(x, (a, b, b, a), mode=m), lambda c: ([c.floating(4)], [c.int(0, 2), c.int(0, 2), c.rng.choice(["reflect", "replicate", "circular"])]))
operator("cat_views", lambda a, b, d: torch.cat([a, b.flip(d), a.narrow(d, 0, 1), b], d), lambda c: ([i := c.ranked(1), c.like(i)], [c.dim(i)]))
operator("join_reduced", lambda a, d: torch.cat([a, a.sum(d, True), a.amax(d, True)], d), lambda c: ([i := c.ranked(1)], [c.dim(i)]))
operator("diag_embed", torch.diag_embed, lambda c: ([c.ranked(1)], [c.int(-1, 1)]))
operator("diag", torch.diag, lambda c: ([c.ranked(1)], [c.int(-1, 1)]), weight=0.5)
operator("slice_scatter", lambda x, y, d, a, s: x.slice_scatter(y.expand_as(x).narrow(d, 0, len(range(a, x.shape[d], s))), d, a, None, s), lambda c: ([i := c.ranked(1), c.like(i)], [c.dim(i), c.int(0, 2), c.int(1, 2)]))
operator("select_scatter", lambda x, y, d, k: x.select_scatter(y.expand_as(x).select(d, 0), d, k), lambda c: ([i := c.ranked(1), c.like(i)], [c.dim(i), c.int(-1, 1)]))
operator("take", lambda x, i: x.take(i.long().abs() % max(1, x.numel())), lambda c: ([c.any(), c.integer()], []), jumps=True)
operator("index_two", lambda x, i, j: x[i.long().abs() % max(1, x.shape[0]), ..., j.long().abs() % max(1, x.shape[-1])], lambda c: ([c.ranked(2), i := c.integer(), c.integer()], []), jumps=True)
operator("index_last", lambda x, i: x[..., i.long().abs() % max(1, x.shape[-1])] + 1, lambda c: ([c.ranked(2), c.integer()], []), jumps=True)
operator("scatter", lambda x, i, d, v: x.scatter(d, i.long().abs() % max(1, x.shape[d]), v), lambda c: ([j := c.ranked(1), c.integer()], [c.dim(j), c.int(-2, 2)]), jumps=True)
operator("scatter_reduce", lambda x, i, s, d, r, k: x.scatter_reduce(d, i.long().abs() % max(1, x.shape[d]), s, r, include_self=k),
         lambda c: ([j := c.ranked(1), c.integer(), c.like(j)], [c.dim(j), c.rng.choice(["sum", "prod", "mean", "amax", "amin"]), c.bool()]), jumps=True)
operator("index_fill", lambda x, i, d, v: x.index_fill(d, i.flatten().long().abs() % max(1, x.shape[d]), v), lambda c: ([j := c.ranked(1), c.integer()], [c.dim(j), c.int(-2, 2)]), jumps=True)
# (Boundaries that are NaN are in no order: where eager's binary search ends among them depends on its steps.)
operator("bucketize", lambda x, y, r: torch.bucketize(x, y.flatten().nan_to_num().sort().values, right=r), lambda c: ([i := c.any(), c.like(i)], [c.bool()]), jumps=True, weight=0.5)
operator("masked_sum", lambda x, d: (x * (x > 0)).sum(d), lambda c: ([i := c.any()], [c.dims(i)]), jumps=True)
operator("selected_sum", lambda x, y: x[y > 0].sum(), lambda c: ([i := c.any(), i if c.bool() else c.like(i)], []), jumps=True, weight=0.5)
operator("embedding_bag", lambda i, w, m: F.embedding_bag(i.long().abs() % max(1, w.shape[0]), w, mode=m), lambda c: ([c.integer(), c.floating(2)], [c.rng.choice(["sum", "mean", "max"])]), jumps=True, weight=0.5)
operator("index_select", lambda x, i, d: x.index_select(d, i.flatten().long().abs() % max(1, x.shape[d])), lambda c: ([j := c.ranked(1), c.integer()], [c.dim(j)]), jumps=True)
operator("index", lambda x, i: x[i.long() % max(1, x.shape[0])], lambda c: ([c.ranked(1), c.integer()], []), jumps=True)
operator("gather", lambda x, i, d: x.gather(d, i.long().abs() % max(1, x.shape[d])), lambda c: ([j := c.ranked(1), c.integer()], [c.dim(j)]), jumps=True)
operator("scatter_add", lambda x, i, s, d: x.scatter_add(d, i.long().abs() % max(1, x.shape[d]), s), lambda c: ([j := c.ranked(1), c.integer(), c.like(j)], [c.dim(j)]), jumps=True)
operator("index_put", lambda x, i, v, a: x.index_put((i.long().abs() % max(1, x.shape[0]),), v, accumulate=a), lambda c: ([j := c.ranked(1), c.integer(), c.like(j)], [True]), jumps=True)
operator("index_add", lambda x, i, s, d: x.index_add(d, i.flatten().long().abs() % max(1, x.shape[d]), s), lambda c: ([j := c.ranked(1), c.integer(), c.like(j)], [c.dim(j)]), jumps=True)
operator("embedding", lambda i, w: F.embedding(i.long().abs() % max(1, w.shape[0]), w), lambda c: ([c.integer(), c.ranked(2)], []), jumps=True)
operator("sort", lambda x, d, b: x.sort(d, b).values, lambda c: ([i := c.any()], [c.dim(i), c.bool()]), jumps=True)
operator("argsort", lambda x, d: x.argsort(d, stable=True), lambda c: ([i := c.any()], [c.dim(i)]), jumps=True)
operator("topk", lambda x, k, d: x.topk(k, d).values, lambda c: ([i := c.any()], [c.int(1, 3), c.dim(i)]), jumps=True)
operator("topk_least", lambda x, k, d: x.topk(k, d, largest=False).values, lambda c: ([i := c.any()], [c.int(1, 3), c.dim(i)]), jumps=True, weight=0.5)
operator("sorted_back", lambda x, d: (s := x.sort(d, stable=True)).values.scatter(d, s.indices, s.values * 2), lambda c: ([i := c.any()], [c.dim(i)]), jumps=True, weight=0.5)
operator("one_hot", lambda x, n: F.one_hot(x.long().abs() % n, n), lambda c: ([c.integer()], [c.int(1, 4)]), jumps=True)
operator("zeros_like", torch.zeros_like, lambda c: ([c.any()], []), weight=0.3)
operator("arange", lambda x: torch.arange(x.shape[-1]), lambda c: ([c.ranked(1)], []))


# in place, on a clone and on views of it
def in_place(change):
    def run(x, *rest):
        y = x.clone()
        change(y, *rest)
        return y

    return run


operator("add_", in_place(lambda y, z: y.add_(z)), lambda c: ([i := c.any(), c.like(i)], []))
operator("slice_mul_", in_place(lambda y, z, a: y[..., a:].mul_(z)), lambda c: ([i := c.ranked(1), c.like(i)], [c.int(0, 2)]), weight=2)
operator("slice_copy_", in_place(lambda y, z, s: y[..., ::s].copy_(z)), lambda c: ([i := c.ranked(1), c.like(i)], [c.int(1, 2)]), weight=2)
operator("select_fill_", in_place(lambda y, d, k, v: y.select(d, k).fill_(v)), lambda c: ([i := c.ranked(1)], [c.dim(i), c.int(-1, 0), c.int(-1, 2)]), weight=2)
operator("transposed_add_", in_place(lambda y, z: y.mT.add_(z)), lambda c: ([i := c.ranked(2), c.like(i)], []))
operator("flat_zero_", in_place(lambda y: y.view(-1)[1:].zero_()), lambda c: ([c.any()], []))
operator("diagonal_add_", in_place(lambda y, v: y.diagonal().add_(v)), lambda c: ([c.ranked(2)], [c.int(1, 3)]))


def swapped(y):
    first = y[0].clone()
    y[0] = y[-1]
    y[-1].copy_(first)


operator("swap_rows_", in_place(swapped), lambda c: ([c.ranked(1)], []))
operator("column_sums_", in_place(lambda y: y[..., 0].add_(y.sum(-1).to(y.dtype))), lambda c: ([c.ranked(1)], []), jumps=True)
operator("index_put_", in_place(lambda y, i, v: y.mT.index_put_((i.flatten().long().abs() % max(1, y.shape[-1]),), v.flatten()[:1], accumulate=True)),
         lambda c: ([j := c.ranked(2), c.integer(), c.like(j)], []), jumps=True)
operator("masked_set_", in_place(lambda y, v: y[..., 1:].masked_fill_(y[..., :-1] > 0, v)), lambda c: ([c.ranked(1)], [c.int(-2, 2)]), jumps=True)
operator("mask_assign_", in_place(lambda y, v: y.__setitem__(y > 1, v)), lambda c: ([c.any()], [c.int(-2, 2)]), jumps=True)
operator("scatter_add_view_", in_place(lambda y, i, s: y.select(-1, 0).scatter_add_(0, i.flatten().long().abs() % max(1, y.shape[0]), s.flatten()[: i.numel()])),
         lambda c: ([j := c.ranked(2), c.integer(), c.like(j)], []), jumps=True)
operator("windows_add_", in_place(lambda y, k: y.unfold(-1, k, k).add_(1)), lambda c: ([c.ranked(1)], [c.int(1, 3)]))
operator("relu_view_", in_place(lambda y: y.flatten()[::2].relu_()), lambda c: ([c.any()], []))
operator("chained_", in_place(lambda y, z: y.add_(z).mul_(2).narrow(0, 0, 1).sub_(z.sum().to(y.dtype))), lambda c: ([i := c.ranked(1), c.like(i)], []), jumps=True)
