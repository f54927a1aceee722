"""The CUDA matrix-product kernels (device/cuda/gemm_*.h, gemv.h) as test_gemm.py and gemm_times.py build and launch them: instances with their sources and
grids, and the structs that they take."""
import concurrent.futures
import ctypes
import dataclasses
import functools
import os

import cuda_kernels as ck

C_TYPES = {"f32": "float", "f64": "double", "bf16": "cd::bf16", "f16": "cd::f16", "tf32": "cd::tf32"}
BYTES = {"f32": 4, "f64": 8, "bf16": 2, "f16": 2, "tf32": 4}


def up(a, b):
    return -(-a // b)


@dataclasses.dataclass(frozen=True)
class Instance:
    """A kernel as cuda_gemm_variants would describe it, and its grid."""
    name: str
    dtype: str
    header: str
    call: str
    threads: int
    shared: int
    cluster: int
    min_blocks: int
    bm: int           # rows and columns of a block of the grid
    bn: int
    kind: str         # tiles: x = tiles of m * tiles of n; rows: x = tiles of n, y = tiles of m; wgmma: persistent
    a_k: bool = True
    b_k: bool = True
    hopper: bool = False
    classes: int = 1  # of the rows of a: so many rows are a multiple of 32 bytes apart (8: 16)
    down: int = 1     # neighbouring tiles of a cluster, whose blocks share loads
    across: int = 1
    ahead: int = 0    # bytes of eight columns that the epilogue adds and reads before the product is there: 16 of bf16, 32 of float

    def grid(self, batch, m, n, clusters):
        """clusters: that run at once."""
        z = min(batch, 65535)
        if self.kind == "wgmma":
            return (min(up(m, self.bm * self.down) * up(n, self.bn * self.across) * batch, clusters) * self.cluster, 1, 1)
        if self.kind in ("split", "copy"):
            return (up(m, self.bm * self.down) * up(n, self.bn * self.across) * batch * self.cluster, 1, 1)
        if self.kind == "rows":
            return (up(n, self.bn) * self.cluster, up(m, self.bm), z)
        return (up(m, self.bm) * up(n, self.bn) * self.cluster, 1, z)

    def source(self, checked):
        """checked: f32 / f64 results, each write counted and its place checked. Else results of the operands' type."""
        out = "double" if self.dtype == "f64" else "float" if checked or self.dtype == "tf32" else C_TYPES[self.dtype]
        acc = "double" if self.dtype == "f64" else "float"
        check = """
    if (batch < 0 || batch >= a.batch || row < 0 || row >= a.m || col < 0 || col % W || count < 1 || count > W || col + count > a.n) { atomicAdd(a.bad, 1); return; }
    for (int i = 0; i < count; ++i) atomicAdd(a.writes + batch * a.batch_stride + row * a.row_stride + col + i, 1);""" if checked else ""
        size = 2 if self.ahead == 16 else f"sizeof({out})"
        more = "cd::bf16" if self.ahead == 16 else "float"
        place = f"(const {more}*)a.more + batch * a.batch_stride + row * a.row_stride + col"
        copies = "".join(f" cd::copy_async_16(to + {i}, (const char*)({place}) + {i}, 16);" for i in range(0, self.ahead, 16))
        ahead = f"""
  static constexpr int kAhead = {self.ahead};
  __device__ __forceinline__ void ahead(cd::u32 to, cd::i64 batch, int row, int col) const {{{copies} }}
  __device__ __forceinline__ void wide(cd::i64 batch, int row, int col, const float (&acc)[8], const unsigned char* from) const {{
    float x[8];
    cd::load(x, (const {more}*)from);
    for (int i = 0; i < 8; ++i) x[i] += acc[i];
    put(batch, row, col, x, 8, true);
  }}
  template <int W> __device__ __forceinline__ void operator()(cd::i64 batch, int row, int col, const float (&acc)[W], int count) const {{
    float x[W];
    for (int i = 0; i < W; ++i) x[i] = acc[i] + (i < count ? cd::load1({place} + i) : 0.0f);
    put(batch, row, col, x, count, false);
  }}""" if self.ahead else ""
        cluster = f" __cluster_dims__({self.cluster}, 1, 1)" if self.cluster > 1 else ""
        wide = "(*this)(batch, row, col, acc, kWidth);" if checked else f"cd::store<kWidth>(({out}*)a.out + batch * a.batch_stride + row * a.row_stride + col, acc);"
        return f"""#include "cuda/base.h"
#include "{self.header}"
struct Args {{ void* out; long long batch, m, n, batch_stride, row_stride; int* writes; int* bad; const void* more; }};
constexpr int kWidth = cd::kWidth<{C_TYPES[self.dtype]}>;
struct E {{
  const Args& a;
  __device__ __forceinline__ bool straight() const {{ return ((cd::u64)a.out | a.row_stride * {size} | a.batch_stride * {size}) % 16 == 0; }}
  __device__ __forceinline__ void wide(cd::i64 batch, int row, int col, const {acc} (&acc)[kWidth]) const {{ {wide} }}{ahead}
  template <int W> __device__ __forceinline__ void {"put" if ahead else "operator()"}(cd::i64 batch, int row, int col, const {acc} (&acc)[W], int count{", bool straight" if ahead else ""}) const {{{check}{" if (straight) atomicAdd(a.writes + a.batch * a.batch_stride, 1);" if ahead and checked else ""}
    {out}* p = ({out}*)a.out + batch * a.batch_stride + row * a.row_stride + col;
    if (count == W && (cd::u64)p % 16 == 0) {{ cd::store<W>(p, acc); }} else {{
#pragma unroll
      for (int i = 0; i < W; ++i) if (i < count) cd::store1(p + i, acc[i]); }}
  }}
}};
extern "C" __global__ void{cluster} __launch_bounds__({self.threads}, {self.min_blocks}) k(const __grid_constant__ CudaGemm t, const __grid_constant__ Args a) {{
  cd::begin_kernel();
  E epilogue{{a}};
  {self.call}
}}
"""


def flag(b):
    return "true" if b else "false"


def simt(dtype, bm, bn, bk, tm, tn, stages, slices, a_k=True, b_k=True, split=1, min_blocks=1):
    size, threads = BYTES[dtype], bm // tm * (bn // tn) * slices
    group = 16 // size
    finish = slices * bm * bn if split > 1 or slices > 1 else bm * bn * group // tm
    shared = max(stages * (bm + bn + 2 * group) * bk, finish) * size
    return Instance(f"simt_{bm}x{bn}x{bk}_t{tm}x{tn}_st{stages}_sl{slices}_s{split}_b{min_blocks}", dtype, "cuda/gemm_simt.h",
                    f"cd::gemm_simt<{C_TYPES[dtype]}, {bm}, {bn}, {bk}, {tm}, {tn}, {stages}, {slices}, {flag(a_k)}, {flag(b_k)}, {split}>(t, epilogue);", threads,
                    shared, split, min_blocks, bm, bn, "tiles", a_k, b_k, split > 1)


def mma(dtype, bm, bn, bk, wm, wn, stages, a_k=True, b_k=True, split=1):
    threads, shared = bm // wm * (bn // wn) * 32, max(stages * (bm + bn) * bk * BYTES[dtype], bm * bn * 4)
    return Instance(f"mma_{bm}x{bn}x{bk}_w{wm}x{wn}_st{stages}_s{split}", dtype, "cuda/gemm_mma.h",
                    f"cd::gemm_mma<{C_TYPES[dtype]}, {bm}, {bn}, {bk}, {wm}, {wn}, {stages}, {flag(a_k)}, {flag(b_k)}, {split}>(t, epilogue);", threads,
                    shared, split, 1, bm, bn, "tiles", a_k, b_k, split > 1)


def gemv_mma(dtype, groups=1, warps=8, split=1):
    return Instance(f"gemv_mma_g{groups}_w{warps}_s{split}", dtype, "cuda/gemv.h",
                    f"cd::gemv_mma<{C_TYPES[dtype]}, {groups}, {warps}, {split}>(t, epilogue);", warps * 32, 0, split, 1 if groups > 1 else 7 if warps == 4 else 3, 8 * groups, 16, "rows", True, True,
                    split > 1)


def gemv_dot(dtype, rows=1, warps=4):
    return Instance(f"gemv_dot_r{rows}", dtype, "cuda/gemv.h", f"cd::gemv_dot<{C_TYPES[dtype]}, {rows}, {warps}>(t, epilogue);", warps * 32, 0, 1, 1, rows,
                    warps * 16 // BYTES[dtype], "rows")


def gemv_axpy(dtype, rows=1, warps=8, split=1):
    return Instance(f"gemv_axpy_r{rows}_s{split}", dtype, "cuda/gemv.h", f"cd::gemv_axpy<{C_TYPES[dtype]}, {rows}, {warps}, {split}>(t, epilogue);", warps * 32,
                    0, split, 1, rows, 32, "rows", True, False, split > 1)


def most_stages(bm, bn, more):
    """As odd rows have them (src/templates/cuda_gemm_model.cc)."""
    return min(10, (232448 - more) // ((bm + bn) * 128 + 32))


def most_turns(bm, bn, classes):
    return 2 if classes > 1 and bm == 64 and bn <= (128 if classes == 8 else 160) else 1


def wgmma(dtype, bn, stages, down=1, across=1, a_k=True, b_k=True, classes=1, bm=128):
    stages = stages if classes == 1 else most_stages(128, bn if b_k else up(bn, 64) * 64, 8192)
    buffers = bm * 4 * (16 if classes > 1 else 32 if bm > 128 else 64)
    shared = stages * (bm + (bn if b_k else up(bn, 64) * 64)) * 128 + buffers + (16 if classes == 1 else 32) * stages
    return Instance(f"wgmma_{bm}x{bn}_{down}x{across}_c{classes}", dtype, "cuda/gemm_wgmma.h",
                    f"cd::gemm_wgmma<{C_TYPES[dtype]}, {bm}, {bn}, {stages}, {down}, {across}, {flag(a_k)}, {flag(b_k)}, {classes}>(t, epilogue);", bm * 2 + 128, shared,
                    down * across, 1, bm, bn, "wgmma", a_k, b_k, True, classes, down, across)


def wgmma_tile(bn):
    return {256: (256, 4), 192: (192, 4), 160: (160, 4), 128: (128, 6), 64: (64, 8)}[bn]


def wgmma_split(dtype, bm, bn, stages, split=1, a_k=True, b_k=True, copy=False, classes=1, down=1, across=1, turns=None):
    turns = turns or most_turns(bm, bn, classes)
    stages = stages if classes == 1 else most_stages(bm, bn if b_k else up(bn, 64) * 64, 0)
    shared = max(stages * (bm + (bn if b_k else up(bn, 64) * 64)) * 128, bm * bn * 4) + (16 if classes == 1 else 32) * stages
    return Instance(f"wgmma_{'copy_' if copy else ''}{bm}x{bn}_st{stages}_s{split}_{down}x{across}_c{classes}_t{turns}", dtype, "cuda/gemm_wgmma.h",
                    f"cd::gemm_wgmma_split<{C_TYPES[dtype]}, {bm}, {bn}, {stages}, {split}, {down}, {across}, {flag(a_k)}, {flag(b_k)}, {flag(copy)}, {classes}, {turns}>(t, epilogue);",
                    bm * 2 * turns + (128 if copy else 32), shared, split * down * across, 1, bm, bn, "copy" if copy else "split", a_k, b_k, True, classes, down, across)


MMA_TILES = [(128, 128, 32, 64, 64, 4), (64, 64, 64, 32, 32, 4), (32, 64, 64, 16, 32, 4)]
TF32_TILES = [(128, 256, 32, 64, 64, 3), (128, 128, 16, 64, 64, 4), (64, 64, 64, 32, 32, 3), (32, 64, 64, 16, 32, 3)]
TF32_WGMMA = [(128, 256, 4), (128, 192, 5), (128, 160, 5), (128, 128, 6), (128, 96, 6), (128, 64, 8), (64, 192, 6), (64, 128, 8), (64, 64, 6)]
F32_TILES = [(128, 128, 16, 8, 16, 3, 1), (64, 128, 16, 8, 16, 3, 1), (128, 64, 16, 8, 8, 3, 1), (64, 64, 32, 8, 16, 3, 4), (32, 64, 32, 8, 8, 3, 4)]
F64_TILES = [(64, 64, 16, 4, 4, 3, 1), (32, 32, 16, 4, 4, 3, 2)]
SHARES = [(2, 1), (1, 2), (2, 2)]
LAYOUTS = [(True, True), (True, False), (False, True), (False, False)]


def f32_blocks(tile):
    return {(64, 128): 4, (128, 64): 3, (32, 64): 3}.get(tile[:2], 2)


# --- running one

class Params(ctypes.Structure):
    _fields_ = [(f, ctypes.c_longlong) for f in ("batch", "m", "n", "k")] + [("a", ctypes.c_void_p)] + \
               [(f, ctypes.c_longlong) for f in ("a_batch", "a_row", "a_col")] + [("b", ctypes.c_void_p)] + \
               [(f, ctypes.c_longlong) for f in ("b_batch", "b_row", "b_col")] + \
               [("scratch", ctypes.c_void_p), ("split", ctypes.c_int), ("reserved", ctypes.c_int), ("pad", ctypes.c_ulonglong * 2),
                ("map_b", ctypes.c_ulonglong * 16), ("map_a", ctypes.c_ulonglong * 16 * 8)]


class Args(ctypes.Structure):
    _fields_ = [("out", ctypes.c_void_p)] + [(f, ctypes.c_longlong) for f in ("batch", "m", "n", "batch_stride", "row_stride")] + \
               [(f, ctypes.c_void_p) for f in ("writes", "bad", "more")]


@functools.cache
def sms():
    import torch
    return torch.cuda.get_device_properties(0).multi_processor_count


def torch_type(dtype):
    import torch
    return {"f32": torch.float32, "tf32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}[dtype]


COMPILED = {}


def compile_all(todo, checked):
    """Compiles instances in parallel; NVRTC leaves the interpreter's lock."""
    def one(key):
        COMPILED[key] = ck.compile_cubin(key[0].source(key[1]), ck.device_arch())
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, [(i, checked) for i in dict.fromkeys(todo) if (i, checked) not in COMPILED]))


@functools.cache
def function(instance, checked):
    import torch
    torch.empty(1, device="cuda")
    if (instance, checked) not in COMPILED:
        compile_all([instance], checked)
    module, f = ctypes.c_void_p(), ctypes.c_void_p()
    ck.check(ck.driver().cuModuleLoadData(ctypes.byref(module), COMPILED[instance, checked][0]), "cuModuleLoadData")
    ck.check(ck.driver().cuModuleGetFunction(ctypes.byref(f), module, b"k"), "cuModuleGetFunction")
    ck.check(ck.driver().cuFuncSetAttribute(f, 8, instance.shared), "cuFuncSetAttribute")
    return f


def params(instance, a, b):
    """a [batch, m, k], b [batch, k, n] as torch tensors of any strides."""
    t = Params(batch=a.shape[0], m=a.shape[1], n=b.shape[2], k=a.shape[2], a=a.data_ptr(), b=b.data_ptr(), split=instance.cluster)
    t.a_batch, t.a_row, t.a_col = a.stride()
    t.b_batch, t.b_row, t.b_col = b.stride()
    if instance.kind in ("wgmma", "split") and t.m and t.n:
        a_lines, b_lines = ((t.batch - 1) * (stride // pitch) + lines for stride, pitch, lines in
                            ((t.a_batch, t.a_row if instance.a_k else t.a_col, t.m if instance.a_k else t.k),
                             (t.b_batch, t.b_col if instance.b_k else t.b_row, t.n if instance.b_k else t.k)))
        box, rows = instance.bn // instance.down, instance.bm // instance.across
        apart = t.a_row * 2 * instance.classes
        for c in range(instance.classes if instance.classes > 1 else 0):
            row = t.a + (c if c < t.m else 0) * t.a_row * 2
            shift = row % (32 if apart % 32 == 0 else 16)
            t.map_a[c] = ck.tensor_map(instance.dtype, row - shift, max(1, up(t.m - c, instance.classes)), t.k + shift // 2, apart, instance.bm // instance.classes)
        if instance.classes == 1:
            t.map_a[0] = ck.tensor_map(instance.dtype, t.a, a_lines, t.k, t.a_row * BYTES[instance.dtype], rows) if instance.a_k else ck.tensor_map(instance.dtype, t.a, a_lines, t.m, t.a_col * 2, 64 // instance.across)
        t.map_b = ck.tensor_map(instance.dtype, t.b, b_lines, t.k, t.b_col * BYTES[instance.dtype], box) if instance.b_k else ck.tensor_map(instance.dtype, t.b, b_lines, t.n, t.b_row * 2, 64 // instance.down)
    return t


@functools.cache
def clusters_at_once(instance, checked):
    """As cd::cuda_clusters (device/cuda_host.cc) has it."""
    most = sms() // instance.cluster
    if instance.cluster != 4:
        return most
    return min(sms() // 16 * 4, ck.clusters_at_once(function(instance, checked), 4, most, instance.threads, instance.shared))


def launch(instance, checked, t, args):
    grid = instance.grid(t.batch, t.m, t.n, clusters_at_once(instance, checked))
    if 0 in grid:
        return
    store = (ctypes.c_char * 1536)()
    at = ctypes.addressof(store)
    at += -at % 64
    ctypes.memmove(at, ctypes.addressof(t), ctypes.sizeof(t))
    ck.launch(function(instance, checked), grid, instance.threads, instance.shared, (at, ctypes.addressof(args)))


def usable(instance):
    return not instance.hopper or ck.device_arch() == "sm_90a"
