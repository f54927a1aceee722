"""Operators that PyTorch has for a GPU alone: steps of recurrent nets with a workspace, cuDNN's grid_sample. They are traced with fake tensors of a GPU, compiled for
the CPU, and compared with the formulas and with autograd's gradients of them."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

import coil

aten = torch.ops.aten
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def exported(function, args, device):
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        fakes = tuple(a.to(device) for a in args)
        return torch.export.export(type("Module", (torch.nn.Module,), {"forward": lambda self, *a: function(*a)})(), fakes)


def compiled(function, args):
    return coil.compile(exported(function, args, "cuda"), target="cpu")


def lstm(rows, own, cell, bias=0.0, own_bias=0.0):
    """-> hidden state, cell state, the four gates."""
    i, f, g, o = (rows + own + bias + own_bias).chunk(4, 1)
    gates = [i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()]
    after = gates[1] * cell + gates[0] * gates[2]
    return gates[3] * after.tanh(), after, torch.cat(gates, 1)


def gru(rows, own, hidden, bias=0.0, own_bias=0.0):
    """-> hidden state; reset, update, new, the state before, and what the reset gate multiplied."""
    (r, z, n), (own_r, own_z, own_n) = (rows + bias).chunk(3, 1), (own + own_bias).chunk(3, 1)
    reset, update = (r + own_r).sigmoid(), (z + own_z).sigmoid()
    new = (n + reset * own_n).tanh()
    return new + update * (hidden - new), torch.cat([reset, update, new, hidden.expand_as(new), own_n.expand_as(new)], 1)


CELLS = {"lstm": (4, lstm), "gru": (3, gru)}


def operands(cell, rows, hidden, dtype, biases):
    torch.manual_seed(rows * 31 + hidden)
    width = CELLS[cell][0] * hidden
    made = [torch.randn(rows, width), torch.randn(rows, width), torch.randn(rows, hidden)]
    return [t.to(dtype) for t in made + ([torch.randn(width), torch.randn(width)] if biases else [])]


def close(found, expected, dtype):
    assert found.shape == expected.shape and found.dtype == dtype
    torch.testing.assert_close(found.double(), expected.double(), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype, biases", [(torch.float32, False), *((dtype, True) for dtype in TOLERANCE)])
@pytest.mark.parametrize("cell", CELLS)
def test_steps(cell, biases, dtype):
    for rows, hidden in ((3, 5), (1, 1))[: 2 if dtype == torch.float32 else 1]:
        args = operands(cell, rows, hidden, dtype, biases)
        found = compiled(getattr(aten, f"_thnn_fused_{cell}_cell").default, args)(*args)
        for a, b in zip(found, CELLS[cell][1](*(t.double() for t in args)), strict=True):
            close(a, b, dtype)


def gradients(cell, args, grads, biases):
    """Of the sums that the gates are made of, of the state, and of the biases."""
    leaves = [t.double().requires_grad_() for t in args]
    results = CELLS[cell][1](*leaves)
    return torch.autograd.grad(results[: len(grads)], leaves, [g.double() for g in grads])


@pytest.mark.parametrize("dtype, biases", [(torch.float32, True), (torch.float32, False), (torch.bfloat16, True)])
def test_gradients_of_an_lstm_step(biases, dtype):
    args = operands("lstm", 3, 5, dtype, biases)
    _, after, gates = (t.to(dtype) for t in lstm(*args))
    for present in ((True, True), (True, False), (False, True)):
        grads = [torch.randn(3, 5).to(dtype) if p else None for p in present]
        expected = gradients("lstm", args, [torch.zeros(3, 5) if g is None else g for g in grads], biases)
        given = [g for g in grads if g is not None]

        def function(*tensors):
            rest = list(tensors)
            taken = [rest.pop(0) if p else None for p in present]
            return [t for t in aten._thnn_fused_lstm_cell_backward_impl.default(*taken, *rest, biases) if t is not None]

        tensors = (*given, args[2], after, gates)
        found = compiled(function, tensors)(*tensors)
        for a, b in zip(found, [expected[0], expected[2], *expected[3:4]], strict=True):
            close(a, b, dtype)


@pytest.mark.parametrize("dtype, biases", [(torch.float32, True), (torch.float32, False), (torch.bfloat16, True)])
def test_gradients_of_a_gru_step(biases, dtype):
    args = operands("gru", 3, 5, dtype, biases)
    workspace, grad = gru(*args)[1].to(dtype), torch.randn(3, 5).to(dtype)
    expected = gradients("gru", args, [grad], biases)
    function = lambda g, w: [t for t in aten._thnn_fused_gru_cell_backward.default(g, w, biases) if t is not None]
    found = compiled(function, (grad, workspace))(grad, workspace)
    for a, b in zip(found, expected, strict=True):
        close(a, b, dtype)


def for_cudnn(function, args, order):
    """A program of PyTorch's operator with the places of its tensors in cuDNN's, which PyTorch does not trace without cuDNN."""
    program = exported(function, args, "cpu")
    for node in program.graph.nodes:
        if "grid_sampler_2d" in str(node.target):
            node.target = aten.cudnn_grid_sampler_backward.default if "backward" in str(node.target) else aten.cudnn_grid_sampler.default
            node.args = tuple(node.args[i] for i in order)
            node.kwargs = {}
    return coil.compile(program, target="cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_grid_sample_of_cudnn(dtype):
    torch.manual_seed(2)
    x, grid, grad = torch.randn(2, 3, 5, 6), torch.rand(2, 4, 3, 2) * 2.4 - 1.2, torch.randn(2, 3, 4, 3)
    args = [t.to(dtype) for t in (x, grid, grad)]
    leaves = [t.double().requires_grad_() for t in args[:2]]
    expected = torch.nn.functional.grid_sample(*leaves, align_corners=True)
    forward = for_cudnn(lambda x, g: aten.grid_sampler_2d(x, g, 0, 0, True), args[:2], (0, 1))
    close(forward(*args[:2]), expected.detach(), dtype)
    backward = for_cudnn(lambda x, g, d: aten.grid_sampler_2d_backward(d, x, g, 0, 0, True, [True, True]), args, (1, 2, 0))
    for a, b in zip(backward(*args), torch.autograd.grad(expected, leaves, args[2].double()), strict=True):
        torch.testing.assert_close(a.double(), b, atol=5 * TOLERANCE[dtype], rtol=5 * TOLERANCE[dtype])
