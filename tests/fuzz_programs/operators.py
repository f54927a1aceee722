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


def resolve(name):
    place = torch
    for part in name.split("."):
        place = getattr(place, part)
    return place


for n in ["neg", "abs", "square", "nn.functional.relu", "sigmoid", "tanh", "exp", "sin", "cos", "log1p", "rsqrt", "sqrt", "erf", "expm1", "nn.functional.gelu",
          "nn.functional.silu", "nn.functional.softplus", "nn.functional.elu", "nn.functional.hardswish", "reciprocal", "atan", "log", "nn.functional.leaky_relu", "exp2"]:
    operator(n, resolve(n), lambda c: ([c.floating()], []), weight=0.5)
for n in ["floor", "ceil", "round", "trunc", "sign", "isnan", "isfinite", "logical_not"]:
    operator(n, resolve(n), lambda c: ([c.any()], []), jumps=True, weight=0.5)
operator("bitwise_not", torch.bitwise_not, lambda c: ([c.any(lambda t: not t.is_floating_point())], []))
for n in ["add", "sub", "mul", "maximum", "minimum"]:
    operator(n, resolve(n), lambda c: ([i := c.any(), c.like(i)], []), weight=3)
for n in ["div", "pow", "atan2", "hypot", "copysign"]:
    operator(n, resolve(n), lambda c: ([i := c.floating(), c.like(i)], []))
for n in ["floor_divide", "remainder", "fmod", "eq", "lt", "ge", "ne", "logical_and", "logical_xor"]:
    operator(n, resolve(n), lambda c: ([i := c.any(), c.like(i)], []), jumps=True)
for n in ["bitwise_and", "bitwise_or", "bitwise_xor"]:
    operator(n, resolve(n), lambda c: ([c.any(lambda t: not t.is_floating_point()), c.any(lambda t: not t.is_floating_point())], []))
for n in ["bitwise_left_shift", "bitwise_right_shift"]:
    operator(n, resolve(n), lambda c: ([c.integer()], [c.int(0, 5)]), weight=0.5)
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
operator("conv1d", lambda x, w, s, p: F.conv1d(x, w, None, s, p), lambda c: ([c.floating(3), c.floating(3)], [c.int(1, 2), c.int(0, 2)]), weight=2)
operator("conv2d", lambda x, w, s, p: F.conv2d(x, w, None, s, p), lambda c: ([c.floating(4), c.floating(4)], [c.int(1, 2), c.int(0, 2)]), weight=2)
for n in ["max_pool2d", "avg_pool2d"]:
    operator(n, lambda x, k, s, p, f=getattr(F, n): f(x, k, s, p), lambda c: ([c.floating()], [c.int(1, 3), c.int(1, 2), c.int(0, 1)]))
operator("adaptive_avg_pool1d", F.adaptive_avg_pool1d, lambda c: ([c.floating()], [c.int(1, 4)]))
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

# joins, padding, positions
operator("cat", lambda a, b, d: torch.cat([a, b], d), lambda c: ([i := c.ranked(1), c.like(i)], [c.dim(i)]), weight=3)
operator("cat3", lambda a, b, x, d: torch.cat([a, b, x], d), lambda c: ([i := c.ranked(1), c.like(i), i], [c.dim(i)]))
operator("stack", lambda a, b, d: torch.stack([a, b], d), lambda c: ([i := c.any(), c.like(i)], [0 if c.bool() else -1]), weight=2)
operator("pad", lambda x, a, b, v: F.pad(x, (a, b), value=v), lambda c: ([c.ranked(1)], [c.int(-1, 2), c.int(-1, 2), c.int(0, 2)]), weight=2)
for n in ["reflect", "replicate", "circular"]:
    operator("pad_" + n, lambda x, a, b, n=n: F.pad(x, (a, b), mode=n), lambda c: ([c.floating()], [c.int(0, 2), c.int(0, 2)]))
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
