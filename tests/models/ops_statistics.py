"""Statistics over long and short ranges, channels first and last, and their gradients: norms as training has them, variances, means."""

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import BF16, F16, F32, F64, rand, registry

PROGRAMS, op = registry(__file__)
aten = torch.ops.aten
LAST = torch.channels_last


def image(n, c, h, w, dtype=F32, last=False, shift=0.0):
    x = rand(n, c, h, w, dtype=dtype) + shift
    return x.to(memory_format=LAST) if last else x


def statistics(c):
    return rand(c), rand(c, low=0.5, high=2)


def normed(x, m, v):
    return F.relu(F.batch_norm(x, m, v, training=True)), m * 1, v * 1


def batch_norm_gradient(g, x, y, w, mean, rstd):
    """With the mask of a relu behind it, as training has it."""
    return aten.native_batch_norm_backward(torch.where(y <= 0, 0.0, g), x, w, None, None, mean, rstd, True, 1e-5, [True, True, True])


def gradient_inputs(n, c, h, w, dtype=F32, last=False):
    def made():
        x, weight = image(n, c, h, w, dtype, last, 0.5), rand(c)
        mean, rstd = x.float().mean((0, 2, 3)), x.float().var((0, 2, 3), unbiased=False).add(1e-5).rsqrt()
        return image(n, c, h, w, dtype, last), x, image(n, c, h, w, dtype, last), weight, mean, rstd
    return made


# More than 8192 elements a channel; more channels than a GPU has units and fewer; lengths of a line that no vector divides.
for name, sizes in {"wide": (3, 5, 64, 48), "odd": (2, 37, 71, 67), "small": (4, 300, 3, 3), "one": (1, 4, 1, 1)}.items():
    if name != "one":  # PyTorch refuses one value a channel in training
        op(f"batch_norm_train_{name}", normed, lambda s=sizes: (image(*s), *statistics(s[1])))
        op(f"batch_norm_train_{name}_last", normed, lambda s=sizes: (image(*s, last=True), *statistics(s[1])))
    op(f"batch_norm_gradient_{name}", batch_norm_gradient, gradient_inputs(*sizes))
    op(f"batch_norm_gradient_{name}_last", batch_norm_gradient, gradient_inputs(*sizes, last=True))
op("batch_norm_train_bf16", lambda x, m, v: F.batch_norm(x, m, v, training=True), lambda: (image(2, 6, 70, 70, BF16), *statistics(6)))
op("batch_norm_train_bf16_last", lambda x, m, v: F.batch_norm(x, m, v, training=True), lambda: (image(2, 40, 70, 70, BF16, True), *statistics(40)))
op("batch_norm_gradient_bf16_last", batch_norm_gradient, gradient_inputs(2, 40, 70, 70, BF16, True))
op("batch_norm_train_f16", lambda x, m, v: F.batch_norm(x, m, v, training=True), lambda: (image(2, 6, 70, 70, F16), *statistics(6)))
op("batch_norm_train_f64", lambda x, m, v: F.batch_norm(x, m, v, training=True), lambda: (image(2, 6, 70, 70, F64), rand(6, dtype=F64), rand(6, dtype=F64, low=0.5, high=2)))
op("batch_norm_train_far", normed, lambda: (image(2, 6, 70, 70, shift=300.0), *statistics(6)))  # a mean far from 0
op("batch_norm_train_same", lambda x, m, v: (F.batch_norm(x * 0 + 7.3, m, v, training=True) + 1, m * 1, v * 1), lambda: (image(2, 6, 70, 70), *statistics(6)))
op("batch_norm_train_rows", normed, lambda: (rand(9000, 5), *statistics(5)))
op("batch_norm_train_3d", normed, lambda: (rand(2, 3, 8, 30, 40), *statistics(3)))
op("batch_norm_train_dynamic", normed, lambda: (image(3, 5, 64, 48), *statistics(5)), dynamic=({0: Dim("n", min=2, max=64)}, None, None),
   sets={f"n{n}": lambda n=n: (image(n, 5, 64, 48), *statistics(5)) for n in (2, 7)})
op("batch_norm_gradient_eval", lambda g, x, w, m, v: aten.native_batch_norm_backward(g, x, w, m, v, None, None, False, 1e-5, [True, True, True]),
   lambda: (image(3, 5, 64, 48), image(3, 5, 64, 48), rand(5), *statistics(5)))
op("batch_norm_gradient_one_result", lambda g, x, m, r: (aten.native_batch_norm_backward(g, x, None, None, None, m, r, True, 1e-5, [True, False, False])[0],
                                                         aten.native_batch_norm_backward(g, x, None, None, None, m, r, True, 1e-5, [False, True, True])[1:]),
   lambda: (image(3, 5, 16, 24), image(3, 5, 16, 24), rand(5), rand(5, low=0.5, high=2)))


def group_norm_gradient(groups):
    def f(g, x, w):
        n, c, h, width = x.shape
        _, mean, rstd = aten.native_group_norm(x, w, None, n, c, h * width, groups, 1e-5)
        return aten.native_group_norm_backward(g, x, mean, rstd, w, n, c, h * width, groups, [True, True, True])
    return f


for groups, sizes in ((3, (2, 6, 80, 64)), (1, (2, 5, 9, 7)), (8, (3, 8, 5, 1)), (4, (1, 64, 33, 31))):
    op(f"group_norm_gradient_{groups}", group_norm_gradient(groups), lambda s=sizes: (image(*s), image(*s, shift=0.5), rand(s[1])))
op("group_norm_wide", lambda x, w, b: F.group_norm(x, 2, w, b), lambda: (image(2, 6, 80, 64), rand(6), rand(6)))
op("group_norm_wide_last", lambda x, w, b: F.silu(F.group_norm(x, 4, w, b)), lambda: (image(2, 16, 65, 63, last=True), rand(16), rand(16)))
op("group_norm_wide_bf16", lambda x, w, b: F.group_norm(x, 2, w, b), lambda: (image(2, 6, 80, 64, BF16), rand(6, dtype=BF16), rand(6, dtype=BF16)))
op("instance_norm_wide", lambda x: F.instance_norm(x), lambda: (image(2, 3, 100, 90),))
op("layer_norm_wide", lambda x: F.layer_norm(x, (3, 60, 70)), lambda: (image(4, 3, 60, 70, shift=2.0),))
op("variance_long", lambda x: (x.var(), x.std(), torch.var_mean(x, 0), torch.std_mean(x, 1, correction=0), x.var(1, keepdim=True)), lambda: (rand(3, 20000) + 5,))
op("variance_columns", lambda x: (x.var(0), torch.var_mean(x, (0, 1))), lambda: (rand(10000, 3, 5),))
op("variance_specials", lambda x, y: (torch.where(y > 1, float("inf"), x).var(0), torch.where(y > 1, float("nan"), x).var(0), (x * 1e18).var(0), (x * 1e-18).std(0)),
   lambda: (rand(9001, 4), rand(9001, 4)))
op("variance_few", lambda x: (x[:, :1].var(1), x[:, :0].var(1), x[:, :2].var(1, correction=5)), lambda: (rand(3, 9),))


def of_columns(x):
    """Results of neighbouring columns, of which a thread of a GPU may have several."""
    return x.sum(0), x.amax(0), x.amin(0), (x > 0.9).any(0), (x < 0.9).all(0), (x * 2 - 1).square().mean(0)


for dtype, columns in ((F32, 64), (F32, 6), (BF16, 36), (BF16, 260), (F16, 33), (F64, 10)):
    op(f"columns_{str(dtype)[6:]}_{columns}", of_columns, lambda dtype=dtype, columns=columns: (rand(700, columns, dtype=dtype),))
op("columns_dynamic", of_columns, lambda: (rand(700, 24),), dynamic=({0: Dim("rows", min=2, max=2000), 1: Dim("columns", min=2, max=100)},))
op("columns_positions", lambda x: (x.argmax(0), x.argmin(0), x.max(0).values, x.sum(0)), lambda: (rand(700, 24),))
op("columns_specials", lambda x, y: of_columns(torch.where(y > 1, float("nan"), x)), lambda: (rand(700, 16), rand(700, 16)))
op("columns_of_groups", lambda x: (x.sum(1), x.amax((0, 2))), lambda: (rand(3, 500, 2, 40, dtype=BF16),))
op("columns_of_images", lambda x, g: ((x * g).sum((0, 2, 3)), x.amax((0, 2, 3)), (x + g).sum((0, 2))), lambda: (image(12, 8, 60, 44, last=True), image(12, 8, 60, 44, last=True)))
op("std_of_large", lambda x: (x.std(1), x.std(), torch.std_mean(x, 0)), lambda: (rand(5, 9) * 1e25,))
PROGRAMS[-1].forms = ("aten",)  # PyTorch's decomposition squares in float32, beyond its range
op("std_of_long_large", lambda x: (x.std(0), x.std()), lambda: (rand(9000, 2) * 1e25,))
PROGRAMS[-1].forms = ("aten",)  # PyTorch's decomposition squares in float32, beyond its range
op("columns_in_two_steps", lambda x: (x.sum((0, 1, 2)), x.prod(0).sum((0, 1)), x.amin((1, 2))), lambda: (rand(5, 90, 110, 6, low=0.5, high=1.2),))
