"""as_strided counts from the beginning of a storage: where a package cannot know that, it says so."""

import subprocess
import sys

import pytest
import torch

import harness  # noqa: F401 (makes `coil` importable)
import coil


class Strided(torch.nn.Module):
    """`inner`: with the offset that the tensor has anyway."""

    def __init__(self, offset, size=(2, 3), stride=(3, 1)):
        super().__init__()
        self.given = (size, stride) if offset is None else (size, stride, offset)

    def forward(self, y, x):
        return x.as_strided(*self.given) + y


def package(module, *inputs, **options):
    return coil.compile(torch.export.export(module, inputs), **options)


def test_inputs_that_begin_elsewhere():
    y, x = torch.randn(2, 3), torch.arange(12.0)
    module = Strided(4)
    model = package(module, y, x)
    assert [i.whole_storage for i in model.inputs] == [False, True]
    torch.testing.assert_close(model(y, x), module(y, x))
    longer = torch.arange(20.0)
    with pytest.raises(coil.Error, match="COIL-E205.*'x' begins at element 3 of its storage"):
        model(y, longer[3:15])
    torch.testing.assert_close(model(y, longer[:12]), module(y, longer[:12]))
    moved = torch.randn(4, 3)[2:]  # only counts where the program counts
    torch.testing.assert_close(model(moved, x), module(moved, x))


def test_the_offset_that_an_input_has():
    y, x = torch.randn(2, 3), torch.arange(20.0)
    module = Strided(None)
    model = package(module, y, x[:12])
    assert not any(i.whole_storage for i in model.inputs)
    torch.testing.assert_close(model(y, x[3:15]), module(y, x[3:15]))


STOCK = """
import sys, torch
model = torch._inductor.aoti_load_package(sys.argv[1])
y, x = torch.ones(2, 3), torch.arange(20.0)
assert torch.equal(model(y, x[:12]), x[:12].as_strided((2, 3), (3, 1), 4) + y)
try:
    model(y, x[3:15])
except RuntimeError as error:
    assert "COIL-E205" in str(error) and "'x' begins at element 3" in str(error), error
else:
    raise AssertionError("no error")
assert torch.equal(model(y, x[:12]), x[:12].as_strided((2, 3), (3, 1), 4) + y)
"""


def test_in_stock_pytorch(tmp_path):
    package(Strided(4), torch.ones(2, 3), torch.arange(12.0), output=tmp_path / "m.pt2")
    done = subprocess.run([sys.executable, "-c", STOCK, tmp_path / "m.pt2"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def test_beyond_the_tensor():
    """What follows it in its storage is not there."""
    with pytest.raises(coil.Error, match="reaches beyond the tensor"):
        package(Strided(8), torch.ones(2, 3), torch.arange(20.0)[:12])
    ends = package(Strided(6), torch.ones(2, 3), torch.arange(12.0))
    assert torch.equal(ends(torch.zeros(2, 3), torch.arange(12.0)), torch.arange(6.0, 12.0).reshape(2, 3))


def test_dynamic_reach():
    class Rows(torch.nn.Module):
        def forward(self, x):
            return x.as_strided((3, 4), (4, 1), 4) * 2

    model = coil.compile(torch.export.export(Rows(), (torch.randn(6, 4),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)))
    for rows in (4, 9):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(model(x), Rows()(x))
    with pytest.raises(coil.Error, match="COIL-E211.*reaches beyond"):
        model(torch.randn(3, 4))


def test_in_branches():
    """A branch's operand may be a part of another tensor."""

    class Branch(torch.nn.Module):
        def forward(self, x, flag):
            return torch.cond(flag, lambda t: t.as_strided((2, 2), (2, 1), 1) + 0, lambda t: t.as_strided((2, 2), (2, 1), 0) * 2, (x[4:] * 1,))

    with pytest.raises(coil.Error, match="in the storage of a part of another tensor"):
        package(Branch(), torch.randn(12), torch.tensor(True))
