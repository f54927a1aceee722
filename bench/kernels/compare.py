"""The device library's kernels next to PyTorch (oneDNN, MKL), shape by shape, taking turns in one process.

  python compare.py LIBRARY [gemm|bmm|resnet18|resnet50|mobilenet|small|depthwise|grouped|few|attention ...] [--threads 2] [--isa 4] [--dtype float32] [--match RESNET] [--winograd 4] [--implicit] [--rows-of-k] [--images 1]

LIBRARY is built by build.sh. Times are lower quartiles, the best of the turns; a turn of each side follows the
other, with a pause for the other's threads to go to sleep. Weights are packed before the timing on both sides (PyTorch: mkldnn-prepacked linear and convolution). With --threads 1 processor time is taken, which busy neighbours do not stretch."""
import argparse
import ctypes as C
import math
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")
import torch
import torch.nn.functional as F

I64, I32, PTR = C.c_int64, C.c_int32, C.c_void_p
DTYPES = {torch.float32: 6, torch.bfloat16: 15, torch.float16: 5}
PANEL = 32


def fields(spec):
    kinds = {"i": I64, "p": PTR, "s": I32, "f": C.c_float}
    return [(name, kinds[kind]) for kind, names in spec for name in names.split()]


class Gemm(C.Structure):
    _fields_ = fields([("i", "batch m n k"), ("p", "a"), ("i", "a_batch a_row a_col"), ("p", "b"), ("i", "b_batch b_row b_col"),
                       ("p", "c"), ("i", "c_batch c_row"), ("s", "dtype b_packed block_tiles block_panels"), ("p", "epilogue context scratch"),
                       ("s", "b_bits"), ("i", "b_group"), ("p", "b_scale b_zero"), ("s", "b_scale_dtype b_zero_dtype b_no_least b_pairs b_tables_packed"),
                       ("p", "ends"), ("s", "ends_wide by_depth"), ("p", "flag")])


class Conv2d(C.Structure):
    _fields_ = fields([("i", "n ic ih iw oc oh ow kh kw stride_h stride_w pad_h pad_w dilation_h dilation_w groups"), ("p", "x"),
                       ("i", "x_n x_c x_h x_w"), ("p", "w"), ("i", "w_o w_i w_h w_w"), ("p", "y"), ("s", "dtype depthwise narrow_groups few_outputs winograd w_plain implicit block_tiles block_panels x_zero w_pairs"),
                       ("p", "w_direct epilogue context scratch")])


class Attention(C.Structure):
    _fields_ = fields([("i", "batch heads kv_heads q_len kv_len dim v_dim"), ("p", "q"), ("i", "q_batch q_head q_row"),
                       ("p", "k"), ("i", "k_batch k_head k_row"), ("p", "v"), ("i", "v_batch v_head v_row past"),
                       ("p", "k_past"), ("i", "k_past_batch k_past_head k_past_row"), ("p", "v_past"), ("i", "v_past_batch v_past_head v_past_row"),
                       ("s", "keep_k_past keep_v_past"), ("p", "mask"), ("i", "mask_batch mask_head mask_row mask_col"),
                       ("s", "mask_dtype causal masked_rows_zero dtype"), ("f", "scale highest_fill"), ("p", "o"),
                       ("i", "o_batch o_head o_row"), ("p", "scratch"), ("s", "block_tiles block_panels")])


def panels(b):
    """[k, n] -> [ceil(n/32)][k][32]"""
    k, n = b.shape
    padded = torch.zeros(k, (n + PANEL - 1) // PANEL * PANEL, dtype=b.dtype)
    padded[:, :n] = b
    return padded.view(k, -1, PANEL).permute(1, 0, 2).contiguous()


def in_pairs(packed):
    """[ceil(n/32)][k][32] -> [ceil(n/32)][k/2][32][2]"""
    count, k, columns = packed.shape
    return packed.view(count, k // 2, 2, columns).transpose(2, 3).contiguous()


def winograd_weight(w, tile):
    """[oc, ic, 3, 3] -> [ceil(oc/32)][(tile + 2)^2][ic][32], as src/templates/packing.cc"""
    points = torch.tensor([0, 1, -1] if tile == 2 else [0, 0.5**0.5, -(0.5**0.5), 2**0.5, -(2**0.5)], dtype=torch.float64)
    g = torch.stack([points**0, points, points**2], 1) / torch.tensor([-1, 2, 2] if tile == 2 else [1, -1.5, -1.5, 6, 6])[:, None]
    g = torch.cat([g, torch.tensor([[0.0, 0, 1]])])
    oc, ic = w.shape[:2]
    places = torch.zeros((tile + 2) ** 2, ic, (oc + PANEL - 1) // PANEL * PANEL)
    places[:, :, :oc] = torch.einsum("ip,ocpq,jq->ijco", g, w.double(), g).reshape(-1, ic, oc).float()
    return places.view(len(places), ic, -1, PANEL).permute(2, 0, 1, 3).contiguous()


class Bench:
    def __init__(self, args):
        self.args = args
        self.lib = C.CDLL(args.library)
        for name in ("bench_gemm", "bench_conv2d", "bench_attention", "fma_peak"):
            getattr(self.lib, name).restype = C.c_double
        self.peak = self.lib.fma_peak() * args.threads
        self.totals = {}

    def run(self, group, name, flops, ours, theirs, check=None):
        if self.args.match and self.args.match.lower() not in (group + " " + name).lower():
            return
        clock = time.thread_time if self.args.threads == 1 else time.perf_counter
        theirs()
        start = clock()
        theirs()
        repeats = max(3, min(300, int(0.05 / max(clock() - start, 1e-6))))
        mine, other = [], []
        for _ in range(self.args.turns):
            mine.append(ours(repeats))
            time.sleep(0.002)
            times = []
            for _ in range(repeats):
                start = clock()
                theirs()
                times.append(clock() - start)
            other.append(sorted(times)[repeats // 4])
            time.sleep(0.03)
        a, b = min(mine), min(other)
        error = check() if check else 0
        print(f"{group:12} {name:34} {a * 1e6:9.1f} us {flops / a * 1e-9:7.1f} GFLOP/s {100e-9 * flops / a / self.peak:5.1f} % "
              f"| torch {b * 1e6:9.1f} us {flops / b * 1e-9:7.1f} | {b / a:5.2f}x  err {error:.1e}", flush=True)
        total = self.totals.setdefault(group, [0.0, 0.0])
        total[0] += a * self.args.count
        total[1] += b * self.args.count

    def pairs(self, dtype, k, rows):
        """As constants of bfloat16 are packed."""
        return dtype == torch.bfloat16 and k % 32 == 0 and rows >= 8 and not self.args.rows_of_k

    def gemm(self, name, m, n, k, dtype, batch=1, packed=True):
        a = torch.randn(batch, m, k).to(dtype)
        w = torch.randn(batch, n, k).to(dtype)
        c = torch.empty(batch, m, n, dtype=dtype)
        b = panels(w[0].t()) if packed else w
        pairs = self.pairs(dtype, k, m) and packed
        b = in_pairs(b) if pairs else b
        g = Gemm(batch=batch, m=m, n=n, k=k, a=a.data_ptr(), a_batch=m * k, a_row=k, a_col=1, b=b.data_ptr(), b_batch=n * k,
                 b_row=1, b_col=k, c=c.data_ptr(), c_batch=m * n, c_row=n, dtype=DTYPES[dtype], b_packed=packed, b_pairs=pairs)
        if packed:
            linear = torch.ops.mkldnn._linear_pointwise
            packed_w = torch.ops.mkldnn._reorder_linear_weight(w[0], m) if dtype == torch.float32 else None
            x = a[0]
            if packed_w is not None:
                reference = lambda: linear(x, packed_w, None, "none", [], "")
            else:
                reference = lambda: F.linear(x, w[0])
        else:
            wt = w.transpose(1, 2)
            reference = lambda: torch.bmm(a, wt)
        self.run("gemm", name, 2.0 * batch * m * n * k,
                 lambda r: self.lib.bench_gemm(self.args.isa, C.byref(g), r, self.args.threads), reference,
                 lambda: ((c.float() - reference().float().view_as(c)).abs().max() / c.float().abs().max()).item())

    def conv(self, group, name, ic, size, oc, kernel, stride, dtype, groups=1, nchw=False, n=1):
        pad = kernel // 2
        x = torch.randn(n, ic, size, size).to(dtype)
        if not nchw:
            x = x.contiguous(memory_format=torch.channels_last)
        w = torch.randn(oc, ic // groups, kernel, kernel).to(dtype)
        out = (size + 2 * pad - kernel) // stride + 1
        y = torch.empty(n, out, out, oc, dtype=dtype)
        depthwise, narrow = groups > 1 and groups == ic, 1 < groups < ic and not self.args.implicit
        winograd = self.args.winograd if kernel == 3 and stride == 1 and groups == 1 and ic % 16 == 0 and dtype == torch.float32 else 0
        few = oc <= 8 and ic >= 16 and not self.args.implicit
        parts = [w] if depthwise or narrow else w.chunk(groups)
        packed = w.permute(0, 2, 3, 1).contiguous() if few else winograd_weight(w, winograd) if winograd else torch.cat([panels(p.permute(2, 3, 1, 0).reshape(-1, len(p))) for p in parts])
        pairs = self.pairs(dtype, ic // groups, n * out * out) and not (few or depthwise or narrow)
        packed = in_pairs(packed) if pairs else packed
        sn, sc, sh, sw = x.stride()
        g = Conv2d(n=n, ic=ic, ih=size, iw=size, oc=oc, oh=out, ow=out, kh=kernel, kw=kernel, stride_h=stride, stride_w=stride,
                   pad_h=pad, pad_w=pad, dilation_h=1, dilation_w=1, groups=groups, x=x.data_ptr(), x_n=sn, x_c=sc, x_h=sh,
                   x_w=sw, w=packed.data_ptr(), y=y.data_ptr(), dtype=DTYPES[dtype], depthwise=depthwise, narrow_groups=narrow, few_outputs=few, winograd=winograd,
                   implicit=self.args.implicit, w_pairs=pairs)
        prepacked = torch.ops.mkldnn._reorder_convolution_weight(
            w.contiguous(memory_format=torch.channels_last), [pad, pad], [stride, stride], [1, 1], groups, list(x.shape))
        reference = lambda: torch.ops.mkldnn._convolution_pointwise(
            x, prepacked, None, [pad, pad], [stride, stride], [1, 1], groups, "none", [], "")
        flops = 2.0 * n * out * out * oc * ic // groups * kernel * kernel
        self.run(group, name, flops, lambda r: self.lib.bench_conv2d(self.args.isa, C.byref(g), r, self.args.threads), reference,
                 lambda: ((y.float() - reference().permute(0, 2, 3, 1).float()).abs().max() / y.float().abs().max()).item())

    def attention(self, name, batch, heads, kv_heads, q_len, kv_len, dim, causal, dtype, mask=None):
        """mask: the heads and batches of a float mask with a row for each query."""
        q = torch.randn(batch, q_len, heads, dim).to(dtype).transpose(1, 2)
        k = torch.randn(batch, kv_len, kv_heads, dim).to(dtype).transpose(1, 2)
        v = torch.randn(batch, kv_len, kv_heads, dim).to(dtype).transpose(1, 2)
        o = torch.empty(batch, q_len, heads, dim, dtype=dtype).transpose(1, 2)
        g = Attention(batch=batch, heads=heads, kv_heads=kv_heads, q_len=q_len, kv_len=kv_len, dim=dim, v_dim=dim, causal=causal,
                      masked_rows_zero=1, dtype=DTYPES[dtype], scale=dim ** -0.5, highest_fill=math.nan)
        for letter, tensor in zip("qkvo", (q, k, v, o)):
            setattr(g, letter, tensor.data_ptr())
            for part, stride in zip(("batch", "head", "row"), tensor.stride()):
                setattr(g, f"{letter}_{part}", stride)
        if mask:
            bias = torch.randn(*mask, q_len, kv_len)
            g.mask, g.mask_dtype = bias.data_ptr(), DTYPES[torch.float32]
            g.mask_batch, g.mask_head, g.mask_row, g.mask_col = (0 if size == 1 else stride for size, stride in zip(bias.shape, bias.stride()))
            bias = bias.to(dtype)
        reference = lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=bias if mask else None, is_causal=causal, enable_gqa=heads != kv_heads)
        flops = 4.0 * batch * heads * q_len * kv_len * dim * (0.5 if causal else 1)
        self.run("attention", name, flops, lambda r: self.lib.bench_attention(self.args.isa, C.byref(g), r, self.args.threads),
                 reference, lambda: ((o.float() - reference().float()).abs().max() / o.float().abs().max()).item())


# name, channels in, size in, channels out, kernel, stride, how many in the model
RESNET18 = [("conv1", 3, 224, 64, 7, 2, 1), ("layer1", 64, 56, 64, 3, 1, 4), ("layer2.0", 64, 56, 128, 3, 2, 1),
            ("layer2.down", 64, 56, 128, 1, 2, 1), ("layer2", 128, 28, 128, 3, 1, 3), ("layer3.0", 128, 28, 256, 3, 2, 1),
            ("layer3.down", 128, 28, 256, 1, 2, 1), ("layer3", 256, 14, 256, 3, 1, 3), ("layer4.0", 256, 14, 512, 3, 2, 1),
            ("layer4.down", 256, 14, 512, 1, 2, 1), ("layer4", 512, 7, 512, 3, 1, 3)]
RESNET50 = [("conv1", 3, 224, 64, 7, 2, 1), ("l1 64-64 1x1", 64, 56, 64, 1, 1, 1), ("l1 3x3", 64, 56, 64, 3, 1, 3),
            ("l1 64-256 1x1", 64, 56, 256, 1, 1, 4), ("l1 256-64 1x1", 256, 56, 64, 1, 1, 2),
            ("l2 256-128 1x1", 256, 56, 128, 1, 1, 1), ("l2 3x3 s2", 128, 56, 128, 3, 2, 1),
            ("l2 128-512 1x1", 128, 28, 512, 1, 1, 4), ("l2 down", 256, 56, 512, 1, 2, 1), ("l2 512-128 1x1", 512, 28, 128, 1, 1, 3),
            ("l2 3x3", 128, 28, 128, 3, 1, 3), ("l3 512-256 1x1", 512, 28, 256, 1, 1, 1), ("l3 3x3 s2", 256, 28, 256, 3, 2, 1),
            ("l3 256-1024 1x1", 256, 14, 1024, 1, 1, 6), ("l3 down", 512, 28, 1024, 1, 2, 1),
            ("l3 1024-256 1x1", 1024, 14, 256, 1, 1, 5), ("l3 3x3", 256, 14, 256, 3, 1, 5),
            ("l4 1024-512 1x1", 1024, 14, 512, 1, 1, 1), ("l4 3x3 s2", 512, 14, 512, 3, 2, 1),
            ("l4 512-2048 1x1", 512, 7, 2048, 1, 1, 3), ("l4 down", 1024, 14, 2048, 1, 2, 1),
            ("l4 2048-512 1x1", 2048, 7, 512, 1, 1, 2), ("l4 3x3", 512, 7, 512, 3, 1, 2)]
# MobileNet-V3 large: the 1x1 and first convolutions, and the depthwise ones (7x7: ConvNeXt's).
MOBILENET = [("first", 3, 224, 16, 3, 2, 1), ("16-16", 16, 112, 16, 1, 1, 1), ("16-64", 16, 112, 64, 1, 1, 1),
             ("64-24", 64, 56, 24, 1, 1, 1), ("24-72", 24, 56, 72, 1, 1, 2), ("72-24", 72, 56, 24, 1, 1, 1),
             ("72-40", 72, 28, 40, 1, 1, 1), ("40-120", 40, 28, 120, 1, 1, 2), ("120-40", 120, 28, 40, 1, 1, 2),
             ("40-240", 40, 28, 240, 1, 1, 1), ("240-80", 240, 14, 80, 1, 1, 1), ("80-200", 80, 14, 200, 1, 1, 1),
             ("200-80", 200, 14, 80, 1, 1, 1), ("80-184", 80, 14, 184, 1, 1, 2), ("184-80", 184, 14, 80, 1, 1, 2),
             ("80-480", 80, 14, 480, 1, 1, 1), ("480-112", 480, 14, 112, 1, 1, 1), ("112-672", 112, 14, 672, 1, 1, 2),
             ("672-112", 672, 14, 112, 1, 1, 1), ("672-160", 672, 7, 160, 1, 1, 1), ("160-960", 160, 7, 960, 1, 1, 3),
             ("960-160", 960, 7, 160, 1, 1, 2)]
# Small maps: images, channels in, size, channels out, kernel, stride
SMALL = [("digits conv1", 64, 1, 8, 16, 3, 1), ("digits conv2", 64, 16, 4, 32, 3, 1), ("digits conv3", 64, 32, 4, 32, 3, 1),
         ("cifar first", 32, 3, 32, 32, 3, 1), ("32 at 14", 16, 32, 14, 32, 3, 1), ("64 at 8", 32, 64, 8, 64, 3, 1),
         ("64 at 8 s2", 32, 64, 8, 128, 3, 2), ("32 at 8 5x5", 16, 32, 8, 32, 5, 1), ("256 at 7", 8, 256, 7, 256, 3, 1)]
DEPTHWISE = [("16 112 3x3", 16, 112, 3, 1, 1), ("64 112 3x3 s2", 64, 112, 3, 2, 1), ("72 56 3x3", 72, 56, 3, 1, 1),
             ("72 56 5x5 s2", 72, 56, 5, 2, 1), ("120 28 5x5", 120, 28, 5, 1, 2), ("240 28 3x3 s2", 240, 28, 3, 2, 1),
             ("200 14 3x3", 200, 14, 3, 1, 1), ("184 14 3x3", 184, 14, 3, 1, 2), ("480 14 3x3", 480, 14, 3, 1, 1),
             ("672 14 3x3", 672, 14, 3, 1, 1), ("672 14 5x5 s2", 672, 14, 5, 2, 1), ("960 7 5x5", 960, 7, 5, 1, 2),
             ("96 56 7x7", 96, 56, 7, 1, 3), ("192 28 7x7", 192, 28, 7, 1, 3), ("384 14 7x7", 384, 14, 7, 1, 9), ("768 7 7x7", 768, 7, 7, 1, 3)]
# channels, size, channels of a group, stride
GROUPED = [("resnext 4", 128, 56, 4, 1, 3), ("resnext 8 s2", 256, 56, 8, 2, 1), ("resnext 8", 256, 28, 8, 1, 3), ("resnext 16 s2", 512, 28, 16, 2, 1),
           ("resnext 16", 512, 14, 16, 1, 5), ("resnext 32 s2", 1024, 14, 32, 2, 1), ("resnext 32", 1024, 7, 32, 1, 2), ("regnet 8", 48, 56, 8, 2, 1),
           ("regnet 16", 112, 28, 16, 1, 5), ("regnet 24", 168, 28, 24, 1, 3), ("regnet 24 14", 408, 14, 24, 1, 9), ("regnet 48", 432, 14, 48, 1, 9), ("wide 64", 512, 14, 64, 1, 1)]
# channels, size, channels out, kernel
FEW = [("decoder 128-3", 128, 128, 3, 3), ("decoder 64-3", 64, 128, 3, 3), ("320-4", 320, 64, 4, 3), ("depth 32-1", 32, 128, 1, 3), ("head 64-1 1x1", 64, 128, 1, 1),
       ("head 256-4 1x1", 256, 64, 4, 1), ("7x7 64-3", 64, 128, 3, 7), ("1280-2 1x1", 1280, 7, 2, 1), ("24-2", 24, 64, 2, 3),
       ("64-5", 64, 64, 5, 3), ("64-8", 64, 64, 8, 3), ("512-8", 512, 32, 8, 3), ("256-8 1x1", 256, 64, 8, 1)]
GEMM = [("square 1024", 1024, 1024, 1024), ("square 256", 256, 256, 256), ("256x1024x1024", 256, 1024, 1024),
        ("bert qkv 128x2304x768", 128, 2304, 768), ("bert ffn1 128x3072x768", 128, 3072, 768), ("bert ffn2 128x768x3072", 128, 768, 3072),
        ("vit 197x768x768", 197, 768, 768), ("decode 1x2304x768", 1, 2304, 768), ("decode 1x4096x4096", 1, 4096, 4096),
        ("decode 4x4096x4096", 4, 4096, 4096), ("decode 8x4096x1024", 8, 4096, 1024), ("head 1x50257x768", 1, 50257, 768),
        ("fc 1x1000x512", 1, 1000, 512), ("mlp 32x512x784", 32, 512, 784), ("mlp 32x10x512", 32, 10, 512), ("tiny 8x32x32", 8, 32, 32),
        ("odd 560x1280x3420", 560, 1280, 3420), ("odd 1024x1280x3420", 1024, 1280, 3420), ("odd 2048x1280x3420", 2048, 1280, 3420)]
UNPACKED = [("bmm 12x128x128x64", 12, 128, 128, 64), ("bmm 12x512x512x64", 12, 512, 512, 64), ("mm 512x512x512", 1, 512, 512, 512),
            ("mm 1x1024x1024", 1, 1, 1024, 1024)]
ATTENTION = [("minilm 8x12h 128", 8, 12, 12, 128, 128, 32, False), ("whisper 6h 1500", 1, 6, 6, 1500, 1500, 64, False),
             ("bert 12h 128", 1, 12, 12, 128, 128, 64, False), ("bert 12h 512", 1, 12, 12, 512, 512, 64, False),
             ("vit 12h 197", 1, 12, 12, 197, 197, 64, False), ("gpt2 12h 512 causal", 1, 12, 12, 512, 512, 64, True),
             ("llama 32h/8 512 causal", 1, 32, 8, 512, 512, 128, True), ("decode 12h 1x512", 1, 12, 12, 1, 512, 64, False),
             ("decode 32h/8 1x2048", 1, 32, 8, 1, 2048, 128, False), ("long 8h 2048", 1, 8, 8, 2048, 2048, 64, False)]
MASKED = [("swin 64x3h 49 bias", 64, 3, 3, 49, 49, 32, (1, 3)), ("swin 64x3h 49 shifted", 64, 3, 3, 49, 49, 32, (64, 3)), ("swin 4x12h 49 shifted", 4, 12, 12, 49, 49, 32, (4, 12)),
          ("swin v2 4x12h 64 bias", 4, 12, 12, 64, 64, 32, (1, 12)), ("t5 8h 128 bias", 1, 8, 8, 128, 128, 64, (1, 8)), ("bert 8x12h 128 mask", 8, 12, 12, 128, 128, 64, (8, 1)),
          ("t5 8h 512 bias", 1, 8, 8, 512, 512, 64, (1, 8))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("groups", nargs="*", default=["gemm", "bmm", "resnet18", "resnet50", "mobilenet", "small", "depthwise", "grouped", "few", "attention"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--winograd", type=int, choices=[2, 4], default=0, metavar="TILE", help="3x3 convolutions with weights transformed for tiles of 2x2 or 4x4 outputs")
    parser.add_argument("--implicit", action="store_true", help="by the implicit product")
    parser.add_argument("--rows-of-k", action="store_true", help="weights of bfloat16 in rows of k, not in pairs")
    parser.add_argument("--images", type=int, default=1, help="of the networks' convolutions")
    parser.add_argument("--match", default="")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    args.count = 1
    bench, dtype = Bench(args), getattr(torch, args.dtype)
    print(f"FMA peak of {args.threads} threads: {bench.peak:.0f} GFLOP/s; kernels for x86-64-v{args.isa}, {args.dtype}")
    for group in args.groups:
        if group == "gemm":
            for name, m, n, k in GEMM:
                bench.gemm(name, m, n, k, dtype)
        elif group == "bmm":
            for name, batch, m, n, k in UNPACKED:
                bench.gemm(name, m, n, k, dtype, batch, packed=False)
        elif group == "attention":
            for name, *shape in ATTENTION:
                bench.attention(name, *shape, dtype)
            for name, *shape, mask in MASKED:
                bench.attention(name, *shape, False, dtype, mask)
        elif group == "small":
            for name, n, ic, size, oc, kernel, stride in SMALL:
                bench.conv(group, name, ic, size, oc, kernel, stride, dtype, n=n)
        elif group == "depthwise":
            for name, channels, size, kernel, stride, args.count in DEPTHWISE:
                bench.conv(group, name, channels, size, channels, kernel, stride, dtype, groups=channels, n=args.images)
        elif group == "few":
            for name, ic, size, oc, kernel in FEW:
                bench.conv(group, name, ic, size, oc, kernel, 1, dtype, n=args.images)
        elif group == "grouped":
            for name, channels, size, width, stride, args.count in GROUPED:
                bench.conv(group, name, channels, size, channels, 3, stride, dtype, groups=channels // width, n=args.images)
        else:
            for name, ic, size, oc, kernel, stride, args.count in {"resnet18": RESNET18, "resnet50": RESNET50, "mobilenet": MOBILENET}[group]:
                bench.conv(group, name, ic, size, oc, kernel, stride, dtype, nchw=ic == 3, n=args.images)
        args.count = 1
    for group, (a, b) in bench.totals.items():
        print(f"total {group}: {a * 1e3:.2f} ms, torch {b * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
