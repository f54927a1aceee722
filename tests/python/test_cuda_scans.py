"""Scans of few long rows on CUDA, emulated: in parts (src/schedule/split_scans.cc), in every dtype that accumulates otherwise, along both dimensions, with
values that the parts must not round, NaN, and lengths that only the call decides."""

import pytest
import torch

from test_cuda_sorts import check

LONG = 40_003  # ten parts, the last one of three elements less than a whole number of vectors


def numbers(dtype, *sizes):
    return torch.randint(-2, 3, sizes).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32, torch.bool], ids=str)
def test_sums(dtype, tmp_path):
    torch.manual_seed(0)
    x = numbers(torch.int64, LONG) > 0 if dtype == torch.bool else numbers(dtype, LONG)
    check(lambda x: (x.cumsum(0), (x * 2).cumsum(0) + 1), [(x,)], tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_halves_are_rounded_once(dtype, tmp_path):
    """Alternating signs: the sums stay small enough for both to be exact."""
    x = torch.tensor([1.0, -1.0]).repeat(LONG)[:LONG].to(dtype)
    check(lambda x: (x.cumsum(0),), [(x,)], tmp_path)


def test_others(tmp_path):
    """Products, extremes with NaN, rows, and the first dimension."""
    torch.manual_seed(1)
    signs = torch.where(torch.rand(LONG) < 0.5, 1.0, -1.0)
    special = torch.randn(2, LONG)
    special[1, 20_000] = float("nan")
    check(lambda s, x, t: (s.cumprod(0), *torch.cummax(x, 1), *torch.cummin(x, 1), t.cumsum(0)), [(signs, special, numbers(torch.float32, LONG, 3))], tmp_path)


def test_sizes_that_calls_decide(tmp_path):
    """The program is compiled for long rows and gets others too."""
    torch.manual_seed(2)
    sets = [(numbers(torch.float32, n),) for n in (50_000, 4096, 4097, 1, 0, 33_000)]
    check(lambda x: (x.cumsum(0),), sets, tmp_path, (({0: torch.export.Dim("n", max=1 << 20)},),))


def test_columns(tmp_path):
    """Of as many rows as lie side by side, in parts of 128: whole ones and not, between other dimensions, of halves, and with sizes that calls decide."""
    torch.manual_seed(3)
    x, y, h = numbers(torch.float32, 4096, 40), numbers(torch.int64, 2, 1500, 5, 8), (torch.randint(0, 2, (1100, 33)) * 2 - 1).bfloat16()
    check(lambda x, y, h: (x.cumsum(0), y.cumsum(1) * 2, *torch.cummax(x, 0), h.cumsum(0)), [(x, y, h)], tmp_path)
    sets = [(numbers(torch.float32, n, 64),) for n in (2000, 128, 129, 1, 0, 1024)]
    check(lambda x: (x.cumsum(0),), sets, tmp_path, (({0: torch.export.Dim("n", max=1 << 20)},),))
