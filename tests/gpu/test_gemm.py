"""The CUDA matrix-product templates (device/cuda/gemm_*.h, gemv.h) on a GPU, beside torch in float64.

    python3 -m pytest -q tests/gpu/test_gemm.py
    python3 tests/gpu/test_gemm.py --bench [PROBLEM...] [--times=FILE]   times of every candidate beside torch.matmul; all of them to FILE, for bench/fit_gemm.cc
    python3 tests/gpu/test_gemm.py --compile              every instance for every architecture; needs no GPU
"""
import concurrent.futures
import ctypes
import dataclasses
import functools
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cuda_kernels as ck  # noqa: E402

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
F32_TILES = [(128, 128, 8, 8, 8, 4, 1), (128, 64, 16, 8, 8, 3, 1), (128, 256, 8, 8, 16, 4, 1), (64, 64, 32, 8, 8, 3, 4), (32, 64, 32, 8, 8, 3, 4)]
F64_TILES = [(64, 64, 16, 4, 4, 3, 1), (32, 32, 16, 4, 4, 3, 2)]
SHARES = [(2, 1), (1, 2), (2, 2)]
LAYOUTS = [(True, True), (True, False), (False, True), (False, False)]


def f32_blocks(tile):
    return 4 if tile[:3] == (128, 64, 16) else 2 if tile[4] * tile[3] == 64 and tile[0] * tile[1] >= 4096 else 1


def instances():
    found = []
    for a_k, b_k in LAYOUTS:
        found += [simt("f32", *t, a_k, b_k, 1, f32_blocks(t)) for t in F32_TILES] + [simt("f64", *t, a_k, b_k) for t in F64_TILES]
        found += [mma("bf16", *t, a_k, b_k) for t in MMA_TILES] + [mma("f16", *MMA_TILES[1], a_k, b_k)]
        found += [mma("tf32", *t, a_k, b_k) for t in TF32_TILES]
    found += [simt("f32", *F32_TILES[3], True, True, 8, 2), simt("f32", *F32_TILES[0], True, False, 2, 2), simt("f64", *F64_TILES[1], False, True, 4)]
    found += [mma("bf16", *MMA_TILES[0], True, True, 2), mma("f16", *MMA_TILES[1], True, False, 8), mma("bf16", *MMA_TILES[2], True, True, 4)]
    found += [mma("tf32", *TF32_TILES[1], True, False, 2), mma("tf32", *TF32_TILES[2], True, True, 8), mma("tf32", *TF32_TILES[3], False, True, 4)]
    found += [wgmma_split("tf32", *t) for t in TF32_WGMMA] + [wgmma_split("tf32", 64, 128, 8, 4), wgmma_split("tf32", 128, 128, 6, 2, down=2, across=1), wgmma_split("tf32", 128, 64, 8, 1, down=2, across=2)]
    for d in ("bf16", "f16"):
        found += [gemv_mma(d, 1, 8), gemv_mma(d, 2, 4), gemv_mma(d, 1, 4), gemv_mma(d, 1, 8, 4), gemv_axpy(d, 1), gemv_axpy(d, 4, 8, 4)]
    for d in ("f32", "f64"):
        found += [gemv_dot(d, r) for r in (1, 2, 4, 8)] + [gemv_axpy(d, 1), gemv_axpy(d, 8), gemv_axpy(d, 4, 8, 2)]
    for bn in (256, 192, 128, 64):
        found += [wgmma("bf16", *wgmma_tile(bn), 2 if bn == 256 else 1, 1, a_k, b_k) for a_k, b_k in LAYOUTS] + [wgmma("f16", *wgmma_tile(bn))]
        found += [wgmma("bf16", *wgmma_tile(bn), down, across, a_k, b_k) for a_k, b_k in LAYOUTS for down, across in SHARES if (bn == 128 or a_k != b_k) and (bn != 256 or across > 1)]
        found += [wgmma("bf16", bn, stages, down, across, a_k, b_k, bm=192) for bn, stages in ((192, 4), (160, 4), (128, 5), (96, 5)) for a_k, b_k in LAYOUTS
                  for down, across in ((1, 1), *SHARES)]
    found += [wgmma("f16", 192, 4, bm=192)]
    found += [dataclasses.replace(i, name=f"{i.name}_ahead{ahead}", ahead=ahead) for ahead in (16, 32)
              for i in (wgmma("bf16", 192, 4, bm=192), wgmma("bf16", 96, 5, b_k=False, bm=192), wgmma("bf16", *wgmma_tile(256), 2), wgmma("bf16", *wgmma_tile(64)),
                        wgmma("f16", *wgmma_tile(160), classes=2), wgmma("bf16", *wgmma_tile(128), classes=8)) if i.classes == 1 or ahead == 16]
    for a_k, b_k in LAYOUTS:
        found += [wgmma_split("bf16", 64, 128, 8, 4, a_k, b_k), wgmma_split("bf16", 128, 64, 8, 1, a_k, b_k), wgmma_split("bf16", 128, 128, 4, 1, a_k, b_k, True),
                  wgmma_split("bf16", 64, 64, 6, 8, a_k, b_k, True)]
    found += [wgmma_split("f16", 128, 96, 6, 2), wgmma_split("f16", 128, 192, 5, 4), wgmma_split("bf16", 128, 80, 6), wgmma_split("f16", 128, 80, 6, 4), wgmma_split("bf16", 64, 192, 6, 2), wgmma_split("f16", 128, 128, 4, 2, copy=True)]
    found += [wgmma("bf16", *wgmma_tile(160), b_k=b) for b in (True, False)] + [wgmma_split("bf16", 128, 160, 5, 2, b_k=b) for b in (True, False)]
    for down, across in SHARES:
        found += [wgmma("bf16", *wgmma_tile(160), down, across, b_k=b) for b in (True, False)]
        found += [wgmma_split("bf16", 128, 128, 6, split, a_k, b_k, down=down, across=across) for a_k, b_k in LAYOUTS for split in (1, 2)]
        found += [wgmma_split("f16", 64, 128, 8, 2, down=down, across=across), wgmma_split("bf16", 128, 96, 6, 1, down=down, across=across),
                  wgmma_split("bf16", 64, 64, 6, 1, False, False, down=down, across=across), wgmma_split("bf16", 128, 192, 5, 2, b_k=False, down=down, across=across)]
        for classes in (2, 8):
            found += [wgmma("bf16", *wgmma_tile(bn), down, across, classes=classes) for bn in (256, 160, 128)] + [wgmma("f16", *wgmma_tile(192), down, across, b_k=False, classes=classes)]
            found += [wgmma_split("bf16", *t, classes=classes, down=down, across=across) for t in ((128, 160, 5, 2), (64, 128, 8, 1), (64, 64, 6, 2), (128, 80, 6, 1))]
    for classes in (2, 4, 8):
        found += [wgmma("bf16", *wgmma_tile(bn), 2 if bn == 256 else 1, b_k=bn != 64, classes=classes) for bn in (256, 192, 160, 128, 64)]
        found += [wgmma_split("bf16", 128, 160, 5, 2, classes=classes), wgmma_split("f16", 128, 64, 8, 1, b_k=False, classes=classes), wgmma_split("bf16", 128, 96, 6, 2, classes=classes),
                  wgmma_split("bf16", 64, 64, 6, 4, classes=classes), wgmma_split("f16", 64, 128, 8, 2, classes=classes), wgmma_split("bf16", 64, 96, 8, 1, classes=classes, turns=1),
                  wgmma_split("bf16", 64, 160, 7, 1, b_k=False, classes=classes)]
    return found


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


# --- tests

def operand(batch, rows, cols, dtype, layout, gen):
    """A [batch, rows, cols] view amid NaN. layout: c (columns contiguous), r (rows contiguous), each with how its pitch and start are aligned:
    16, 8, 4 or 2 bytes (elements); o: with a start of 2; s: neither contiguous; 0: one matrix for the whole batch."""
    import torch
    size, share, odd = BYTES[dtype], "0" in layout, layout.endswith("o")
    layout = layout.removesuffix("o")
    kind, align = layout[0], max(1, int(layout[1:].replace("x", "") or 16) // size) if layout[1:] not in ("", "x") else 16 // size
    inner, outer = (cols, rows) if kind != "r" else (rows, cols)
    step = 2 if kind == "s" else 1
    pitch = up(inner * step + 1, align) * align
    if (pitch * size) % (2 * align * size) == 0 and align * size < 16:
        pitch += align  # no better aligned than asked for
    plane, batches = pitch * outer + (pitch if batch > 1 and align * size == 16 else align), 1 if share else batch
    store = torch.full((batches * plane + 64,), float("nan"), dtype=torch_type(dtype), device="cuda")
    start = 1 if odd else align if align * size < 16 else 16
    strides = (pitch, step) if kind != "r" else (step, pitch)
    view = store.as_strided((batches, rows, cols), (plane, *strides), start)
    values = torch.randn((batches, rows, cols), generator=gen, device="cuda", dtype=torch.float32)
    view.copy_(ck.tf32(values) if dtype == "tf32" else values)
    return view.expand(batch, rows, cols)


def run_checked(instance, batch, m, n, k, a_layout, b_layout, special=False):
    import torch
    gen = torch.Generator(device="cuda").manual_seed(m * 31 + n * 7 + k)
    a = operand(batch, m, k, instance.dtype, a_layout, gen)
    b = operand(batch, k, n, instance.dtype, b_layout, gen)
    if special:
        a[0, m // 2, k - 1] = float("inf")
        b[0, 0, n - 1] = float("nan")
    kind = torch.float64 if instance.dtype == "f64" else torch.float32
    row = n + 3 + (-(n + 3)) % 4 if n % 2 else n
    out = torch.full((batch, m, row), 7.5, dtype=kind, device="cuda")
    counts = torch.zeros(batch * m * row + 1, dtype=torch.int32, device="cuda")  # the last: those that were read ahead
    writes = counts[:-1].view(batch, m, row)
    more = torch.randn((batch, m, row), generator=gen, device="cuda").to(torch.bfloat16 if instance.ahead == 16 else torch.float32)
    bad = torch.zeros(1, dtype=torch.int32, device="cuda")
    args = Args(out.data_ptr(), batch, m, n, m * row, row, writes.data_ptr(), bad.data_ptr(), more.data_ptr())
    launch(instance, True, params(instance, a, b), args)
    torch.cuda.synchronize()
    where = f"{instance.name} {instance.dtype} a_k={instance.a_k} b_k={instance.b_k} batch {batch} {m}x{n}x{k} a:{a_layout} b:{b_layout}"
    assert bad.item() == 0, f"{where}: {bad.item()} calls of the epilogue out of place"
    assert bool((writes[:, :, :n] == 1).all()), f"{where}: elements not written once: {(writes[:, :, :n] != 1).sum().item()}"
    assert bool((out[:, :, n:] == 7.5).all()), f"{where}: wrote beyond the row"
    got, want = out[:, :, :n].double(), a.double() @ b.double()
    if k == 0 and not instance.ahead:
        assert bool((got == 0).all()), where
        return
    if instance.ahead:
        want = want + more[:, :, :n].double()
        assert not (m >= 2 * instance.bm and n >= 2 * instance.bn) or counts[-1].item() > 0, f"{where}: nothing was read ahead"
    finite = torch.isfinite(want)
    assert bool((torch.isfinite(got) == finite).all()), f"{where}: NaN or infinity differs"
    assert bool(torch.equal(torch.isnan(got), torch.isnan(want))), f"{where}: NaN differs"
    scale = a.double().abs() @ b.double().abs()
    limit = {"f64": 1e-14, "f32": 2e-6}.get(instance.dtype, 2e-5)
    if instance.ahead:
        scale = scale + more[:, :, :n].double().abs()
    error = ((got - want).abs() / (scale + 1e-30))[finite & torch.isfinite(scale)]
    worst = error.max().item() if error.numel() else 0.0
    assert worst <= limit, f"{where}: error {worst:.3g} of the terms' sum"


def layouts_for(instance):
    """Pairs of operand layouts that the instance is made for, and a few that it must only get right."""
    a, b = "c" if instance.a_k else "r", "r" if instance.b_k else "c"
    if instance.kind in ("wgmma", "split"):
        # In classes: every alignment of rows that falls into as many or fewer, and a first row anywhere.
        return [(a + layout, b + "16") for layout in {1: ("16",), 2: ("16", "16o"), 4: ("8", "16", "8o"), 8: ("2", "4", "8", "4o")}[instance.classes]]
    pairs = [(a + "16", b + "16"), (a + "8", b + "16"), (a + "16", b + "4"), (a + "4", b + "8"), (a + "2", b + "2"), ("s", "s"), (a + "16", b + "0")]
    return pairs


def shapes_for(instance):
    if instance.kind == "rows":
        return [(1, m, n, k) for m, n, k in ((1, 1, 1), (1, 64, 4096), (3, 50, 333), (8, 130, 1024), (5, 17, 2056), (11, 33, 700), (2, 1000, 0))] + [(3, 4, 40, 130)]
    if instance.classes > 1:
        odd = 8 // instance.classes
        return [(1, m, n, k) for m, n, k in ((128, 256, 64 + odd), (17, 8, 8 + odd), (777, 1000, 1032 + odd), (300, 520, 64 - odd), (1030, 1536, 3416 + odd), (1, 24, 4096 + odd), (260, 136, 192), (130, 72, 1))]
    if instance.kind in ("wgmma", "split"):
        batched = [(3, 130, 200, 192), (5, 40, 264, 128)] + [(4, 50, 72, 40)] * (instance.a_k and instance.b_k)
        return [(1, m, n, k) for m, n, k in ((128, 256, 64), (1, 8, 8), (777, 1000, 1032), (300, 520, 200), (2048, 1536, 520), (130, 24, 4104))] + batched
    if instance.kind == "copy":
        return [(1, m, n, k) for m, n, k in ((1, 1, 1), (128, 128, 128), (65, 67, 33), (560, 320, 1140), (2, 200, 0), (98, 100, 4608))] + [(3, 33, 129, 70)]
    return [(1, 1, 1, 1), (1, 128, 128, 128), (1, 65, 67, 33), (1, 300, 200, 171), (1, 40, 500, 1000), (3, 33, 129, 70), (2, 200, 96, 0), (1, 98, 100, 4608)]


def check_instance(instance):
    for pair in layouts_for(instance):
        for shape in shapes_for(instance):
            run_checked(instance, *shape, *pair)
    run_checked(instance, 1, 40, 48, 200 if instance.classes == 1 else 200 + 8 // instance.classes, *layouts_for(instance)[0], special=True)
    if instance.kind not in ("wgmma", "split"):
        run_checked(instance, 66000, 2, 3, 5, *layouts_for(instance)[0])


try:
    import pytest
    import torch
    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

    @pytest.fixture(scope="session")
    def compiled():
        compile_all([i for i in instances() if usable(i)], True)

    @pytest.mark.parametrize("instance", instances(), ids=lambda i: f"{i.name}-{i.dtype}-{'k' if i.a_k else 'm'}{'k' if i.b_k else 'n'}")
    def test_instance(instance, compiled):
        if not usable(instance):
            pytest.skip("needs an sm_90 GPU")
        check_instance(instance)

    def test_repeats_are_equal(compiled):
        """Split products sum in a fixed order."""
        import torch
        i = simt("f32", *F32_TILES[3], True, True, 8, 2)
        if not usable(i):
            pytest.skip("needs an sm_90 GPU")
        a, w = torch.randn(1, 98, 4608, device="cuda"), torch.randn(1, 512, 4608, device="cuda")
        outs = [torch.empty(98, 512, device="cuda") for _ in range(3)]
        for out in outs:
            launch(i, False, params(i, a, w.mT), Args(out.data_ptr(), 1, 98, 512, 0, 512, None, None))
        assert torch.equal(outs[0], outs[1]) and torch.equal(outs[0], outs[2])
except ImportError:
    pass


def usable(instance):
    return not instance.hopper or ck.device_arch() == "sm_90a"


def compile_everything():
    for arch in ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100"):
        for instance in instances():
            if instance.hopper and arch != "sm_90a":
                continue
            log = ck.compile_cubin(instance.source(False), arch)[1]
            note = ck.registers(log)
            if "spilled" in note or "C75" in log:
                print(arch, instance.name, instance.dtype, instance.a_k, instance.b_k, note, log if "C75" in log else "")
        print(arch, "done", flush=True)


if __name__ == "__main__":
    if "--compile" in sys.argv:
        compile_everything()
    elif "--bench" in sys.argv:
        import gemm_times
        gemm_times.main(sys.argv[1:])
    else:
        sys.exit(pytest.main(["-q", os.path.abspath(__file__)]))

