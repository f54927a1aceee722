"""Rows of a table that data names, looked up once for all of a row (src/codegen/cpu/loop_rows.cc), and rows of bags, joined in registers
(device/library/join_rows.cc): widths around every vector, block and prefetch, positions that repeat, are negative, or out of range."""

import pytest
import torch
import torch.nn.functional as F

import coil

WIDTHS = [1, 3, 8, 33, 64, 100, 128, 130, 1025, 2500]
ROWS = 37


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, backend="coil", fullgraph=True, **options)


def numbers(*sizes, dtype):
    if dtype.is_floating_point:
        return torch.randn(sizes).to(dtype)
    return torch.randint(-100, 100, sizes).to(dtype)


def positions(count=53):
    """With repetitions, the first and the last row; more than the items that are asked for ahead."""
    return torch.cat([torch.tensor([ROWS - 1, 0, 0, ROWS - 1]), torch.randint(0, ROWS, (count - 4,))])


PROGRAMS = {
    "embedding": lambda w, i: F.embedding(i, w),
    "negative": lambda w, i: w[-1 - i],
    "two of a table": lambda w, i: w[i] + w[i.flip(0)],
    "a row less another": lambda w, i: w[i] - w[ROWS - 1 - i] * 2,
    "sum of each": lambda w, i: w[i].sum(1),
    "products of pairs": lambda w, i: (w[i] * w[i.flip(0)]).sum(-1),
    "where": lambda w, i: torch.where((i % 3 == 0)[:, None], w[i], 0),
    "masked by column": lambda w, i: torch.where(torch.arange(w.shape[1]) < w.shape[1] // 2, w[i], w[0]),
    "joined": lambda w, i: torch.cat([w[i], w[:5]], 0),
    "rows of rows": lambda w, i: w[i[i % 50]],
    "stored": lambda w, i: w.index_copy(0, i[:1], w[1:2]),
    "softmax": lambda w, i: w[i].float().softmax(1),
}


DTYPES = [torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.int64, torch.bool]


@pytest.mark.parametrize(
    "name,dtype", [(name, torch.float32) for name in PROGRAMS] + [(name, dtype) for name in ("embedding", "products of pairs", "where") for dtype in DTYPES])
def test_as_eager(name, dtype):
    function, i = PROGRAMS[name], positions()
    of_all = {width: numbers(ROWS, width, dtype=dtype) for width in (WIDTHS if dtype == torch.float32 else (3, 130))}

    def every(i, *tables):
        return [function(w, i) for w in tables]

    half = dtype in (torch.bfloat16, torch.float16)
    near = 0.2 if half and name == "products of pairs" else 1e-3  # eager rounds each product
    for got, expected in zip(compiled(every)(i, *of_all.values()), every(i, *of_all.values()), strict=True):
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got.double(), expected.double(), rtol=1e-2 if half else 1e-5, atol=near)


@pytest.mark.parametrize("name", ["embedding", "sum of each", "where", "joined"])
def test_out_of_range(name):
    """Named, wherever it stands: first, amid the rows that are asked for ahead of their turn, last."""
    function, w = PROGRAMS[name], numbers(ROWS, 130, dtype=torch.float32)
    f = compiled(function)
    for place, bad in zip((0, 20, 40, 52), (ROWS, -ROWS - 1, 2**62, -(2**62)), strict=True):
        i = positions()
        i[place] = bad
        with pytest.raises(coil.Error, match="out of range"):
            f(w, i)
    torch.testing.assert_close(f(w, positions().fill_(3)), function(w, positions().fill_(3)))


@pytest.mark.parametrize("sizes", [(0, 7), (5, 0), (1, 1), (300, 1030)])
def test_sizes_of_a_call(sizes):
    count, width = sizes
    f = compiled(lambda w, i: F.embedding(i, w) * 2, dynamic=True)
    f(numbers(11, 50, dtype=torch.float32), torch.randint(0, 11, (20,)))
    w, i = numbers(23, width, dtype=torch.float32), torch.randint(0, 23, (count,))
    torch.testing.assert_close(f(w, i), F.embedding(i, w) * 2)


BEGINS = {"of one": [*range(40)], "of several": [0, 7, 9, 30], "empty ones": [0, 0, 5, 5, 5, 39, 40], "of all": [0]}


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("begins", BEGINS)
def test_bags(begins, mode):
    offsets, i = torch.tensor(BEGINS[begins]), positions(40)
    tables = [numbers(ROWS, width, dtype=torch.float32) for width in WIDTHS] + [numbers(ROWS, 33, dtype=torch.float64)]

    def every(i, offsets, *tables):
        return [F.embedding_bag(i, w, offsets, mode=mode) for w in tables]

    for got, expected in zip(compiled(every)(i, offsets, *tables), every(i, offsets, *tables), strict=True):
        torch.testing.assert_close(got, expected)


def test_bag_out_of_range():
    w, offsets = numbers(ROWS, 64, dtype=torch.float32), torch.tensor([0, 10, 11])
    f = compiled(lambda i: F.embedding_bag(i, w, offsets, mode="sum"))
    for place in (0, 10, 39):
        i = positions(40)
        i[place] = ROWS + 5
        with pytest.raises(coil.Error, match="out of range"):
            f(i)
