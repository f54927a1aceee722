"""`coil compile --tf32`: float32 products and convolutions of the CUDA target on tensor cores, emulated. Beside float64 on factors rounded as the
kernels round them only the order of sums differs; a program without the option must not have lost those bits."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import emulated_cuda
import harness

ROUNDED, EXACT = 2e-6, 5e-5  # of the largest result: what differs from the rounded reference at most, what from the exact one at least


def rounded(x):
    """To 10 bits of mantissa, halfway cases away from zero."""
    bits = x.detach().numpy().view(np.uint32)
    return torch.from_numpy(((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)).double()


class Product(torch.nn.Module):
    """function(a, b) of an input and a weight, or of two inputs."""

    def __init__(self, function, weight=None):
        super().__init__()
        self.function, self.weight = function, None if weight is None else torch.nn.Parameter(weight)

    def forward(self, a, b=None):
        return self.function(a, self.weight if b is None else b)


def conv(**options):
    return lambda x, w: F.conv2d(x, w, **options)


# name: (function, shape of a, shape of b, whether b is a weight)
CASES = {
    "linear": (F.linear, (70, 67), (45, 67), True),
    "linear_aligned": (F.linear, (130, 256), (192, 256), True),
    "linear_long": (F.linear, (33, 1536), (40, 1536), True),
    "columns": (torch.matmul, (70, 64), (64, 100), True),
    "columns_odd": (torch.matmul, (41, 33), (33, 51), False),
    "both_columns": (lambda a, b: a.t() @ b, (64, 72), (64, 96), False),
    "batches": (lambda a, b: a @ b.transpose(1, 2), (3, 35, 40), (3, 50, 40), False),
    "strided": (lambda a, b: a[:, ::2] @ b[::3], (40, 66), (99, 37), False),
    "conv3x3": (conv(padding=1), (2, 16, 9, 11), (24, 16, 3, 3), True),
    "conv_odd_channels": (conv(stride=2, padding=2), (2, 5, 13, 12), (19, 5, 5, 5), True),
    "conv_groups": (conv(groups=2, dilation=2), (1, 12, 10, 10), (10, 6, 3, 3), True),
    "conv1x1": (conv(), (2, 36, 7, 9), (20, 36, 1, 1), True),
    "first": (conv(stride=2, padding=3), (1, 3, 32, 30), (16, 3, 7, 7), True),
}


def run(name, folder, options, sm=90, dynamic=None, sizes=()):
    function, a_shape, b_shape, weight = CASES[name]
    torch.manual_seed(len(name))
    a, b = torch.randn(a_shape), torch.randn(b_shape)
    module = Product(function, b if weight else None).eval().requires_grad_(False)
    args = (a,) if weight else (a, b)
    torch.export.save(torch.export.export(module, args, dynamic_shapes=dynamic), folder / "p.pt2")
    program = emulated_cuda.Emulated(folder / "p.pt2", folder, sm, options)
    assert program.compiled.returncode == 0, program.compiled.stderr
    for x in [a, *(torch.randn(size, *a_shape[1:]) for size in sizes)]:
        np.savez(folder / "in.npz", **{f"in_{i}": v.numpy() for i, v in enumerate((x, *args[1:]))})
        done, outputs = program.run(folder / "in.npz")
        assert done.returncode == 0, done.stderr[-2000:]
        exact, near = function(x.double(), b.double()), function(rounded(x), rounded(b))
        yield tuple(float((torch.from_numpy(outputs[0]).double() - want).abs().max() / exact.abs().max()) for want in (near, exact))


@pytest.mark.parametrize("sm", [90, 80])
@pytest.mark.parametrize("name", CASES)
def test_factors_are_rounded_and_nothing_else(name, sm, tmp_path):
    ((from_rounded, from_exact),) = run(name, tmp_path, ["--tf32"], sm)
    assert from_rounded < ROUNDED, from_rounded
    assert from_exact > EXACT, "tensor cores did not compute it"


@pytest.mark.parametrize("name", ["linear", "columns", "conv3x3", "conv1x1"])
def test_without_the_option_it_is_exact(name, tmp_path):
    ((_, from_exact),) = run(name, tmp_path, [])
    assert from_exact < ROUNDED


def test_dynamic_rows_and_few_of_them(tmp_path):
    """A few rows are bound by memory: those kernels stay exact."""
    errors = list(run("linear_aligned", tmp_path, ["--tf32"], dynamic=({0: torch.export.Dim("rows", min=1, max=512)},), sizes=(1, 9, 64, 300)))
    assert all(min(pair) < ROUNDED for pair in errors), errors
    assert errors[0][1] > EXACT and errors[1][1] < ROUNDED, errors


def test_nan_and_infinity_stay(tmp_path):
    class Net(torch.nn.Module):
        def forward(self, a, b):
            return a @ b

    a, b = torch.ones(64, 64), torch.ones(64, 64)
    a[3, 5], a[4, 6], a[5, 7] = float("nan"), float("inf"), 3.4e38
    torch.export.save(torch.export.export(Net(), (a, b)), tmp_path / "p.pt2")
    program = emulated_cuda.Emulated(tmp_path / "p.pt2", tmp_path, 90, ["--tf32"])
    np.savez(tmp_path / "in.npz", in_0=a.numpy(), in_1=b.numpy())
    done, (got,) = program.run(tmp_path / "in.npz")
    assert done.returncode == 0, done.stderr
    assert np.isnan(got[3]).all() and (got[4] == np.inf).all() and np.isfinite(got[:3]).all() and (got[:3] == 64).all()


def test_records_tell_them_apart(tmp_path):
    path = tmp_path / "p.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(64, 64), (torch.randn(64, 64),)), path)
    for option, word in ([], "gemm f32"), (["--tf32"], "gemm tf32"):
        harness.coil_ok("compile", path, "--target", "cuda:sm_90", "-o", tmp_path / "q.pt2", "--tune", "fast", "--record", tmp_path / f"{word}.json", *option,
                        env={**emulated_cuda.environment(), "COIL_CUDA_DRIVER": "/nowhere/libcuda.so"})
        assert f'"{word} [1, 64, 64, 64]' in (tmp_path / f"{word}.json").read_text()
