"""Sums of many float32 numbers are about as accurate as eager's: the errors of both against the same sum in float64."""

import numpy as np
import pytest
import torch

import emulated_cuda
import harness
from case import Function

ROWS, COLUMNS = (6, 400_000), (50_000, 40)
# (program, its inputs' sizes); the first size of a dynamic one is not known when it is compiled.
PROGRAMS = {
    "rows": (lambda x: x.sum(1), [ROWS]),
    "columns": (lambda x: x.sum(0), [COLUMNS]),
    "columns_dynamic": (lambda x: x.sum(0), [COLUMNS]),
    "columns_few_rows": (lambda x: x.sum(0), [(3000, 300)]),
    "columns_of_vectors_and_a_rest": (lambda x: x.sum(0), [(20_001, 77)]),
    "one_column": (lambda x: x[:, 3].sum(0), [(30_000, 7)]),
    "rows_dynamic": (lambda x: x.t().contiguous().sum(1), [(200_001, 6)]),
    "short_inner_dimension": (lambda x: x.sum((0, 2)), [(100_000, 17, 3)]),
    "long_inner_dimension": (lambda x: x.sum((0, 2)), [(30, 17, 10_000)]),
    "channels": (lambda x: x.mean((0, 2, 3)), [(40, 5, 70, 63)]),
    "channels_last": (lambda x: x.mean((0, 1, 2)), [(40, 70, 63, 5)]),
    "all": (lambda x: x.sum(), [(3_000_000,)]),
    "batch_statistics": (lambda x: torch.nn.functional.batch_norm(x, None, None, training=True), [COLUMNS]),
    "variance": (lambda x: x.var(0), [COLUMNS]),
    "two_sums": (lambda x, y: (x * y).sum(0) + (x - 0.25).sum(0) + x.amax(0), [COLUMNS, COLUMNS]),
    "cumsum": (lambda x: x.cumsum(1), [(3, 100_000)]),
    "cumsum_of_columns": (lambda x: x.cumsum(0), [COLUMNS]),
    "cumsum_dynamic": (lambda x: x.cumsum(0), [COLUMNS]),
    "cumprod": (lambda x: (1 + (x - 0.5) * 1e-3).cumprod(0), [(30_000, 9)]),
    "average_of_a_window": (lambda x: torch.nn.functional.avg_pool2d(x, 190), [(2, 3, 380, 190)]),
}

# A thread's own points, those of a column, running sums.
CUDA = {
    "thread": (lambda x: x.sum(0), [(1000, 70_000)]),
    "thread_dynamic": (lambda x: x.sum(0), [(1000, 70_000)]),
    "column": (lambda x: x.sum(0), [(100_000, 300)]),
    "column_of_two": (lambda x: x.sum((0, 2)), [(30_000, 150, 3)]),
    "row": (lambda x: x.sum(1), [(150, 100_000)]),
    "cumsum_of_columns": (lambda x: x.cumsum(0), [(5000, 1100)]),
}


def error(values, exact):
    return float(np.abs(values.astype(np.float64) - exact).max() / np.abs(exact).max())


def prepare(name, function, sizes, folder):
    """The exported program, its input file, eager's error, the exact result."""
    generator = torch.Generator().manual_seed(5)
    args = tuple(torch.rand(s, generator=generator) for s in sizes)
    module = Function(function)
    dynamic = {"args": tuple({0: torch.export.Dim("n", min=2)} for _ in args)} if name.endswith("dynamic") else None
    torch.export.save(torch.export.export(module, args, dynamic_shapes=dynamic), folder / "p.pt2")
    np.savez(folder / "in.npz", **{f"in_{i}": a.numpy() for i, a in enumerate(args)})
    exact = module(*(a.double() for a in args)).numpy()
    return folder / "p.pt2", folder / "in.npz", error(module(*args).numpy(), exact), exact


def check(values, eager, exact):
    ours = error(values, exact)
    assert ours <= 4 * max(eager, 6e-8), f"relative error {ours:.1e}, eager's {eager:.1e}"


@pytest.mark.parametrize("isa", ("v3", "v4"))
@pytest.mark.parametrize("name", PROGRAMS)
def test_about_as_accurate_as_eager(name, isa, tmp_path, monkeypatch):
    if isa == "v4" and "avx512f" not in open("/proc/cpuinfo").read():
        pytest.skip("this machine has no AVX-512")
    monkeypatch.setenv("COIL_ISA", isa)
    program, inputs, eager, exact = prepare(name, *PROGRAMS[name], tmp_path)
    harness.coil_ok("compile", program, "-o", tmp_path / "c.pt2")
    harness.coil_ok("run", tmp_path / "c.pt2", "--input", inputs, "--output", tmp_path / "out.npz")
    check(harness.load_outputs(tmp_path / "out.npz")[0], eager, exact)


@pytest.mark.parametrize("name", CUDA)
def test_about_as_accurate_as_eager_on_cuda(name, tmp_path):
    program, inputs, eager, exact = prepare(name, *CUDA[name], tmp_path)
    done, outputs = emulated_cuda.run_sets(program, {"only": inputs})["only"]
    assert done.returncode == 0, done.stderr[-3000:]
    check(outputs[0], eager, exact)


def test_infinities_and_nan_in_long_sums(tmp_path):
    """An infinity or NaN in some block of a sum is in the sum."""
    x = torch.ones(40_000, 20)
    x[777, 1], x[39_999, 2], x[0, 3], x[20_000, 4], x[20_001, 4] = torch.inf, -torch.inf, torch.nan, torch.inf, -torch.inf
    module = Function(lambda x: (x.sum(0), x.t().contiguous().sum(1), x.cumsum(0)))
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "p.pt2")
    np.save(tmp_path / "x.npy", x.numpy())
    harness.coil_ok("run", tmp_path / "p.pt2", "--input", tmp_path / "x.npy", "--output", tmp_path / "out.npz")
    harness.compare(harness.load_outputs(tmp_path / "out.npz"), [t.numpy() for t in module(x)], 1e-6)
