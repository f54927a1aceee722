"""Positions that are computed: searches in sorted rows, images of other sizes, windows."""

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import BF16, F16, F64, I32, I64, rand, registry

PROGRAMS, op = registry(__file__)
NAN, INF = float("nan"), float("inf")


def ascending(*shape, dtype=torch.float32):
    return (rand(*shape) * 40).round().to(dtype).sort(-1).values  # with equal ones


def both(row, x):
    return torch.searchsorted(row, x), torch.searchsorted(row, x, right=True), torch.bucketize(x, row.reshape(-1)[:5], out_int32=True)


for dtype in (BF16, F16, F64, I32, I64):
    op(f"search_{str(dtype)[6:]}", both, lambda dtype=dtype: (ascending(100, dtype=dtype), (rand(3, 37) * 50).round().to(dtype)))
op("search_rows", lambda row, x: (torch.searchsorted(row, x), torch.searchsorted(row, x, right=True)), lambda: (ascending(2, 3, 129), rand(2, 3, 18) * 60))
op("search_numbers", lambda row: (torch.searchsorted(row, 3.0), torch.bucketize(1.0, row, right=True)), lambda: (ascending(70),))
op("search_nan", both, lambda: (torch.cat([ascending(90), torch.full((11,), NAN)]), torch.tensor([NAN, INF, -INF, 0.0, 3.0, 39.0, 40.0, 60.0])))
op("search_unsorted", both, lambda: (rand(64), rand(40)))
op("search_one", both, lambda: (rand(1), rand(40)))
op("search_nothing", lambda row, x: torch.searchsorted(row, x), lambda: (rand(0), rand(9)))
op("search_many", lambda row, x: (torch.searchsorted(row, x), torch.bucketize(x, row, right=True)), lambda: (ascending(5000), rand(300) * 90),
   dynamic=({0: Dim("rows", min=0)}, {0: Dim("values", min=0)}),
   sets={"few": lambda: (ascending(3), rand(50)), "none": lambda: (rand(0), rand(21)), "no_values": lambda: (ascending(20), rand(0))})
op("search_sorter", lambda row, x: torch.searchsorted(row, x, sorter=row.argsort()), lambda: (rand(90), rand(33)))

SIZES = (((5, 7), (11, 33)), ((9, 40), (4, 55)), ((40, 9), (55, 4)), ((12, 17), (5, 3)), ((1, 6), (4, 1)), ((6, 1), (6, 18)))
for before, after in SIZES:
    for mode in ("bilinear", "bicubic"):
        name = "_".join(map(str, before + after))
        op(f"resize_{mode}_{name}", lambda x, after=after, mode=mode: (F.interpolate(x, after, mode=mode), F.interpolate(x, after, mode=mode, align_corners=True)),
           lambda before=before: (rand(2, 3, *before),))
for dtype in (BF16, F16, F64):
    op(f"resize_{str(dtype)[6:]}", lambda x: (F.interpolate(x, (11, 30), mode="bilinear"), F.interpolate(x, (11, 30), mode="bicubic"), F.interpolate(x, (11, 30))),
       lambda dtype=dtype: (rand(2, 3, 5, 13).to(dtype),))
op("resize_by_factors", lambda x: (F.interpolate(x, scale_factor=(1.7, 2.3), mode="bilinear"), F.interpolate(x, scale_factor=(0.6, 2.3), mode="bicubic"), F.interpolate(x, scale_factor=1.7)),
   lambda: (rand(2, 3, 10, 13),))
op("resize_last", lambda x: (F.interpolate(x.contiguous(memory_format=torch.channels_last), (21, 29), mode="bilinear").relu(), F.interpolate(x.mT, (21, 29), mode="bicubic")), lambda: (rand(2, 17, 9, 13),))
op("resize_lines", lambda x: (F.interpolate(x, 40, mode="linear"), F.interpolate(x, 9, mode="linear", align_corners=True), F.interpolate(x, 31)), lambda: (rand(2, 3, 17),))
op("resize_volumes", lambda x: (F.interpolate(x, (5, 3, 23), mode="trilinear"), F.interpolate(x, (9, 11, 4), mode="trilinear", align_corners=True)), lambda: (rand(2, 3, 4, 5, 6),))
op("resize_dynamic", lambda x: (F.interpolate(x, scale_factor=2.5, mode="bilinear"), F.interpolate(x, (20, 31), mode="bilinear"), F.interpolate(x, (20, 31), mode="bicubic")),
   lambda: (rand(2, 3, 9, 12),), dynamic=({2: Dim("height", min=2), 3: Dim("width", min=2)},), sets={"small": lambda: (rand(2, 3, 2, 3),), "large": lambda: (rand(2, 3, 33, 50),)})

WINDOWS = ("hann", "hamming", "blackman", "bartlett", "kaiser")


def windows(dtype):
    def all_of(x):
        made = [getattr(torch, f"{name}_window")(n, periodic, dtype=dtype) for name in WINDOWS for n in (0, 1, 3, 7, 40) for periodic in (True, False)]
        more = [torch.hamming_window(9, True, 0.5), torch.hamming_window(9, False, 0.4, 0.7), torch.kaiser_window(33, False, 3.5), torch.hann_window(16)]
        return *made, *(w.to(x.dtype) + x for w in more)

    return all_of


for dtype in (torch.float32, F64, BF16, F16):
    op(f"windows_{str(dtype)[6:]}", windows(dtype), lambda: (rand(1),), tolerance=0.05 if dtype == BF16 else None)  # eager rounds each step
