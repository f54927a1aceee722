"""Gradients of grid_sample, replication padding, distances and segment_reduce through torch.compile beside eager; none may stay in PyTorch."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from test_py_gradients import check
from compiled_beside_eager import nothing_in_torch

pytestmark = pytest.mark.usefixtures("fresh_compiles")


@pytest.mark.parametrize("dims,mode,padding,align", [c for c in itertools.product((2, 3), ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True))
                                                     if not (c[0] == 3 and c[1] == "bicubic")])
def test_grid_sample(dims, mode, padding, align):
    """Places inside, outside and far outside of the image."""
    torch.manual_seed(3)
    x, grid = torch.randn(2, 3, *(7, 6, 5)[:dims]), torch.randn(2, *(4, 5, 3)[:dims], dims)
    grid[0] *= 3
    check(lambda x, g: F.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=align), x, grid, tolerance=2e-5)


def test_grid_sample_of_one_argument():
    x, grid = torch.randn(1, 2, 5, 5), torch.rand(1, 4, 4, 2) * 2 - 1
    for wanted in ((True, False), (False, True)):
        found = []
        for f in (torch.compile(lambda x, g: F.grid_sample(x, g, align_corners=False), backend="coil"), lambda x, g: F.grid_sample(x, g, align_corners=False)):
            given = [t.clone().requires_grad_(w) for t, w in zip((x, grid), wanted)]
            f(*given).square().sum().backward()
            found.append(next(t.grad for t in given if t.requires_grad))
        torch.testing.assert_close(*found)
    nothing_in_torch()


def test_spatial_transformer():
    """A grid of a dynamic batch that comes from a matrix."""
    def transformed(x, theta):
        rows, columns = torch.meshgrid(torch.linspace(-1, 1, 9), torch.linspace(-1, 1, 8), indexing="ij")
        places = torch.stack([columns, rows, torch.ones_like(rows)], -1).reshape(1, 72, 3)
        return F.grid_sample(x, (places @ theta.transpose(1, 2)).reshape(-1, 9, 8, 2), align_corners=False)

    compiled = torch.compile(transformed, backend="coil", dynamic=True)
    for batch in (2, 5):
        given, found = (torch.randn(batch, 3, 16, 12), torch.randn(batch, 2, 3) * 0.7), []
        for f in (compiled, transformed):
            arguments = [t.clone().requires_grad_() for t in given]
            f(*arguments).square().sum().backward()
            found.append([t.grad for t in arguments])
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pad", [(2, 1), (0, 3), (-1, 2), (1, 2, 3, 0), (2, -2, -1, 1), (1, 2, 0, 3, 2, 1), (0, 0, 0, 0, 5, -1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_replication_pad(pad, dtype):
    check(lambda x: F.pad(x, pad, mode="replicate") * 2, torch.randn(2, 3, *(6, 5, 4)[: len(pad) // 2], dtype=dtype))


def test_replication_pad_of_complex_numbers():
    x, found = torch.randn(2, 3, 5, 4, dtype=torch.complex64), []
    for backend in ("coil", "eager"):
        given = x.clone().requires_grad_()
        torch.compile(lambda x: F.pad(x, (2, -1, 0, 3), mode="replicate"), backend=backend)(given).abs().square().sum().backward()
        found.append(given.grad)
    torch.testing.assert_close(*found)
    nothing_in_torch()


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("sizes", [((5, 3), (4, 3)), ((2, 5, 3), (2, 4, 3)), ((2, 1, 1, 3), (3, 6, 3))], ids=str)
def test_cdist(p, sizes):
    a, b = (torch.randn(s) for s in sizes)
    b[..., 0, :] = a[..., 0, :] if a.dim() == b.dim() else b[..., 0, :]  # two points in one place
    for mode in ("use_mm_for_euclid_dist_if_necessary", "donot_use_mm_for_euclid_dist"):
        check(lambda a, b: torch.cdist(a, b, p=p, compute_mode=mode), a, b, tolerance=1e-4)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_pdist(p):
    check(lambda x: F.pdist(x, p), torch.randn(7, 4), tolerance=1e-4)


@pytest.mark.parametrize("how", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("bounds", [{"lengths": [2, 0, 3, 3]}, {"offsets": [0, 2, 2, 5, 8]}, {"lengths": [[1, 4, 3], [2, 2, 4]], "axis": 1}], ids=["lengths", "offsets", "second axis"])
@pytest.mark.parametrize("initial", [None, 2.0])
def test_segment_reduce(how, bounds, initial):
    data = torch.tensor([3.0, 3.0, 1.0, 0.0, 2.0, -1.0, 5.0, 0.0]) + 0.0
    if "axis" in bounds:
        data = torch.stack([data, data.flip(0) * 2 + 1])[..., None] * torch.tensor([1.0, -0.5])
    given = {k: v if k == "axis" else torch.tensor(v) for k, v in bounds.items()}
    reduced = lambda x: torch.segment_reduce(x, how, unsafe=True, initial=initial, **given)  # noqa: E731
    for sign in (1, -1):  # eager divides only positive gradients among equal elements
        found = []
        for f in (torch.compile(reduced, backend="coil"), reduced):
            x = data.clone().requires_grad_()
            y = f(x)
            y.backward(torch.arange(1.0, y.numel() + 1).reshape(y.shape) * sign)
            found.append((y.detach(), x.grad))
        torch.testing.assert_close(*found, equal_nan=True)
    nothing_in_torch()


@pytest.mark.parametrize("sizes", [((4, 5), (4, 5), (20,)), ((4, 5), (5,), (7, 6)), ((3,), (3,), (1, 3))], ids=str)
def test_masked_scatter(sizes):
    torch.manual_seed(5)
    x, source, mask = torch.randn(sizes[0]), torch.randn(sizes[2]), torch.rand(sizes[1]) > 0.4
    check(lambda x, s: x.masked_scatter(mask, s) * 3, x, source)
