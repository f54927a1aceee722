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
