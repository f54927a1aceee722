"""Which memory the threads of a reduction on CUDA read side by side, emulated (tests/cuda_emulation)."""

import pytest
import torch
import torch.nn.functional as F

from test_cuda_sorts import check, kernels_text


@pytest.mark.parametrize("heads, width", [(3, 64), (12, 32), (5, 40), (7, 7)])
def test_columns_made_of_two_dimensions(heads, width, tmp_path):
    """The bias of queries, keys and values: heads lie apart, and the elements of one side by side. Whole numbers: any order gives the same."""
    def bias(g):
        return (g.permute(1, 3, 0, 2, 4).reshape(-1, 3 * heads * width).sum(0),)

    inputs = (torch.randint(-9, 9, (3, 4, heads, 50, width)).float(),)
    check(bias, [inputs], tmp_path)
    if width % 32 == 0:
        assert "column_reduce" in kernels_text(bias, inputs, tmp_path)


@pytest.mark.parametrize("rows, columns", [(16, 100), (64, 100), (63, 3000), (64, 40_000), (17, 33), (15, 33), (64, 1)])
def test_short_columns(rows, columns, tmp_path):
    check(lambda x: (x.sum(0), x.amax(0), x.argmax(0), (x * 2).sum(0) + x[0]), [(torch.randint(-9, 9, (rows, columns)).float(),)], tmp_path)


def test_bags_of_equal_size_visit_their_own(tmp_path):
    """Their limits are no data. Four columns a thread."""
    def bags(i, table):
        return F.embedding_bag(i, table, mode="sum"), F.embedding_bag(i, table, mode="mean")

    inputs = (torch.randint(0, 50, (300, 20)), torch.randint(-9, 9, (50, 8)).float())
    check(bags, [inputs], tmp_path, tolerance=1e-6)
    assert "range_first" in kernels_text(bags, inputs, tmp_path)


def test_segments_are_found_by_bisection(tmp_path):
    """Empty ones, none, and places behind the last one."""
    def back(grad, out, data, lengths, offsets):
        ways = [torch.ops.aten._segment_reduce_backward(grad, out, data, how, lengths=lengths) for how in ("sum", "mean")]
        return (*ways, torch.ops.aten._segment_reduce_backward(grad, out, data, "sum", offsets=offsets))

    lengths = torch.tensor([3, 0, 0, 40, 1, 56, 0])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    grad = torch.randint(-9, 9, (7, 4)).float()
    check(back, [(grad, grad, torch.randn(100, 4), lengths, offsets)], tmp_path, tolerance=1e-6)


def test_stacks_along_the_last_dimension(tmp_path):
    """A thread for each element of the result; pieces of one to four elements, many of them, and results that products read."""
    def stacks(a, b, c, d):
        turned = torch.stack((-b, a), -1).flatten(-2)
        return torch.stack((a, b * 2, a + b), -1), torch.stack([a] * 16, -1), torch.cat((c, d), 1), torch.cat((c, d, a), 1), turned, turned @ turned.t()

    a, b, c, d = (torch.randint(-5, 5, (30, n)).float() for n in (20, 20, 4, 3))
    check(stacks, [(a, b, c, d)], tmp_path)


def test_tables_of_channels_do_not_turn_images(tmp_path):
    """Four tables of a number for each channel, beside an image that is read and written as it lies."""
    def normalised(x, mean, factor, weight, bias):
        one = lambda t: t[:, None, None]  # noqa: E731
        return (((x - one(mean)) * one(factor)) * one(weight) + one(bias),)

    inputs = (torch.randint(-9, 9, (2, 64, 20, 20)).float(), *(torch.randint(-3, 3, (64,)).float() for _ in range(4)))
    check(normalised, [inputs], tmp_path)
    assert "tile0" not in kernels_text(normalised, inputs, tmp_path)


def test_sums_that_read_by_tables_of_columns(tmp_path):
    """As resizing's gradient: a thread for a column of the result, whose places a table has, in whichever order."""
    def sums(x, across, along, weights):
        terms = weights.shape[0]
        first = (x.index_select(3, across.view(-1)).unflatten(3, (terms, 20)) * weights).sum(3)
        second = (x.index_select(3, along.view(-1)).unflatten(3, (20, terms)) * weights.t()).sum(4)
        return first, second

    across = torch.randint(0, 40, (4, 20))
    check(sums, [(torch.randint(-9, 9, (2, 3, 8, 40)).float(), across, across.t().contiguous(), torch.randint(-3, 3, (4, 20)).float())], tmp_path)
