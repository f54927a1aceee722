"""3x3 convolutions by Winograd's filtering and without: both right, and where an infinity goes."""

import numpy as np
import pytest

import harness


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """(path, module): 32 -> 32 channels of 24x24 pixels."""
    import torch

    torch.manual_seed(3)
    module = torch.nn.Conv2d(32, 32, 3, padding=1).eval()
    path = tmp_path_factory.mktemp("winograd") / "conv.pt2"
    torch.export.save(torch.export.export(module, (torch.randn(1, 32, 24, 24),)), path)
    return path, module


def run(program, package, x, folder):
    np.save(folder / "x.npy", x)
    harness.coil_ok("run", package, "--input", folder / "x.npy", "--output", folder / "y.npz")
    return harness.load_outputs(folder / "y.npz")[0]


def eager(module, x):
    import torch

    with torch.no_grad():
        return module(torch.from_numpy(x)).numpy()


def test_with_and_without(program, tmp_path):
    path, module = program
    sizes = {}
    x = np.random.default_rng(0).standard_normal((1, 32, 24, 24)).astype(np.float32)
    for option in ([], ["--no-winograd"]):
        package = tmp_path / f"conv{len(option)}.coil.pt2"
        harness.coil_ok("compile", path, "-o", package, *option)
        sizes[len(option)] = package.stat().st_size
        assert harness.max_error(run(program, package, x, tmp_path), eager(module, x)) < 5e-6
    # 36 transformed places instead of 9 taps
    assert sizes[0] > sizes[1] + 20 * 32 * 32 * 4


def test_an_infinity(program, tmp_path):
    path, module = program
    x = np.random.default_rng(1).standard_normal((1, 32, 24, 24)).astype(np.float32)
    x[0, 5, 10, 9] = np.inf
    expected = eager(module, x)
    harness.coil_ok("compile", path, "-o", tmp_path / "plain.coil.pt2", "--no-winograd")
    plain = run(program, tmp_path / "plain.coil.pt2", x, tmp_path)
    assert np.array_equal(np.isfinite(plain), np.isfinite(expected))
    harness.coil_ok("compile", path, "-o", tmp_path / "fast.coil.pt2")
    fast = run(program, tmp_path / "fast.coil.pt2", x, tmp_path)
    assert not np.isfinite(fast[~np.isfinite(expected)]).any()
    # Outputs 9..11 x 8..10 see it: they lie in the tiles 2 x 2.
    far = np.ones(fast.shape, bool)
    far[:, :, 8:12, 8:12] = False
    assert np.isfinite(fast[far]).all() and harness.max_error(fast[far], expected[far]) < 5e-6


def test_named_in_help():
    assert "--no-winograd" in harness.coil_ok("compile", "--help").stdout
