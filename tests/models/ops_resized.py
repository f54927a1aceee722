"""Convolutions whose taps partly see only padding, and resized results that are turned to rows of pixels while they are stored."""

import torch
import torch.nn.functional as F
from torch import nn

from case import BF16, F16, Lazy, rand, registry

PROGRAMS, op = registry(__file__)
img = lambda *shape: lambda: (rand(*shape),)

# The pyramid of a segmentation net: from taps that all reach to one that does.
for _dilation, _size in ((2, (9, 12)), (12, (20, 17)), (20, (20, 17)), (36, (20, 17))):
    op(f"dilated_by_{_dilation}", Lazy(lambda d=_dilation: nn.Conv2d(5, 7, 3, padding=d, dilation=d)), img(2, 5, *_size))
op("dilated_strided", Lazy(lambda: nn.Conv2d(4, 20, 5, padding=(21, 3), dilation=(9, 7), stride=(3, 2))), img(1, 4, 11, 30))
op("dilated_little_padding", Lazy(lambda: nn.Conv2d(4, 20, (4, 2), padding=(10, 9), dilation=(7, 11), stride=(4, 1))), img(1, 4, 8, 6))
op("padded_beyond", Lazy(lambda: nn.Conv2d(4, 6, 2, padding=3)), img(1, 4, 1, 2))
op("dilated_lines", Lazy(lambda: nn.Conv1d(4, 6, 5, padding=40, dilation=20)), img(2, 4, 30))
op("dilated_groups", Lazy(lambda: nn.Conv2d(8, 8, 3, padding=16, dilation=16, groups=8)), img(1, 8, 14, 14))
op("dilated_volume", Lazy(lambda: nn.Conv3d(3, 4, 3, padding=(1, 9, 8), dilation=(1, 9, 8))), img(1, 3, 4, 8, 9))


class Resized(nn.Module):
    """Channels lie together until the end: results of several types, of other sizes than whole vectors. Small integers, so that signs are exact."""

    def __init__(self, channels, size, dtype):
        super().__init__()
        self.conv, self.size = nn.Conv2d(6, channels, 1).to(dtype), size
        with torch.no_grad():
            for p in self.conv.parameters():
                p.copy_(torch.randint(-3, 4, p.shape))

    def forward(self, *args):
        y = self.conv(args[0])
        return F.interpolate(y, self.size, mode="bilinear"), F.interpolate(y, self.size, mode="nearest") > 0


for _name, _channels, _size, _dtype in (("f32", 21, (33, 50), torch.float32), ("bf16", 40, (17, 19), BF16), ("f16", 16, (16, 70), F16)):
    op(f"resized_{_name}", Lazy(lambda c=_channels, s=_size, t=_dtype: Resized(c, s, t)), lambda t=_dtype: (torch.randint(-3, 4, (2, 6, 9, 11)).to(t),))
