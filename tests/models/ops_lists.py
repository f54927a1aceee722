"""Operators on lists of tensors, as optimizers and gradient clipping have them, and states that are written where they lie."""

import math

import torch
from torch import nn
from torch.export import Dim

from case import BF16, F16, F32, F64, I64, Lazy, rand, registry

PROGRAMS, op = registry(__file__)
SIZES = [(3, 5), (7,), (1,), (2, 0), ()]


def tensors(dtype=F32, low=None, high=None, sizes=None):
    return [rand(math.prod(size), dtype=dtype, low=low, high=high).reshape(size) for size in (sizes or SIZES)]


def pair(dtype=F32, low=None, high=None):
    return tensors(dtype, low, high), tensors(dtype, low, high)


# By the range of numbers that they take.
UNARY = {None: ("abs", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "neg", "round", "sigmoid", "sign", "sin", "sinh", "tanh", "trunc"),
         (-1, 1): ("acos", "asin", "tan"), (0.1, 9): ("lgamma", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt")}
for limits, names in UNARY.items():
    low, high = limits or (None, None)
    functions = [getattr(torch, f"_foreach_{name}") for name in names]
    op(f"foreach_unary_{names[0]}", lambda xs, fs=functions: [f(xs) for f in fs], lambda a=low, b=high: (tensors(low=a, high=b),))
    written_functions = [getattr(torch, f"_foreach_{name}_") for name in names[:6]]
    op(f"foreach_unary_{names[0]}_written", lambda xs, fs=written_functions: [f([x.mul_(0.9) for x in xs]) for f in fs] and torch._foreach_neg(xs),
       lambda a=low, b=high: (tensors(low=a, high=b),), tolerance=1e-3)

BINARY = {None: ("add", "sub", "mul", "clamp_min", "clamp_max", "maximum", "minimum"), (0.5, 4): ("div", "pow")}
for limits, names in BINARY.items():
    low, high = limits or (None, None)
    functions = [getattr(torch, f"_foreach_{name}") for name in names]
    op(f"foreach_{names[0]}_scalar", lambda xs, fs=functions: [f(xs, 1.5) for f in fs], lambda a=low, b=high: (tensors(low=a, high=b),))
    op(f"foreach_{names[0]}_scalars", lambda xs, fs=functions: [f(xs, [1.5, 2.0, -0.5, 3.0, 0.25]) for f in fs], lambda a=low, b=high: (tensors(low=a, high=b),))
    op(f"foreach_{names[0]}_list", lambda xs, ys, fs=functions: [f(xs, ys) for f in fs], lambda a=low, b=high: pair(low=a, high=b))
for dtype in (F64, F16, BF16):
    word = str(dtype).rpartition(".")[2]
    op(f"foreach_add_{word}", lambda xs, ys: torch._foreach_add(xs, ys, alpha=0.5), lambda d=dtype: pair(d))
    op(f"foreach_addcdiv_{word}", lambda xs, ys: torch._foreach_addcdiv(xs, ys, xs, value=-0.5), lambda d=dtype: pair(d, 0.5, 2))
op("foreach_add_integers", lambda xs, ys: (torch._foreach_add(xs, 2), torch._foreach_mul(xs, ys), torch._foreach_add(xs, 0.5)), lambda: pair(I64))
op("foreach_add_tensor", lambda xs, y: (torch._foreach_add(xs, y, alpha=2), torch._foreach_mul(xs, y), torch._foreach_div(xs, y)), lambda: (tensors(), rand(1, low=1, high=2).reshape(())))
op("foreach_addcmul", lambda xs, ys: (torch._foreach_addcmul(xs, ys, xs, value=0.5), torch._foreach_addcmul(xs, ys, ys, [1.0, 2.0, 3.0, 4.0, 5.0])), pair)
op("foreach_addcdiv", lambda xs, ys: (torch._foreach_addcdiv(xs, ys, xs, value=2), torch._foreach_addcdiv(xs, xs, ys, [1.0, 2.0, 3.0, 4.0, 5.0])), lambda: pair(low=0.5, high=2))
op("foreach_lerp", lambda xs, ys: (torch._foreach_lerp(xs, ys, 0.1), torch._foreach_lerp(xs, ys, 0.9), torch._foreach_lerp(xs, ys, xs)), pair)
op("foreach_pow_base", lambda xs: torch._foreach_pow(0.9, xs), lambda: (tensors(low=0, high=9),))
op("foreach_norm", lambda xs: (torch._foreach_norm(xs), torch._foreach_norm(xs, 1), torch._foreach_norm(xs, 2, dtype=F64)), lambda: (tensors(),))
op("foreach_norm_largest", lambda xs: torch._foreach_norm(xs, float("inf")), lambda: (tensors(sizes=[(3, 5), (7,), ()]),))
op("foreach_max", lambda xs: torch._foreach_max(xs), lambda: (tensors(sizes=[(3, 5), (7,), ()]),))
op("foreach_mixed_types", lambda xs, ys: torch._foreach_mul(xs, ys), lambda: (tensors(BF16), tensors(F32)))
op("foreach_dynamic", lambda xs, ys: torch._foreach_addcmul(torch._foreach_mul(xs, 0.9), ys, ys, value=0.1), lambda: ([rand(5, 3), rand(5)], [rand(5, 3), rand(5)]),
   dynamic=([{0: Dim("n")}, {0: Dim("n")}], [{0: Dim("n")}, {0: Dim("n")}]), sets={f"n{n}": lambda n=n: ([rand(n, 3), rand(n)], [rand(n, 3), rand(n)]) for n in (2, 1000)})


def clipped(gradients):
    """torch.nn.utils.clip_grad_norm_, on lists."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, 2.0)), 2.0)
    return norm, torch._foreach_mul(gradients, torch.clamp(1.0 / (norm + 1e-6), max=1.0))


op("foreach_clip_gradients", clipped, lambda: (tensors(sizes=[(30, 50), (7,), ()]),))


# Writes to lists and to single tensors, of inputs and of states.
def written(xs, ys):
    torch._foreach_mul_(xs, 0.9)
    torch._foreach_add_(xs, ys, alpha=0.1)
    torch._foreach_addcdiv_(ys, xs, torch._foreach_add(torch._foreach_abs(xs), 1.0), [1.0, 2.0, 3.0, 4.0, 5.0])
    torch._foreach_clamp_min_(ys, -0.5)
    torch._foreach_pow_(xs, 2)
    return torch._foreach_sqrt(xs)


op("foreach_written", written, pair)
op("foreach_copied", lambda xs, ys: (torch._foreach_copy_(xs, ys), torch._foreach_zero_(ys), [x + 1 for x in xs])[2], pair)


class Adam(nn.Module):
    """Moments and weights as states, a step in each call."""

    def __init__(self, sizes, dtype=F32):
        super().__init__()
        self.weights, self.first, self.second = (nn.ParameterList([nn.Parameter(f(*s, dtype=dtype), False) for s in sizes]) for f in (torch.ones, torch.zeros, torch.zeros))
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, *gradients):
        gradients, weights, first, second = list(gradients), list(self.weights), list(self.first), list(self.second)
        self.steps.add_(1)
        torch._foreach_lerp_(first, gradients, 0.1)
        torch._foreach_mul_(second, 0.999)
        torch._foreach_addcmul_(second, gradients, gradients, 0.001)
        scale = 1 - 0.9 ** self.steps
        denominators = torch._foreach_add(torch._foreach_sqrt(second), 1e-8)
        torch._foreach_addcdiv_(weights, torch._foreach_div(first, scale), denominators, -0.01)
        return weights[0].sum()


op("state_adam", Lazy(lambda: Adam([(5, 7), (300,), (1,)])), lambda: (rand(5, 7), rand(300), rand(1)))


class Averages(nn.Module):
    """States whose new values need the old ones elsewhere, in another order, or twice: those are not written where they lie."""

    def __init__(self):
        super().__init__()
        for name in ("last", "before", "turned", "mean"):
            self.register_buffer(name, torch.arange(16.0).reshape(4, 4))

    def forward(self, x):
        self.before.copy_(self.last)  # the old one
        self.last.copy_(x)
        self.turned.copy_(self.turned.t() + x)  # other elements
        difference = x - self.mean
        self.mean.lerp_(x, 0.25)
        return difference * self.mean, self.turned.sum(0), self.before + self.last


op("state_averages", Averages, lambda: (rand(4, 4),))


class Checked(nn.Module):
    """A call that fails leaves the state as it was."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x, index):
        self.total.add_(x)
        return x[index] + self.total.sum()


op("state_checked", Checked, lambda: (rand(4), torch.tensor([0, 3, -1])))
op("state_two_writes", lambda x, y: (x.mul_(2), y.add_(x), x.add_(y))[2] * 1, lambda: (rand(6, 5), rand(6, 5)))
op("state_transposed", lambda x, y: (x.add_(y.t()), y.mul_(3))[0] * 1, lambda: (rand(5, 5), rand(5, 5)))
op("state_written_with_a_sum", lambda x, y: (x.sub_(x.mean(1, keepdim=True)), y.mul_(x.sum()))[0] * 1, lambda: (rand(6, 5), rand(6, 5)))
