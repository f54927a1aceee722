"""Convolutions with pixels and channels enough for the kernels of whole networks: 3x3 ones are computed by Winograd's filtering."""

import torch
from torch import nn
from torch.export import Dim

from case import Lazy, rand, registry

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
