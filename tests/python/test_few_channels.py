"""Convolutions whose groups have few channels, and those to few channels, against eager: dtypes, windows, borders, sizes of every call, what is not finite."""

import copy

import numpy as np
import pytest

import harness

torch = pytest.importorskip("torch")


class Between(torch.nn.Module):
    """A convolution with elementwise neighbours."""

    def __init__(self, convolution, dtype):
        super().__init__()
        self.convolution, self.dtype = convolution.to(dtype), dtype

    def forward(self, x):
        return torch.tanh(self.convolution(torch.relu(x).to(self.dtype)) + 0.1).float()


def compiled(module, x, folder, dynamic=None):
    """(package, which of the two kernels is in it)"""
    with torch.no_grad():
        program = torch.export.export(module.eval(), (x,), dynamic_shapes=dynamic)
    torch.export.save(program, folder / "m.pt2")
    harness.coil_ok("compile", folder / "m.pt2", "-o", folder / "m.coil.pt2", env={"COIL_DUMP": str(folder / "dump")})
    text = "".join(p.read_text(errors="replace") for p in (folder / "dump").rglob("*") if p.is_file())
    return folder / "m.coil.pt2", [kernel for kernel in ("narrow_groups", "few_outputs") if f"{kernel} = 1" in text]


def call(package, x, folder):
    return torch.from_numpy(harness.call(package, x.numpy(), folder))


def exact(module, x):
    """In float64, of the same weights and input. PyTorch's own kernels for bfloat16 on processors with AMX spread what is not finite to other groups."""
    doubles = copy.deepcopy(module).double()
    x, doubles.dtype = x.to(module.dtype).double(), torch.float64
    return doubles(x).float()


def check(module, package, x, folder, dtype):
    with torch.no_grad():
        expected = module(x) if dtype == torch.float32 or x.isfinite().all() else exact(module, x)
    torch.testing.assert_close(call(package, x, folder), expected, equal_nan=True, rtol=1e-5 if dtype == torch.float32 else 2e-2, atol=1e-5 if dtype == torch.float32 else 2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width, groups, window", [(4, 6, (3, 1, 1, 1)), (4, 5, (3, 2, 1, 1)), (8, 4, (3, 1, 2, 2)), (16, 3, (3, 2, 1, 1)), (24, 3, (3, 1, 1, 1)), (8, 3, (5, 2, 2, 1)), (2, 9, ((1, 4), (1, 3), (0, 2), 1))])
def test_groups(dtype, width, groups, window, tmp_path):
    torch.manual_seed(width)
    kernel, stride, padding, dilation = window
    module = Between(torch.nn.Conv2d(width * groups, width * groups, kernel, stride, padding, dilation, groups), dtype)
    x = torch.randn(2, width * groups, 9, 15)
    package, kernels = compiled(module, x, tmp_path)
    assert kernels == (["narrow_groups"] if width <= 16 or dtype != torch.bfloat16 else [])
    check(module, package, x, tmp_path, dtype)
    x[1, 3, 4, 7] = float("nan")
    x[0, 5, 0, 0] = float("inf")
    check(module, package, x, tmp_path, dtype)


def test_groups_at_sizes_of_every_call(tmp_path):
    module = Between(torch.nn.Conv2d(32, 32, 3, 2, 1, groups=8), torch.float32)
    sizes = [torch.export.Dim(name, min=0 if name == "batch" else 3, max=200) for name in ("batch", "height", "width")]
    package, kernels = compiled(module, torch.randn(2, 32, 11, 13), tmp_path, {"x": {0: sizes[0], 2: sizes[1], 3: sizes[2]}})
    assert kernels == ["narrow_groups"]
    for shape in [(0, 32, 8, 8), (1, 32, 3, 3), (3, 32, 5, 50), (5, 32, 28, 27)]:
        check(module, package, torch.randn(shape), tmp_path, torch.float32)


def test_groups_of_lines(tmp_path):
    module = Between(torch.nn.Conv1d(64, 64, 7, padding=6, dilation=2, groups=8), torch.float32)
    x = torch.randn(2, 64, 101)
    package, kernels = compiled(module, x, tmp_path)
    assert kernels == ["narrow_groups"]
    check(module, package, x, tmp_path, torch.float32)


def test_other_groups(tmp_path):
    """More channels out than in, widths that fill no vector: the implicit product's."""
    for channels, out, groups in [(16, 32, 4), (18, 18, 6), (256, 256, 2)]:
        module = Between(torch.nn.Conv2d(channels, out, 3, padding=1, groups=groups), torch.float32)
        x = torch.randn(1, channels, 8, 9)
        package, kernels = compiled(module, x, tmp_path)
        assert not kernels
        check(module, package, x, tmp_path, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels, outputs, window", [(32, 3, (3, 1, 1, 1)), (20, 1, (3, 2, 1, 1)), (64, 4, (1, 1, 0, 1)), (48, 2, (3, 1, 2, 2)), (24, 7, ((1, 4), (1, 3), (0, 2), 1))])
def test_outputs(dtype, channels, outputs, window, tmp_path):
    torch.manual_seed(channels)
    module = Between(torch.nn.Conv2d(channels, outputs, window[0], window[1], window[2], window[3]), dtype)
    x = torch.randn(2, channels, 9, 15)
    package, kernels = compiled(module, x, tmp_path)
    if window[0] != 1:  # (windows of one pixel may be products)
        assert kernels == (["few_outputs"] if outputs <= 4 or dtype != torch.bfloat16 else [])
    check(module, package, x, tmp_path, dtype)
    x[1, 3, 4, 7] = float("nan")
    x[0, 5, 0, 0] = float("inf")
    check(module, package, x, tmp_path, dtype)


def test_outputs_at_sizes_of_every_call(tmp_path):
    module = Between(torch.nn.Conv2d(32, 3, 3, 1, 1), torch.float32)
    sizes = [torch.export.Dim(name, min=0 if name == "batch" else 3, max=200) for name in ("batch", "height", "width")]
    package, kernels = compiled(module, torch.randn(2, 32, 11, 13), tmp_path, {"x": {0: sizes[0], 2: sizes[1], 3: sizes[2]}})
    assert kernels == ["few_outputs"]
    for shape in [(0, 32, 8, 8), (1, 32, 3, 3), (3, 32, 5, 150), (5, 32, 28, 27)]:
        check(module, package, torch.randn(shape), tmp_path, torch.float32)


def test_outputs_of_lines(tmp_path):
    module = Between(torch.nn.Conv1d(64, 1, 7, padding=3), torch.float32)
    x = torch.randn(2, 64, 301)
    package, kernels = compiled(module, x, tmp_path)
    assert kernels == ["few_outputs"]
    check(module, package, x, tmp_path, torch.float32)


class Columns(torch.nn.Module):
    """Products with few columns: with neighbours, as they are, and turned."""

    def __init__(self, columns):
        super().__init__()
        self.a, self.b, self.c = torch.nn.Linear(80, columns), torch.nn.Linear(80, columns, bias=False), torch.nn.Linear(80, columns)

    def forward(self, x):
        return torch.cat([(torch.sigmoid(self.a(x)) + 1).mT, self.b(x).mT, torch.softmax(self.c(x), 0).mT])


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
def test_columns(columns, tmp_path):
    torch.manual_seed(columns)
    rows = torch.export.Dim("rows", min=0, max=1000)
    module = Columns(columns)
    package, _ = compiled(module, torch.randn(50, 80), tmp_path, {"x": {0: rows}})
    for count in (0, 1, 31, 32, 100, 333):
        x = torch.randn(count, 80)
        if count > 32:
            x[30, 3], x[7, 79] = float("nan"), float("inf")
        check(module, package, x, tmp_path, torch.float32)
