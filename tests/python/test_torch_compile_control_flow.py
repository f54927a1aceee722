"""torch.compile(backend="coil"): control flow, sizes from data and views of storages, beside eager."""

import pytest
import torch
import torch.nn.functional as F
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_rows

import coil
from compiled_beside_eager import check, nothing_in_torch

pytestmark = pytest.mark.usefixtures("fresh_compiles")


def _nested(x, y):
    def inner(x, y):
        return torch.cond(y.sum() > 0, lambda x, y: x * 3 + y, lambda x, y: (x * y).sort().values, (x, y))

    return torch.cond(x.sum() > 0, inner, lambda x, y: inner(y, x) - 1, (x + 0, y * 2))


CONTROL = {
    "cond": lambda a, b: torch.cond(a.sum() > 0, lambda t: (t.sin() + b, t * 3), lambda t: (t.cos(), t * 2), (a,))[0] * 2,
    "nested": _nested,
    "between": lambda a, b: torch.cond((a @ b) > 0, lambda t: t.view(2, -1) * t.shape[0], lambda t: t.view(2, -1) + 1, (a.exp(),)).sum(0),
    "while_loop": lambda a, b: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + b), (torch.tensor(0), a)),
    "scan": lambda a, b: scan(lambda c, x: (c + x, (c * x).sin() + 1), b, torch.stack([a, b, a])),
    "map": lambda a, b: map_rows(lambda x, y: x * 2 + y, torch.stack([a, b]), b),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CONTROL)
def test_control_flow_is_compiled(name, dynamic):
    function = CONTROL[name]
    compiled = torch.compile(function, backend="coil", dynamic=dynamic)
    reference = torch.compile(function, backend="eager", dynamic=dynamic)
    x, y = torch.rand(4) + 0.1, torch.rand(4) + 0.1
    for a, b in ((x, y), (-x, y), (x, -y), (-x, -y)):
        torch.testing.assert_close(compiled(a, b), reference(a, b))
    nothing_in_torch()


def test_control_flow_that_stays_in_torch_is_counted():
    def function(a):
        return torch.cond(a.sum() > 0, lambda t: F.dropout(t, 0.5), lambda t: t * 2, (a,)) + 1

    x = -torch.rand(4) - 1
    torch.testing.assert_close(torch.compile(function, backend="coil")(x), x * 2 + 1)
    stats = coil.compile_stats()
    assert stats.fallback_operators == 1 and "higher_order.cond: of aten.native_dropout.default inside of it" in str(stats), str(stats)


def test_data_dependent_sizes():
    check(lambda a: a[a > 0].sum() + 1, torch.randn(10))


def test_empty_graph():
    compiled = torch.compile(lambda a: (a, 3), backend="coil")
    x = torch.randn(3)
    assert compiled(x)[0] is x and compiled(x)[1] == 3


STRIDED = {
    "input": lambda x: x.as_strided((2,), (1,), 0) + 1,
    "input_default": lambda x: x.as_strided((2,), (1,)) + 1,
    "slice": lambda x: x[3:].as_strided((2, 2), (2, 1), 1) + 1,
    "computed_slice": lambda x: (x + 1)[3:].as_strided((2, 2), (2, 1), 1) + 1,
    "computed": lambda x: (x + 1).as_strided((2, 2), (2, 1), 1) + 1,
    "twice": lambda x: (x * 2).as_strided((3, 3), (5, 1), 2).as_strided((2, 2), (1, 1), 0) + 1,
    "written": lambda x: x.as_strided_scatter(torch.zeros(2, 2), (2, 2), (2, 1), 5) + 1,
}


@pytest.mark.parametrize("name", STRIDED)
def test_offsets_count_from_the_storage(name):
    """An input may begin later than its storage, a view later than what it is a part of."""
    check(STRIDED[name], torch.arange(40.0)[3:23], fullgraph=True, dynamic=False)


def test_rows_are_joined_converted_and_divided_again():
    """The wider type is not lost on the way: a conversion that rounds nothing reads as what it converts."""
    check(lambda x: x.view(-1, 8).float().view(2, 4, 8) * 0.3, torch.randn(2, 4, 8).bfloat16())
    nothing_in_torch()
