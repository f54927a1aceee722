"""Pointwise kernels on CUDA whose reads are contiguous along one axis and whose stores along another, emulated: several operands of several widths, odd
sizes, sizes of every call, conditions, rows that are written over themselves."""

import pytest
import torch
import torch.nn.functional as F

from test_cuda_odd_channels import TOLERANCE, check, drawn, seeded  # noqa: F401: the fixture


def last(t):
    return t.movedim(1, -1).contiguous()


def goes_through_tiles(text):
    return "tile1 + " in text


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", [(2, 24, 5, 7), (1, 64, 8, 8), (3, 33, 17, 3), (2, 130, 1, 65)])
def test_a_mask_and_a_gradient(dtype, size, tmp_path):
    function = lambda mask, g, more: (last(torch.where(mask > 0.5, torch.zeros((), dtype=g.dtype), g)), last(g * mask + more))
    inputs = ((torch.rand(size) < 0.5).to(dtype), drawn(dtype, *size), drawn(dtype, *size))
    assert goes_through_tiles(check(function, [inputs], tmp_path))


def test_six_operands(tmp_path):
    """More than tiles of 64 hold: smaller ones."""
    inputs = tuple(drawn(torch.float32, 2, 40, 9, 11) for _ in range(6))
    assert goes_through_tiles(check(lambda *t: (last(t[0] * t[1] + t[2] * t[3] - t[4] * t[5]),), [inputs], tmp_path))


def test_what_is_read_along_the_stores_and_by_channel(tmp_path):
    inputs = (drawn(torch.float32, 2, 48, 10, 6), drawn(torch.float32, 2, 48, 10, 6), drawn(torch.float32, 2, 10, 6, 48), drawn(torch.float32, 48))
    check(lambda a, b, c, d: (last(a * b) + c * d,), [inputs], tmp_path)


def test_two_orders_of_results(tmp_path):
    inputs = (drawn(torch.float32, 2, 40, 8, 9), drawn(torch.float32, 2, 40, 8, 9))
    check(lambda a, b: (a * b + 1, last(a * b + 1)), [inputs], tmp_path)


def test_borders(tmp_path):
    """What is read behind a condition is in no tile."""
    inputs = (drawn(torch.float32, 2, 32, 9, 11), drawn(torch.float32, 2, 32, 11, 13))
    check(lambda a, b: (last(F.pad(a, (1, 1, 1, 1)) * b), last(torch.cat((a, b[:, :, :9, :11]), 1))), [inputs], tmp_path)


def test_sizes_of_every_call(tmp_path):
    n, c, h = (torch.export.Dim(name, min=least, max=300) for name, least in (("n", 0), ("c", 2), ("h", 2)))
    sizes = {0: n, 1: c, 2: h}
    sets = [tuple(drawn(torch.float32, *size) for _ in range(2)) for size in ((2, 40, 20, 3), (0, 16, 2, 3), (1, 2, 150, 3), (1, 129, 65, 3))]
    check(lambda a, b: (last(a * 2 + b),), sets, tmp_path, ((sizes, sizes),))
