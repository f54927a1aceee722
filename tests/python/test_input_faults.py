"""What an error of an input tells a program: which input, and how it should lie. No text is read for it (python/coil/_strides.py)."""

import numpy as np
import pytest
import torch

import coil


class Sum(torch.nn.Module):
    def forward(self, scale, x):
        return x * scale + 1


class Count(torch.nn.Module):
    def forward(self, x):
        x.add_(1)
        return x * 2


@pytest.fixture(scope="module")
def gapped():
    """A program of 1 to 64 rows with gaps between their elements."""
    rows = torch.export.Dim("rows", min=1, max=64)
    return coil.compile(Sum(), args=(torch.ones(()), torch.randn(4, 12)[:, ::2]), dynamic_shapes=({}, {0: rows}))


def test_fields(gapped):
    scale, x = torch.ones(()), torch.randn(5, 12)[:, ::2]
    run = gapped._runtime.run  # without the copies that a call of the model makes
    assert torch.equal(run([scale, x])[0], x + 1)
    lazy = torch.zeros(5, 12, dtype=torch.complex64).conj().imag[:, ::2]
    assert lazy.is_neg()
    cases = [(205, 1, (12, 2), [scale, x.contiguous()]), (205, 1, (12, 2), [scale, np.ones((6, 5), np.float32).T]), (205, 1, None, [scale, lazy]),
             (202, 0, None, [scale.double(), x]), (202, 1, None, [scale, "x"]), (203, 0, None, [x, x]), (204, 1, None, [scale, x[:, :5]]),
             (204, 1, None, [scale, torch.ones(65, 12)[:, ::2]]), (201, None, None, [scale])]
    for number, place, strides, inputs in cases:
        with pytest.raises(coil.InputError) as raised:
            run(inputs)
        error = raised.value
        assert (error.number, error.input, error.expected_strides) == (number, place, strides), error


def test_expected_strides_follow_the_sizes():
    """Strides that are expressions of dynamic sizes, also of programs whose names look like a part of the text."""
    rows, columns = torch.export.Dim("rows", min=2, max=64), torch.export.Dim("columns", min=2, max=64)

    class Odd(torch.nn.Module):
        def forward(self, expected_strides, got):
            return expected_strides.sin() + got

    model = coil.compile(Odd(), args=(torch.randn(6, 4).t(), torch.randn(4, 6)), dynamic_shapes=({0: rows, 1: columns}, {0: rows, 1: columns}))
    for n, m in ((2, 3), (7, 5), (64, 33)):
        x = torch.randn(n, m)
        with pytest.raises(coil.InputError) as raised:
            model._runtime.run([x, x])
        assert (raised.value.input, raised.value.expected_strides) == (0, (1, n))
        with pytest.raises(coil.InputError) as raised:
            model._runtime.run([torch.randn(m, n).t(), torch.randn(m, n).t()])
        assert (raised.value.input, raised.value.expected_strides) == (1, (m, 1))
        torch.testing.assert_close(model(x, x.t().contiguous().t()), x.sin() + x)


@pytest.mark.parametrize("door", ["load", "aoti_load_package"])
def test_an_input_that_is_written_to_is_refused(door, tmp_path):
    path = coil.aoti_compile_and_package(torch.export.export(Count(), (torch.zeros(3, 4),)), package_path=str(tmp_path / "count.pt2"))
    call = getattr(coil, door)(path)
    x = torch.zeros(4, 3).t()
    with pytest.raises(coil.InputError, match="COIL-E205") as raised:
        call(x)
    assert (raised.value.input, raised.value.expected_strides) == (0, (4, 1)) and not x.any()
    call(y := torch.zeros(3, 4))
    assert torch.equal(y, torch.ones(3, 4))
    base = torch.zeros(13)
    read = coil.compile(lambda a, b: a.add_(b), args=(torch.zeros(3, 4), torch.zeros(3, 4)))
    with pytest.raises(coil.InputError, match="COIL-E209") as raised:  # an input that is written to, and another one in its place
        read(base[:12].view(3, 4), base[1:].view(3, 4))
    assert raised.value.input == 0 and raised.value.expected_strides is None


def test_torch_compile_copies():
    """Other strides than the traced ones, of an input and of one that another graph gave: the door has the copies from the same fields."""
    compiled = torch.compile(lambda x, y: (x @ y).relu() + x.sum(), backend="coil", dynamic=False)
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    for a, b in ((x, y), (x.t(), y), (x, y.t()), (torch.randn(8, 16)[:, ::2], y.t())):
        torch.testing.assert_close(compiled(a, b), (a @ b).relu() + a.sum(), atol=1e-4, rtol=1e-4)
