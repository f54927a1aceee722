"""Sorts on CUDA, emulated (tests/cuda_emulation): rows that a few threads sort, that are one tile, and that are merged from several, in every dtype, with
ties, NaN, both directions, along other dimensions, and with only the first elements kept."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import emulated_cuda
import harness

# Around the elements of a thread, of a team of threads, of a tile (2,048), of two, four and eight tiles.
LENGTHS = (0, 1, 2, 7, 8, 9, 31, 64, 65, 300, 1025, 2047, 2048, 2049, 4096, 4097, 8193, 16400)
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8,
          "u8": torch.uint8, "bool": torch.bool}


def values(dtype, *sizes):
    """Many ties, the special values and zeros of both signs."""
    if dtype == torch.bool:
        return torch.rand(sizes) < 0.5
    if not dtype.is_floating_point:
        low, high = {torch.uint8: (0, 256), torch.int8: (-128, 128)}.get(dtype, (-300, 300))
        return torch.randint(low, high, sizes, dtype=dtype)
    x = torch.randint(-400, 400, sizes).to(dtype) / 8
    at = torch.rand(sizes)
    x[at < 0.03] = float("nan")
    x[(at > 0.03) & (at < 0.05)] = float("inf")
    x[(at > 0.05) & (at < 0.07)] = -float("inf")
    x[(at > 0.07) & (at < 0.10)] = -0.0
    return x


def array(t):
    return (t.float() if t.dtype == torch.bfloat16 else t).numpy()


def package_of(function, inputs, folder, dynamic=None, options=(), level="-O0", architecture=90):
    class Program(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    with torch.no_grad():
        exported = torch.export.export(Program(), inputs, dynamic_shapes=dynamic)
    torch.export.save(exported, folder / "program.pt2")
    package = emulated_cuda.Emulated(folder / "program.pt2", folder, architecture, options, level=level)
    assert package.compiled.returncode == 0, package.compiled.stderr
    return package


def kernels_text(function, inputs, folder, options=()):
    return emulated_cuda.kernels_of(package_of(function, inputs, folder, options=options).package)[0]


def check(function, sets, folder, dynamic=None, tolerance=0, options=()):
    """Compiled for the first set of inputs, run and compared with each."""
    package, arrays = package_of(function, sets[0], folder, dynamic, options, level="-O1"), folder / "inputs.npz"
    for inputs in sets:
        np.savez(arrays, **{f"in_{i}": array(t) for i, t in enumerate(inputs)})
        done, outputs = package.run(arrays)
        assert done.returncode == 0, done.stderr
        harness.compare(outputs, [array(y) for y in function(*inputs)], tolerance, f"{[tuple(x.shape) for x in inputs]}")
    return package


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_every_length(dtype, descending, tmp_path):
    torch.manual_seed(0)
    inputs = tuple(values(DTYPES[dtype], *((3, n) if n < 5000 else (n,))) for n in LENGTHS)
    check(lambda *inputs: [y for x in inputs for y in torch.sort(x, dim=-1, descending=descending, stable=True)], [inputs], tmp_path)


def test_other_dimensions(tmp_path):
    """The first, one between, of none, and many rows of few elements."""
    torch.manual_seed(1)
    inputs = tuple(values(torch.float32, *sizes) for sizes in ((40, 5, 7), (3, 300, 5), (2, 2500, 3), (4100, 2), (1000, 3), (700, 8), (0, 5), (5, 0)))
    dims = (0, 1, 1, 0, 1, 1, 0, 1)
    check(lambda *inputs: [y for x, d in zip(inputs, dims) for y in torch.sort(x, dim=d, stable=True)] + [torch.sort(inputs[0][0, 0, 0], stable=True)[0]], [inputs], tmp_path)


@pytest.mark.parametrize("largest", [False, True])
def test_the_first_of_many(largest, tmp_path):
    """No ties: PyTorch does not say which of equal elements topk takes. More and fewer than a tile, of one tile and of several."""
    torch.manual_seed(2)
    wanted = ((100, 5), (2048, 2048), (5000, 1), (5000, 50), (9000, 2047), (9000, 2049), (9000, 4096), (9000, 5000), (9000, 9000), (20000, 3000), (3000, 0))
    inputs = tuple(torch.stack([torch.randperm(n).float() for _ in range(2)]) for n, _ in wanted)
    check(lambda *inputs: [y for x, (_, k) in zip(inputs, wanted) for y in torch.topk(x, k, dim=-1, largest=largest)], [inputs], tmp_path)


def test_sizes_that_calls_decide(tmp_path):
    """One package for rows of one tile and of many."""
    torch.manual_seed(3)
    sets = [(values(torch.float32, rows, n),) for rows, n in ((2, 3000), (3, 2), (2, 2048), (2, 2049), (2, 1), (2, 0), (3, 4097), (2, 12000), (40, 100))]
    dynamic = (({0: torch.export.Dim.AUTO, 1: torch.export.Dim("n", max=1 << 20)},),)
    check(lambda x: (*torch.sort(x * 2, dim=1, stable=True), torch.sort(x, dim=0, descending=True, stable=True)[1]), sets, tmp_path, dynamic)


def test_rows_that_are_too_long_are_refused(tmp_path):
    """Indices have 32 bits on their way."""
    class Program(torch.nn.Module):
        def forward(self, x):
            return x.sort(stable=True)

    with FakeTensorMode():
        exported = torch.export.export(Program(), (torch.empty(5_000_000_000, dtype=torch.int8),))
    torch.export.save(exported, tmp_path / "program.pt2")
    package = emulated_cuda.Emulated(tmp_path / "program.pt2", tmp_path, 90)
    harness.assert_refused(package.compiled, "the points of 'sort'", "5000000000")
