"""What operators that write to places, and gradients of those that read from windows, cost: the points that their loops visit, counted in the loop
program of each target, stay within a multiple of what goes in and comes out. A search of every element over all writes does not.

Each program is small for its time and large for its sides: a square of them would be hundreds of times the bound."""

import math
import os
import re

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import emulated_cuda
import harness

aten = torch.ops.aten
IMAGE, SMALL = torch.randn(2, 3, 40, 40), torch.randn(2, 3, 20, 20)
# Rows of tables: on CUDA those of up to 8,192 sums look at all of a bounded number of writes, in place of sorting them.
ROWS, MANY = 1200, 9000
PLACES = torch.randint(0, ROWS, (600,))


def pooled(dims, **options):
    x = torch.randn(2, 3, *[32, 24, 20][:dims])
    pool = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[dims]
    return x, *pool(x, return_indices=True, **options)


def max_gradient(dims, kernel, stride, padding, dilation=1, ceil=False, last=False):
    x, y, indices = pooled(dims, kernel_size=kernel, stride=stride, padding=padding, dilation=dilation, ceil_mode=ceil)
    op = {2: aten.max_pool2d_with_indices_backward, 3: aten.max_pool3d_with_indices_backward}[dims]
    if last:
        x, indices, y = (t.contiguous(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d) for t in (x, indices, y))
    many = lambda n: [n] * dims
    return lambda g, x, i: op(g, x, many(kernel), many(stride), many(padding), many(dilation), ceil, i), (torch.randn_like(y), x, indices)


def adaptive_max_gradient(*outputs):
    x = torch.randn(2, 3, *[32, 24, 20][:len(outputs)])
    y, indices = (aten.adaptive_max_pool2d if len(outputs) == 2 else aten.adaptive_max_pool3d)(x, list(outputs))
    op = aten.adaptive_max_pool2d_backward if len(outputs) == 2 else aten.adaptive_max_pool3d_backward
    return lambda g, x, i: op(g, x, i), (torch.randn_like(y), x, indices)


def fractional_gradient(*outputs):
    x = torch.randn(2, 3, *[32, 24, 20][:len(outputs)])
    dims, two = len(outputs), len(outputs) == 2
    y, indices = (aten.fractional_max_pool2d if two else aten.fractional_max_pool3d)(x, [2] * dims, list(outputs), torch.rand(2, 3, dims))
    op = aten.fractional_max_pool2d_backward if two else aten.fractional_max_pool3d_backward
    return lambda g, x, i: op(g, x, [2] * dims, list(outputs), i), (torch.randn_like(y), x, indices)


def average_gradient(kernel, stride, padding, count=True, divisor=None):
    y = F.avg_pool2d(IMAGE, kernel, stride, padding)
    return lambda g, x: aten.avg_pool2d_backward(g, x, [kernel] * 2, [stride] * 2, [padding] * 2, False, count, divisor), (torch.randn_like(y), IMAGE)


def adaptive_average_gradient(*outputs):
    x = torch.randn(2, 3, *[32, 24, 20][:len(outputs)])
    op = aten._adaptive_avg_pool2d_backward if len(outputs) == 2 else aten._adaptive_avg_pool3d_backward
    return lambda g, x: op(g, x), (torch.randn(2, 3, *outputs), x)


def padding_gradient(kind, x, padding):
    y = F.pad(x, padding, kind)
    op = getattr(aten, f"{'reflection' if kind == 'reflect' else 'replication'}_pad{len(padding) // 2}d_backward")
    return lambda g, x: op(g, x, list(padding)), (torch.randn_like(y), x)


def folded(kernel, stride, padding, dilation=1):
    options = {"kernel_size": kernel, "stride": stride, "padding": padding, "dilation": dilation}
    columns = F.unfold(IMAGE, **options)
    return lambda c: F.fold(c, (40, 40), **options), (columns,)


def bags(mode, **options):
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.randint(0, 600, (299,)).sort().values])
    if options.get("include_last_offset"):
        offsets[-1] = 600
    weights = (torch.randn(600),) if options.pop("weighted", False) else ()
    return lambda t, i, o, *w: F.embedding_bag(i, t, o, mode=mode, per_sample_weights=w[0] if w else None, **options), (torch.randn(ROWS, 8), PLACES, offsets, *weights)


def segments(how, axis=0):
    ends = torch.sort(torch.randint(0, 900, (2, 299) if axis else (299,))).values
    zero = torch.zeros(2, 1, dtype=torch.int64) if axis else torch.zeros(1, dtype=torch.int64)
    lengths = torch.diff(torch.cat([zero, ends, zero + 900], -1))
    return lambda x, n: torch.segment_reduce(x, how, lengths=n, axis=axis, unsafe=True, initial=0.5), (torch.randn(2, 900, 3) if axis else torch.randn(900, 4), lengths)


CASES = {
    "max_2d": lambda: max_gradient(2, 3, 2, 1), "max_2d_whole": lambda: max_gradient(2, 2, 2, 0), "max_2d_dilated": lambda: max_gradient(2, 3, 1, 1, 2),
    "max_2d_far": lambda: max_gradient(2, 2, 5, 0), "max_2d_ceil": lambda: max_gradient(2, 3, 2, 0, 1, True), "max_2d_channels_last": lambda: max_gradient(2, 3, 2, 1, last=True),
    "max_2d_wide": lambda: max_gradient(2, 2, 1, 1, 7), "max_3d": lambda: max_gradient(3, 3, 2, 1), "max_3d_channels_last": lambda: max_gradient(3, 2, 2, 0, last=True),
    "adaptive_max": lambda: adaptive_max_gradient(7, 5), "adaptive_max_whole": lambda: adaptive_max_gradient(8, 6), "adaptive_max_3d": lambda: adaptive_max_gradient(7, 5, 3),
    "adaptive_max_larger": lambda: adaptive_max_gradient(40, 48), "fractional": lambda: fractional_gradient(20, 13), "fractional_3d": lambda: fractional_gradient(9, 13, 6),
    "average": lambda: average_gradient(3, 2, 1), "average_uncounted": lambda: average_gradient(3, 2, 1, False), "average_divisor": lambda: average_gradient(4, 4, 0, True, 5),
    "average_global": lambda: average_gradient(20, 20, 0), "adaptive_average": lambda: adaptive_average_gradient(7, 5), "adaptive_average_one": lambda: adaptive_average_gradient(1, 1),
    "adaptive_average_whole": lambda: adaptive_average_gradient(8, 6), "adaptive_average_3d": lambda: adaptive_average_gradient(7, 5, 3),
    "adaptive_average_larger": lambda: adaptive_average_gradient(40, 48),
    "reflect_1d": lambda: padding_gradient("reflect", torch.randn(4, 200), (150, 120)), "reflect_2d": lambda: padding_gradient("reflect", IMAGE, (30, 1, 0, 25)),
    "reflect_3d": lambda: padding_gradient("reflect", torch.randn(1, 2, 9, 8, 10), (3, 4, 5, 6, 7, 8)),
    "replicate_1d": lambda: padding_gradient("replicate", torch.randn(4, 200), (150, 120)), "replicate_2d": lambda: padding_gradient("replicate", IMAGE, (30, 1, 0, 25)),
    "replicate_3d": lambda: padding_gradient("replicate", torch.randn(1, 2, 9, 8, 10), (3, 4, 5, 6, 7, 8)), "replicate_cut": lambda: padding_gradient("replicate", IMAGE, (-3, 5, 4, -2)),
    "fold": lambda: folded(8, 8, 0), "fold_overlapping": lambda: folded(3, 1, 1), "fold_dilated": lambda: folded(3, 2, 2, 2),
    "strided": lambda: (lambda x, s: torch.as_strided_scatter(x, s, (30, 20), (80, 3), 5), (torch.randn(60, 40), torch.randn(30, 20))),
    "strided_overlapping": lambda: (lambda x, s: torch.as_strided_scatter(x, s, (60, 20), (2, 3), 5), (torch.randn(60, 40), torch.randn(200).as_strided((60, 20), (2, 3)).contiguous())),
    "index_put": lambda: (lambda x, i, v: aten.index_put(x, [i], v), (torch.randn(ROWS, 8), torch.randperm(ROWS)[:600], torch.randn(600, 8))),
    "index_put_add": lambda: (lambda x, i, v: aten.index_put(x, [i], v, True), (torch.randn(ROWS, 8), PLACES, torch.randn(600, 8))),
    "masked_index_put": lambda: (lambda x, m, i, v: aten._unsafe_masked_index_put_accumulate(x, m, [i], v), (torch.zeros(MANY), PLACES > 50, PLACES, torch.randn(600))),
    "index_add": lambda: (lambda x, i, v: x.index_add(0, i, v), (torch.randn(ROWS, 8), PLACES, torch.randn(600, 8))),
    "scatter_add": lambda: (lambda x, i, v: x.scatter_add(0, i[:, None].expand(600, 8), v), (torch.randn(ROWS, 8), PLACES, torch.randn(600, 8))),
    "scatter_max": lambda: (lambda x, i, v: x.scatter_reduce(0, i, v, "amax"), (torch.randn(MANY), PLACES, torch.randn(600))),
    "embedding": lambda: (lambda g, i: aten.embedding_dense_backward(g, i, ROWS, -1, False), (torch.randn(600, 8), PLACES)),
    "embedding_by_frequency": lambda: (lambda g, i: aten.embedding_dense_backward(g, i, ROWS, 3, True), (torch.randn(600, 8), PLACES)),
    "renorm": lambda: (lambda t, i: aten.embedding_renorm(t, i, 1.0, 2.0), (torch.randn(ROWS, 8), PLACES)),
    "unpool": lambda: (lambda y, i: F.max_unpool2d(y, i, 3, 2, 1, output_size=(64, 48)), F.max_pool2d(torch.randn(2, 3, 64, 48), 3, 2, 1, return_indices=True)),
    "bag_sum": lambda: bags("sum"), "bag_mean": lambda: bags("mean", padding_idx=5), "bag_max": lambda: bags("max"), "bag_weighted": lambda: bags("sum", weighted=True),
    "segments": lambda: segments("sum"), "segments_mean": lambda: segments("mean"), "segments_max": lambda: segments("max"), "segments_second": lambda: segments("min", 1),
    "bag_closed": lambda: bags("mean", include_last_offset=True),
}

NUMBER = r"(\d+(?:, \d+)*)?"
# "name: f32[2, 3] = sum over [4] [i0, i1 | i2] body"
LOOP = re.compile(rf"^\S+: \w+\[{NUMBER}\](?: strides \[[^\]]*\])? = (?:(?:sum|prod|max|min|any|all|argmax|argmin) over (ranges of )?\[{NUMBER}\] )?")


def size(text):
    return math.prod(int(n) for n in text.split(", ")) if text else 1


def points(loops):
    """Of all loops; those of a reduction over ranges (src/loop/reduced_span.h), of which each point is in one, count once for each column."""
    total = 0
    for line in loops.splitlines():
        if found := LOOP.match(line):
            results, ranges, reduced = size(found[1]), found[2], size(found[3])
            total += results + reduced * int(found[1].split(", ")[-1]) if ranges else results * reduced
    return total


def of_parts(loops):
    """A small table that is summed up in parts (src/lower/row_sums.cc, on CUDA) is written and read once for each part of 64 writes or more."""
    return sum(2 * int(rows) * int(columns) for rows, columns in re.findall(r"^\S+\.parts: \w+\[(\d+), (\d+)\] = library join_rows", loops, re.MULTILINE))


def loops_of(program, folder, device):
    """The dump of the loops, and the emulated package or the CPU's."""
    dump = folder / f"dump_{device}"
    os.environ["COIL_DUMP"] = str(dump)
    try:
        if device == "cuda":
            package = emulated_cuda.Emulated(program, folder, 90, level="-O0")
            assert package.compiled.returncode == 0, package.compiled.stderr
        else:
            package = folder / "cpu.pt2"
            harness.coil_ok("compile", program, "-o", package, "-O", "0", "--threads", "1")
    finally:
        del os.environ["COIL_DUMP"]
    return next(dump.glob("*_loops.txt")).read_text(), package


@pytest.mark.parametrize("name", CASES)
def test_time_of_what_goes_in_and_out(name, tmp_path):
    torch.manual_seed(1)
    function, inputs = CASES[name]()

    class Program(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    with torch.no_grad():
        exported = torch.export.export(Program(), inputs)
        expected = function(*inputs)
    program, arrays = tmp_path / "program.pt2", tmp_path / "inputs.npz"
    torch.export.save(exported, program)
    np.savez(arrays, **{f"in_{i}": t.numpy() for i, t in enumerate(inputs)})
    elements = sum(t.numel() for t in inputs) + expected.numel()
    for device in ("cpu", "cuda"):
        loops, package = loops_of(program, tmp_path, device)
        visited = points(loops)
        assert of_parts(loops) <= 2 * (math.ceil(PLACES.numel() / 64)) * ROWS * 8
        assert visited <= 8 * elements + of_parts(loops), f"{device}: {visited} points for {elements} elements\n{loops}"
        if device == "cuda":
            done, outputs = package.run(arrays)
            assert done.returncode == 0, done.stderr
        else:
            out = tmp_path / "out.npz"
            harness.coil_ok("run", package, "--input", arrays, "--output", out)
            outputs = harness.load_outputs(out)
        harness.compare(outputs, [expected.numpy()], 1e-5, device)
