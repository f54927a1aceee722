"""Kernels of single templates, emulated and called by themselves: the instances that tests/gpu has on a GPU, on memory of numpy."""

import ctypes
import re
import sys

import numpy as np

import emulated_cuda
import harness

sys.path.insert(0, str(harness.REPO / "tests/gpu"))


class Launch(ctypes.Structure):
    """emulation::Launch (tests/cuda_emulation/emulation.h)."""
    _fields_ = [("name", ctypes.c_char_p), ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared_bytes", ctypes.c_uint32), ("cluster", ctypes.c_uint32),
                ("params", ctypes.POINTER(ctypes.c_void_p)), ("thread", ctypes.c_void_p), ("early", ctypes.c_bool)]


class Kernel(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("num_params", ctypes.c_int32), ("param_bytes", ctypes.c_void_p), ("run", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Launch)))]


def aligned(shape, dtype):
    """Zeros at an address that TMA takes."""
    bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(bytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    return memory[begin : begin + bytes].view(dtype).reshape(shape)


def build(sources, headers, library, level="-O1"):
    """The kernels of texts that each define one, `k`, with these headers in front of all."""
    text = "".join(f'#include "{header}"\n' for header in headers)
    for i, source in enumerate(sources):
        own = re.sub(r"#include .*\n|extern \"C\" | __cluster_dims__\([^)]*\)", "", source)
        text += f"namespace t{i} {{\n{own.replace(') k(', f') k{i}(')}}}\nusing t{i}::k{i};\n"
    emulated_cuda.build_kernels(emulated_cuda.rewrite(text), [f"k{i}" for i in range(len(sources))], library, level)
    loaded = ctypes.CDLL(str(library))
    loaded.emulated_kernel.restype = ctypes.POINTER(Kernel)
    return [loaded.emulated_kernel(f"k{i}".encode()).contents for i in range(len(sources))]


def call(kernel, grid, threads, shared, cluster, problem, args):
    """One launch with a template's parameters and the epilogue's."""
    params = aligned(512, np.uint8)  # which the host's struct, of ctypes, is no multiple of 64 for
    ctypes.memmove(params.ctypes.data, ctypes.addressof(problem), min(ctypes.sizeof(problem), 512))
    pointers = (ctypes.c_void_p * 2)(params.ctypes.data, ctypes.addressof(args))
    launch = Launch(b"tile", grid, (threads, 1, 1), shared, cluster, pointers, None, True)
    assert kernel.run(ctypes.byref(launch)) == 0
