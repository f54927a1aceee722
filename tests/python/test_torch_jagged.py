"""Nested tensors of the jagged layout, and ReLUs with drawn slopes: what AOTAutograd leaves of them is computed by coil."""

import pytest
import torch
import torch.nn.functional as F

import coil

pytestmark = pytest.mark.usefixtures("fresh_compiles")
OFFSETS = torch.tensor([0, 2, 6, 6, 9])


def padded(values, offsets):
    return torch.nested.nested_tensor_from_jagged(values, offsets).to_padded_tensor(-1.0)


def padded_to_size(values, offsets):
    return torch.nested.nested_tensor_from_jagged(values, offsets).to_padded_tensor(0.5, output_size=(4, 6, values.shape[1]))


def softmax_of_rows(values, offsets):
    return torch.softmax(torch.nested.nested_tensor_from_jagged(values, offsets), -1).to_padded_tensor(0.0)


def with_gradient(function, values, *others):
    values = values.detach().clone().requires_grad_()
    result = function(values, *others)
    return result, torch.autograd.grad(result.float().sin().sum(), values)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("function", [padded, padded_to_size, softmax_of_rows], ids=lambda f: f.__name__)
def test_padding(function, dtype):
    compiled = torch.compile(function, backend="coil")
    for offsets in (OFFSETS, OFFSETS.int(), torch.tensor([0, 0, 6, 9, 9])):
        values = torch.randn(9, 5).to(dtype)
        torch.testing.assert_close(with_gradient(compiled, values, offsets), with_gradient(function, values, offsets))
    assert not coil.compile_stats().fallbacks


def test_from_padded():
    function = lambda dense, offsets: torch.ops.aten._padded_dense_to_jagged_forward(dense, [offsets], 9)
    for dense in (torch.randn(4, 4, 5), torch.randn(4, 7, 1)):
        torch.testing.assert_close(torch.compile(function, backend="coil", options={"fallback": "error"})(dense, OFFSETS), function(dense, OFFSETS))


@pytest.mark.parametrize("lower, upper, training", [(0.1, 0.3, True), (0.2, 0.2, True), (0.1, 0.3, False)])
def test_drawn_slopes(lower, upper, training):
    function = lambda x: F.rrelu(x, lower, upper, training)
    x = torch.randn(5, 6)
    found, wanted = (torch.manual_seed(0) and with_gradient(f, x) for f in (torch.compile(function, backend="coil"), function))
    torch.testing.assert_close(found, wanted)
    assert not any("backward" in operator for operator in coil.compile_stats().fallbacks)
