"""The CUDA attention templates against torch in float64. `python3 tests/gpu/test_attention.py --bench` prints times beside
scaled_dot_product_attention, `--bench wgmma` those of Hopper's kernel."""
import ctypes
import math
import os
import random
import sys

import pytest
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cuda_kernels import kernel, microseconds, rows_map

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

NAMES = {torch.float32: "float", torch.float64: "double", torch.bfloat16: "cd::bf16", torch.float16: "cd::f16", torch.bool: "bool", None: "cd::NoMask"}
BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


class CudaAttention(ctypes.Structure):
    _fields_ = ([(n, ctypes.c_longlong) for n in "batch heads kv_heads q_len kv_len dim v_dim".split()] +
                [f for a in "qkv" for f in [(a, ctypes.c_void_p)] + [(f"{a}_{n}", ctypes.c_longlong) for n in "batch head row".split()]] +
                [("mask", ctypes.c_void_p)] + [(f"mask_{n}", ctypes.c_longlong) for n in "batch head row col".split()] +
                [("o", ctypes.c_void_p)] + [(f"o_{n}", ctypes.c_longlong) for n in "batch head row".split()] +
                [("scratch", ctypes.c_void_p), ("scale", ctypes.c_float), ("highest_fill", ctypes.c_float), ("nan_rows", ctypes.c_int), ("padding", ctypes.c_int * 3)] +
                [(f"map_{x}", ctypes.c_ulonglong * 16) for x in "qkv"])


class Variant:
    """kind: "mma" (BN, WARPS, MT), "wgmma" (BN, GROUPS, STAGES, TURNS), "simt" (BN, WARPS, TM, BUFFERS) or "decode" (ROWS, WARPS, SPLIT)."""

    def __init__(self, kind, *config, d=None):
        self.kind, self.config, self.d = kind, config, d

    def __repr__(self):
        return "_".join([self.kind, "x".join(map(str, self.config))] + ([f"d{self.d}"] if self.d else []))

    def launch(self, dtype, mask_dtype, causal, t):
        largest, size = max(t.dim, t.v_dim), dtype.itemsize
        widths = {"mma": (64, 96, 128, 256), "decode": (32, 64, 128, 256)}.get(self.kind, (64, 128, 256))
        d = self.d or next(w for w in widths if w >= largest)
        assert d >= largest
        flag, m, cluster = "true" if causal else "false", NAMES[mask_dtype], 1
        if self.kind == "mma":
            bn, warps, mt = self.config
            bm, threads, shared = warps * 16 * mt, warps * 32, (warps * 16 * mt + 4 * bn) * (d + 8) * 2
            call = f"cd::attention_mma<{NAMES[dtype]}, {m}, {flag}, {d}, {bn}, {warps}, {mt}>(t);"
        elif self.kind == "wgmma":
            bn, groups, stages, turns = self.config
            bm, threads, shared = 64 * groups, 128 * (groups + 1), d * 2 * (64 * groups + 2 * stages * bn) + 8 * (4 * stages + 1)
            call = f"cd::attention_wgmma<{NAMES[dtype]}, {m}, {flag}, {d}, {bn}, {groups}, {stages}, {'true' if turns else 'false'}>(t);"
            name = {BF16: "bf16", F16: "f16"}[dtype]
            for x, rows, box in (("q", t.q_len, bm), ("k", t.kv_len, bn), ("v", t.kv_len, bn)):
                strides = [getattr(t, f"{x}_{n}") for n in ("batch", "head", "row")]
                sizes = (t.batch, t.heads if x == "q" else t.kv_heads, rows, t.v_dim if x == "v" else t.dim)
                setattr(t, f"map_{x}", rows_map(name, getattr(t, x), sizes, strides, box))
        elif self.kind == "simt":
            bn, warps, tm, buffers = self.config
            bm, threads = warps * 8 * tm, warps * 32
            shared = ((bm + buffers * 2 * bn) * (d + 4) + bm * (bn + 4)) * 4
            call = f"cd::attention_simt<{m}, {flag}, {d}, {bn}, {warps}, {tm}, {buffers}>(t);"
        else:
            rows, warps, cluster = self.config
            threads, lanes = warps * 32, min(d * size // 16, 32)
            sent = math.ceil(rows * d / (threads * cluster)) * threads
            shared = (threads // lanes * rows * (d + 3) + cluster * (sent + 3 * rows)) * 4  # attention_decode_shared
            call = f"cd::attention_decode<{NAMES[dtype]}, {m}, {flag}, {d}, {rows}, {warps}, {cluster}>(t);"
        if self.kind == "decode":
            blocks = t.batch * t.kv_heads * math.ceil(t.heads // t.kv_heads * t.q_len / rows) * cluster
        else:
            blocks = t.batch * t.heads * math.ceil(t.q_len / bm)
        dims = f"__cluster_dims__({cluster}, 1, 1)" if cluster > 1 else ""
        text = f"""#include "cuda/attention_{self.kind}.h"
extern "C" __global__ void __launch_bounds__({threads}) {dims} k(const __grid_constant__ CudaAttention t) {{ cd::begin_kernel(); {call} }}"""
        return kernel(text, threads, shared), blocks


def describe(q, k, v, mask, o, scale):
    strides = lambda x: (x.data_ptr(), *x.stride()[:3])
    m = (0, 0, 0, 0, 0) if mask is None else (mask.data_ptr(), *mask.stride())
    return CudaAttention(*q.shape[:2], k.shape[1], q.shape[2], k.shape[2], q.shape[3], v.shape[3], *strides(q), *strides(k), *strides(v), *m, *strides(o),
                         None, scale, math.nan, 0)


def guarded(shape, dtype, layout, offset=0):
    """As in test_conv.py."""
    sizes = [shape[i] for i in layout]
    memory = torch.full((math.prod(sizes) + 128,), float("nan"), dtype=dtype, device="cuda")
    t = memory[64 + offset:64 + offset + math.prod(sizes)].view(sizes).permute([layout.index(i) for i in range(len(shape))])
    return t.copy_(torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype))


def reference(q, k, v, mask, causal, scale):
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    s = q.double() @ k.transpose(-1, -2) * scale
    if causal:
        s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(), -math.inf)
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else s + mask.double()
    p = torch.softmax(s, -1) if s.shape[-1] else s
    return torch.where((s == -math.inf).all(-1, keepdim=True), 0, p) @ v


BHLD, BLHD = (0, 1, 2, 3), (0, 2, 1, 3)


def run_case(variant, dtype, batch=1, heads=2, kv_heads=None, q_len=64, kv_len=64, dim=64, v_dim=None, causal=False, mask=None, mask_shape="full",
             layout=BHLD, offset=0, scale=None):
    kv_heads, v_dim = kv_heads or heads, v_dim or dim
    q = guarded((batch, heads, q_len, dim), dtype, layout, offset)
    k = guarded((batch, kv_heads, kv_len, dim), dtype, layout, offset)
    v = guarded((batch, kv_heads, kv_len, v_dim), dtype, layout, offset)
    o = torch.full_like(guarded((batch, heads, q_len, v_dim), dtype, layout, offset), float("nan"))
    m = None
    if mask is not None:
        sizes = {"full": (batch, heads, q_len, kv_len), "keys": (batch, 1, 1, kv_len), "square": (1, 1, q_len, kv_len), "rows": (batch, heads, q_len, 1)}[mask_shape]
        if mask == torch.bool:
            m = torch.rand(sizes, device="cuda") < 0.7
            if mask_shape == "full":
                m[0, 0, q_len // 2] = False   # a row that sees nothing
        else:
            m = (torch.randn(sizes, device="cuda") * 2).to(mask)
            m[torch.rand(sizes, device="cuda") < 0.2] = -math.inf
            if mask_shape == "full":
                m[0, -1, q_len // 3] = -math.inf
        m = m.expand(batch, heads, q_len, kv_len)
    scale = 1 / math.sqrt(dim) if scale is None else scale
    t = describe(q, k, v, m, o, scale)
    call, blocks = variant.launch(dtype, mask, causal, t)
    call(blocks, t)
    torch.cuda.synchronize()
    want = reference(q, k, v, m, causal, scale)
    error = (o.double() - want).abs().max().item() if want.numel() else 0.0
    largest = v.double().abs().max().item() if v.numel() else 0.0
    limit = {BF16: 2.0**-7, F16: 2.0**-10, F32: 4e-6}[dtype] * max(largest, 1e-3)
    assert error <= limit, f"{variant}: error {error}, limit {limit}"   # false for NaN too


CASES = [
    dict(),
    dict(batch=2, heads=3, q_len=77, kv_len=131),
    dict(q_len=1, kv_len=200),
    dict(q_len=200, kv_len=200, causal=True),
    dict(q_len=70, kv_len=190, causal=True),
    dict(q_len=190, kv_len=70, causal=True),
    dict(heads=8, kv_heads=2, q_len=65, kv_len=65, causal=True),
    dict(heads=6, kv_heads=1, q_len=3, kv_len=129),
    dict(q_len=65, kv_len=100, dim=40),
    dict(q_len=33, kv_len=50, dim=63, v_dim=17),
    dict(q_len=33, kv_len=50, dim=16, v_dim=64),
    dict(q_len=65, kv_len=100, layout=BLHD, heads=5),
    dict(q_len=65, kv_len=100, offset=1),
    dict(q_len=65, kv_len=100, offset=2, dim=56),
    dict(batch=2, q_len=66, kv_len=99, mask=torch.bool),
    dict(batch=2, q_len=66, kv_len=99, mask=torch.bool, mask_shape="keys"),
    dict(batch=2, q_len=66, kv_len=99, mask=torch.bool, causal=True),
    dict(batch=2, q_len=66, kv_len=99, mask=F32),
    dict(batch=2, q_len=66, kv_len=99, mask=F32, mask_shape="square", causal=True),
    dict(batch=2, q_len=66, kv_len=99, mask=F32, mask_shape="rows"),
    dict(q_len=66, kv_len=99, mask=BF16),
    dict(q_len=66, kv_len=99, mask=F16, mask_shape="keys"),
    dict(q_len=66, kv_len=99, scale=-0.3),
    dict(q_len=66, kv_len=99, scale=0.0, causal=True),
    dict(q_len=66, kv_len=99, scale=0.7),
    dict(q_len=5, kv_len=0),
    dict(q_len=0, kv_len=7),
]
LONG = [dict(heads=4, kv_heads=2, q_len=700, kv_len=700, causal=True, layout=BLHD), dict(q_len=500, kv_len=900), dict(q_len=300, kv_len=1000, mask=torch.bool),
        dict(q_len=900, kv_len=300, causal=True)]
WIDE = [dict(q_len=70, kv_len=150, dim=96), dict(q_len=70, kv_len=150, dim=128, causal=True), dict(q_len=70, kv_len=150, dim=72, v_dim=111),
        dict(q_len=70, kv_len=150, dim=128, mask=F32), dict(q_len=3, kv_len=700, dim=128, heads=8, kv_heads=2, layout=BLHD)]
WIDEST = [dict(q_len=70, kv_len=150, dim=256), dict(q_len=70, kv_len=150, dim=200, v_dim=256, causal=True), dict(q_len=70, kv_len=150, dim=256, mask=F32)]
MMA = [Variant("mma", 64, 4, 1), Variant("mma", 64, 8, 1), Variant("mma", 64, 4, 2)]
SIMT = [Variant("simt", 64, 4, 2, 2), Variant("simt", 32, 4, 2, 1), Variant("simt", 32, 4, 4, 2)]
DECODE = [Variant("decode", 1, 8, 1), Variant("decode", 4, 8, 1), Variant("decode", 1, 8, 8), Variant("decode", 4, 8, 4), Variant("decode", 2, 16, 1)]


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("variant", MMA, ids=repr)
def test_mma(variant, case):
    run_case(variant, BF16, **CASES[case])


@pytest.mark.parametrize("case", range(6))
def test_mma_half(case):
    run_case(MMA[0], F16, **CASES[case])


def tma_fits(dim=64, v_dim=None, q_len=64, kv_len=64, offset=0, scale=1.0, **_):
    """The condition of the wgmma variant (src/templates/cuda_attention.cc)."""
    return dim % 8 == 0 and (v_dim or dim) % 8 == 0 and q_len > 0 and kv_len > 0 and offset % 8 == 0 and (scale is None or scale > 0)


FIT = [c for c in CASES if tma_fits(**c)] + LONG
WGMMA = [Variant("wgmma", 128, 2, 2, True), Variant("wgmma", 128, 3, 2, True), Variant("wgmma", 64, 2, 2, False)]


@pytest.mark.parametrize("case", range(len(FIT)))
@pytest.mark.parametrize("variant", WGMMA, ids=repr)
def test_wgmma(variant, case):
    run_case(variant, BF16, **FIT[case])


@pytest.mark.parametrize("case", range(len(WIDE + WIDEST)))
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_wgmma_wide(dtype, case):
    arguments = (WIDE + WIDEST)[case]
    if tma_fits(**arguments):
        run_case(Variant("wgmma", 64 if max(arguments["dim"], arguments.get("v_dim", 0)) > 128 else 128, 2, 2, True), dtype, **arguments)


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("variant", SIMT, ids=repr)
def test_simt(variant, case):
    run_case(variant, F32, **CASES[case])


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("variant,dtype", [(v, BF16) for v in DECODE] + [(DECODE[0], F32), (DECODE[3], F32)], ids=str)
def test_decode(variant, dtype, case):
    run_case(variant, dtype, **CASES[case])


@pytest.mark.parametrize("case", range(len(WIDE)))
@pytest.mark.parametrize("variant,dtype", [(Variant("mma", 64, 4, 1), BF16), (Variant("mma", 64, 8, 1), F16), (Variant("simt", 32, 4, 2, 2), F32),
                                           (Variant("decode", 4, 8, 1), F32), (Variant("decode", 4, 8, 8), BF16)], ids=str)
def test_wide(variant, dtype, case):
    run_case(variant, dtype, **WIDE[case])


@pytest.mark.parametrize("case", range(len(WIDEST)))
@pytest.mark.parametrize("variant,dtype", [(Variant("mma", 32, 4, 1), BF16), (Variant("simt", 16, 4, 1, 1), F32), (Variant("decode", 2, 8, 1), F32),
                                           (Variant("decode", 4, 8, 1), BF16)], ids=str)
def test_widest(variant, dtype, case):
    run_case(variant, dtype, **WIDEST[case])


def test_random():
    rng = random.Random(7)
    for _ in range(60):
        kind = rng.choice(["mma", "simt", "decode"])
        dtype = F32 if kind == "simt" else BF16 if kind == "mma" else rng.choice([BF16, F32])
        kv_heads = rng.randint(1, 3)
        run_case(rng.choice({"mma": MMA[:2], "simt": SIMT, "decode": DECODE}[kind]), dtype, rng.randint(1, 3), kv_heads * rng.randint(1, 4), kv_heads,
                 rng.randint(1, 20) if kind == "decode" else rng.randint(1, 200), rng.randint(1, 300), rng.randint(1, 64), rng.randint(1, 64),
                 rng.random() < 0.4, rng.choice([None, torch.bool, F32]), rng.choice(["full", "keys", "square", "rows"]), rng.choice([BHLD, BLHD]), rng.randint(0, 3))


def bench_case(name, dtype, variants, batch, heads, q_len, kv_len, dim, causal=False, kv_heads=None, mask=None):
    kv_heads = kv_heads or heads
    q, k, v = (torch.randn(batch, l, h, dim, device="cuda", dtype=dtype).transpose(1, 2) for l, h in ((q_len, heads), (kv_len, kv_heads), (kv_len, kv_heads)))
    o = torch.empty_like(q)
    m = None
    if mask is not None:
        m = torch.zeros(batch, 1, 1, kv_len, device="cuda", dtype=mask).expand(batch, heads, q_len, kv_len)
    t = describe(q, k, v, m, o, 1 / math.sqrt(dim))
    results = []
    for variant in variants:
        call, blocks = variant.launch(dtype, mask, causal, t)
        results.append((microseconds(lambda: call(blocks, t), 10), f"{variant}", blocks, call.resources()))
    sdpa = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, m, 0.0, causal, enable_gqa=kv_heads != heads)
    peer = microseconds(sdpa, 10)
    assert (o.float() - sdpa().float()).abs().max() < (1e-4 if dtype == F32 else 2e-2)
    results.sort()
    best = results[0]
    flops, bytes_ = 4 * batch * heads * q_len * kv_len * dim / (2 if causal else 1), 2 * batch * kv_heads * kv_len * dim * dtype.itemsize
    rest = "  ".join(f"{n}:{us:.1f}" for us, n, *_ in results[1:])
    print(f"{name:34} best {best[0]:8.1f} us {flops / best[0] / 1e6:6.1f} TFLOP/s {bytes_ / best[0] / 1e3:6.0f} GB/s  {best[1]} ({best[2]} blocks, {best[3]})"
          f"  torch {peer:8.1f} us | {rest}", flush=True)


def bench_wgmma():
    """Hopper's kernel beside mma.sync, from which lengths on it pays."""
    print(torch.cuda.get_device_name(), torch.__version__)
    two, three = [Variant("wgmma", b, 2, 2, turns) for b in (128, 64) for turns in (True, False)], [Variant("wgmma", 128, 3, 2, t) for t in (True, False)]
    mma = [Variant("mma", 64, 4, 1)]
    wide = two[:2] + [Variant("wgmma", 96, 2, 2, True)] + mma
    for causal in (False, True):
        word = " causal" if causal else ""
        for length in (2048, 8192):
            bench_case(f"bf16 1x32/8x{length}x128{word}", BF16, wide if length == 2048 else wide[:3], 1, 32, length, length, 128, causal, 8)
        bench_case(f"bf16 8x16x2048x64{word}", BF16, two + three + mma, 8, 16, 2048, 2048, 64, causal)
        bench_case(f"bf16 4x8x1024x256{word}", BF16, [Variant("wgmma", 64, 2, 2, True), Variant("wgmma", 64, 2, 2, False), Variant("mma", 32, 4, 1)], 4, 8, 1024, 1024, 256, causal)
        for length in (128, 256, 512):
            bench_case(f"bf16 8x12x{length}x64{word}", BF16, two + mma, 8, 12, length, length, 64, causal)
            bench_case(f"bf16 4x32x{length}x128{word}", BF16, two[:3] + mma, 4, 32, length, length, 128, causal)
    bench_case("bf16 16x12x197x64 (ViT)", BF16, two + mma, 16, 12, 197, 197, 64)
    bench_case("bf16 8x12x512x64 mask of keys", BF16, two[:1] + mma, 8, 12, 512, 512, 64, mask=BF16)


def bench():
    torch.backends.cuda.matmul.allow_tf32 = False
    print(torch.cuda.get_device_name(), torch.__version__)
    tiles = [Variant("mma", *c) for c in ((64, 4, 1), (64, 8, 1), (64, 4, 2), (32, 8, 1), (128, 4, 1))]
    bench_case("bf16 8x12x128x64", BF16, tiles, 8, 12, 128, 128, 64)
    bench_case("bf16 8x12x128x64 mask of keys", BF16, tiles[:2], 8, 12, 128, 128, 64, mask=BF16)
    bench_case("bf16 8x12x1024x64 causal", BF16, tiles, 8, 12, 1024, 1024, 64, True)
    bench_case("bf16 16x12x197x64 (ViT)", BF16, tiles, 16, 12, 197, 197, 64)
    bench_case("bf16 8x32x2048x128 causal", BF16, tiles, 8, 32, 2048, 2048, 128, True)
    bench_case("bf16 1x32/8x2048x128 causal", BF16, tiles, 1, 32, 2048, 2048, 128, True, 8)
    bench_case("bf16 2x8x1024x256 causal", BF16, [Variant("mma", 32, 4, 1), Variant("mma", 16, 4, 1), Variant("mma", 32, 8, 1)], 2, 8, 1024, 1024, 256, True)
    simt = [Variant("simt", *c) for c in ((64, 4, 2, 2), (32, 4, 2, 2), (32, 4, 4, 2), (64, 4, 2, 1), (32, 2, 4, 2))]
    bench_case("f32 8x12x128x64", F32, simt, 8, 12, 128, 128, 64)
    bench_case("f32 2x12x197x64 (ViT)", F32, simt, 2, 12, 197, 197, 64)
    bench_case("f32 2x12x1024x64 causal", F32, simt, 2, 12, 1024, 1024, 64, True)
    bench_case("f32 1x32x512x128 causal", F32, [Variant("simt", 32, 4, 2, 2), Variant("simt", 32, 4, 2, 1), Variant("simt", 32, 4, 4, 1)], 1, 32, 512, 512, 128, True)
    one = [Variant("decode", 1, w, s) for w, s in ((8, 1), (16, 1), (8, 4), (8, 8), (4, 8), (16, 4))]
    bench_case("bf16 decode 1x32x1x4096x128", BF16, one, 1, 32, 1, 4096, 128)
    bench_case("f32 decode 1x32x1x4096x128", F32, one, 1, 32, 1, 4096, 128)
    four = [Variant("decode", 4, w, s) for w, s in ((8, 1), (16, 1), (8, 4), (8, 8), (4, 8), (16, 8))]
    bench_case("bf16 decode 1x32/8x1x4096x128", BF16, four, 1, 32, 1, 4096, 128, kv_heads=8)
    bench_case("bf16 decode 16x32/8x1x4096x128", BF16, four, 16, 32, 1, 4096, 128, kv_heads=8)
    bench_case("bf16 decode 1x12x1x1024x64", BF16, one, 1, 12, 1, 1024, 64)


if __name__ == "__main__":
    if "--bench" in sys.argv:
        bench_wgmma() if "wgmma" in sys.argv else bench()
    else:
        sys.exit(pytest.main(["-q", __file__]))
