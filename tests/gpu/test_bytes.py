"""The CUDA products of bytes by wgmma (device/cuda/byte_wgmma.h, byte_f16.h) on a GPU, beside torch in float64.

    python3 -m pytest -q tests/gpu/test_bytes.py
    python3 tests/gpu/test_bytes.py --bench [SECONDS]   times of tiles beside torch.matmul in bf16, of products of a 1B model
    python3 tests/gpu/test_bytes.py --compile           every instance, with its registers; needs no GPU
"""
import concurrent.futures
import ctypes
import dataclasses
import functools
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cuda_kernels as ck  # noqa: E402

SHARED = 232448
CUBINS = {}  # of tiles that were compiled beforehand
TYPES = {"f32": "float", "f16": "cd::f16", "bf16": "cd::bf16", None: "cd::NoTable"}


def up(a, b):
    return -(-a // b)


@dataclasses.dataclass(frozen=True)
class Kind:
    bits: int
    group: int = 0  # 0: all of k
    scale: str = "f32"
    zero: str = None

    @property
    def step(self):
        return 1024 // self.bits

    @property
    def text(self):
        return f"cd::ByteKind<{self.bits}, {self.group}, {TYPES[self.scale]}, {TYPES[self.zero]}, float>"

    def __str__(self):
        return f"int{self.bits}" + (f" by {self.group}" if self.group else "") + (", zeros" if self.zero else "")


@dataclasses.dataclass(frozen=True)
class Tile:
    """A kernel as cuda_byte_variants (src/templates/cuda_bytes.cc) would describe it; k: how long the rows are for which stages are counted."""
    kind: Kind
    columns: int
    rows: int
    split: int = 1
    k: int = 2048

    def __str__(self):
        return f"{self.columns}x{self.rows}" + (f"/{self.split}" if self.split > 1 else "")

    tolerance = 3e-6

    @property
    def threads(self):
        return self.columns * 2

    @property
    def blocks(self):
        in_turn = 0 < self.kind.group < self.kind.step
        most = (16 if self.kind.zero else 32) if in_turn and self.kind.bits == 4 else 32 if self.kind.group and self.kind.zero else 64 if self.kind.group or self.kind.bits == 4 else 128
        return (2 if self.rows <= most else 1) * (128 // self.columns)

    @property
    def counts(self):
        if not self.kind.zero:
            return 0
        groups = max(1, self.kind.step // self.kind.group) if self.kind.group else 0
        return 4 * self.rows * (self.columns // 64 * 2 * groups if groups else 1)

    @property
    def stage(self):
        return 128 * (self.columns + self.rows * (8 // self.kind.bits))

    @property
    def stages(self):
        room = (SHARED + 1024) // self.blocks - 1024 - self.counts - 96
        return max(2, min(room // self.stage, up(up(self.k, self.kind.step), self.split), 6))

    @property
    def shared(self):
        return max(self.stages * self.stage, 4 * self.columns * self.rows) + self.counts + 16 * self.stages

    def fits(self, k):
        steps = max(1, self.kind.group // self.kind.step)
        return (self.kind.group == 0 or self.rows <= 128) and (self.kind.bits == 8 or self.rows <= 192) and self.split <= up(k, self.kind.step * steps)

    @property
    def call(self):
        return f"byte_wgmma<{self.kind.text}, {self.columns}, {self.rows}, {self.stages}, {self.split}>"

    def source(self):
        cluster = f" __cluster_dims__({self.split}, 1, 1)" if self.split > 1 else ""
        return f"""#include "cuda/base.h"
#include "cuda/byte_f16.h"
struct Args {{ float* out; cd::bf16* half; long long n; }};
struct E {{
  const Args& a;
  template <int W> __device__ __forceinline__ void operator()(cd::i64, int row, int col, const float (&acc)[W], int count) const {{
    const cd::i64 at = (cd::i64)row * a.n + col;
    if (a.half) return cd::store<W>(a.half + at, acc);
#pragma unroll
    for (int i = 0; i < W; ++i) if (i < count) a.out[at + i] = acc[i];
  }}
}};
extern "C" __global__ void{cluster} __launch_bounds__({self.threads}, {self.blocks}) k(const __grid_constant__ CudaBytes t, const __grid_constant__ Args a) {{
  cd::begin_kernel();
  const E epilogue{{a}};
  cd::{self.call}(t, epilogue);
}}
"""

    def compiled(self):
        if self not in CUBINS:
            compile_all([self])
        return loaded(self)

    def grid(self, m, n):
        return up(m, self.rows) * up(n, self.columns) * self.split


HALVES = 4  # of rows in float16


@dataclasses.dataclass(frozen=True)
class F16Tile(Tile):
    """The same of byte_f16.h. shift: scales count 2^shift times on the way."""
    shift: int = 0
    tolerance = 1e-3

    def __str__(self):
        return "f16 " + super().__str__()

    @property
    def scales(self):
        step, group = self.kind.step, self.kind.group
        groups = 1 if group % step == 0 else step // group if step % group == 0 else step // group + 2
        return 4 * groups * self.columns * (4 if self.kind.zero else 2)

    @property
    def converters(self):
        return 4 if self.rows >= 128 else 2

    @property
    def threads(self):
        return 256 + self.converters * 32

    @property
    def blocks(self):
        return 2 if self.columns == 128 and self.rows <= 64 else 1

    @property
    def stages(self):
        room = (SHARED + 1024) // self.blocks - 1024 - HALVES * (self.rows * 128 + 16) - self.scales - 96
        return max(2, min(room // self.stage, up(up(self.k, self.kind.step), self.split), 6))

    @property
    def shared(self):
        return max(self.stages * self.stage + HALVES * self.rows * 128 + self.scales, 4 * self.columns * self.rows) + 16 * (self.stages + HALVES)

    def fits(self, k):
        group = self.kind.group
        if group == 0 or group != 16 and group % 32 != 0 or self.rows not in (16, 32, 64, 128):
            return False
        return self.split <= up(k, self.kind.step) and (self.shared + 1024) * self.blocks <= SHARED + 1024

    @property
    def call(self):
        return f"byte_f16<{self.kind.text}, {self.columns}, {self.rows}, {self.stages}, {HALVES}, {self.converters}, {'true' if self.columns == 256 and self.rows == 128 else 'false'}, {self.split}, {self.shift}>"


def compile_all(tiles):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for tile, (cubin, _) in zip(tiles, pool.map(lambda t: ck.compile_cubin(t.source(), "sm_90a"), tiles)):
            CUBINS[tile] = cubin


@functools.cache
def loaded(tile):
    return ck.Kernel(CUBINS[tile], tile.threads, tile.shared)


class Bytes(ctypes.Structure):
    _fields_ = [(f, ctypes.c_longlong) for f in ("m", "n", "k")] + [("a", ctypes.c_void_p)] + [(f, ctypes.c_longlong) for f in ("a_row", "a_col")] + \
               [("b", ctypes.c_void_p), ("b_line", ctypes.c_longlong)] + \
               [x for t in ("scale", "zero") for x in [(t, ctypes.c_void_p), (t + "_group", ctypes.c_longlong), (t + "_col", ctypes.c_longlong)]] + \
               [("scratch", ctypes.c_void_p), ("pad", ctypes.c_longlong), ("map_a", ctypes.c_ulonglong * 16), ("map_b", ctypes.c_ulonglong * 16)]


class Args(ctypes.Structure):
    _fields_ = [("out", ctypes.c_void_p), ("half", ctypes.c_void_p), ("n", ctypes.c_longlong)]


def torch_type(name):
    import torch
    return {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name]


class Problem:
    """Numbers of one kind, [n, k], in lines as the kernels read them, and rows."""

    def __init__(self, kind, m, n, k, copies=1, seed=0):
        import torch
        generator = torch.Generator("cuda").manual_seed(m * 7 + n + k + seed)
        low, high = (-8, 8) if kind.bits == 4 else (-128, 128)
        self.kind, self.m, self.n, self.k = kind, m, n, k
        self.rows = torch.zeros(m, up(k, 16) * 16, dtype=torch.int8, device="cuda")
        self.rows[:, :k] = torch.randint(-127, 128, (m, k), generator=generator, device="cuda")
        self.weights = [torch.randint(low, high, (n, k), generator=generator, device="cuda", dtype=torch.int8) for _ in range(copies)]
        self.lines = [self.line(w) for w in self.weights]
        groups = k // kind.group if kind.group else 1
        self.scale = (torch.rand(n, groups, generator=generator, device="cuda") + 0.5).to(torch_type(kind.scale))
        self.zero = torch.randn(n, groups, generator=generator, device="cuda").to(torch_type(kind.zero)) if kind.zero else None

    def line(self, weight):
        import torch
        wide = torch.zeros(self.n, up(self.k, 32) * 32, dtype=torch.int8, device="cuda")
        wide[:, : self.k] = weight
        if self.kind.bits == 8:
            return wide
        halves = wide.view(self.n, -1, 2, 16)
        return (halves[:, :, 0] & 15 | halves[:, :, 1] << 4).contiguous().view(self.n, -1)

    def wanted(self):
        weight = self.weights[0].double().unflatten(1, (self.scale.shape[1], -1))
        if self.zero is not None:
            weight = weight - self.zero.double()[..., None]
        return self.rows[:, : self.k].double() @ (weight * self.scale.double()[..., None]).flatten(1).t()

    def product(self, which=0):
        lines = self.lines[which]
        t = Bytes(m=self.m, n=self.n, k=self.k, a=self.rows.data_ptr(), a_row=self.rows.stride(0), a_col=1, b=lines.data_ptr(), b_line=lines.shape[1],
                  scale=self.scale.data_ptr(), scale_group=1, scale_col=self.scale.shape[1])
        if self.zero is not None:
            t.zero, t.zero_group, t.zero_col = self.zero.data_ptr(), 1, self.zero.shape[1]
        return t

    def params(self, tile, which=0):
        t, lines = self.product(which), self.lines[which]
        t.map_a = ck.tensor_map("i8", self.rows.data_ptr(), self.m, self.k, self.rows.stride(0), tile.rows)
        t.map_b = ck.tensor_map("i8", lines.data_ptr(), self.n, lines.shape[1], lines.shape[1], tile.columns)
        return t


def error_of(tile, problem):
    """The greatest error of a row, beside its greatest value."""
    import torch
    out = torch.full((problem.m, problem.n), float("nan"), device="cuda")
    tile.compiled()(tile.grid(problem.m, problem.n), problem.params(tile), Args(out.data_ptr(), None, problem.n))
    torch.cuda.synchronize()
    want = problem.wanted()
    return float(((out.double() - want).abs().amax(1) / want.abs().amax(1)).nan_to_num(nan=float("inf")).max())


KINDS = [Kind(8), Kind(8, 32, "f16"), Kind(8, 128, "bf16", "f32"), Kind(8, 256), Kind(8, zero="f32"), Kind(4), Kind(4, zero="f16"), Kind(4, 32, "f16"),
         Kind(4, 32, "f16", "f16"), Kind(4, 64, "bf16"), Kind(4, 128, "f16", "f32"), Kind(4, 512)]
CHECKED = [(128, 16, 1), (64, 16, 4), (64, 32, 1), (128, 64, 2), (128, 128, 1), (64, 128, 8), (128, 192, 1), (128, 256, 2)]
SHAPES = [(1, 24, 128), (17, 200, 1536), (130, 67, 1024), (300, 136, 2048)]


F16_CHECKED = [(128, 16, 1, 0), (128, 32, 4, 3), (128, 64, 2, 0), (128, 128, 1, -2), (256, 64, 1, 0), (256, 128, 2, 0)]


def instances_of(kind):
    return [Tile(kind, *tile) for tile in CHECKED] + [F16Tile(kind, *tile[:3], shift=tile[3]) for tile in F16_CHECKED]


def check(kind):
    """(what was tried, what is wrong)"""
    tried, wrong = 0, []
    for m, n, k in SHAPES + ([(40, 50, 1541)] if not kind.group else [(40, 50, kind.group * 3)]):
        if k < 128 or kind.group and k % kind.group:
            continue
        problem = Problem(kind, m, n, k)
        for tile in instances_of(kind):
            if not tile.fits(k):
                continue
            tried += 1
            if not (error := error_of(tile, problem)) < tile.tolerance:
                wrong.append(f"{kind}, tile {tile}, {m} x {n} x {k}: {error:.3g}")
    return tried, wrong


def instances():
    return [tile for kind in KINDS for tile in instances_of(kind) if tile.fits(8192)]


def test_results():
    import pytest
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a Hopper")
    compile_all(instances())
    results = [check(kind) for kind in KINDS]
    assert sum(tried for tried, _ in results) > 200 and not [w for _, wrong in results for w in wrong]


# --- times

BENCHED = [Kind(4, 32, "f16"), Kind(8, 32, "f16"), Kind(4, 128, "bf16"), Kind(4, 32, "f16", "f16"), Kind(4, 64, "f16", "f16"), Kind(8)]
PRODUCTS = [(8192, 2048), (2048, 8192), (2048, 2048)]  # columns, k
ROWS = [4, 16, 64, 128, 512, 1024, 2048]


def candidates(kind, m, n, k):
    tiles = [Tile(kind, c, r, s) for c in (128, 64) for r in (16, 32, 64, 128, 192, 256) for s in (1, 2, 4, 8)]
    tiles += [F16Tile(kind, c, r, s) for c in (256, 128) for r in (16, 32, 64, 128) for s in (1, 2, 4, 8)]
    tiles = [t for t in tiles if t.fits(k) and (t.rows == 16 or t.rows < 2 * m) and t.rows * 16 >= min(m, 2048)]
    return [t for t in tiles if (t.split == 1 or t.grid(m, n) <= 300) and t.grid(m, n) * t.blocks >= 40]


def bench(seconds):
    import torch
    begin = time.time()
    for kind in BENCHED:
        todo = {t for n, k in PRODUCTS for m in ROWS for t in candidates(kind, m, n, k)}
        compile_all(sorted(todo, key=str))
        print(f"{kind}: {len(todo)} kernels after {time.time() - begin:.0f} s", flush=True)
        for n, k in PRODUCTS:
            copies = up(120 << 20, n * k)
            for m in ROWS:
                if time.time() - begin > seconds:
                    return
                problem = Problem(kind, m, n, k, copies if m <= 128 else 1)
                out, times = torch.empty(m, n, dtype=torch.bfloat16, device="cuda"), []
                for tile in candidates(kind, m, n, k):
                    ts = [problem.params(tile, i) for i in range(len(problem.lines))]
                    state, kernel = [0], tile.compiled()

                    def call():
                        kernel(tile.grid(m, n), ts[state[0] % len(ts)], Args(None, out.data_ptr(), n))
                        state[0] += 1
                    times.append((ck.microseconds(call, max(5, len(ts)), 3), str(tile)))
                a, b = torch.randn(m, k, device="cuda", dtype=torch.bfloat16), [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in problem.lines[: up(copies, 2)]]
                state = [0]

                def theirs():
                    torch.matmul(a, b[state[0] % len(b)].t(), out=out)
                    state[0] += 1
                bf16 = ck.microseconds(theirs, max(5, len(b)), 3)
                best = min(times)[0]
                print(f"{kind} {m} x {n} x {k}: cuBLAS bf16 {bf16:.1f}, best {best:.1f} us ({2e-6 * m * n * k / best:.0f} TOPS, {n * k * kind.bits / 8e6 / best:.2f} TB/s): "
                      + ", ".join(f"{name} {t:.1f}" for t, name in sorted(times)[:14]), flush=True)


if __name__ == "__main__":
    if "--compile" in sys.argv:
        for tile in instances():
            cubin, log = ck.compile_cubin(tile.source(), "sm_90a")
            print(tile.kind, tile, ck.registers(log), tile.threads, "threads", tile.stages, "stages", tile.shared, "bytes", *[line for line in log.splitlines() if "C75" in line], flush=True)
    elif "--bench" in sys.argv:
        bench(float((sys.argv[sys.argv.index("--bench") + 1 :] or ["1e9"])[0]))
    else:
        compile_all(instances())
        for kind in KINDS:
            tried, wrong = check(kind)
            print(f"{kind}: {tried} tried, {len(wrong)} wrong", *wrong[:6], sep="\n  ", flush=True)
