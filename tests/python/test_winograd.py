"""3x3 convolutions by Winograd's filtering and without: both right, and where an infinity goes."""

import copy
import sys

import numpy as np
import pytest
import torch

import harness

sys.path.insert(0, str(harness.BUILD / "python"))


# A side of the image, channels, and of the tiles that are chosen then.
MAPS = [(24, 32, 4), (7, 128, 2)]


@pytest.fixture(scope="module", params=MAPS, ids=["tiles-of-4", "tiles-of-2"])
def program(request, tmp_path_factory):
    """(path, module, side, channels, tile)"""
    import torch

    side, channels, tile = request.param
    torch.manual_seed(3)
    module = torch.nn.Conv2d(channels, channels, 3, padding=1).eval()
    path = tmp_path_factory.mktemp("winograd") / "conv.pt2"
    torch.export.save(torch.export.export(module, (torch.randn(1, channels, side, side),)), path)
    return path, module, side, channels, tile


def test_with_and_without(program, tmp_path):
    path, module, side, channels, tile = program
    sizes = {}
    x = np.random.default_rng(0).standard_normal((1, channels, side, side)).astype(np.float32)
    for option in ([], ["--no-winograd"]):
        package = tmp_path / f"conv{len(option)}.coil.pt2"
        harness.coil_ok("compile", path, "-o", package, *option)
        sizes[len(option)] = package.stat().st_size
        assert harness.max_error(harness.call(package, x, tmp_path), harness.eager(module, x)) < 5e-6
    # 36 or 16 transformed places instead of 9 taps
    more = ((tile + 2) ** 2 - 9) * channels * channels * 4
    assert more - 8192 < sizes[0] - sizes[1] < more + 8192


def test_an_infinity(program, tmp_path):
    path, module, side, channels, tile = program
    x = np.random.default_rng(1).standard_normal((1, channels, side, side)).astype(np.float32)
    y, x0 = side // 2, side // 2 - 1
    x[0, 5, y, x0] = np.inf
    expected = harness.eager(module, x)
    harness.coil_ok("compile", path, "-o", tmp_path / "plain.coil.pt2", "--no-winograd")
    plain = harness.call(tmp_path / "plain.coil.pt2", x, tmp_path)
    assert np.array_equal(np.isfinite(plain), np.isfinite(expected))
    harness.coil_ok("compile", path, "-o", tmp_path / "fast.coil.pt2")
    fast = harness.call(tmp_path / "fast.coil.pt2", x, tmp_path)
    assert not np.isfinite(fast[~np.isfinite(expected)]).any()
    # The tiles of those outputs that see it.
    far = np.ones(fast.shape, bool)
    lines, columns = (slice((at - 1) // tile * tile, ((at + 1) // tile + 1) * tile) for at in (y, x0))
    far[:, :, lines, columns] = False
    assert far.any()
    assert np.isfinite(fast[far]).all() and harness.max_error(fast[far], expected[far]) < 5e-6


def test_named_in_help():
    assert "--no-winograd" in harness.coil_ok("compile", "--help").stdout


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_half_precision(dtype, dynamic, tmp_path):
    """Filtered between float32 transforms; the weight of bfloat16 is there as it is, too, for machines with a matrix unit."""
    import coil
    import torch

    torch.manual_seed(4)
    net = torch.nn.Sequential(torch.nn.Conv2d(32, 48, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(48, 33, 3, padding=1)).eval().to(getattr(torch, dtype))
    x = torch.randn(2, 32, 23, 21).to(net[0].weight.dtype)
    shapes = ({0: torch.export.Dim("batch", min=1, max=8)},) if dynamic else None
    torch.export.save(torch.export.export(net, (x,), dynamic_shapes=shapes), tmp_path / "half.pt2")
    harness.coil_ok("compile", tmp_path / "half.pt2", "-o", tmp_path / "plain.coil.pt2", "--no-winograd")
    model = coil.compile(tmp_path / "half.pt2", tmp_path / "half.coil.pt2")
    more = (tmp_path / "half.coil.pt2").stat().st_size - (tmp_path / "plain.coil.pt2").stat().st_size
    pairs = 32 * 64 + 48 * 64
    plain = 9 * 2 * pairs
    assert more > 36 * 4 * pairs - (plain if dtype == "float16" else 0) - 8192
    for batch in (1, 2, 5) if dynamic else (2,):
        images = torch.randn(batch, 32, 23, 21).to(x.dtype)
        with torch.no_grad():
            exact, eager = net.float()(images.float()), net.to(x.dtype)(images)
        got = model(images)
        # Not farther from the exact result than eager is.
        assert got.dtype == x.dtype
        assert (got.float() - exact).abs().max() <= 2 * (eager.float() - exact).abs().max()


class Given(torch.nn.Module):
    """The weight comes with the call."""

    def forward(self, x, weight):
        return torch.nn.functional.conv2d(x, weight, padding=1)


def relative(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


# Images, a side, channels in and out, and of the tiles that are chosen then.
GIVEN = [(2, 24, 32, 33, 4), (1, 57, 16, 64, 4), (1, 14, 64, 96, 2), (1, 24, 24, 32, 0), (1, 3, 256, 256, 0)]


@pytest.mark.parametrize("images,side,ins,outs,tile", GIVEN, ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_of_a_weight_that_comes_with_the_call(images, side, ins, outs, tile, dynamic, tmp_path):
    import coil

    torch.manual_seed(0)
    x, weight = torch.randn(images, ins, side, side), torch.randn(outs, ins, 3, 3)
    shapes = {"x": {0: torch.export.Dim("batch", min=1, max=64)}, "weight": None} if dynamic else None
    example = torch.randn(max(images, 2), ins, side, side) if dynamic else x
    torch.export.save(torch.export.export(Given(), (example, weight), dynamic_shapes=shapes), tmp_path / "m.pt2")
    for option in ([], ["--no-winograd"]):
        package = tmp_path / f"m{len(option)}.coil.pt2"
        harness.coil_ok("compile", tmp_path / "m.pt2", "-q", "-o", package, *option)
        host = harness.coil_ok("inspect", package, "--source", "host.cc").stdout
        assert (f"winograd = {tile};" in host) == (tile > 0 and not option), "which way was chosen"
        assert relative(coil.load(package)(x, weight), Given()(x.double(), weight.double())) < 4e-6


def test_a_tuner_that_chooses_direct_sums_has_memory_for_them(tmp_path):
    """The record names the choice, on as many threads as there may be: the scratch memory is enough for either way."""
    torch.export.save(torch.export.export(Given(), (torch.randn(1, 128, 14, 14), torch.randn(32, 128, 3, 3))), tmp_path / "m.pt2")
    bytes_of = []
    for option in ([], ["--no-winograd"]):
        harness.coil_ok("compile", tmp_path / "m.pt2", "-q", "-o", tmp_path / "m.coil.pt2", *option)
        formula = harness.coil_json("inspect", tmp_path / "m.coil.pt2")["memory"]["arena_bytes"]
        bytes_of.append([eval(str(formula), {"max": max, "min": min, "workers": workers}) for workers in (1, 4, 64)])
    assert all(filtered >= direct for filtered, direct in zip(*bytes_of, strict=True)), bytes_of


@pytest.mark.parametrize("size", [(4, 64, 64, 28), (3, 32, 48, 13), (2, 48, 16, 5)], ids=str)
def test_gradients_are_about_as_exact_as_eagers(size):
    import coil  # noqa: F401  registers the backend

    images, ins, outs, side = size
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(ins, outs, 3, padding=1)
    x = torch.randn(images, ins, side, side)
    step = torch.cos(torch.arange(images * outs * side * side, dtype=torch.float64)).view(images, outs, side, side)

    def results(run, module, x):
        x = x.clone().requires_grad_()
        module.zero_grad()
        y = run(x)
        y.backward(step.to(y.dtype))
        return [y.detach(), x.grad, module.weight.grad.clone(), module.bias.grad.clone()]

    exact_module = copy.deepcopy(conv).double()
    exact = results(exact_module, exact_module, x.double())
    eager = results(conv, conv, x)
    torch._dynamo.reset()
    for ours, theirs, wanted in zip(results(torch.compile(conv, backend="coil"), conv, x), eager, exact, strict=True):
        assert relative(ours, wanted) <= 3 * relative(theirs, wanted) + 1e-6
