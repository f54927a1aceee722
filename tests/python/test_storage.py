"""as_strided counts from the beginning of a storage: where a package cannot know that, it says so."""

import os
import re
import subprocess
import sys

import pytest
import torch

import harness
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


def assert_refuses_strides(model, module, y, right, *others):
    """Right as exported; other strides are refused and named, never copied."""
    torch.testing.assert_close(model(y, right), module(y, right))
    for x in others:
        with pytest.raises(coil.Error, match=r"COIL-E205: input 'x' \(1\).*counts in this input's memory \(as_strided\).*export with an input laid out"):
            model(y, x)
    torch.testing.assert_close(model(y, right), module(y, right))


class Through(torch.nn.Module):
    """as_strided of what `way` makes of x, which lies as x does."""

    def __init__(self, way, offset=None):
        super().__init__()
        self.way, self.offset = way, offset

    def forward(self, y, x):
        return self.way(x).as_strided((2, 3), (1, 2), *([] if self.offset is None else [self.offset])) + y


@pytest.mark.parametrize("offset", [None, 0, 2])
@pytest.mark.parametrize("way", [lambda x: x, lambda x: x * 2, lambda x: torch.clone(x), lambda x: (x, torch.sin(x))[1].permute(1, 0)], ids=["itself", "product", "clone", "view"])
def test_other_strides(way, offset):
    y, module = torch.randn(2, 3), Through(way, offset)
    rows, columns, gaps = torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2]
    model = package(module, y, rows)
    assert [i.exact_strides for i in model.inputs] == [False, True]
    assert_refuses_strides(model, module, y, rows, columns, gaps)
    assert_refuses_strides(package(module, y, columns), module, y, columns, rows)
    with pytest.raises(coil.Error, match="COIL-E205.*counts in this input's memory"):
        model(y.numpy(), columns.numpy())
    turned = torch.randn(3, 2).t()  # of y the program only reads elements
    torch.testing.assert_close(model(turned, rows), module(turned, rows))


@pytest.mark.parametrize("way", [lambda x: x.contiguous(), lambda x: x.clone(memory_format=torch.contiguous_format), lambda x: torch.mm(x, x.t())], ids=["contiguous", "clone", "product"])
def test_strides_of_its_own(way):
    """What does not lie as its operand does may be counted in whatever the input's strides are."""
    y, module = torch.randn(2, 3), Through(way)
    model = package(module, y, torch.randn(6, 4).t())
    assert not any(i.exact_strides for i in model.inputs)
    for x in (torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2]):
        torch.testing.assert_close(model(y, x), module(y, x))


def test_other_strides_of_dynamic_sizes():
    module, rows = Through(lambda x: x), torch.export.Dim("rows")
    model = coil.compile(torch.export.export(module, (torch.randn(2, 3), torch.randn(4, 6)), dynamic_shapes=({}, {0: rows})))
    assert_refuses_strides(model, module, torch.randn(2, 3), torch.randn(9, 6), torch.randn(6, 9).t())


def test_other_strides_inside_of_a_branch():
    class Branch(torch.nn.Module):
        def forward(self, y, x):
            return torch.cond(y.sum() > 0, lambda t: t.as_strided((2, 3), (1, 2)) + 0, lambda t: t.as_strided((2, 3), (1, 2)) * 2, (x,)) + y

    assert_refuses_strides(package(Branch(), torch.ones(2, 3), torch.randn(4, 6)), Branch(), torch.ones(2, 3), torch.randn(4, 6), torch.randn(6, 4).t())


STOCK_STRIDES = """
import sys, torch
model = torch._inductor.aoti_load_package(sys.argv[1])
y, x = torch.ones(2, 3), torch.randn(4, 6)
assert torch.equal(model(y, x), x.as_strided((2, 3), (1, 2)) + y)
try:
    model(y, torch.randn(6, 4).t())
except RuntimeError as error:
    assert "COIL-E205: input 'x' (1)" in str(error) and "counts in this input's memory" in str(error), error
else:
    raise AssertionError("no error")
assert torch.equal(model(y, x), x.as_strided((2, 3), (1, 2)) + y)
"""


def test_other_strides_in_stock_pytorch(tmp_path):
    package(Through(lambda x: x), torch.ones(2, 3), torch.randn(4, 6), output=tmp_path / "m.pt2")
    done = subprocess.run([sys.executable, "-c", STOCK_STRIDES, tmp_path / "m.pt2"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_code_for_each_device_checks(tmp_path):
    """The host programs of both, read: there may be no GPU here."""
    program = tmp_path / "m.pt2"
    torch.export.save(torch.export.export(Through(lambda x: x, 1), (torch.ones(2, 3), torch.randn(4, 6))), program)
    harness.coil_ok("compile", program, "-o", tmp_path / "m.coil.pt2", "--target", "cpu,cuda:sm_90", env=dict(os.environ, COIL_DUMP=str(tmp_path / "dump")))
    for name, device in (("host.cc", "COIL_CPU"), ("host_cuda.cc", "COIL_CUDA")):
        text = next((tmp_path / "dump").glob(f"*_{name}")).read_text()
        assert re.search(rf'{{"x", .*, {device}, true}},', text) and not re.search(r'{"y", .*, true},', text)
        assert "coil_whole_inputs[] = {1, -1}" in text


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("offset", [None, 3])
@pytest.mark.parametrize("way", [lambda x: x, lambda x: torch.sin(x), lambda x: x[1:]], ids=["itself", "sine", "part"])
def test_under_torch_compile(way, offset, dynamic):
    torch._dynamo.reset()
    eager = Through(way, offset)
    compiled = torch.compile(eager, backend="coil", dynamic=dynamic)
    y = torch.randn(2, 3)
    for x in (torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(9, 6)[2:6], torch.randn(4, 12)[:, ::2], torch.randn(5, 6), torch.randn(6, 5).t()):
        torch.testing.assert_close(compiled(y, x), eager(y, x))
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(y, ours).square().sum().backward()
        eager(y, theirs).square().sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)
