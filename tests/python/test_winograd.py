"""3x3 convolutions by Winograd's filtering and without: both right, and where an infinity goes."""

import numpy as np
import pytest

import harness


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
