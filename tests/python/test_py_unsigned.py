"""Unsigned numbers of 16 to 64 bits and complex numbers of halves as inputs, constants and results, from Python."""

import numpy as np
import pytest
import torch

import harness  # noqa: F401 (makes `coil` importable)
import coil

TYPES = [torch.uint16, torch.uint32, torch.uint64]
NAMES = [str(t).removeprefix("torch.") for t in TYPES]


def numbers(kind):
    largest = (1 << 8 * kind.itemsize) - 1
    return torch.tensor([0, 1, 2, 40000, largest // 2, largest // 2 + 1, largest - 1, largest], dtype=kind)


class Counts(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.register_buffer("factor", numbers(kind).flip(0).clone())

    def forward(self, x):
        return x * self.factor, x & 255, x.to(torch.float32), torch.maximum(x, self.factor), x.sum(), torch.cat([x, self.factor])


def assert_equal(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype and torch.equal(a, b)


@pytest.mark.parametrize("kind", TYPES, ids=NAMES)
def test_package(kind, tmp_path):
    module, x = Counts(kind), numbers(kind)
    model = coil.compile(torch.export.export(module, (x,)), tmp_path / "m.pt2")
    expected = module(x)
    assert_equal(model(x), expected)
    assert_equal(coil.load(str(tmp_path / "m.pt2"))(x), expected)
    assert [i.dtype for i in model.inputs] == [str(kind).removeprefix("torch.")]
    for ours, theirs in zip(model(x.numpy()), expected):
        np.testing.assert_array_equal(ours, theirs.numpy())
    with pytest.raises(coil.Error, match="int8"):
        model(torch.zeros(8, dtype=torch.int8))


@pytest.mark.parametrize("kind", TYPES, ids=NAMES)
def test_torch_compile(kind):
    torch._dynamo.reset()
    module, x = Counts(kind), numbers(kind)
    assert_equal(torch.compile(module, backend="coil", fullgraph=True)(x), module(x))


def test_complex_numbers_of_halves(tmp_path):
    class Net(torch.nn.Module):
        def forward(self, z):
            return z * z, z + 1, torch.view_as_real(z), z.abs(), z.to(torch.complex64)

    z = torch.view_as_complex(torch.randn(6, 5, 2).to(torch.float16)).clone()
    model = coil.compile(torch.export.export(Net(), (z,)), tmp_path / "m.pt2")
    for ours, theirs in zip(model(z), Net()(z)):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(torch.view_as_real(ours) if ours.is_complex() else ours, torch.view_as_real(theirs) if theirs.is_complex() else theirs)


def test_what_eager_refuses_is_refused(tmp_path):
    torch.export.save(torch.export.export(Plus(), (numbers(torch.uint16),)), tmp_path / "plus.pt2")
    harness.assert_refused(harness.coil("compile", tmp_path / "plus.pt2", "-o", tmp_path / "p.pt2"), "aten.add.Tensor of unsigned numbers", ".py:")


class Plus(torch.nn.Module):
    def forward(self, x):
        return x + x
