"""The emulator itself: it runs a right kernel, and stops at each kind of fault that test_cuda_emulated.py relies on it to see."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import emulated_cuda

THREADS = 64
ELEMENTS = 3  # of the int array that each kernel gets: 12 bytes, 4 more up to the unmapped page

# A kernel is called with that array as p.
RIGHT = """
  __shared__ int s[64];
  s[threadIdx.x] = (int)threadIdx.x + __shfl_xor_sync(~0u, (int)threadIdx.x, 1);
  __syncthreads();
  if (threadIdx.x < 3) p[threadIdx.x] = s[(threadIdx.x + 1) % 64] + s[(threadIdx.x + 63) % 64];
"""
# {what: (the kernel, a part of what is said)}
FAULTS = {
    "far behind the end": ("p[4 + 1024 * blockIdx.x] = 1;", "outside of every allocation"),
    "right behind the end": ("p[3] = 1;", "wrote outside of an allocation of 12 bytes"),
    "before the begin": ("p[-1] = 1;", "wrote outside of an allocation"),
    "a misaligned vector": ("p[0] = (int)((uint4*)(p + 1))->x;", "misaligned"),
    "a misaligned copy": ("float x[4]; cd::load(x, (float*)p - 3); p[0] = x[0] > 0;", "misaligned"),
    "a misaligned read": ("float x[2]; cd::read(x, (float*)p + 1); p[0] = x[0] > 0;", "misaligned"),
    "a misaligned store": ("float x[2] = {1, 2}; cd::store((float*)p + 1, x);", "misaligned"),
    "outside of a local array": ("int v[4] = {1, 2, 3, 4}; p[0] = v[threadIdx.x];", "outside of a local array"),
    "behind dynamic shared memory": ("extern __shared__ unsigned char s[]; s[64 + threadIdx.x] = 1; p[0] = s[70];", "outside of every allocation"),
    "signed overflow": ("p[0] = p[0] * 0x7fffffff + 3 * p[1];", "overflow"),
    "division by 0": ("p[0] = p[1] / (int)(threadIdx.x / 64);", "division by 0"),
    "a barrier for some": ("if (threadIdx.x % 32) __syncthreads(); else p[0] = __shfl_sync(~0u, p[1], 3);", "not all threads reach"),
    "a shuffle with those who left": ("if (threadIdx.x % 32 == 7) return; p[0] = __shfl_sync(~0u, p[1], 3);", "left the kernel"),
    "PTX that is unknown": ('asm volatile("wgmma.fence.sync.aligned;" ::: "memory");', "not emulated"),
}


def launch(folder, monkeypatch, body):
    """(CUresult, the array) of a kernel over one block."""
    library = folder / "kernels.so"
    source = emulated_cuda.rewrite('#include "cuda/base.h"\nCOIL_KERNEL void __launch_bounds__(64) k(int* p) {\n' + body + "\n}\n")
    emulated_cuda.build_kernels(source, ["k"], library)
    for name, value in emulated_cuda.environment(library).items():
        monkeypatch.setenv(name, value)
    driver = ctypes.CDLL(shutil.copy(emulated_cuda.made_tools() / "libcuda.so", folder))  # a copy: a fault is the end of a driver
    context, module, function, data = (ctypes.c_void_p() for _ in range(4))
    assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and driver.cuCtxSetCurrent(context) == 0
    assert driver.cuModuleLoadData(ctypes.byref(module), b"") == 0 and driver.cuModuleGetFunction(ctypes.byref(function), module, b"k") == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(data), ctypes.c_size_t(4 * ELEMENTS)) == 0
    array = np.full(ELEMENTS, 5, np.int32)
    ctypes.memmove(data, array.ctypes.data, array.nbytes)  # the fake device's memory is the CPU's
    params = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(data), ctypes.c_void_p))
    result = driver.cuLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, 64, None, params, None) or driver.cuCtxSynchronize()
    ctypes.memmove(array.ctypes.data, data, array.nbytes)
    return result, array


def test_a_right_kernel(tmp_path, monkeypatch):
    result, array = launch(tmp_path, monkeypatch, RIGHT)
    assert result == 0 and array.tolist() == [126, 6, 6]


def test_a_missing_barrier_shows(tmp_path, monkeypatch):
    result, array = launch(tmp_path, monkeypatch, RIGHT.replace("__syncthreads();", ""))
    assert result == 0 and array.tolist() != [126, 6, 6]


@pytest.mark.parametrize("what", FAULTS)
def test_faults_are_found(what, tmp_path, monkeypatch, capfd):
    body, said = FAULTS[what]
    result, _ = launch(tmp_path, monkeypatch, body)
    assert result != 0 and said in capfd.readouterr().err


def test_rows_of_scalar_operations(tmp_path):
    """Every row of src/ops/scalar_ops.def has a function in device/cuda/base.h that computes what the row says."""
    types = ["f32", "f64", "i8", "u8", "i16", "i32", "i64"]
    counts = " + ".join(f'coil::device_test::wrong_scalars<cd::{t}>("{t}")' for t in types)
    text, program, made = tmp_path / "rows.cpp", tmp_path / "rows", emulated_cuda.made_tools()
    headers = ["<cmath>", "<cstdio>", "<vector>", '"builtins.h"', '"cuda/base.h"', '"tests/device/scalar_rows_check.h"']
    text.write_text("".join(f"#include {h}\n" for h in headers) + f"int main() {{ return {counts} > 0; }}\n")
    repo = emulated_cuda.harness.REPO
    emulated_cuda.command(emulated_cuda.CLANG, *emulated_cuda.FLAGS, "-O0", f"-I{made}", f"-I{repo}", f"-I{repo / 'src'}", text,
                          made / "libemulation.so", f"-Wl,-rpath,{made}", "-lm", "-o", program)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
