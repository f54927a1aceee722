"""Every tile of the products on CUDA cores (device/cuda/gemm_simt.h), emulated and by itself, beside numbers in float64: the same instances as
tests/gpu/test_gemm.py has on a GPU, with sizes that fill no tile, operands amid NaN at every alignment, and k in any number of parts."""

import ctypes

import numpy as np
import pytest

from emulated_tiles import aligned, build, call
from gemm_kernels import BYTES, F32_TILES, F64_TILES, LAYOUTS, Args, Params, f32_blocks, simt

NUMPY = {"f32": np.float32, "f64": np.float64}
LIMIT = {"f32": 2e-6, "f64": 1e-14}  # of the sum of the terms' sizes
SPLITS = (1, 3, 2, 7)  # one for each layout


class Operand:
    """[batch, rows, columns] in memory that is NaN around it; `contiguous`: the axis of stride 1, or None; bytes that its lines are a multiple of apart."""

    def __init__(self, batch, rows, columns, dtype, contiguous, bytes, random):
        step, align = 2 if contiguous is None else 1, max(1, bytes // np.dtype(dtype).itemsize)
        inner, outer = (rows, columns) if contiguous == 0 else (columns, rows)
        pitch = -(-(inner * step + 1) // align) * align
        self.strides = (pitch * outer + align, *((step, pitch) if contiguous == 0 else (pitch, step)))
        memory = aligned(self.strides[0] * batch + 64, dtype)
        memory[:] = np.nan
        self.memory = memory[align:]
        self.values = np.lib.stride_tricks.as_strided(self.memory, (batch, rows, columns), [s * memory.itemsize for s in self.strides])
        self.values[:] = random.standard_normal((batch, rows, columns))


def problem_of(instance, a, b):
    (batch, m, k), n = a.values.shape, b.values.shape[2]
    t = Params(batch=batch, m=m, n=n, k=k, a=a.memory.ctypes.data, b=b.memory.ctypes.data, split=instance.cluster)
    t.a_batch, t.a_row, t.a_col = a.strides
    t.b_batch, t.b_row, t.b_col = b.strides
    return t


def check(kernel, instance, batch, m, n, k, bytes, strided):
    random = np.random.default_rng(m + n + k)
    dtype = NUMPY[instance.dtype]
    a = Operand(batch, m, k, dtype, None if strided else 1 if instance.a_k else 0, bytes, random)
    b = Operand(batch, k, n, dtype, None if strided else 0 if instance.b_k else 1, bytes, random)
    out = np.full((batch, m, n + 5), np.nan, dtype)
    args = Args(out.ctypes.data, batch, m, n, m * (n + 5), n + 5, None, None, None)
    grid = instance.grid(batch, m, n, 1)
    call(kernel, (ctypes.c_uint32 * 3)(*grid), instance.threads, instance.shared, instance.cluster, problem_of(instance, a, b), args)
    where = f"{instance.name} {batch} x {m} x {n} x {k}, {bytes} bytes{', strided' if strided else ''}"
    assert not np.isnan(out[:, :, :n]).any() and np.isnan(out[:, :, n:]).all(), where
    wide_a, wide_b = a.values.astype(np.float64), b.values.astype(np.float64)
    error = np.abs(out[:, :, :n] - wide_a @ wide_b) / (np.abs(wide_a) @ np.abs(wide_b) + 1e-30)
    assert error.size == 0 or error.max() <= LIMIT[instance.dtype], (where, error.max())


@pytest.mark.parametrize("dtype, tile", [*(("f32", t) for t in F32_TILES), *(("f64", t) for t in F64_TILES)], ids=lambda x: x if isinstance(x, str) else "x".join(map(str, x[:3])))
def test_tiles(dtype, tile, tmp_path):
    blocks = f32_blocks(tile) if dtype == "f32" else 1
    instances = [simt(dtype, *tile, a_k, b_k, split, blocks) for (a_k, b_k), split in zip(LAYOUTS, SPLITS, strict=True)]
    kernels = build([i.source(False) for i in instances], [instances[0].header], tmp_path / "tiles.so")
    for instance, kernel in zip(instances, kernels, strict=True):
        m, n = instance.bm + 3, instance.bn + 11
        check(kernel, instance, 1, m, n, 171, 16, False)
        check(kernel, instance, 2, 5, 24, 8 * BYTES[dtype], 4, False)
        check(kernel, instance, 1, 33, n, 40, 8, True)
        check(kernel, instance, 1, m, 7, 0, 16, False)
