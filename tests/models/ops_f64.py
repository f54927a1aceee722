"""Products and convolutions of float64, which have the blocked kernels of float32 with half as many lanes: sizes around tiles and panels,
strides, nothing at all, what follows them, infinities and NaN."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from case import F64, I64, Lazy, rand, registry

PROGRAMS, add = registry(__file__)
TOLERANCE = 1e-12
NAN, INF = float("nan"), float("inf")
B, N, K = Dim("batch", min=1, max=64), Dim("n", min=1, max=300), Dim("k", min=0, max=600)


def op(name, function, inputs, **options):
    add(f"f64_{name}", function, inputs, **{"tolerance": TOLERANCE, **options})


def numbers(*shape):
    return rand(*shape, dtype=F64)


def spoiled(*shape):
    x = numbers(*shape)
    x.view(-1)[::37] = NAN
    x.view(-1)[::29] = INF
    x.view(-1)[::31] = -INF
    return x


def constant(*shape):
    return nn.Parameter(numbers(*shape), requires_grad=False)


class Linear(nn.Module):
    def __init__(self, n, k, bias=True):
        super().__init__()
        self.w, self.b = constant(n, k), constant(n) if bias else None

    def forward(self, x):
        return F.linear(x, self.w, self.b)


class Conv(nn.Module):
    def __init__(self, dims, weight, bias=True, **options):
        super().__init__()
        self.w, self.b, self.options = constant(*weight), constant(weight[0]) if bias else None, options
        self.convolve = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[dims]

    def forward(self, x):
        return self.convolve(x, self.w, self.b, **self.options)


# Products of operands that are data: every m of a tile, panels that end anywhere, k around a chunk.
for m, n, k in ((1, 1, 1), (1, 300, 40), (2, 17, 3), (3, 15, 129), (7, 16, 128), (13, 33, 127), (14, 8, 256), (15, 47, 257), (29, 64, 513), (100, 130, 64)):
    op(f"mm_{m}_{n}_{k}", lambda a, b: a @ b, lambda m=m, n=n, k=k: (numbers(m, k), numbers(k, n)))
    op(f"mm_turned_{m}_{n}_{k}", lambda a, b: (a.t() @ b.t(), b @ a), lambda m=m, n=n, k=k: (numbers(k, m), numbers(n, k)))
for m, n, k in ((0, 5, 4), (5, 0, 4), (5, 4, 0)):
    op(f"mm_nothing_{m}_{n}_{k}", lambda a, b, c: (a @ b, torch.addmm(c, a, b)), lambda m=m, n=n, k=k: (numbers(m, k), numbers(k, n), numbers(m, n)))
op("mm_dynamic", lambda a, b: a @ b, lambda: (numbers(20, 30), numbers(30, 40)), dynamic=({0: B, 1: K}, {0: K, 1: N}),
   sets={f"{m}_{k}_{n}": lambda m=m, k=k, n=n: (numbers(m, k), numbers(k, n)) for m, k, n in ((1, 1, 1), (17, 0, 3), (64, 600, 300), (14, 129, 17))})
op("mm_strided", lambda a, b: (a[::2, 1::3] @ b[:, ::2], a[:, ::5].t() @ b[:1].expand(40, -1)), lambda: (numbers(40, 60), numbers(20, 50)))
op("mm_spoiled", lambda a, b: (a @ b, (a @ b).nan_to_num(1, 2, 3)), lambda: (spoiled(30, 150), numbers(150, 40)))
op("bmm", lambda a, b: (torch.bmm(a, b), torch.bmm(b.mT, a.mT)), lambda: (numbers(5, 19, 33), numbers(5, 33, 45)))
op("matmul_shared", lambda a, b: (a @ b, b.mT @ a.mT), lambda: (numbers(3, 2, 19, 33), numbers(33, 45)))
op("baddbmm", lambda c, a, b: (torch.baddbmm(c, a, b, beta=0.5, alpha=-2), torch.baddbmm(c, a, b, beta=0)), lambda: (numbers(3, 1, 21), numbers(3, 18, 140), numbers(3, 140, 21)))
op("addmm", lambda c, a, b: (torch.addmm(c, a, b), torch.addmm(c, a, b, beta=3, alpha=0.25).relu()), lambda: (numbers(21), numbers(18, 140), numbers(140, 21)))
op("epilogue", lambda a, b, c: (torch.tanh(a @ b + c).float(), ((a @ b) * 100).to(I64), torch.where(a @ b > 0, c, -1.0)), lambda: (numbers(37, 65), numbers(65, 51), numbers(51)))
op("softmax_of_scores", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), lambda: (numbers(2, 3, 33, 20), numbers(2, 3, 33, 20), numbers(2, 3, 33, 20)))
op("complex_products", lambda a, b: (a @ b, b.mH @ a.mH), lambda: (torch.complex(numbers(19, 33), numbers(19, 33)), torch.complex(numbers(33, 21), numbers(33, 21))))
op("einsum", lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), lambda: (numbers(2, 3, 17, 20), numbers(2, 3, 35, 20)))
# ... with weights that are packed
for n, k in ((1, 64), (3, 100), (16, 128), (17, 300), (70, 37)):
    op(f"linear_{n}_{k}", Lazy(lambda n=n, k=k: nn.Sequential(Linear(n, k), nn.GELU())), lambda k=k: (numbers(40, k),), dynamic=({0: B},),
       sets={f"b{b}": lambda b=b, k=k: (numbers(b, k),) for b in (1, 2, 33, 64)})
op("mlp", Lazy(lambda: nn.Sequential(Linear(130, 33), nn.Tanh(), Linear(130, 130), nn.SiLU(), Linear(5, 130, False))), lambda: (numbers(3, 7, 33),))

# Convolutions, of either layout; what lies beside the image is multiplied, with infinite weights too.
image = lambda n, c, h, w: lambda: (numbers(n, c, h, w),)
op("conv2d", Lazy(lambda: Conv(2, (40, 21, 3, 3), padding=1)), image(2, 21, 9, 13))
op("conv2d_channels_last", Lazy(lambda: Conv(2, (33, 24, 3, 3), padding=1)), lambda: (numbers(2, 24, 9, 7).to(memory_format=torch.channels_last),))
op("conv2d_strided", Lazy(lambda: Conv(2, (17, 3, 5, 4), stride=(2, 3), padding=(2, 1), dilation=(1, 2))), image(3, 3, 21, 30))
op("conv2d_pixels", Lazy(lambda: nn.Sequential(Conv(2, (64, 140, 1, 1)), nn.ReLU(), Conv(2, (5, 64, 1, 1), False))), image(1, 140, 7, 9))
op("conv2d_groups", Lazy(lambda: Conv(2, (40, 6, 3, 3), groups=4, padding=1)), image(2, 24, 8, 9))
op("conv2d_depthwise", Lazy(lambda: nn.Sequential(Conv(2, (37, 1, 3, 3), groups=37, padding=1), Conv(2, (37, 1, 5, 5), groups=37, padding=2, stride=2))), image(2, 37, 12, 19))
op("conv2d_multiplier", Lazy(lambda: Conv(2, (30, 1, 3, 3), groups=10, padding=1)), image(1, 10, 8, 9))
op("conv2d_dynamic", Lazy(lambda: Conv(2, (20, 16, 3, 3), padding=1)), image(2, 16, 20, 24), dynamic=({0: B, 2: Dim("h", min=4, max=64)},),
   sets={"small": image(1, 16, 4, 24), "large": image(5, 16, 33, 24)})
op("conv2d_of_data", lambda x, w: (F.conv2d(x, w, padding=1), F.conv2d(x, w.mT, stride=2)), lambda: (numbers(1, 20, 10, 11), numbers(35, 20, 3, 3)))
op("conv2d_infinite_weights", lambda x, w: F.conv2d(x, w, padding=1), lambda: (numbers(1, 4, 9, 9), spoiled(6, 4, 3, 3)))
op("conv2d_spoiled", Lazy(lambda: Conv(2, (20, 5, 3, 3), padding=1)), lambda: (spoiled(1, 5, 30, 30),))
op("conv2d_nothing", lambda x, w: F.conv2d(x, w, padding=1), lambda: (numbers(0, 4, 9, 9), numbers(6, 4, 3, 3)))
op("conv1d", Lazy(lambda: nn.Sequential(Conv(1, (50, 24, 7), padding=3, stride=2), nn.ReLU(), Conv(1, (50, 10, 3), groups=5))), lambda: (numbers(2, 24, 65),))
op("conv3d", Lazy(lambda: Conv(3, (20, 6, 3, 3, 3), padding=1, stride=(2, 1, 1))), lambda: (numbers(1, 6, 7, 8, 9),))
op("conv_transposed", lambda x, w: (F.conv_transpose2d(x, w, stride=2, padding=1), F.conv_transpose2d(x, w)), lambda: (numbers(2, 10, 7, 6), numbers(10, 18, 3, 3)))
