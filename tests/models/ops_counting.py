"""Counting, selecting and resampling of more elements than are looked at one by one: long sorted rows, bins, writes over a copy, uneven windows."""

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, rand, registry

PROGRAMS, op = registry(__file__)
NAN, INF = float("nan"), float("inf")


def ties(*shape, dtype=F32):
    """Many equal numbers of both signs, zeros of both, and where the type has them NaN and infinities."""
    x = (torch.randn(*shape) * 20).round()
    if dtype.is_floating_point:
        x = torch.where(torch.rand(*shape) < 0.05, torch.full(shape, NAN), torch.where(torch.rand(*shape) < 0.1, -torch.zeros(shape), x / 8))
        x = torch.where(torch.rand(*shape) < 0.02, torch.full(shape, -INF), x)
    return (x.abs() if dtype == U8 else x).to(dtype)


for _dtype in (F32, F64, F16, BF16, I8, I16, I32, I64, U8):
    _name = str(_dtype)[6:]
    op(f"long_rows_sorted_{_name}", lambda x: (*x.sort(dim=1, stable=True), *x.sort(dim=1, descending=True, stable=True), *x.t().sort(dim=0, stable=True), *x[:, ::3].sort(dim=1, stable=True)), lambda t=_dtype: (ties(3, 701, dtype=t),))
    op(f"long_rows_middle_{_name}", lambda x: (x.median(1).values, x.median(), x.kthvalue(300, 1).values, x.mode(1).values), lambda t=_dtype: (ties(3, 701, dtype=t),))
op("long_rows_dynamic", lambda x: (*x.sort(dim=1, stable=True), x.median(1).values), lambda: (rand(3, 701),), dynamic=({1: Dim("n", min=1, max=4000)},),
   sets={"one": lambda: (rand(3, 1),), "short": lambda: (rand(3, 17),), "limit": lambda: (rand(3, 96),), "long": lambda: (ties(3, 3001),)})
op("long_rows_quantiles", lambda x: (x.quantile(torch.tensor([0.0, 0.3, 1.0]), 1), x.nanquantile(0.5, 1), x.nanmedian(1).values), lambda: (ties(3, 701),), sets={"ties": lambda: (ties(3, 701),), "none": lambda: (torch.full((3, 701), NAN),)})
op("mode_places", lambda x: (x.mode(0).values, x.mode(1, keepdim=True).values, x.bool().mode(1).values), lambda: (ties(40, 30, dtype=I32),), sets={"ties": lambda: (ties(40, 30, dtype=I32),), "same": lambda: (torch.full((40, 30), 7, dtype=I32),)})

for _dtype in (F32, F64):
    op(f"bins_{str(_dtype)[6:]}", lambda x: (x.histc(40, -1, 2), x.histc(200), x.histc(3, 0.5, 0.75), *torch.histogram(x, 50), torch.histogram(x, 30, range=(-1.0, 1.0), density=True)[0]), lambda t=_dtype: (rand(7000).to(t),))
op("bins_many", lambda x: (x.histc(100, -2, 2), torch.histc(x[:0], 5, 0, 1)), lambda: (rand(300, 300),))
op("bins_strange", lambda x: (x.histc(20, -1, 1), x.t().histc(20, -1, 1)), lambda: (ties(60, 50),))
op("bins_by_edges", lambda x, e, w: (*torch.histogram(x, e), torch.histogram(x, e, weight=w)[0], torch.histogram(x, e, weight=w, density=True)[0]), lambda: (ties(900), torch.tensor([-3.0, -1.0, -1.0, 0.0, 0.5, 4.0]), rand(900)))
op("bins_of_planes", lambda x, w: (torch.histogramdd(x, [7, 9])[0], torch.histogramdd(x, [5, 4], range=[-1.0, 1.0, 0.0, 2.0], weight=w)[0]), lambda: (rand(800, 2), rand(800)))
op("bins_dynamic", lambda x: x.histc(40, -1, 2), lambda: (rand(700),), dynamic=({0: Dim("n", min=0)},), sets={"none": lambda: (rand(0),), "one": lambda: (rand(1),), "many": lambda: (rand(90000),)})


def in_rows(rows, size, writes):
    return torch.stack([torch.randperm(size)[:writes] for _ in range(rows)])


for _dtype in (F32, F64, F16, I8, I32, U8, BOOL):
    op(f"written_over_{str(_dtype)[6:]}", lambda x, i, v: (x.scatter(1, i, v), (x * 1).scatter(1, i, 1), x.t().scatter(0, i.t(), v.t()), torch.zeros_like(x).scatter(1, i, v)),
       lambda t=_dtype: (ties(20, 190, dtype=t), in_rows(20, 190, 130), ties(20, 140, dtype=t)))
op("written_over_complex", lambda x, i, v: torch.view_as_real(torch.view_as_complex(x).scatter(1, i, torch.view_as_complex(v))), lambda: (rand(20, 190, 2), in_rows(20, 190, 130), rand(20, 140, 2)))
op("written_planes", lambda x, i, j, v: (x.index_put((i, j), v), x.index_put((i, j), v[0]), x.index_put((i, j), v, accumulate=True), x.mT.contiguous().mT.index_put((i, j), v)),
   lambda: (rand(60, 70, 3, dtype=BF16), torch.arange(600) % 60, torch.arange(600) // 60 * 7 - 3, rand(600, 3, dtype=BF16)))
op("written_twice", lambda x, i, v: (x.index_put((i // 30, i % 30), v), x.put(i, v)), lambda: (rand(30, 30), torch.arange(2000) % 900, rand(2000)))
op("written_by_parts", lambda x, i, v: (x.scatter(1, i, v), x.scatter_add(1, i, v), x.index_put((torch.arange(3)[:, None], i), v)), lambda: (rand(3, 90000), in_rows(3, 90000, 4000), rand(3, 4000)))
op("written_dynamic", lambda x, i, j, v: (x.index_put((i, j), v), x.index_put((i, j), v, accumulate=True)), lambda: (rand(90, 40), torch.arange(50), torch.arange(50) % 40, rand(50)),
   dynamic=({0: Dim("rows", min=90)}, {0: Dim("writes", min=0)}, {0: Dim("writes", min=0)}, {0: Dim("writes", min=0)}),
   sets={"none": lambda: (rand(90, 40), torch.zeros(0, dtype=I64), torch.zeros(0, dtype=I64), rand(0)), "many": lambda: (rand(400, 40), torch.arange(4000) % 400 - 400, torch.arange(4000) // 400, rand(4000))})
op("joined_over", lambda x, i, v: (x.scatter_add(1, i, v), torch.ones_like(x).scatter_reduce(1, i, v, "prod"), x.scatter_reduce(1, i, v, "amax"), x.scatter_reduce(1, i, v, "amin")), lambda: (ties(20, 190), torch.randint(0, 190, (20, 300)), ties(20, 300)))

for _dtype in (F32, F16, F64):
    op(f"uneven_windows_{str(_dtype)[6:]}", lambda x: (F.adaptive_avg_pool2d(x, (7, 5)), F.adaptive_avg_pool2d(x, (4, 50)), F.adaptive_avg_pool2d(x.transpose(2, 3), (3, 7)), F.adaptive_avg_pool2d(x.contiguous(memory_format=torch.channels_last), (6, 6))), lambda t=_dtype: (rand(2, 5, 23, 31, dtype=t),))
op("uneven_volumes", lambda x: (F.adaptive_avg_pool3d(x, (3, 4, 5)), F.adaptive_avg_pool3d(x, (7, 1, 3)), F.adaptive_avg_pool1d(x.flatten(2)[:, :, :50], 7)), lambda: (rand(2, 3, 7, 9, 11),))
op("uneven_dynamic", lambda x: F.adaptive_avg_pool2d(x, (7, 5)), lambda: (rand(2, 3, 23, 31),), dynamic=({2: Dim("h", min=2), 3: Dim("w", min=2)},), sets={"small": lambda: (rand(2, 3, 2, 3),), "even": lambda: (rand(2, 3, 14, 20),), "large": lambda: (rand(2, 3, 50, 33),)})
SIZES = (((40, 31), (13, 17)), ((13, 17), (40, 31)), ((13, 31), (40, 17)), ((40, 17), (13, 31)), ((9, 9), (9, 4)), ((30, 1), (1, 5)))
for _before, _after in SIZES:
    op("antialiased_" + "_".join(map(str, _before + _after)), lambda x, a=_after: tuple(F.interpolate(x, a, mode=m, antialias=True, align_corners=c) for m in ("bilinear", "bicubic") for c in (False, True)), lambda b=_before: (rand(2, 3, *b),))
op("antialiased_f64", lambda x: F.interpolate(x, (7, 60), mode="bicubic", antialias=True), lambda: (rand(2, 3, 40, 31, dtype=F64),))
