"""Convolutions with pixels and channels enough for the kernels of whole networks: 3x3 ones are computed by Winograd's filtering."""

import torch
from torch import nn
from torch.export import Dim

from case import BF16, F16, F64, I64, Lazy, rand, registry, special

PROGRAMS, op = registry(__file__)
B = Dim("batch", min=1, max=64)
img = lambda b, c, h, w: lambda: (rand(b, c, h, w),)


class Block(nn.Module):
    """Two convolutions around a residual, as in a ResNet."""

    def __init__(self, channels, inner):
        super().__init__()
        self.a, self.b = nn.Conv2d(channels, inner, 3, padding=1), nn.Conv2d(inner, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(inner)
        nn.init.normal_(self.norm.running_mean)
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x):
        return torch.relu(x + self.b(torch.relu(self.norm(self.a(x)))))


op("winograd", Lazy(lambda: nn.Conv2d(16, 40, 3, padding=1)), img(1, 16, 21, 18))
op("winograd_block", Lazy(lambda: Block(32, 48)), img(2, 32, 28, 28))
op("winograd_pads", Lazy(lambda: nn.Sequential(nn.Conv2d(16, 33, 3), nn.GELU(), nn.Conv2d(33, 16, 3, padding=(2, 0)), nn.Conv2d(16, 8, 3, padding="same"))), img(1, 16, 27, 61))
op("winograd_dynamic_batch", Lazy(lambda: Block(32, 32)), img(3, 32, 20, 24), dynamic=({0: B},), sets={f"b{b}": img(b, 32, 20, 24) for b in (1, 2, 17)})
op("winograd_dynamic_image", Lazy(lambda: nn.Conv2d(32, 32, 3, padding=1)), img(1, 32, 40, 48),
   dynamic=({2: Dim("height", min=8, max=64), 3: Dim("width", min=8, max=64)},), sets={"small": img(1, 32, 9, 8), "large": img(1, 32, 63, 64)})
op("winograd_many_channels", Lazy(lambda: nn.Conv2d(272, 64, 3, padding=1)), img(1, 272, 24, 24))


def products_as_images(x, w, b, r):
    """Rows of pixels times a matrix, and images of the results: their channels are the columns, in the order of memory or not."""
    n, c, h, v = x.shape
    rows = x.permute(0, 2, 3, 1).reshape(-1, c)
    image = lambda y: y.view(n, h, v, -1).permute(0, 3, 1, 2)
    kept = rows @ (w + 1)
    return (image(rows @ w), image(rows @ (w * 2) + b), (image(rows @ (w * 3)) + r).relu(), image((rows @ (w * 4)).relu()).contiguous(), image(rows @ (w * 5)).permute(2, 3, 0, 1), image(kept),
            image(kept).sum((0, 2, 3)), (rows @ (w * 6)).view(n, h, v, 2, -1).permute(3, 0, 1, 2, 4), (rows @ (w * 7)).t(), (rows @ (w * 8)).view(n * h, v, -1).transpose(0, 1))


def pixels(n, dtype=torch.float32):
    return lambda: (rand(n, 9, 5, 4, dtype=dtype), rand(9, 8, dtype=dtype), rand(8, dtype=dtype), rand(n, 8, 5, 4, dtype=dtype).contiguous(memory_format=torch.channels_last))


op("products_as_images", products_as_images, pixels(2), dynamic=({0: B}, None, None, {0: B}), sets={"one": pixels(1), "many": pixels(40)})
op("products_as_images_bf16", products_as_images, pixels(2, BF16))
op("products_as_images_i64", products_as_images, pixels(2, I64))


class Groups(nn.Module):
    """A convolution in groups between two of single pixels, as in a ResNeXt: what lies between them has its channels side by side."""

    def __init__(self, channels, of_group, out=None, **how):
        super().__init__()
        self.a = nn.Conv2d(8, channels, 1)
        self.b = nn.Conv2d(channels, out or channels, **{"kernel_size": 3, "padding": 1, "groups": channels // of_group, **how})
        self.c = nn.Conv2d(out or channels, 8, 1)

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


for dtype, name, more in ((None, "", {}), (BF16, "_bf16", {"tolerance": 2e-2}), (F16, "_f16", {"tolerance": 2e-2}), (F64, "_f64", {})):
    made = lambda *a, dtype=dtype, **k: Lazy(lambda: Groups(*a, **k).to(dtype) if dtype else Groups(*a, **k))
    image = lambda n, h, w, dtype=dtype: lambda: (rand(n, 8, h, w, dtype=dtype) if dtype else rand(n, 8, h, w),)
    for of_group in (2, 4, 8, 16):
        op(f"groups_of_{of_group}{name}", made(64, of_group), image(2, 9, 11), **more)
    op(f"groups_strided{name}", made(32, 4, stride=2), image(2, 13, 10), **more)
    op(f"groups_narrowing{name}", made(64, 8, 32), image(1, 7, 6), **more)
    op(f"groups_widening{name}", made(64, 8, 128, kernel_size=(1, 5), padding=(0, 2)), image(1, 7, 6), **more)
    op(f"groups_dynamic{name}", made(32, 4), image(3, 9, 8), dynamic=({0: B, 2: Dim("height", min=3, max=64)},), sets={"one": image(1, 3, 8), "more": image(5, 20, 8)}, **more)
op("groups_of_32", Lazy(lambda: Groups(128, 32)), img(2, 8, 6, 7))
op("groups_odd", Lazy(lambda: Groups(27, 9, dilation=2)), img(2, 8, 9, 7))


def spoiled_groups(x, w):
    return torch.nn.functional.conv2d(x.relu(), w, None, padding=1, groups=16)


op("groups_special", spoiled_groups, lambda: (special().repeat(3000)[:2 * 64 * 48].view(2, 64, 6, 8).contiguous(memory_format=torch.channels_last), rand(64, 4, 3, 3)))
