"""coil::dropout_mask: PyTorch's masks of dropout on a GPU as code, on the CPU and on CUDA (emulated), beside the formula written with PyTorch's operators.
Whether PyTorch draws so is for tests/gpu/test_dropout.py."""

import itertools
import struct

import pytest
import torch

from coil.dynamo import _generator
from test_cuda_sorts import check

SEEDS = [torch.tensor([0, 0]), torch.tensor([-(1 << 63) + 12345, (1 << 34) + 4]), torch.tensor([0x0123456789ABCDEF, 400])]


def masked(offset, sizes, vector, threads, below):
    def function(state, x):
        mask = torch.ops.coil.dropout_mask(state, offset, sizes, vector, threads, below)
        return x * mask * 1.25, mask

    return function


@pytest.mark.parametrize("vector, threads, elements", [(8, 256, 8 * 700), (4, 256, 4096), (4, 512, 4 * 301), (2, 256, 2 * 731), (1, 256, 3001), (1, 512, 511), (8, 256, 8), (1, 256, 1)])
def test_masks_are_the_formula(vector, threads, elements, tmp_path):
    below = int(0.8 * 2**32)
    sets = [(state, torch.randn(elements, generator=torch.Generator().manual_seed(1))) for state in SEEDS]
    check(masked(8, (elements,), vector, threads, below), sets, tmp_path, tolerance=0)


@pytest.mark.parametrize("sizes", [(), (1, 5, 1), (0, 5)])
def test_masks_of_little(sizes, tmp_path):
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(1))
    check(masked(8, sizes, 1, 256, 1 << 31), [(state, x) for state in SEEDS], tmp_path, tolerance=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_masks_within_rows(dtype, tmp_path):
    """Two dropouts of one state, the first behind a sum of rows, in a kernel with it."""
    rows, columns = 24, 384

    def function(state, x, w):
        first = torch.ops.coil.dropout_mask(state, 0, (rows, columns), 16 // dtype.itemsize, rows * columns // 4, 1 << 31)
        second = torch.ops.coil.dropout_mask(state, 16, (columns, rows), 4, 512, 3 << 30).t()
        y = torch.nn.functional.layer_norm(x * first * 2, (columns,), w)
        return y * second, first, second

    generator = torch.Generator().manual_seed(2)
    sets = [(state, torch.randn(rows, columns, generator=generator).to(dtype), torch.rand(columns, generator=generator).to(dtype)) for state in SEEDS[:2]]
    check(function, sets, tmp_path, tolerance=1e-5 if dtype == torch.float32 else 2e-2)


def test_words_are_those_of_its_authors():
    """The known answers of Random123 for Philox4x32-10 (kat_vectors)."""
    for key, counter, words in ((0, (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"), (-1, (-1, -1), "408f276d 41c83b0e a20bc7c6 6d5451fd"),
                                (0x299F31D0A4093822, (0x85A308D3243F6A88 - (1 << 64), 0x0370734413198A2E), "d16cfe09 94fdcceb 5001e420 24126ea1")):
        drawn = _generator._philox(*(torch.tensor([n]) for n in (key, counter[0], counter[1])))
        assert [int(w) for w in drawn] == [int(w, 16) for w in words.split()]


@pytest.mark.parametrize("dtype, p", list(itertools.product([torch.float32, torch.float64], [0.1, 0.5, 0.25, 1e-3, 1 - 1e-6])))
def test_bounds_of_words(dtype, p):
    """The words below the bound, and no others, are floats below 1 - p."""
    share = 1.0 - p if dtype == torch.float64 else struct.unpack("f", struct.pack("f", 1.0 - p))[0]
    bound = _generator._first_not_below(1.0 - p, dtype)
    words = torch.arange(max(0, bound - 5000), min(1 << 32, bound + 5000))
    uniform = (words.to(torch.float32).double() * 2.0**-32 + 2.0**-33).to(torch.float32)
    assert torch.equal(uniform.double() < share, words < bound)
