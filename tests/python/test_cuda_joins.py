"""Rows joined by those of a table on CUDA, emulated (tests/cuda_emulation): by atomic operations where the order does not matter, by sorts of bounded
integers where it does. Last writers, integers, extremes with NaN and zeros of both signs, counts, sums to few and many rows, sizes that calls decide."""

import pytest
import torch
import torch.nn.functional as F

from test_cuda_sorts import check, kernels_text, values

INTEGERS = (torch.int64, torch.int32)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def places(rows, *sizes):
    return torch.randint(0, rows, sizes)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.int64))
def test_the_last_writer_stays(dtype, tmp_path):
    """Of elements, of pairs of positions, of slices, along every dimension."""
    x, i, j = values(dtype, 60, 70), places(60, 900), places(70, 900)
    rows = torch.randperm(300)[:200]

    def writes(x, y, v, w, i, j, rows, along):
        return (x.index_put((i, j), v), x.scatter(1, along, w), x.t().contiguous().scatter(0, along.t(), w.t()), y.index_put((rows,), y[:200]), y.index_copy(0, rows, y[:200]),
                x.put(i * 70 + j, v), x.index_fill(1, j[:200], 1))

    along = torch.stack([torch.randperm(70)[:65] for _ in range(60)])
    check(writes, [(x, values(dtype, 300, 4), values(dtype, 900), values(dtype, 60, 65), i, j, rows, along)], tmp_path)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype, tmp_path):
    """Sums and products that wrap around; the largest and the smallest; to few rows and to many; of elements and slices."""
    few, many = values(dtype, 13, 3), values(dtype, 5000)
    big = values(dtype, 700, 3) * 10_000_019

    def joins(few, many, big, i, at, flat, v):
        ways = [few.index_add(0, i, big), few.index_reduce(0, i, big, "prod"), few.scatter_add(0, at, big), many.scatter_add(0, flat, v)]
        ways += [many.scatter_reduce(0, flat, v, how, include_self=own) for how in ("sum", "prod", "amax", "amin", "mean") for own in (True, False)]
        return (*ways, many.index_put((flat,), v, accumulate=True), many.put(flat, v, accumulate=True))

    check(joins, [(few, many, big, places(13, 700), places(13, 700, 3), places(5000, 3000), values(dtype, 3000))], tmp_path)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("how", ("amax", "amin"))
def test_extremes(how, dtype, tmp_path):
    """A NaN stays."""
    x, v = values(dtype, 40, 6), values(dtype, 3000, 6)

    def joins(x, v, i, at):
        return [t.abs() if own else t + 0.0 for own in (True, False) for t in (x.index_reduce(0, i, v, how, include_self=own), x.scatter_reduce(0, at, v, how, include_self=own))]

    check(joins, [(x, v, places(40, 3000), places(40, 3000, 6))], tmp_path)


def test_counts(tmp_path):
    """Bins that a block counts, and too many for that; numbers outside of the range, and NaN."""
    x = torch.randn(5000)
    x[::97] = float("inf")
    check(lambda x, i: (x.histc(10, -2, 2), x.histc(5000, -1, 3), torch.zeros(100, dtype=torch.int64).index_add(0, i, torch.ones_like(i))), [(x, places(100, 9000))], tmp_path)


@pytest.mark.parametrize("options", ([], ["--no-deterministic"]), ids=["in order", "in any order"])
@pytest.mark.parametrize("rows", (3, 200, 300, 70_000))
def test_sums(rows, options, tmp_path):
    """By sorts of one, two and three digits of the rows' numbers, and by atomic operations. Whole numbers, so that any order gives the same."""
    def sums(v, wide, i, x):
        flat = v.new_zeros(rows).index_add(0, i, v)
        return flat, x.scatter_add(0, i, v), v.new_zeros(rows, 2).index_add(0, i, wide), v.new_zeros(2, rows).index_add(1, i, wide.t()), torch.zeros(rows).index_put((i,), v, accumulate=True)

    n = 9000
    v = torch.randint(-50, 50, (n, 2)).float()
    check(sums, [(v[:, 0].contiguous(), v, places(rows, n), torch.randint(-50, 50, (rows,)).float())], tmp_path, options=options)


def test_any_order_is_where_pytorch_has_it(tmp_path):
    """Atomic operations on floating-point numbers where eager has them, if the user allows it."""
    def text(function, *options):
        return kernels_text(function, (torch.randn(9000), places(50_000, 9000), torch.randn(50_000)), tmp_path, options)

    added, put = (lambda v, i, x: x.index_add(0, i, v)), (lambda v, i, x: x.index_put((i,), v, accumulate=True))
    assert "cd::join_rows" not in text(added) and "cd::radix_move" in text(added)
    assert "cd::join_rows" in text(added, "--no-deterministic")
    assert "cd::join_rows" not in text(put, "--no-deterministic")


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
def test_tables_of_few_rows_are_summed_up_in_parts(dtype, tmp_path):
    """In order, so that results are the same each time: tables of one column to many, values by rows and by columns, rows that nothing is for, negative
    positions, more rows of the table than threads, and nearly as many as it may have, elements of two dimensions, one number for all, what the table held before, and rows that are left out."""
    n = 5003
    wide, tall = torch.randn(n, 17).to(dtype), torch.randn(300, n).to(dtype)
    i, j, k = places(40, n) - 20, places(700, n), places(19, n) % 17

    def sums(wide, tall, i, j, k, x):
        put = lambda x, at, v: torch.ops.aten.index_put(x, at, v, True)
        out = [put(x.new_zeros(40, 17), [i], wide), put(x.new_zeros(40), [i], wide[:, 3]), put(x.new_zeros(700, 5), [j], wide[:, :5])]
        out += [put(x.new_zeros(12, 40), [None, i], tall[:12]), put(x.new_zeros(200, 19), [j % 200, k], wide[:, 0]), put(x, [i], wide * 2)]
        return (*out, put(x.new_zeros(40), [i], x.new_ones(()).expand(n) * x[0, 0]), torch.ops.aten.embedding_dense_backward(wide, j, 700, 5, False))

    inputs = (wide, tall, i, j, k, torch.randn(40, 17).to(dtype))
    check(sums, [inputs], tmp_path, tolerance={torch.float32: 2e-5, torch.float64: 1e-13}.get(dtype, 0.1))
    text = kernels_text(sums, inputs, tmp_path)
    assert text.count("cd::sum_parts") >= 5 and "cd::radix_move" not in text and "cd::join_rows" not in text


def test_many_rows_for_few_are_summed_up_in_parts_where_any_order_would_do(tmp_path):
    n = 70_001
    inputs = (torch.randint(-50, 50, (n,)).float(), places(256, n), torch.randint(-50, 50, (256,)).float())
    package = check(lambda v, i, x: (x.index_add(0, i, v), v.new_zeros(256).scatter_add(0, i, v)), [inputs], tmp_path, options=["--no-deterministic"])
    assert package
    assert "cd::sum_parts" in kernels_text(lambda v, i, x: x.index_add(0, i, v), inputs, tmp_path, ["--no-deterministic"])


def test_most_for_one_row(tmp_path):
    n = 9000
    i = torch.where(torch.rand(n) < 0.95, 17, places(5000, n))
    v = torch.randint(-50, 50, (n, 3)).float()
    check(lambda v, i: (v.new_zeros(5000, 3).index_add(0, i, v), v.new_zeros(5000).scatter_add(0, i, v[:, 1])), [(v, i)], tmp_path)


def test_gradients_of_lookups(tmp_path):
    """With a row that is left out, and scaled by how often a row is named."""
    def back(g, i, up, at, across):
        tables = [torch.ops.aten.embedding_dense_backward(g, i, 3000, padding, scaled) for padding in (-1, 7) for scaled in (False, True)]
        return (*tables, torch.ops.aten._unsafe_index_put(g.new_zeros(2, 3, 40, 50), [None, None, at, across], up, True))

    at, across = places(40, 80, 1), places(50, 1, 100)
    check(back, [(torch.randint(-9, 9, (6000, 4)).float(), places(3000, 6000), torch.randint(-9, 9, (2, 3, 80, 100)).float(), at, across)], tmp_path, tolerance=1e-6)


def test_sizes_that_calls_decide(tmp_path):
    sets = []
    for n, rows in ((2500, 30), (0, 30), (1, 5), (2, 9000), (2048, 40), (9000, 2), (6000, 300)):
        sets.append((torch.randint(-50, 50, (n,)).float(), places(rows, n), torch.randint(-50, 50, (rows,)).float()))
    dynamic = (({0: torch.export.Dim("n", max=1 << 20)}, {0: torch.export.Dim("n", max=1 << 20)}, {0: torch.export.Dim("rows", min=2, max=1 << 16)}),)
    check(lambda v, i, x: (x.index_add(0, i, v), x.scatter(0, i, v), x.long().scatter_add(0, i, v.long()), x.scatter_reduce(0, i, v, "amin")), sets, tmp_path, dynamic)


def test_pools_and_bags(tmp_path):
    """Places that a pool found; bags of equal size, whose limits are no data."""
    def some(x, table, i):
        y, at = F.max_pool2d(x, 2, return_indices=True)
        return F.max_unpool2d(y, at, 2), F.embedding_bag(i, table, mode="sum"), F.embedding_bag(i, table, mode="max")

    check(some, [(torch.randn(2, 3, 40, 40), torch.randint(-9, 9, (500, 8)).float(), places(500, 300, 20))], tmp_path)


def test_the_gradient_of_masked_scatter(tmp_path):
    """As many elements as the mask has and more; it takes some, none, and all."""
    grad = torch.randn(70, 80)
    masks = [torch.rand(70, 80) < share for share in (0.3, 0.0, 2.0)]
    check(lambda g, *masks: [torch.ops.aten.masked_scatter_backward(g, m, [n]) for m in masks for n in (5600, 7000)], [(grad, *masks)], tmp_path)
