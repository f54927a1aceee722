"""Dynamic sizes of which a guard fixes a part: a half, every second column or pairs that a layer of so many inputs takes run in coil."""

import pytest
import sympy
import torch
import torch.nn as nn
import torch.nn.functional as F

import coil
from coil.dynamo import _fixed_sizes

pytestmark = pytest.mark.usefixtures("fresh_compiles")


def second_columns(layer, x):
    return layer(x[:, ::2])


def pairs(layer, x):
    return layer(x.view(x.shape[0], -1, 2).sum(-1))


def both_halves(layer, x):
    middle = x.shape[1] // 2
    return layer(x[:, middle:]) + layer(x[:, :middle])


def coupling(layer, x):
    a, b = x.chunk(2, -1)
    return torch.cat([a, b * layer(a).exp()], -1)


def gated(layer, x):
    return layer(F.glu(x, -1))


@pytest.mark.parametrize("function, widths", [(second_columns, (6, 5)), (pairs, (6,)), (both_halves, (6,)), (coupling, (6,)), (gated, (6,))], ids=lambda v: getattr(v, "__name__", ""))
def test_guards_that_are_not_solved(function, widths):
    layer = nn.Linear(3, 3)
    compiled = torch.compile(lambda x: function(layer, x), backend="coil", dynamic=True, options={"fallback": "error"})
    for rows, width in [(5, widths[0]), *((7, w) for w in widths)]:
        x = torch.randn(rows, width, requires_grad=True)
        wanted, found = function(layer, x), compiled(x)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(*(torch.autograd.grad(y.sin().sum(), [x, layer.weight]) for y in (found, wanted)))
    assert coil.compile_stats().graphs == 2  # forward and backward, of all sizes


def test_roots():
    s, t = sympy.symbols("s t", integer=True, positive=True)
    half, third = _fixed_sizes.FloorDiv(s, 2), _fixed_sizes.FloorDiv(s + 1, 3)
    roots = lambda left, right: sorted(v for v in _fixed_sizes._roots(s, sympy.Eq(left, sympy.Integer(right), evaluate=False)) or () if v >= 0)
    for expression in (half, third, s - half, half + third, 3 * s - 2 * third, _fixed_sizes.FloorDiv(third, 2), s + _fixed_sizes.Mod(s, 4)):
        for right in (0, 1, 4, 7):
            assert roots(expression, right) == [v for v in range(60) if expression.xreplace({s: sympy.Integer(v)}) == right], (expression, right)
    assert roots(_fixed_sizes.Mod(s, 4), 0) == []  # endless many
    for other in (s * s, _fixed_sizes.FloorDiv(s, t), s * half, t + s, _fixed_sizes.FloorDiv(s, 5000)):
        assert _fixed_sizes._roots(s, sympy.Eq(other, sympy.Integer(4), evaluate=False)) is None
