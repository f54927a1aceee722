"""Times of the CUDA convolution templates beside cuDNN: test_conv.py --bench [PART...]."""
import math

import torch
from cuda_kernels import device_arch, microseconds
from test_conv import MMA, NAMES, STORED, Args, Variant, describe


def bench_case(dtype, variants, name, n, ic, size, oc, k, stride=1, nchw=False, groups=1):
    padding, rounds = k // 2, variants[0].template == "tf32"
    torch.backends.cudnn.allow_tf32 = rounds
    x = torch.randn(n, ic, size, size, device="cuda", dtype=dtype)
    w = torch.randn(oc, ic // groups, k, k, device="cuda", dtype=dtype) / math.sqrt(ic // groups * k * k)
    if not nchw:
        x = x.to(memory_format=torch.channels_last)
    conv, packed = describe(x, w, (stride, stride), (padding, padding), (1, 1), groups)
    y = torch.empty(n * conv.oh * conv.ow, oc, device="cuda", dtype=dtype)
    flops = 2 * n * conv.oh * conv.ow * oc * k * k * ic // groups
    results = []
    for v in variants:
        call, blocks = v.launch(dtype, conv, STORED % (NAMES[dtype], NAMES[dtype]))
        args = Args(y.data_ptr(), None, oc)
        results.append((microseconds(lambda: call(blocks, conv, args)), f"{v}", blocks))
    wl = w.to(memory_format=torch.channels_last)
    peer = microseconds(lambda: torch.nn.functional.conv2d(x, wl, None, stride, padding, 1, groups))
    if not nchw:
        want = torch.nn.functional.conv2d(x, wl, None, stride, padding, 1, groups).permute(0, 2, 3, 1).reshape(-1, oc).float()
        assert (y.float() - want).abs().max() < (1e-3 if dtype == torch.float32 and not rounds else 0.1)
    results.sort()
    best = results[0]
    rest = "  ".join(f"{name}:{t:.1f}" for t, name, _ in results[1:14])
    print(f"{name:34} best {best[0]:8.1f} us {flops / best[0] / 1e6:7.1f} TFLOP/s  {best[1]:28} ({best[2]} blocks)  cudnn {peer:8.1f} us | {rest}", flush=True)
    return best[0], peer


def total(rows):
    print(f"{'sum, each as often as in the net':34} best {sum(c * a for c, (a, _) in rows):8.1f} us   cudnn {sum(c * b for c, (_, b) in rows):8.1f} us", flush=True)


RESNET18 = [(1, ("conv1 7x7/2 3>64 NCHW", 2, 3, 224, 64, 7, 2, True)), (4, ("3x3 64 56", 2, 64, 56, 64, 3)), (1, ("3x3/2 64>128 56", 2, 64, 56, 128, 3, 2)),
            (3, ("3x3 128 28", 2, 128, 28, 128, 3)), (1, ("1x1/2 64>128 56", 2, 64, 56, 128, 1, 2)), (1, ("3x3/2 128>256 28", 2, 128, 28, 256, 3, 2)),
            (3, ("3x3 256 14", 2, 256, 14, 256, 3)), (1, ("1x1/2 128>256 28", 2, 128, 28, 256, 1, 2)), (1, ("3x3/2 256>512 14", 2, 256, 14, 512, 3, 2)),
            (3, ("3x3 512 7", 2, 512, 7, 512, 3)), (1, ("1x1/2 256>512 14", 2, 256, 14, 512, 1, 2))]
# Its 1x1 convolutions of stride 1 are matrix products and not here.
RESNET50 = [(3, ("3x3 64 56", 32, 64, 56, 64, 3)), (1, ("3x3/2 128 56", 32, 128, 56, 128, 3, 2)), (3, ("3x3 128 28", 32, 128, 28, 128, 3)),
            (1, ("1x1/2 256>512 56", 32, 256, 56, 512, 1, 2)), (1, ("3x3/2 256 28", 32, 256, 28, 256, 3, 2)), (5, ("3x3 256 14", 32, 256, 14, 256, 3)),
            (1, ("1x1/2 512>1024 28", 32, 512, 28, 1024, 1, 2)), (1, ("3x3/2 512 14", 32, 512, 14, 512, 3, 2)), (2, ("3x3 512 7", 32, 512, 7, 512, 3)),
            (1, ("1x1/2 1024>2048 14", 32, 1024, 14, 2048, 1, 2))]
SMALL = [("3x3 64 56 batch 1", 1, 64, 56, 64, 3), ("3x3 128 28 batch 1", 1, 128, 28, 128, 3), ("3x3 256 14 batch 1", 1, 256, 14, 256, 3),
         ("3x3 512 7 batch 1", 1, 512, 7, 512, 3), ("3x3 128 28 batch 8", 8, 128, 28, 128, 3), ("3x3 512 7 batch 8", 8, 512, 7, 512, 3)]


def bench(parts):
    """Parts: f32, tf32, bf16, mma, first, depthwise; all without any."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    print(torch.cuda.get_device_name(), torch.__version__)
    f32, bf16 = torch.float32, torch.bfloat16
    wanted = lambda part: not parts or part in parts
    if wanted("f32"):
        tiles = [(128, 64, 8, 8), (128, 64, 8, 4), (64, 64, 8, 4), (32, 32, 4, 4), (32, 64, 4, 4)]
        variants = [Variant("simt", t, s) for t in tiles for s in (1, 2, 4, 8) if not (s == 8 and t[0] == 128)]
        print("ResNet-18, batch 2, float32")
        total([(count, bench_case(f32, [v for v in variants if v.split == 1 or case[2] != 3], *case)) for count, case in RESNET18])
    if wanted("tf32"):
        tiles = [(128, 128, 64, 32, 128), (128, 64, 64, 32, 128), (64, 64, 32, 32, 128), (64, 64, 32, 32, 64), (64, 64, 32, 32, 256), (64, 128, 32, 64, 128)]
        variants = [Variant("tf32", t, s) for t in tiles for s in (1, 2, 4, 8)]
        print("ResNet-18, batch 2, float32 as tf32")
        total([(count, bench_case(f32, [v for v in variants if v.split == 1 or case[2] != 3], *case)) for count, case in RESNET18])
    if wanted("bf16") and device_arch() == "sm_90a":
        variants = [Variant("wgmma", t) for t in ((2, 64, 6, 1), (2, 64, 3, 2), (2, 128, 5, 1), (2, 256, 4, 1), (3, 128, 4, 1), (3, 64, 5, 1))]
        variants += [Variant("wgmma", t, s) for t in ((2, 128, 6, 1), (3, 128, 5, 1), (2, 64, 8, 1), (2, 256, 4, 1)) for s in (2, 4)]
        print("ResNet-50, batch 32, bfloat16, wgmma")
        total([(count, bench_case(bf16, variants, *case)) for count, case in RESNET50])
        for case in SMALL:
            bench_case(bf16, variants + [Variant("wgmma", (2, 64, 8, 1), 8), Variant("wgmma", (2, 128, 6, 1), 8), MMA[-1], Variant("mma", (64, 64, 32, 32), 8)], *case)
    if wanted("mma"):
        variants = MMA + [Variant("mma", t, 2) for t in ((128, 128, 64, 32), (128, 64, 64, 32))] + [Variant("mma", (64, 128, 32, 32))]
        print("ResNet-50, batch 32, bfloat16, mma")
        total([(count, bench_case(bf16, variants, *case)) for count, case in RESNET50])
    if wanted("first"):
        print("first layers, bfloat16")
        for bn, case in [((64, 32), ("7x7/2 3>64 224 NCHW", 32, 3, 224, 64, 7, 2, True)), ((64, 32), ("7x7/2 3>64 224", 32, 3, 224, 64, 7, 2)),
                         ((16, 32), ("3x3/2 3>16 224 NCHW", 8, 3, 224, 16, 3, 2, True)), ((64, 32), ("7x7/2 3>64 224 NCHW batch 1", 1, 3, 224, 64, 7, 2, True))]:
            bench_case(bf16, [Variant("few", (b,)) for b in bn] + [MMA[1]], *case)
    if wanted("depthwise"):
        print("depthwise (MobileNet-V3)")
        for dtype in (f32, bf16):
            for name, n, c, size, k, stride in [("3x3 16 112", 8, 16, 112, 3, 1), ("3x3/2 64 112", 8, 64, 112, 3, 2), ("5x5 120 28", 8, 120, 28, 5, 1), ("5x5 960 7", 8, 960, 7, 5, 1),
                                                ("3x3 240 14", 8, 240, 14, 3, 1), ("5x5/2 672 14", 8, 672, 14, 5, 2), ("3x3 16 112 batch 64", 64, 16, 112, 3, 1)]:
                groups = c // (16 // dtype.itemsize)
                variants = [Variant("strip", (strip, cg)) for strip in (1, 2, 4) for cg in (1, 2, 4, 8, 16, 32) if cg < 2 * groups and (cg >= groups or cg >= 8)]
                bench_case(dtype, variants, f"{name} {dtype}", n, c, size, c, k, stride, groups=c)
