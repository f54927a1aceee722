"""Gradients of a table that is an embedding and the last layer's matrix (the pass accumulate_rows): eager's, and no table of zeros is made and added."""

import pytest
import torch
import torch.nn.functional as F

import coil

pytestmark = pytest.mark.usefixtures("fresh_compiles")

WORDS, WIDTH = 301, 24


def tied(table, positions, padding):
    return F.embedding(positions, table, padding_idx=padding).tanh() @ table.T


def twice(table, positions, padding):
    """As a model of an encoder and a decoder has it."""
    encoded = F.embedding(positions, table, padding_idx=padding).mean(-2, keepdim=True)
    return tied(table, positions.flip(-1), padding) + encoded @ table.T


def without_last_layer(table, positions, padding):
    return F.embedding(positions, table, padding_idx=padding).sin() * F.embedding(positions + 1, table, padding_idx=padding)


@pytest.mark.parametrize("function", [tied, twice, without_last_layer])
@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("dtype, shape", [(torch.float32, (2, 50)), (torch.float32, (700,)), (torch.float32, (0, 4)), (torch.float64, (1, 1)), (torch.bfloat16, (2, 50))], ids=str)
def test_gradients_are_eagers(function, padding, dtype, shape):
    torch.manual_seed(0)
    table = torch.randn(WORDS, WIDTH, dtype=dtype, requires_grad=True)
    positions = torch.randint(0, 12 if len(shape) == 1 else WORDS - 1, shape)
    if padding is not None and positions.numel() > 2:
        positions.view(-1)[::3] = min(padding, WORDS - 2)

    def gradient(form, table):
        result = form(table, positions, padding)
        weights = torch.cos(torch.arange(result.numel(), dtype=torch.float64)).view(result.shape).to(dtype).to(result.dtype)
        return torch.autograd.grad(result, table, weights)[0].double()

    found, wanted = gradient(torch.compile(function, backend="coil", fullgraph=True), table), gradient(function, table)
    exact = gradient(function, table.detach().double().requires_grad_())
    assert not coil.compile_stats().fallbacks
    assert (found - exact).abs().max() <= 3 * (wanted - exact).abs().max() + 1e-6 * exact.abs().max()
