"""Convolutions of lines and volumes as layers of networks: what follows them runs in their epilogues, in another shape than the template's."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from case import BF16, F16, Lazy, rand, registry

PROGRAMS, op = registry(__file__)
B, L = Dim("batch", min=1, max=16), Dim("length", min=20, max=200)


class Temporal(nn.Module):
    """Convolutions that see only what was before, each added to what it reads."""

    def __init__(self, channels, layers=3, groups=1):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(channels, channels, 3, dilation=2**i, groups=groups) for i in range(layers)])

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = x + F.relu(layer(F.pad(x, (2 * 2**i, 0))))
        return x


class Lines(nn.Module):
    """Strides, a normalisation and a result from the middle; the last layer has one channel."""

    def __init__(self, channels):
        super().__init__()
        self.a, self.b = nn.Conv1d(3, channels, 5, stride=2, padding=2), nn.Conv1d(channels, channels, 1)
        self.norm, self.c = nn.GroupNorm(2, channels), nn.Conv1d(channels, 1, 7, padding=3)

    def forward(self, x):
        x = F.gelu(self.a(x))
        y = self.norm(x + torch.sigmoid(self.b(x)))
        return torch.tanh(self.c(y)), y.amax(2), F.leaky_relu(x, 0.1)


class Padded(nn.Module):
    """Padding on one side, on both, of more than the kernel reaches, of a number that is not zero, and negative."""

    def __init__(self, dims):
        super().__init__()
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
        self.pads = [(2, 0), (0, 1), (1, 5), (-1, 2), (4, -2)]
        self.layers = nn.ModuleList([conv(8, 8, 3, padding=i % 2) for i in range(6)])

    def forward(self, x):
        for pad, layer in zip(self.pads, self.layers):
            x = layer(F.pad(x, pad * (x.dim() - 2 - (x.dim() == 5))))
        return self.layers[5](F.pad(x, (1, 1), value=0.5))


class Volumes(nn.Module):
    """As a small U-Net of volumes."""

    def __init__(self):
        super().__init__()
        layer = lambda i, o, **k: nn.Sequential(nn.Conv3d(i, o, 3, padding=1, **k), nn.InstanceNorm3d(o, affine=True), nn.LeakyReLU(0.01))
        self.a, self.b, self.c, self.d = layer(1, 8), layer(8, 12, stride=(1, 2, 1)), layer(20, 8), nn.Conv3d(8, 2, 1)

    def forward(self, x):
        a = self.a(x)
        b = F.interpolate(self.b(F.max_pool3d(a, 2)), size=a.shape[2:], mode="trilinear")
        return self.d(self.c(torch.cat([b, a], 1))).sigmoid()


class Patches(nn.Module):
    """Patches of an image, turned to be tokens, with a table added."""

    def __init__(self):
        super().__init__()
        self.conv, self.table = nn.Conv2d(3, 48, 4, stride=4), nn.Parameter(torch.randn(1, 35, 48))

    def forward(self, x):
        return self.conv(x).flatten(2).transpose(1, 2) + self.table


class Shapes(nn.Module):
    """Pointwise work behind convolutions in shapes that split channels, exchange dimensions, and add some."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv1d(8, 12, 3), nn.Conv1d(8, 12, 3, bias=False)

    def forward(self, x):
        split = self.b(x).reshape(x.shape[0], 3, 4, -1) * torch.arange(4.0)[:, None]
        turned = self.b(x * 2).permute(2, 0, 1)[:, None] + 1
        return self.a(x).reshape(x.shape[0], 12, 3, -1).exp(), split, turned


op("conv1d_temporal", Lazy(lambda: Temporal(20)), lambda: (rand(3, 20, 61),))
op("conv1d_temporal_groups", Lazy(lambda: Temporal(12, groups=3)), lambda: (rand(2, 12, 33),))
op("conv1d_temporal_bf16", Lazy(lambda: Temporal(16).to(BF16)), lambda: (rand(2, 16, 40, dtype=BF16),))
op("conv1d_temporal_f16", Lazy(lambda: Temporal(16).to(F16)), lambda: (rand(1, 16, 37, dtype=F16),))
op("conv1d_temporal_dynamic", Lazy(lambda: Temporal(8)), lambda: (rand(2, 8, 50),), dynamic=({0: B, 2: L},),
   sets={f"b{b}_l{n}": (lambda b=b, n=n: (rand(b, 8, n),)) for b, n in ((1, 20), (3, 77), (16, 200))})
op("conv1d_lines", Lazy(lambda: Lines(10)), lambda: (rand(2, 3, 57),))
op("conv1d_shapes", Lazy(Shapes), lambda: (rand(2, 8, 20),))
op("conv1d_no_batch", Lazy(lambda: nn.Sequential(nn.Conv1d(6, 9, 3), nn.ReLU(), nn.Conv1d(9, 4, 1))), lambda: (rand(6, 31),))
op("conv1d_padded", Lazy(lambda: Padded(1)), lambda: (rand(2, 8, 30),))
op("conv2d_padded", Lazy(lambda: Padded(2)), lambda: (rand(1, 8, 12, 11),))
op("conv3d_padded", Lazy(lambda: Padded(3)), lambda: (rand(2, 8, 8, 9, 10),))
op("conv2d_patches", Lazy(Patches), lambda: (rand(2, 3, 20, 28),))
op("conv3d_volumes", Lazy(Volumes), lambda: (rand(2, 1, 6, 9, 10),))
op("conv3d_dynamic", Lazy(lambda: nn.Sequential(nn.Conv3d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 4, 3))), lambda: (rand(2, 4, 6, 7, 8),),
   dynamic=({0: B, 2: Dim("depth", min=4, max=32), 4: Dim("width", min=4, max=32)},),
   sets={f"b{b}_d{d}": (lambda b=b, d=d: (rand(b, 4, d, 7, d + 1),)) for b, d in ((1, 4), (3, 11))})
op("conv3d_bf16", Lazy(lambda: nn.Sequential(nn.Conv3d(8, 16, 3, padding=1, dilation=1, stride=2), nn.ReLU(), nn.Conv3d(16, 8, (1, 3, 3), groups=2)).to(BF16)),
   lambda: (rand(1, 8, 9, 10, 11, dtype=BF16),))
