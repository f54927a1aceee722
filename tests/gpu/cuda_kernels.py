"""Builds kernels from the headers of device/ with NVRTC and launches them with the driver, for the tests of single templates.

Needs torch with CUDA only to hold memory and to time; `compile_cubin` works without a GPU."""
import ctypes
import functools
import glob
import os
import re
import statistics
import sys

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@functools.cache
def nvrtc():
    places = [os.path.join(p, "nvidia/*/lib/libnvrtc.so.1[0-9]") for p in sys.path if p]
    places += ["/usr/local/cuda*/lib64/libnvrtc.so.1[0-9]", "/usr/local/cuda*/lib/libnvrtc.so.1[0-9]"]
    for place in places:
        for path in sorted(glob.glob(place)):
            return ctypes.CDLL(path)
    return ctypes.CDLL("libnvrtc.so.13")


def compile_cubin(source, arch, options=()):
    """(cubin, log with registers and spills); raises on errors."""
    lib, program, size = nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    args = [f"--gpu-architecture={arch}", "-std=c++20", f"-I{REPO}/device", "-Xptxas", "-v", *options]
    rc = lib.nvrtcCompileProgram(program, len(args), (ctypes.c_char_p * len(args))(*[a.encode() for a in args]))
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    text = log.value.decode()
    if rc != 0:
        raise RuntimeError(text[:4000])
    lib.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetCUBIN(program, cubin)
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw, text


def registers(log):
    """As far as the log says; some NVRTC say nothing. Kernel.resources() knows for kernels that are loaded."""
    used, spilled = re.findall(r"Used (\d+) registers", log), re.findall(r"(\d+) bytes spill stores", log)
    return (f"{used[0]} registers" if used else "? registers") + (f", {spilled[0]} bytes spilled" if spilled and spilled[0] != "0" else "")


def tf32(x):
    """A float32 tensor as tensor cores take it: to 10 bits of mantissa, halfway cases away from zero. NaN and infinities stay."""
    import torch

    rounded = ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    return torch.where(torch.isfinite(x), rounded, x)


@functools.cache
def driver():
    return ctypes.CDLL("libcuda.so.1")


def check(code, what):
    if code != 0:
        text = ctypes.c_char_p()
        driver().cuGetErrorName(code, ctypes.byref(text))
        raise RuntimeError(f"{what}: {text.value}")


def device_arch():
    import torch
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16)]


class _Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared_bytes", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(_Attribute)), ("num_attributes", ctypes.c_uint)]


@functools.cache
def _early():
    """Whether kernels start early, as device/cuda_host.cc has it: those of sm_90 wait by themselves (cd::begin_kernel)."""
    import torch
    return torch.cuda.get_device_capability()[0] >= 9


def launch(function, grid, threads, shared_bytes, params):
    """params: addresses of structs, passed by value. On torch's current stream. The kernel's first statement is cd::begin_kernel()."""
    import torch
    pointers = (ctypes.c_void_p * len(params))(*params)
    attribute = _Attribute(id=6, value=(1,))
    config = _Config((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(threads, 1, 1), shared_bytes, torch.cuda.current_stream().cuda_stream,
                     ctypes.pointer(attribute), 1 if _early() else 0)
    check(driver().cuLaunchKernelEx(ctypes.byref(config), function, pointers, None), "cuLaunchKernelEx")


def clusters_at_once(function, blocks, grid, threads, shared_bytes):
    """How many of `grid` clusters of so many blocks a kernel can run at once; they lie within a part of the chip."""
    attribute = _Attribute(id=4, value=(blocks, 1, 1))
    config = _Config((ctypes.c_uint * 3)(grid * blocks, 1, 1), (ctypes.c_uint * 3)(threads, 1, 1), shared_bytes, None, ctypes.pointer(attribute), 1)
    found = ctypes.c_int()
    check(driver().cuOccupancyMaxActiveClusters(ctypes.byref(found), function, ctypes.byref(config)), "cuOccupancyMaxActiveClusters")
    return found.value


class Kernel:
    """The kernel named `k` of a cubin. Its source gives cluster sizes itself (__cluster_dims__)."""

    def __init__(self, cubin, threads, shared_bytes=0):
        import torch
        torch.cuda.init()
        torch.cuda.current_stream().synchronize()
        torch.empty(1, device="cuda")
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        check(driver().cuModuleLoadData(ctypes.byref(self.module), cubin), "cuModuleLoadData")
        check(driver().cuModuleGetFunction(ctypes.byref(self.function), self.module, b"k"), "cuModuleGetFunction")
        check(driver().cuFuncSetAttribute(self.function, 8, shared_bytes), "cuFuncSetAttribute")
        self.threads, self.shared_bytes = threads, shared_bytes

    def resources(self):
        """Registers of a thread and bytes of its local memory."""
        value, found = ctypes.c_int(), []
        for attribute in (4, 3):
            check(driver().cuFuncGetAttribute(ctypes.byref(value), attribute, self.function), "cuFuncGetAttribute")
            found.append(value.value)
        return f"{found[0]} registers" + (f", {found[1]} bytes local" if found[1] else "")

    def __call__(self, blocks, *params):
        if blocks:
            launch(self.function, (blocks, 1, 1), self.threads, self.shared_bytes, [ctypes.addressof(p) for p in params])


@functools.cache
def kernel(source, threads, shared_bytes=0):
    return Kernel(compile_cubin(source, device_arch())[0], threads, shared_bytes)


def _encode(dtype, pointer, sizes, pitches, box):
    out, store = (ctypes.c_ulonglong * 16)(), ctypes.create_string_buffer(192)
    buffer = ctypes.addressof(store)
    buffer += -buffer % 64
    u64, u32, n = ctypes.c_ulonglong, ctypes.c_uint, len(sizes)
    kind = {"i8": 0, "bf16": 9, "f16": 6, "tf32": 11}[dtype]  # CU_TENSOR_MAP_DATA_TYPE_*
    check(driver().cuTensorMapEncodeTiled(ctypes.c_void_p(buffer), kind, u32(n), ctypes.c_void_p(pointer), (u64 * n)(*sizes), (u64 * (n - 1))(*pitches),
                                          (u32 * n)(*box), (u32 * n)(*[1] * n), 0, 3, 3, 0), "cuTensorMapEncodeTiled")
    ctypes.memmove(out, buffer, 128)
    return out


def tensor_map(dtype, pointer, rows, cols, pitch_bytes, box_rows):
    """128 bytes as cd::cuda_tensor_map (device/cuda_host.h) makes them, of boxes of 128 bytes of columns. dtype: "i8", "bf16", "f16" or "tf32"."""
    return _encode(dtype, pointer, (cols, rows), (pitch_bytes,), ({"i8": 128, "tf32": 32}.get(dtype, 64), box_rows))


def rows_map(dtype, pointer, sizes, strides, box_rows):
    """As cd::cuda_rows_map. sizes, strides (in elements): batch, head, row, column."""
    pitches = [stride * 2 if size > 1 else 16 for size, stride in zip(sizes[:3], strides[:3])]
    return _encode(dtype, pointer, sizes[::-1], pitches[::-1], (64, box_rows, 1, 1))


def microseconds(call, repeats=20, rounds=7):
    """Median time of one call: `repeats` of them in a CUDA graph, warm caches."""
    import torch
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(repeats):
            call()
    graph.replay()
    times = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / repeats)
    return statistics.median(times)
