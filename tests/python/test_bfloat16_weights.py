"""Convolutions and products of bfloat16, whose constant weights lie in pairs of k, on both levels of instructions beside float64: windows, strides,
groups, borders, sizes of every call, weights that come with the call, what is not finite."""

import copy

import pytest

import harness

torch = pytest.importorskip("torch")

HALF = torch.bfloat16


class Between(torch.nn.Module):
    """A layer with elementwise neighbours and a residual connection where its shape allows one."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.dtype = layer.to(HALF), HALF

    def forward(self, x):
        y = self.layer(x.to(self.dtype))
        return torch.relu(y + x.to(self.dtype) if y.shape == x.shape else y).float()


class Given(torch.nn.Module):
    """The weight comes with the call."""

    dtype = HALF

    def forward(self, x):
        weight = x[:40, :64, :3, :3].to(self.dtype)
        return torch.nn.functional.conv2d(x.to(self.dtype), weight, padding=1).float()


def compiled(module, x, folder, dynamic=None, options=()):
    """(package, whether a weight in it lies in pairs)"""
    with torch.no_grad():
        program = torch.export.export(module.eval(), (x,), dynamic_shapes=dynamic)
    torch.export.save(program, folder / "m.pt2")
    harness.coil_ok("compile", folder / "m.pt2", *options, "-o", folder / "m.coil.pt2", env={"COIL_DUMP": str(folder / "dump")})
    text = "".join(p.read_text(errors="replace") for p in (folder / "dump").rglob("*") if p.is_file())
    return folder / "m.coil.pt2", "_pairs = 1" in text


def check(module, package, x, folder, monkeypatch):
    """Beside float64: PyTorch's own kernels for bfloat16 on processors with AMX spread what is not finite."""
    doubles = copy.deepcopy(module).double()
    doubles.dtype = torch.float64
    with torch.no_grad():
        expected = doubles(x.to(HALF).double()).float()
    for isa in ("v3", "v4"):  # where the machine lacks it, the other one again
        monkeypatch.setenv("COIL_ISA", isa)
        found = torch.from_numpy(harness.call(package, x.numpy(), folder))
        torch.testing.assert_close(found, expected, equal_nan=True, rtol=2e-2, atol=2e-2, msg=lambda text, isa=isa: f"{isa}: {text}")


# channels, outputs, kernel, stride, padding, dilation, groups, height, width, whether the weight lies in pairs
CONVOLUTIONS = [
    (64, 64, 3, 1, 1, 1, 1, 20, 28, True),
    (64, 40, 3, 2, 1, 1, 1, 21, 28, True),
    (96, 96, 3, 1, 2, 2, 3, 9, 15, True),
    (64, 48, (1, 7), 1, (0, 3), 1, 1, 6, 33, True),
    (320, 33, 1, 2, 0, 1, 1, 13, 12, True),
    (128, 256, 1, 1, 0, 1, 1, 7, 7, True),
    (64, 64, 5, (1, 3), (3, 0), (2, 1), 1, 15, 20, True),
    (256, 32, 3, 1, 1, 1, 1, 1, 9, True),
    (40, 56, 3, 1, 1, 1, 1, 14, 30, False),
    (72, 24, 5, 2, 2, 1, 3, 14, 30, False),
]


@pytest.mark.parametrize("channels, outputs, kernel, stride, padding, dilation, groups, height, width, pairs", CONVOLUTIONS)
def test_convolutions(channels, outputs, kernel, stride, padding, dilation, groups, height, width, pairs, tmp_path, monkeypatch):
    torch.manual_seed(channels)
    module = Between(torch.nn.Conv2d(channels, outputs, kernel, stride, padding, dilation, groups))
    x = torch.randn(2, channels, height, width)
    package, found = compiled(module, x, tmp_path)
    assert found == pairs
    check(module, package, x, tmp_path, monkeypatch)
    if kernel == 3 and stride == 1:  # (filtered, where a machine has no AMX: it spreads over tiles)
        package, _ = compiled(module, x, tmp_path, options=["--no-winograd"])
    x[1, 3, height // 2, width - 1] = float("nan")
    x[0, channels - 1, 0, 0] = float("inf")
    check(module, package, x, tmp_path, monkeypatch)


def test_lines(tmp_path, monkeypatch):
    module = Between(torch.nn.Conv1d(64, 64, 9, padding=8, dilation=2))
    x = torch.randn(2, 64, 101)
    package, pairs = compiled(module, x, tmp_path)
    assert pairs
    check(module, package, x, tmp_path, monkeypatch)


@pytest.mark.parametrize("least, pairs", [(0, False), (8, True)])
def test_sizes_of_every_call(least, pairs, tmp_path, monkeypatch):
    """A weight lies in pairs where each call has rows enough."""
    torch.manual_seed(least)
    module = Between(torch.nn.Conv2d(64, 64, 3, padding=1))
    sizes = [torch.export.Dim(name, min=least if name == "batch" else 1, max=200) for name in ("batch", "height", "width")]
    package, found = compiled(module, torch.randn(9, 64, 11, 13), tmp_path, {"x": {0: sizes[0], 2: sizes[1], 3: sizes[2]}})
    assert found == pairs
    for shape in [(least, 64, 8, 8), (least + 1, 64, 1, 1), (least + 1, 64, 5, 50), (least + 2, 64, 29, 7)]:
        check(module, package, torch.randn(shape), tmp_path, monkeypatch)


def test_weights_of_the_call(tmp_path, monkeypatch):
    torch.manual_seed(3)
    x = torch.randn(40, 64, 10, 9) / 8
    package, pairs = compiled(Given(), x, tmp_path)
    assert not pairs
    check(Given(), package, x, tmp_path, monkeypatch)


@pytest.mark.parametrize("rows, k, n, pairs", [(50, 96, 70, True), (333, 1056, 40, True), (8, 64, 33, True), (7, 64, 33, False), (50, 100, 64, False)])
def test_products(rows, k, n, pairs, tmp_path, monkeypatch):
    torch.manual_seed(rows)
    module = Between(torch.nn.Linear(k, n))
    x = torch.randn(rows, k)
    package, found = compiled(module, x, tmp_path)
    assert found == pairs
    check(module, package, x, tmp_path, monkeypatch)
    x[3, 5] = float("inf")
    x[0, 1] = float("nan")
    check(module, package, x, tmp_path, monkeypatch)
