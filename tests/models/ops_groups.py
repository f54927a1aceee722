"""Small programs of grouped products, weights by norm and direction, and convolutions that are made of others."""

import torch
import torch.nn.functional as F
from torch import nn

from case import BF16, Lazy, rand, registry

PROGRAMS, op = registry(__file__)

ENDS = torch.tensor([3, 3, 7, 10], dtype=torch.int32)
op("grouped_mm", lambda x, w: torch._grouped_mm(x, w, ENDS), lambda: (rand(10, 16, dtype=BF16), rand(4, 16, 24, dtype=BF16)))


class WeightNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.v, self.g, self.dim = nn.Parameter(rand(5, 4, 3)), nn.Parameter(torch.rand({0: (5, 1, 1), 2: (1, 1, 3), -1: ()}[dim]) + 0.5), dim

    def forward(self, x):
        return F.conv1d(x, torch._weight_norm(self.v, self.g, self.dim))


for _dim in (0, 2, -1):
    op(f"weight_norm_{_dim}".replace("-1", "all"), Lazy(lambda dim=_dim: WeightNorm(dim)), lambda: (rand(2, 4, 9),))
op("weight_norm_of_inputs", lambda v, g: torch._weight_norm(v, g, 1), lambda: (rand(3, 4, 2), rand(1, 4, 1)))

# Weights that are inputs: packed by the call.
for _name, _x, _w, _options in (
    ("3x3", (2, 6, 9, 9), (33, 6, 3, 3), {"padding": 1}), ("depthwise", (2, 37, 9, 7), (37, 1, 3, 3), {"padding": 1, "groups": 37}),
    ("grouped", (2, 6, 9, 7), (8, 3, 3, 3), {"groups": 2, "stride": 2}),
):
    op(f"conv2d_weight_input_{_name}", lambda x, w, options=_options: F.conv2d(x, w, **options), lambda x=_x, w=_w: (rand(*x), rand(*w)))
op("conv2d_weight_channels_last", lambda x, w: F.conv2d(x, w * 2, padding=1),
   lambda: (rand(2, 8, 6, 6).to(memory_format=torch.channels_last), rand(9, 8, 3, 3).to(memory_format=torch.channels_last)))
op("conv3d_strided", Lazy(lambda: nn.Conv3d(4, 6, 3, stride=2, padding=1, groups=2)), lambda: (rand(2, 4, 5, 6, 7),))
op("conv_transpose2d_plain", Lazy(lambda: nn.ConvTranspose2d(6, 4, 3, padding=1, groups=2)), lambda: (rand(2, 6, 6, 7),))
op("conv_transpose2d_dilated", Lazy(lambda: nn.ConvTranspose2d(5, 4, 3, stride=2, dilation=2, padding=1)), lambda: (rand(2, 5, 6, 7),))
op("conv_transpose2d_patches", Lazy(lambda: nn.ConvTranspose2d(8, 3, 4, stride=4)), lambda: (rand(2, 8, 3, 5),))
op("conv_transpose2d_bf16", Lazy(lambda: nn.ConvTranspose2d(6, 8, 4, stride=2, padding=1).to(BF16)), lambda: (rand(2, 6, 5, 4, dtype=BF16),))
op("conv_transpose3d", Lazy(lambda: nn.ConvTranspose3d(3, 4, 3, stride=2, padding=1, output_padding=1)), lambda: (rand(1, 3, 3, 4, 3),))
