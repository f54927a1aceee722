"""The CUDA convolution templates against torch in float64. `python3 tests/gpu/test_conv.py --bench` prints times beside cuDNN."""
import ctypes
import math
import os
import random
import sys

import pytest
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cuda_kernels import device_arch, kernel, tensor_map, tf32

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

NAMES = {torch.float32: "float", torch.float64: "double", torch.bfloat16: "cd::bf16", torch.float16: "cd::f16"}
WIDTH = {torch.float32: 4, torch.float64: 2, torch.bfloat16: 8, torch.float16: 8}


class CudaConv2d(ctypes.Structure):
    _fields_ = ([(n, ctypes.c_longlong) for n in "n ic ih iw oc oh ow".split()] +
                [(n, ctypes.c_int) for n in "kh kw stride_h stride_w pad_h pad_w dilation_h dilation_w groups split".split()] +
                [("x", ctypes.c_void_p)] + [(n, ctypes.c_longlong) for n in "x_n x_c x_h x_w".split()] +
                [("w", ctypes.c_void_p), ("scratch", ctypes.c_void_p), ("to_64", ctypes.c_char * 40), ("map_w", ctypes.c_ulonglong * 16)])


class Args(ctypes.Structure):
    _fields_ = [("y", ctypes.c_void_p), ("hits", ctypes.c_void_p), ("oc", ctypes.c_longlong)]


SMS = torch.cuda.get_device_properties(0).multi_processor_count if torch.cuda.is_available() else 132


def source(header, call, threads, cluster, acc, body):
    dims = f"__cluster_dims__({cluster}, 1, 1)" if cluster > 1 else ""
    return f"""#include "cuda/{header}"
struct Args {{ void* y; int* hits; long long oc; }};
struct E {{
  const Args& a;
  template <int W> __device__ void operator()(cd::i64 batch, int row, int col, const {acc} (&acc)[W], int count) const {{ {body} }}
}};
extern "C" __global__ void __launch_bounds__({threads}) {dims} k(const __grid_constant__ CudaConv2d t, const __grid_constant__ Args a) {{
  cd::begin_kernel();
  E epilogue{{a}};
  {call}
}}"""


# Counts how often each element comes; a wrong place of a full group of columns counts a hundred times.
CHECKED = """
  for (int i = 0; i < W; i++) {
    if (i >= count) break;
    ((%s*)a.y)[row * a.oc + col + i] = acc[i];
    atomicAdd(a.hits + row * a.oc + col + i, batch != 0 || (count == W && col %% W) ? 100 : 1);
  }"""
# As generated code stores: whole vectors when the row allows.
STORED = """
  %s* y = (%s*)a.y + row * a.oc + col;
  if (count == W && a.oc %% W == 0) { cd::store<W>(y, acc); return; }
  for (int i = 0; i < W; i++) if (i < count) cd::store1(y + i, acc[i]);"""


class Variant:
    """template and tile: "simt" (BM, BN, TM, TN), "mma" (BM, BN, WM, WN), "tf32" (the same and bytes of k in a slab), "wgmma" (G, BN, STAGES, blocks of a multiprocessor), "few" (BN),
    "depthwise" (), "strip" (STRIP, CG), "groups" (STRIP, CG)."""

    def __init__(self, template, tile=(), split=1):
        self.template, self.tile, self.split = template, tile, split

    def __repr__(self):
        return "_".join([self.template, "x".join(map(str, self.tile))] + ([f"split{self.split}"] if self.split > 1 else []))

    def launch(self, dtype, conv, body):
        """(kernel, blocks); fills in what the variant needs of `conv`."""
        size, name, acc = dtype.itemsize, NAMES[dtype], "double" if dtype == torch.float64 else "float"
        header, pixels, width, bounds = self.template, conv.n * conv.oh * conv.ow, 16 // size, None
        if self.template == "depthwise":
            threads, shared = 256, 0
            blocks = math.ceil(pixels * math.ceil(conv.oc / width) / 256)
            call = f"cd::conv_depthwise<{name}>(t, epilogue);"
        elif self.template == "strip":
            strip, cg = self.tile
            header, threads, shared, bounds = "depthwise_strip", 256, conv.kh * conv.kw * cg * 16, "256, 2"
            blocks = math.ceil(conv.n * conv.oh * math.ceil(conv.ow / strip) / (256 // cg)) * math.ceil(conv.oc // width / cg)
            call = f"cd::conv_depthwise_strip<{name}, {conv.kh}, {conv.kw}, {conv.stride_h}, {strip}, {cg}, {width}>(t, epilogue);"
        elif self.template == "groups":
            strip, cg = self.tile
            ic_g, oc_g = conv.ic // conv.groups, conv.oc // conv.groups
            threads, shared, bounds = 256, conv.kh * conv.kw * ic_g * cg * 16, "256, 2"
            parts = math.ceil(conv.oc // width / cg)
            blocks = parts * min(math.ceil(conv.n * conv.oh * math.ceil(conv.ow / strip) / (256 // cg)), max(1, 2 * SMS // parts))
            call = f"cd::conv_groups<{name}, {ic_g}, {oc_g}, {conv.kh}, {conv.kw}, {conv.stride_h}, {strip}, {cg}>(t, epilogue);"
        elif self.template == "few":
            bn, = self.tile
            k, ph, pw = conv.ic * conv.kh * conv.kw, 15 * conv.stride_h + conv.kh, 15 * conv.stride_w + conv.kw
            steps = math.ceil(k / 16)
            out = bn * (steps * 16 + 8) * 2 + steps * 64 + math.ceil(conv.ic * ph * pw / 8) * 16
            threads, shared, bounds = 256, math.ceil(out / 128) * 128 + 8 * 16 * bn * 4, "256, 2"
            parts, tiles = math.ceil(conv.oc / bn), conv.n * math.ceil(conv.oh / 16) * math.ceil(conv.ow / 16)
            blocks = parts * min(tiles, max(1, 2 * SMS // parts))
            call = f"cd::conv_few<{name}, {conv.ic}, {conv.kh}, {conv.kw}, {conv.stride_h}, {bn}>(t, epilogue);"
        elif self.template == "wgmma":
            g, bn, stages, resident = self.tile
            bm, taps = 64 * g, conv.kh * conv.kw * conv.ic // conv.groups
            threads, shared = 128 * (g + 1), stages * (bm + bn) * 128 + (g * 16384 if self.split == 1 else 0) + bm * 16 + 16 * stages
            tiles = math.ceil(pixels / bm) * math.ceil(conv.oc // conv.groups / bn) * conv.groups
            blocks = min(tiles, resident * SMS) if self.split == 1 else tiles * self.split
            call = f"cd::conv_wgmma<{name}, {g}, {bn}, {stages}, {self.split}>(t, epilogue);"
            conv.map_w = tensor_map(name[4:], conv.w, conv.oc, taps, taps * 2, bn)
        else:
            bm, bn, a, b, line = (*self.tile, 64)[:5]
            if self.template == "simt":
                threads, bk, stages, pitch, ld = 32 * (bm // (8 * a)) * (bn // (4 * b)), 64 // size, 3, 80, (bn + 16 // size) * size
            else:
                threads, bk, stages, pitch, ld = 32 * (bm // a) * (bn // b), line // size, 4, line + 16, (bn + 8) * 4
            if self.template == "tf32":
                header, name = "mma", "cd::tf32"
            shared = max((bm + 2 * bk) * 16 + stages * (bm + bn) * pitch, bm * ld)
            blocks = math.ceil(pixels / bm) * math.ceil(conv.oc // conv.groups / bn) * conv.groups * self.split
            call = f"cd::conv_{header}<{name}, {bm}, {bn}, {a}, {b}, {self.split}{f', {line}' if header == 'mma' else ''}>(t, epilogue);"
        text = source(f"conv_{header}.h", call, bounds or threads, self.split, acc, body)
        return kernel(text, threads, shared), blocks


def describe(x, w, stride, padding, dilation, groups):
    n, ic, ih, iw = x.shape
    oc, _, kh, kw = w.shape
    oh = (ih + 2 * padding[0] - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    ow = (iw + 2 * padding[1] - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    packed = w.permute(0, 2, 3, 1).contiguous()
    conv = CudaConv2d(n, ic, ih, iw, oc, oh, ow, kh, kw, *stride, *padding, *dilation, groups, 1, x.data_ptr(), *x.stride(), packed.data_ptr(), None)
    return conv, packed


def guarded(shape, dtype, layout, offset=0):
    """A random tensor between NaN: the dimensions in the order of `layout` in memory, `offset` elements from an aligned address."""
    sizes = [shape[i] for i in layout]
    memory = torch.full((math.prod(sizes) + 128,), float("nan"), dtype=dtype, device="cuda")
    t = memory[64 + offset:64 + offset + math.prod(sizes)].view(sizes).permute([layout.index(i) for i in range(len(shape))])
    return t.copy_(torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype))


def run_case(variant, dtype, n, ic, ih, iw, oc, kernel_size, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, layout=(0, 2, 3, 1), offset=0):
    x = guarded((n, ic, ih, iw), dtype, layout, offset)
    w = torch.randn((oc, ic // groups, *kernel_size), device="cuda").to(dtype)
    if variant.template == "tf32":
        x.copy_(tf32(x)), w.copy_(tf32(w))
    conv, packed = describe(x, w, stride, padding, dilation, groups)
    result = torch.float64 if dtype == torch.float64 else torch.float32
    rows = n * conv.oh * conv.ow
    y = torch.full((rows, oc), float("nan"), dtype=result, device="cuda")
    hits = torch.zeros((rows, oc), dtype=torch.int32, device="cuda")
    k, blocks = variant.launch(dtype, conv, CHECKED % ("double" if dtype == torch.float64 else "float"))
    k(blocks, conv, Args(y.data_ptr(), hits.data_ptr(), oc))
    torch.cuda.synchronize()
    assert (hits == 1).all(), f"{variant}: {(hits != 1).sum().item()} elements do not come once"
    where = "cpu" if dtype != torch.float64 and rows * oc < 200000 else "cuda"
    xd, wd = x.double().to(where), w.double().to(where)
    want = torch.nn.functional.conv2d(xd, wd, None, stride, padding, dilation, groups)
    size = torch.nn.functional.conv2d(xd.abs(), wd.abs(), None, stride, padding, dilation, groups)
    got = y.view(n, conv.oh, conv.ow, oc).permute(0, 3, 1, 2).double().to(where)
    limit = 1e-13 if dtype == torch.float64 else 3e-6
    error = ((got - want).abs() / (size + 1e-30)).max().item() if want.numel() else 0.0
    assert error < limit, f"{variant}: relative error {error}"   # false for NaN too


NHWC, NCHW, ODD = (0, 2, 3, 1), (0, 1, 2, 3), (1, 3, 0, 2)
SIMT = [Variant("simt", (128, 64, 8, 8)), Variant("simt", (128, 64, 8, 4)), Variant("simt", (64, 64, 8, 4)), Variant("simt", (32, 32, 4, 4)),
        Variant("simt", (64, 64, 8, 4), 4), Variant("simt", (64, 64, 8, 4), 8), Variant("simt", (32, 32, 4, 4), 8)]
SIMT64 = [Variant("simt", (64, 64, 4, 4)), Variant("simt", (32, 32, 4, 4), 4)]
MMA = [Variant("mma", (128, 128, 64, 32)), Variant("mma", (128, 64, 64, 32)), Variant("mma", (64, 64, 32, 32)), Variant("mma", (64, 64, 32, 32), 4)]
TF32 = [Variant("tf32", (*v.tile, 128), v.split) for v in MMA] + [Variant("tf32", (128, 64, 64, 32, 128), 2), Variant("tf32", (64, 64, 32, 32, 64), 8)]
WGMMA = [Variant("wgmma", (2, 64, 4, 1)), Variant("wgmma", (2, 128, 5, 1)), Variant("wgmma", (2, 256, 4, 1)), Variant("wgmma", (3, 128, 4, 1)),
         Variant("wgmma", (2, 64, 3, 2)), Variant("wgmma", (2, 128, 6, 1), 2), Variant("wgmma", (2, 128, 6, 1), 4), Variant("wgmma", (3, 128, 5, 1), 2)]
CASES = [
    dict(n=2, ic=64, ih=14, iw=14, oc=128, kernel_size=(3, 3), padding=(1, 1)),
    dict(n=2, ic=64, ih=15, iw=13, oc=96, kernel_size=(3, 3), padding=(1, 1), stride=(2, 2)),
    dict(n=1, ic=3, ih=32, iw=32, oc=64, kernel_size=(7, 7), padding=(3, 3), stride=(2, 2), layout=NCHW),
    dict(n=2, ic=3, ih=31, iw=33, oc=17, kernel_size=(7, 7), padding=(3, 3), stride=(2, 2), layout=NHWC),
    dict(n=3, ic=24, ih=9, iw=11, oc=40, kernel_size=(1, 1)),
    dict(n=2, ic=48, ih=10, iw=9, oc=36, kernel_size=(3, 2), dilation=(2, 3), padding=(2, 1), groups=3),
    dict(n=2, ic=24, ih=10, iw=9, oc=21, kernel_size=(3, 3), padding=(1, 1), groups=3),
    dict(n=1, ic=16, ih=7, iw=7, oc=8, kernel_size=(5, 5), padding=(6, 6), layout=ODD),
    dict(n=1, ic=1, ih=1, iw=1, oc=1, kernel_size=(1, 1)),
    dict(n=1, ic=16, ih=5, iw=300, oc=65, kernel_size=(1, 3), padding=(0, 1), stride=(3, 1)),
    dict(n=2, ic=32, ih=8, iw=8, oc=64, kernel_size=(3, 3), padding=(1, 1), offset=1),
    dict(n=2, ic=264, ih=7, iw=7, oc=200, kernel_size=(3, 3), padding=(1, 1)),
    dict(n=0, ic=8, ih=5, iw=5, oc=8, kernel_size=(3, 3), padding=(1, 1)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("variant", SIMT, ids=repr)
def test_simt(variant, case):
    run_case(variant, torch.float32, **CASES[case])


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("variant", SIMT64, ids=repr)
def test_simt_double(variant, case):
    run_case(variant, torch.float64, **CASES[case])


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", MMA, ids=repr)
def test_mma(variant, dtype, case):
    run_case(variant, dtype, **CASES[case])


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("variant", TF32, ids=repr)
def test_tf32(variant, case):
    run_case(variant, torch.float32, **CASES[case])


hopper = pytest.mark.skipif(not torch.cuda.is_available() or device_arch() != "sm_90a", reason="needs an sm_90 GPU")
# What wgmma can have of CASES, and tiles that do not fill the machine or more than fill it.
FOR_WGMMA = [c for c in CASES if c["ic"] // c.get("groups", 1) % 8 == 0 and c.get("layout", NHWC) == NHWC and not c.get("offset") and c["n"]] + [
    dict(n=9, ic=64, ih=56, iw=56, oc=64, kernel_size=(3, 3), padding=(1, 1)),
    dict(n=3, ic=40, ih=33, iw=35, oc=264, kernel_size=(3, 3), padding=(1, 1), stride=(2, 1)),
    dict(n=2, ic=128, ih=16, iw=16, oc=130, kernel_size=(1, 1), stride=(2, 2)),
    dict(n=2, ic=256, ih=14, iw=14, oc=256, kernel_size=(3, 3), padding=(1, 1)),
    dict(n=1, ic=8, ih=6, iw=6, oc=8, kernel_size=(2, 2)),
    dict(n=2, ic=24, ih=10, iw=9, oc=63, kernel_size=(3, 3), padding=(1, 1), groups=3),
]


@hopper
@pytest.mark.parametrize("case", range(len(FOR_WGMMA)))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("variant", WGMMA, ids=repr)
def test_wgmma(variant, dtype, case):
    run_case(variant, dtype, **FOR_WGMMA[case])


@hopper
def test_wgmma_keeps_nan_apart():
    """A pixel that is not a number shows in its window only."""
    x = torch.randn(2, 64, 20, 20, device="cuda").to(torch.bfloat16).to(memory_format=torch.channels_last)
    x[1, 5, 7, 9] = float("nan")
    w = torch.randn(64, 64, 3, 3, device="cuda").to(torch.bfloat16)
    want = torch.nn.functional.conv2d(x.float(), w.float(), None, 1, 1)
    conv, packed = describe(x, w, (1, 1), (1, 1), (1, 1), 1)
    y = torch.empty(800, 64, device="cuda")
    k, blocks = WGMMA[0].launch(torch.bfloat16, conv, STORED % ("float", "float"))
    k(blocks, conv, Args(y.data_ptr(), None, 64))
    assert torch.equal(torch.isnan(y).view(2, 20, 20, 64).permute(0, 3, 1, 2), torch.isnan(want))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", [
    dict(n=3, ic=3, ih=61, iw=75, oc=64, kernel_size=(7, 7), padding=(3, 3), stride=(2, 2), layout=(0, 1, 2, 3)),
    dict(n=2, ic=3, ih=33, iw=31, oc=40, kernel_size=(7, 7), padding=(3, 3), stride=(2, 2)),
    dict(n=2, ic=3, ih=32, iw=32, oc=16, kernel_size=(3, 3), padding=(1, 1), stride=(2, 2), layout=(0, 1, 2, 3), offset=1),
    dict(n=1, ic=3, ih=16, iw=16, oc=130, kernel_size=(3, 3), padding=(1, 1), layout=(1, 3, 0, 2)),
    dict(n=40, ic=1, ih=28, iw=28, oc=20, kernel_size=(5, 5)),
    dict(n=1, ic=4, ih=9, iw=9, oc=7, kernel_size=(2, 3), padding=(1, 2)),
])
@pytest.mark.parametrize("bn", [16, 32, 64])
def test_few(case, dtype, bn):
    run_case(Variant("few", (bn,)), dtype, **case)


STRIPS = [
    dict(n=2, ic=32, ih=14, iw=14, kernel_size=(3, 3), padding=(1, 1)),
    dict(n=2, ic=72, ih=28, iw=27, kernel_size=(5, 5), padding=(2, 2), stride=(2, 2)),
    dict(n=1, ic=960, ih=7, iw=7, kernel_size=(5, 5), padding=(2, 2)),
    dict(n=3, ic=16, ih=9, iw=31, kernel_size=(3, 3), padding=(1, 0), stride=(2, 2)),
    dict(n=1, ic=8, ih=1, iw=40, kernel_size=(1, 9), padding=(0, 4)),
    dict(n=1, ic=8, ih=3, iw=3, kernel_size=(7, 7), padding=(3, 3)),
]


@pytest.mark.parametrize("dtype", list(NAMES))
@pytest.mark.parametrize("tile", [(4, 16), (2, 32), (1, 4), (4, 1), (8, 8)])
@pytest.mark.parametrize("case", range(len(STRIPS)))
def test_strip(case, tile, dtype):
    run_case(Variant("strip", tile), dtype, oc=STRIPS[case]["ic"], groups=STRIPS[case]["ic"], **STRIPS[case])


GROUPS = [
    dict(n=2, ic=32, ih=14, iw=14, oc=32, kernel_size=(3, 3), padding=(1, 1), groups=8),
    dict(n=2, ic=72, ih=28, iw=27, oc=72, kernel_size=(5, 5), padding=(2, 2), stride=(2, 2), groups=9),
    dict(n=5, ic=256, ih=17, iw=15, oc=256, kernel_size=(3, 3), padding=(1, 1), groups=16),
    dict(n=3, ic=64, ih=9, iw=31, oc=32, kernel_size=(3, 2), padding=(1, 0), stride=(2, 2), groups=8),
    dict(n=1, ic=16, ih=1, iw=40, oc=16, kernel_size=(1, 7), padding=(0, 3), groups=8),
    dict(n=1, ic=64, ih=3, iw=3, oc=128, kernel_size=(3, 3), padding=(3, 3), groups=8),
    dict(n=40, ic=128, ih=28, iw=28, oc=128, kernel_size=(3, 3), padding=(1, 1), groups=32),
    dict(n=0, ic=64, ih=5, iw=5, oc=64, kernel_size=(3, 3), padding=(1, 1), groups=4),
]


@pytest.mark.parametrize("dtype", list(NAMES))
@pytest.mark.parametrize("tile", [(4, 8), (2, 4), (1, 2), (3, 1)])
@pytest.mark.parametrize("case", range(len(GROUPS)))
def test_groups(case, tile, dtype):
    run_case(Variant("groups", tile), dtype, **GROUPS[case])


def test_groups_keep_infinities_apart():
    """A channel that is not finite shows in its own group only."""
    for dtype, channels in ((torch.bfloat16, 4), (torch.float32, 2), (torch.float16, 16)):
        x = torch.randn(2, 64, 20, 20, device="cuda").to(dtype).to(memory_format=torch.channels_last)
        x[1, 5, 7, 9], x[0, 63, 0, 0] = float("nan"), float("inf")
        w = torch.randn(64, channels, 3, 3, device="cuda").to(dtype)
        want = torch.nn.functional.conv2d(x.cpu().double(), w.cpu().double(), None, 1, 1, 1, 64 // channels)  # cuDNN lets them through
        conv, packed = describe(x, w, (1, 1), (1, 1), (1, 1), 64 // channels)
        y = torch.empty(800, 64, device="cuda")
        k, blocks = Variant("groups", (4, 4)).launch(dtype, conv, STORED % ("float", "float"))
        k(blocks, conv, Args(y.data_ptr(), None, 64))
        assert torch.equal(torch.isfinite(y).view(2, 20, 20, 64).permute(0, 3, 1, 2).cpu(), torch.isfinite(want))


@pytest.mark.parametrize("dtype", list(NAMES))
@pytest.mark.parametrize("case", [
    dict(n=2, ic=32, ih=14, iw=14, kernel_size=(3, 3), padding=(1, 1)),
    dict(n=2, ic=72, ih=28, iw=27, kernel_size=(5, 5), padding=(2, 2), stride=(2, 2)),
    dict(n=1, ic=19, ih=9, iw=8, kernel_size=(3, 3), padding=(2, 1), dilation=(2, 1)),
    dict(n=3, ic=16, ih=7, iw=7, kernel_size=(3, 3), padding=(1, 1), layout=NCHW),
    dict(n=1, ic=16, ih=7, iw=7, kernel_size=(3, 3), padding=(1, 1), offset=1),
    dict(n=1, ic=960, ih=7, iw=7, kernel_size=(5, 5), padding=(2, 2)),
    dict(n=1, ic=8, ih=1, iw=40, kernel_size=(1, 9)),
])
def test_depthwise(case, dtype):
    run_case(Variant("depthwise"), dtype, oc=case["ic"], groups=case["ic"], **case)


@pytest.mark.parametrize("dtype", list(NAMES))
def test_random(dtype):
    rng = random.Random(5)
    variants = {torch.float32: SIMT, torch.float64: SIMT64}.get(dtype, MMA)
    for _ in range(40):
        groups = rng.choice([1, 1, 1, 2, 4])
        kernel_size = (rng.randint(1, 4), rng.randint(1, 4))
        dilation = (rng.randint(1, 2), rng.randint(1, 2))
        ih, iw = (rng.randint(d * (k - 1) + 1, 20) for k, d in zip(kernel_size, dilation))
        run_case(rng.choice(variants), dtype, rng.randint(1, 4), groups * rng.choice([1, 3, 8, 16, 20, 64]), ih, iw, groups * rng.choice([1, 7, 8, 32, 70]),
                 kernel_size, (rng.randint(1, 3), rng.randint(1, 3)), (rng.randint(0, 3), rng.randint(0, 3)), dilation, groups,
                 rng.choice([NHWC, NHWC, NCHW, ODD]), rng.choice([0, 0, 1]))


if __name__ == "__main__":
    if "--bench" in sys.argv:
        import conv_times
        conv_times.bench([p for p in sys.argv[1:] if p != "--bench"])
    else:
        sys.exit(pytest.main(["-q", __file__]))
