"""The CUDA products of bytes with a single row (device/cuda/joined_bytes.h, byte_rows.h) on a GPU, beside torch in float64.

    python3 -m pytest -q tests/gpu/test_byte_rows.py
    python3 tests/gpu/test_byte_rows.py --bench [SECONDS]   times of forms of a launch, weights from memory, products of a 1B model's token
"""
import concurrent.futures
import ctypes
import dataclasses
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cuda_kernels as ck  # noqa: E402
from test_bytes import TYPES, Bytes, Kind, Problem, up  # noqa: E402

SMS = 132
MOST = 6  # products of a launch
KERNELS = {}  # of forms


class Product(ctypes.Structure):
    """CudaByteProduct."""
    _fields_ = Bytes._fields_[: [name for name, _ in Bytes._fields_].index("scratch") + 1]


class Joined(ctypes.Structure):
    """CudaJoinedBytes."""
    _fields_ = [("m", ctypes.c_longlong), ("product", Product * MOST), ("end", ctypes.c_int * MOST)]


class Args(ctypes.Structure):
    _fields_ = [("out", ctypes.c_void_p * MOST), ("row", ctypes.c_void_p)]


# The norm of a row of bf16, rounded to bytes, as a program's own kernel would make it; THREADS of a block.
ROWS = """
template <int K, int THREADS>
CD_FN void normed_row(const cd::bf16* x, signed char* to) {
  constexpr int kOwn = (K / 8 + THREADS - 1) / THREADS;
  __shared__ float sums[THREADS / 32];
  __shared__ float tops[THREADS / 32];
  float v[kOwn][8], sum = 0, top = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int at = (i * THREADS + (int)threadIdx.x) * 8;
    const uint4 w = at < K ? *(const uint4*)(x + at) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int e = 0; e < 8; ++e) v[i][e] = cd::unpack(((const cd::bf16*)&w)[e]), sum += v[i][e] * v[i][e], top = fmaxf(top, fabsf(v[i][e]));
  }
#pragma unroll
  for (int s = 16; s; s >>= 1) sum += __shfl_xor_sync(~0u, sum, s);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < THREADS / 32; ++i) sum += sums[i];
  top *= rsqrtf(sum / K);
#pragma unroll
  for (int s = 16; s; s >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, s));
  if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
  __syncthreads();
  top = 0;
  for (int i = 0; i < THREADS / 32; ++i) top = fmaxf(top, tops[i]);
  const float scale = rsqrtf(sum / K) * 127 / top;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int at = (i * THREADS + (int)threadIdx.x) * 8;
    if (at >= K) continue;
    signed char y[8];
    for (int e = 0; e < 8; ++e) y[e] = (signed char)__float2int_rn(v[i][e] * scale);
    *(uint2*)(to + at) = *(const uint2*)y;
  }
}
"""


def kind_text(kind):
    return f"cd::ByteKind<{kind.bits}, {kind.group}, {TYPES[kind.scale]}, {TYPES[kind.zero]}, float>"


@dataclasses.dataclass(frozen=True)
class Form:
    """A kernel for products of the same row: columns of each of `sets`, HALVES weights of them. way: "joined" (joined_bytes.h: SPLIT warps share k), "early" and
    "plain" (byte_rows.h: a block's warps share k, the first weights asked for early or not; plain is a single product)."""
    kind: Kind
    k: int
    sets: tuple
    halves: int = 1
    way: str = "joined"
    split: int = 1
    warps: int = 4
    resident: int = 4
    normed: bool = False  # the row is made from one of bf16 in each block
    header: str = ""      # another text of byte_rows.h

    @property
    def products(self):
        return len(self.sets) * self.halves

    @property
    def tiles(self):
        return sum(up(n, 8) for n in self.sets)

    @property
    def blocks(self):
        return min(up(self.tiles, self.warps // self.split), SMS * self.resident) if self.way == "joined" else self.tiles

    @property
    def shared(self):
        return up(self.k, 32) * 32 if self.way == "joined" else 0

    def __str__(self):
        return self.way + (f" {self.warps // self.split}x{self.split} warps, {self.resident} blocks" if self.way == "joined" else f" {self.warps} warps") + (", normed" if self.normed else "")

    def source(self):
        kind, n = kind_text(self.kind), self.sets[0]
        head = self.header or f'#include "cuda/{"joined_bytes" if self.way == "joined" else "byte_rows"}.h"'
        finish = f"""struct Finish {{
  const Args& a;
  int first;  // set; what byte_rows.h gives in its place is the row, 0
  __device__ __forceinline__ void operator()(int set, int col, const float (&sum)[{self.halves}][8]) const {{
#pragma unroll
    for (int h = 0; h < {self.halves}; ++h)
#pragma unroll
      for (int j = 0; j < 8; ++j) a.out[(first + set) * {self.halves} + h][col + j] = sum[h][j];
  }}
  template <int W> __device__ __forceinline__ void operator()(cd::i64, int row, int col, const float (&acc)[W], int) const {{
#pragma unroll
    for (int j = 0; j < W; ++j) a.out[first][col + j] = acc[j];
  }}
}};"""
        rows = f"normed_row<{self.k}, {self.warps * 32}>((const cd::bf16*)a.row, x), __syncthreads();" if self.normed else f"cd::copy_byte_row<{self.k}, {self.warps * 32}>(t.product[0], x);"
        if self.way == "joined":
            body = f"cd::joined_bytes<{kind}, {self.k}, {self.halves}, {self.split}, {self.warps}, {len(self.sets)}>(t, 0, 0, blockIdx.x, gridDim.x, [&](signed char* x) {{ {rows} }}, Finish{{a, 0}});"
        elif self.way == "plain":
            body = f"cd::begin_kernel();\n  cd::byte_rows<{kind}, 1, {self.warps}>(t.product[0], Finish{{a, 0}});"
        else:
            calls, begin = [], 0
            for i, n in enumerate(self.sets):
                other = i * self.halves + self.halves - 1
                calls.append(f"if (blockIdx.x < {begin + up(n, 8)}) return cd::byte_rows_of<{kind}, 1, {self.warps}, {self.halves}, true>(t.product[{i * self.halves}], t.product[{other}], ((int)blockIdx.x - {begin}) * 8, 0, Finish{{a, {i}}});")
                begin += up(n, 8)
            body = "\n  ".join(calls)
        resident = f", {self.resident}" if self.way == "joined" else ""
        return f"""#include "cuda/base.h"
#include "cuda/params.h"
{head}
struct Args {{ float* out[{MOST}]; const void* row; }};
{ROWS if self.normed else ""}
{finish}
extern "C" __global__ void __launch_bounds__({self.warps * 32}{resident}) k(const __grid_constant__ CudaJoinedBytes t, const __grid_constant__ Args a) {{
  {body}
}}
"""


def compile_forms(forms):
    """With a GPU there: its kernels, ready to be called."""
    new = [form for form in dict.fromkeys(forms) if form not in KERNELS]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for form, (cubin, _) in zip(new, pool.map(lambda f: ck.compile_cubin(f.source(), "sm_90a"), new)):
            KERNELS[form] = ck.Kernel(cubin, form.warps * 32, form.shared)


class Call:
    """Launches of a form with `copies` of the weights in turn."""

    def __init__(self, form, copies):
        import torch
        self.form, self.at = form, 0
        self.problems = [[Problem(form.kind, 1, n, form.k, seed=i * 8 + h) for n in form.sets for h in range(form.halves)] for i in range(copies)]
        rows = self.problems[0][0].rows
        self.out = [torch.zeros(up(n, 8) * 8, device="cuda") for n in form.sets for _ in range(form.halves)]
        self.row = torch.randn(form.k, device="cuda").to(torch.bfloat16)
        self.args = Args((ctypes.c_void_p * MOST)(*[o.data_ptr() for o in self.out]), self.row.data_ptr())
        self.params = []
        for problems in self.problems:
            t, end = Joined(m=1), 0
            for i, p in enumerate(problems):
                full = p.product()
                full.a = rows.data_ptr()
                t.product[i] = Product(**{name: getattr(full, name) for name, _ in Product._fields_})
            for i, n in enumerate(form.sets):
                end += up(n, 8)
                t.end[i] = end
            self.params.append(t)

    @property
    def bytes(self):
        return sum(p.lines[0].nbytes + p.scale.nbytes + (p.zero.nbytes if p.zero is not None else 0) for p in self.problems[0])

    def __call__(self):
        KERNELS[self.form](self.form.blocks, self.params[self.at % len(self.params)], self.args)
        self.at += 1

    def error(self):
        """The greatest one of a product, beside its greatest value."""
        import torch
        self.at = 0
        self()
        torch.cuda.synchronize()
        row = self.problems[0][0].rows
        worst = 0.0
        for p, out in zip(self.problems[0], self.out):
            p.rows = row
            want = p.wanted()[0]
            worst = max(worst, float(((out[: p.n].double() - want).abs().max() / want.abs().max()).nan_to_num(nan=float("inf"))))
        return worst


KINDS = [Kind(8), Kind(8, 16, "f16", "f16"), Kind(8, 32, "f16"), Kind(8, 128, "bf16", "f32"), Kind(8, zero="f32"), Kind(4), Kind(4, zero="f16"), Kind(4, 16, "f16"), Kind(4, 32, "f16"),
         Kind(4, 32, "f16", "f16"), Kind(4, 48, "f32", "f32"), Kind(4, 64, "bf16"), Kind(4, 128, "f16", "f32")]


def checked():
    found = []
    for kind in KINDS:
        for k in (96, 1541, 2048, 8192) if not kind.group else (kind.group * 3, kind.group * 43, 48 * 128):
            if kind.group and k % kind.group:
                continue
            for sets, halves in (((24, 200, 67), 1), ((1000,), 2)):
                found += [Form(kind, k, sets, halves, split=split, warps=warps, resident=1) for split, warps in ((1, 4), (2, 8), (8, 8))]
                found.append(Form(kind, k, sets, halves, "early", warps=4))
    return found


def test_results():
    import pytest
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a Hopper")
    forms = checked()
    compile_forms(forms)
    wrong = [f"{form.kind} {form}: {error:.3g}" for form in forms if not (error := Call(form, 1).error()) < 3e-6]
    assert not wrong, wrong[:10]


# --- times

LAYER = {"o": ((2048,), 2048, 1), "q+k+v": ((2048, 512, 512), 2048, 1), "gate": ((8192,), 2048, 1), "gate+up": ((8192,), 2048, 2), "down": ((2048,), 8192, 1),
         "head": ((128256,), 2048, 1)}
TIMED = [Kind(4, 32, "f16"), Kind(8), Kind(4, 128, "f16"), Kind(4, 32, "f16", "f16"), Kind(8, 32, "f16")]


def forms_of(kind, name, few):
    sets, k, halves = LAYER[name]
    whole = max(1, min(8, k * kind.bits // 4096))
    out = [Form(kind, k, sets, halves, "early", warps=whole)]
    if len(sets) * halves == 1:
        out.append(Form(kind, k, sets, halves, "plain", warps=whole))
    shapes = [(1, 4, 4), (2, 4, 4), (2, 8, 2), (4, 8, 2)] if few else [(1, 4, 3), (1, 4, 4), (1, 4, 5), (2, 4, 4), (1, 8, 2), (2, 8, 2), (4, 8, 2), (2, 8, 3), (8, 8, 2), (4, 4, 5)]
    out += [Form(kind, k, sets, halves, split=s, warps=w, resident=r) for s, w, r in shapes if s <= 2 * whole]
    return out


def bench(seconds):
    begin = time.time()
    cases = [(kind, name) for i, kind in enumerate(TIMED) for name in LAYER]
    todo = [form for kind, name in cases for form in forms_of(kind, name, kind not in TIMED[:2])]
    compile_forms(todo)
    print(f"{len(todo)} kernels after {time.time() - begin:.0f} s", flush=True)
    for kind, name in cases:
        if time.time() - begin > seconds:
            return
        times, call = [], None
        for form in forms_of(kind, name, kind not in TIMED[:2]):
            if call is None:
                call = Call(form, max(2, min(40, up(150 << 20, int(kind.bits / 8 * form.k * sum(form.sets) * form.halves)))))
            call.form = form
            times.append((ck.microseconds(call, max(8, len(call.params)), 5), str(form)))
        print(f"{kind} {name}: {call.bytes / 1e6:.1f} MB, best {call.bytes / min(times)[0] / 1e6:.2f} TB/s: " + "; ".join(f"{text} {t:.2f}" for t, text in sorted(times)[:5])
              + "".join(f"; {text} {t:.2f}" for t, text in sorted(times)[5:] if "early" in text or "plain" in text), flush=True)


if __name__ == "__main__":
    if "--bench" in sys.argv:
        bench(float((sys.argv[sys.argv.index("--bench") + 1 :] or ["1e9"])[0]))
    elif "--compile" in sys.argv:
        for kind in TIMED:
            for name in LAYER:
                for form in forms_of(kind, name, True):
                    cubin, log = ck.compile_cubin(form.source(), "sm_90a")
                    print(kind, name, form, ck.registers(log), flush=True)
    else:
        forms = checked()
        compile_forms(forms)
        wrong = [f"{form.kind} k {form.k} {form}: {error:.3g}" for form in forms if not (error := Call(form, 1).error()) < 3e-6]
        print(f"{len(forms)} tried, {len(wrong)} wrong", *wrong[:8], sep="\n  ", flush=True)
