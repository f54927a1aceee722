"""Indices from data (cd::checked_index) on a GPU: in range, out of range, with a flag and without.

    python3 -m pytest -q tests/gpu/test_indices.py
    python3 tests/gpu/test_indices.py --bench      rows gathered from a table
"""
import ctypes
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import pytest  # noqa: E402
import torch  # noqa: E402

import cuda_kernels as ck  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SOURCE = """
#include "cuda/base.h"
struct Args { const long long* at; long long* out; const float* table; float* rows; int* flag; long long n, bound, width; int kernel; };
COIL_KERNEL void __launch_bounds__(256) k(const __grid_constant__ Args a) {
  cd::begin_kernel();
  for (long long i = blockIdx.x * 256 + threadIdx.x; i < a.n * a.width; i += gridDim.x * 256) {
    const long long row = i / a.width, column = i % a.width;
    const long long from = cd::checked_index(a.at[row], a.bound, a.flag, a.kernel);
    if (column == 0) a.out[row] = from;
    if (a.table) a.rows[i] = a.table[from * a.width + column];
  }
}
"""


class Args(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("out", ctypes.c_void_p), ("table", ctypes.c_void_p), ("rows", ctypes.c_void_p), ("flag", ctypes.c_void_p),
                ("n", ctypes.c_longlong), ("bound", ctypes.c_longlong), ("width", ctypes.c_longlong), ("kernel", ctypes.c_int)]


def checked(at, bound, with_flag):
    """What the kernel makes of the indices, and the flag."""
    out, flag = torch.full_like(at, -5), torch.zeros(2, dtype=torch.int32, device="cuda")
    args = Args(at.data_ptr(), out.data_ptr(), None, None, flag.data_ptr() if with_flag else None, len(at), bound, 1, 7)
    ck.kernel(SOURCE, 256)(max(1, -(-len(at) // 256)), args)
    torch.cuda.synchronize()
    return out, flag.tolist()


def test_in_range():
    at = torch.randint(0, 1000, (3001,), device="cuda")
    for with_flag in (True, False):
        out, flag = checked(at, 1000, with_flag)
        assert torch.equal(out, at) and flag == [0, 0]


def test_one_out_of_range_is_told():
    for wrong in (-1, 1000, 2**31, 2**40, -(2**63), 2**63 - 1):
        for place in (0, 17, 3000):
            at = torch.randint(0, 1000, (3001,), device="cuda")
            at[place] = wrong
            expected = at.clone()
            expected[place] = 0
            out, flag = checked(at, 1000, True)
            assert torch.equal(out, expected) and flag == [7, 0], (wrong, place, flag)
            out, flag = checked(at, 1000, False)  # nobody is told: the kernel still reads nothing outside
            assert torch.equal(out, expected) and flag == [0, 0]


def test_all_out_of_range():
    out, flag = checked(torch.full((300,), 5, device="cuda"), 5, True)
    assert not out.any() and flag == [7, 0]


def bench():
    for rows, width, n in ((30522, 768, 4096), (1000000, 64, 65536), (1000, 8, 1000000)):
        table, at = torch.randn(rows, width, device="cuda"), torch.randint(0, rows, (n,), device="cuda")
        out, made, flag = torch.empty_like(at), torch.empty(n, width, device="cuda"), torch.zeros(1, dtype=torch.int32, device="cuda")
        args = Args(at.data_ptr(), out.data_ptr(), table.data_ptr(), made.data_ptr(), flag.data_ptr(), n, rows, width, 7)
        took = ck.microseconds(lambda: ck.kernel(SOURCE, 256)(-(-n * width // 256), args))
        eager = ck.microseconds(lambda: torch.index_select(table, 0, at))
        print(f"{n} rows of {width} from {rows}: {took:.1f} us, index_select {eager:.1f}, {ck.kernel(SOURCE, 256).resources()}")


if __name__ == "__main__":
    bench()
