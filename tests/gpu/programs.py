"""The programs that the CUDA target is tested with: the zoo's, and more that exercise each way of the generator at GPU sizes.

programs() is {name: Program}; faults() are programs with indices that are out of range. All inputs are made on the CPU with a
fixed seed, so that a program is the same wherever it is exported.
"""

import functools
import json
import pathlib
import sys
import zipfile

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests/models"))

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import case as zoo_case
from case import BF16, BOOL, F16, F32, F64, I32, I64, U8, Case, Lazy, Program, distinct, rand, registry

PROGRAMS, op = registry(__file__)
MODELS = []
INF, NAN = float("inf"), float("nan")


# Pointwise: 16-byte accesses with tails, broadcasts, transposes, every width of element
grid = lambda a, b, dtype=F32: lambda: (rand(a, b, dtype=dtype), rand(a, b, dtype=dtype))
for dtype in (F32, BF16, F16, F64, I64, I32, U8):
    name = str(dtype).removeprefix("torch.")
    op(f"gpu_add_odd_{name}", lambda x, y: x * 2 + y, (lambda d=dtype: (rand(1023, 1025, dtype=d, **({"low": 0} if d is U8 else {})), rand(1023, 1025, dtype=d, **({"low": 0} if d is U8 else {})))))
op("gpu_bool", lambda x, y: (x & ~y, x ^ y, x.to(F32) + y, x.sum(-1)), grid(513, 1027, BOOL))
op("gpu_chain", lambda x, y: F.gelu((x + y).tanh() * x.sigmoid()) + (y.abs() + 1).log(), grid(2048, 1536))
op("gpu_chain_bf16", lambda x, y: F.silu(x) * y + F.gelu(x, approximate="tanh"), grid(2048, 1536, BF16))
op("gpu_transpose_add", lambda x, y: x.t() + y, lambda: (rand(1537, 2049), rand(2049, 1537)))
op("gpu_transpose_add_bf16", lambda x, y: x.t() * y, lambda: (rand(1024, 2048, dtype=BF16), rand(2048, 1024, dtype=BF16)))
op("gpu_transpose_copy_u8", lambda x: x.t().contiguous(), lambda: (rand(999, 1111, dtype=U8, low=0),))
op("gpu_nchw_to_nhwc", lambda x: (x.permute(0, 2, 3, 1).contiguous(), x.permute(2, 3, 0, 1) * 2), lambda: (rand(4, 65, 33, 47),))
op("gpu_heads", lambda x: x.view(2, 129, 12, 64).transpose(1, 2).contiguous() + 1, lambda: (rand(2, 129, 768, dtype=BF16),))
op("gpu_broadcast", lambda x, row, column: (x * row + column, x + column * row, row + column), lambda: (rand(777, 1031), rand(1031), rand(777, 1)))
op("gpu_broadcast_middle", lambda x, b, c: x * b[None, :, None, None] + c, lambda: (rand(3, 65, 31, 33), rand(65), rand(3, 1, 1, 33)))
op("gpu_strided", lambda x: (x[:, 1::2] * 2, x[1::3, 5:].exp(), x[:, -7:] + 1), lambda: (rand(700, 1001),))
op("gpu_one_element", lambda x, y: (x * y, x.sum(), x.softmax(0), x.cumsum(0), x.sort()[0]), lambda: (rand(1), rand(1)))
op("gpu_ten_elements", torch.mul, lambda: (rand(10), rand(10)))
op("gpu_empty", lambda x, y: (x * 2, x.sum(0), x.sum(1), x @ y, x.softmax(-1), torch.cat([x, x]), x.t().contiguous()), lambda: (rand(0, 5), rand(5, 3)))
op("gpu_empty_inner", lambda x: (x + 1, x.sum(1), x.any(1), x.cumsum(1), x.reshape(0, 4)), lambda: (rand(4, 0),))
op("gpu_many_outputs", lambda x, y: tuple(x * k + y for k in range(12)), grid(33, 65))
op("gpu_many_inputs", lambda *xs: sum(xs[1:], xs[0]), lambda: tuple(rand(100, 33) for _ in range(40)))
N = Dim("n", min=1, max=1 << 33)
op("gpu_dynamic_pointwise", lambda x: (x * 2).sin(), lambda: (rand(1000),), dynamic=({0: N},),
   sets={f"n{n}": (lambda n=n: (rand(n),)) for n in (1, 2, 3, 5, 127, 1 << 20, (1 << 22) + 3)})
# More elements than 32 bits can count: two gigabytes
op("gpu_beyond_32_bits", lambda x: x * 3 + 1, lambda: (rand(1000, dtype=U8, low=0),), dynamic=({0: N},),
   sets={"n2147483661": lambda: (torch.arange(256, dtype=U8).repeat((1 << 23) + 1)[:(1 << 31) + 13],)})
op("gpu_row_beyond_32_bits", lambda x: (x[:, -3:] + 1, x.amax(1)), lambda: (rand(3, 1000, dtype=U8, low=0),), dynamic=({1: Dim("n", min=4, max=1 << 33)},),
   sets={"n858993480": lambda: (torch.arange(256, dtype=U8).repeat(3 * ((858993480 >> 8) + 1))[:3 * 858993480].view(3, -1),)})

# Reductions: rows in a warp, in a block, split over blocks; columns; dynamic
ROWS = {"tiny": (5001, 3), "short": (4097, 33), "row": (1025, 1024), "wide": (257, 4096), "odd": (33, 5003), "long": (3, 100_001), "one": (1, 1_000_003), "many": (100_003, 17)}
for name, shape in ROWS.items():
    op(f"gpu_rows_{name}", lambda x: (x.sum(-1), x.amax(-1), x.mean(-1), x.var(-1)), lambda s=shape: (rand(*s),))
    op(f"gpu_softmax_{name}", lambda x: (x * 3).softmax(-1), lambda s=shape: (rand(*s),))
    op(f"gpu_argmax_{name}", lambda x: (x.argmax(-1), x.argmin(-1), *x.max(-1)), lambda s=shape: (rand(*s).mul_(8).round_(),))
    op(f"gpu_cumsum_{name}", lambda x: x.cumsum(-1), lambda s=shape: (rand(*s, low=0, high=1),))
for name in ("short", "wide", "long"):
    shape = ROWS[name]
    op(f"gpu_rows_{name}_bf16", lambda x: (x.sum(-1), x.amax(-1), x.mean(-1), x.std(-1)), lambda s=shape: (rand(*s, dtype=BF16),))
    op(f"gpu_layer_norm_{name}", lambda x, y, w, b: F.gelu(F.layer_norm(x + y, (x.shape[-1],), w, b)), lambda s=shape: (rand(*s), rand(*s), rand(s[1]), rand(s[1])))
    op(f"gpu_layer_norm_{name}_bf16", lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b).relu(), lambda s=shape: (rand(*s, dtype=BF16), rand(s[1], dtype=BF16), rand(s[1], dtype=BF16)))
    op(f"gpu_rms_norm_{name}_bf16", lambda x, w: F.rms_norm(x, (x.shape[-1],), w, 1e-5), lambda s=shape: (rand(*s, dtype=BF16), rand(s[1], dtype=BF16)))
    op(f"gpu_log_softmax_{name}", lambda x: x.log_softmax(-1), lambda s=shape: (rand(*s) * 5,))
COLUMNS = {"tall": (100_003, 7), "square": (1025, 1027), "few": (3, 40_001), "one": (1_000_003, 1)}
for name, shape in COLUMNS.items():
    op(f"gpu_columns_{name}", lambda x: (x.sum(0), x.amax(0), x.mean(0), x.var(0)), lambda s=shape: (rand(*s),))
    op(f"gpu_columns_{name}_bf16", lambda x: (x.sum(0), x.amin(0)), lambda s=shape: (rand(*s, dtype=BF16),))
op("gpu_softmax_column", lambda x: (x.softmax(0), x.softmax(1)), lambda: (rand(129, 65, 33),))
op("gpu_reduce_middle", lambda x: (x.sum(1), x.mean((0, 2)), x.amax((1, 2)), x.sum((0, 1, 2))), lambda: (rand(33, 257, 65),))
op("gpu_reduce_all", lambda x: (x.sum(), x.mean(), x.amax(), x.var(), x.argmax()), lambda: (rand(3_000_017),))
op("gpu_reduce_all_f64", lambda x: (x.sum(), x.mean(), x.std()), lambda: (rand(1_000_017, dtype=F64),))
op("gpu_reduce_all_i64", lambda x: (x.sum(), x.amax(), x.prod(), (x > 3).any(), (x < 20).all()), lambda: (rand(1_000_017, dtype=I64),))
op("gpu_var_large_mean", lambda x: (x.var(1), x.std(0)), lambda: (rand(65, 50_001) * 0.5 + 300,), tolerance=1e-3)
op("gpu_reduce_of_transposed", lambda x: (x.t().sum(0), x.transpose(0, 1).softmax(-1)), lambda: (rand(515, 1030),))
op("gpu_reduce_two_then_use", lambda x: (x - x.amax(-1, keepdim=True)).exp() / x.abs().sum(-1, keepdim=True) + x.mean(0), lambda: (rand(300, 2049),))
op("gpu_norm_softmax_chain", lambda x, y, w, b: F.gelu(F.layer_norm(x + y, (x.shape[-1],), w, b)).mul(0.125).softmax(-1), lambda: (rand(256, 4096), rand(256, 4096), rand(4096), rand(4096)))
op("gpu_argmax_nan", lambda x: (x.argmax(-1), x.argmin(-1), x.argmax(0), x.argmax()),
   lambda: (torch.where(torch.rand(65, 5001) < 0.001, NAN, rand(65, 5001).mul(4).round()),))
op("gpu_minmax_nan", lambda x: (x.amax(-1), x.amin(0), *x.max(0)), lambda: (torch.where(torch.rand(65, 5001) < 0.0005, NAN, rand(65, 5001)),))
op("gpu_softmax_inf", lambda x: (x.softmax(-1), x.log_softmax(-1), x.logsumexp(-1)), lambda: (torch.where(torch.rand(65, 5001) < 0.5, -INF, rand(65, 5001)),))
op("gpu_cross_entropy", lambda x, y: F.cross_entropy(x, y, reduction="none"), lambda: (rand(33, 50_257), rand(33, dtype=I64, low=0, high=50_257)))
R = Dim("rows", min=1, max=100_000)
C = Dim("columns", min=2, max=1_000_000)
SIZES = ((1, 2), (3, 7), (130, 1000), (2, 100_000), (5000, 33))
op("gpu_dynamic_reduce", lambda x: (x.sum(-1), x.amax(0), x.mean(), x.argmax(-1)), lambda: (rand(4, 9),), dynamic=({0: R, 1: C},), sets={f"{r}x{c}": (lambda r=r, c=c: (rand(r, c),)) for r, c in SIZES})
op("gpu_dynamic_softmax", lambda x: (x.softmax(-1), x.softmax(0)), lambda: (rand(4, 9),), dynamic=({0: R, 1: C},), sets={f"{r}x{c}": (lambda r=r, c=c: (rand(r, c),)) for r, c in SIZES})
op("gpu_dynamic_layer_norm", lambda x: F.layer_norm(x, (x.shape[-1],)) * 2, lambda: (rand(4, 9, dtype=BF16),), dynamic=({0: R, 1: C},), sets={f"{r}x{c}": (lambda r=r, c=c: (rand(r, c, dtype=BF16),)) for r, c in SIZES})
class OddRows(nn.Module):
    """Rows of k that are 8, 4 and 2 bytes off a multiple of 16, weights along k and along n."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(340, 130), nn.Linear(130, 333), nn.Linear(333, 41)
        self.w = nn.Parameter(torch.randn(340, 122) / 20)

    def forward(self, x):
        return self.c(torch.relu(self.b(self.a(x)))), F.gelu(x @ self.w)


op("gpu_odd_rows_bf16", Lazy(lambda: OddRows().to(BF16)), lambda: (rand(200, 340, dtype=BF16),), tolerance=3e-2)
op("gpu_odd_rows_f32", OddRows, lambda: (rand(200, 340),))
op("gpu_dynamic_odd_rows_bf16", Lazy(lambda: OddRows().to(BF16)), lambda: (rand(200, 340, dtype=BF16),), dynamic=({0: R},), tolerance=3e-2,
   sets={str(r): (lambda r=r: (rand(r, 340, dtype=BF16),)) for r in (1, 2, 3, 16, 17, 64, 127, 500, 1000)})
op("gpu_dynamic_cumsum", lambda x: (x.cumsum(1), x.cumsum(0)), lambda: (rand(4, 9, dtype=I64),), dynamic=({0: R, 1: C},), sets={f"{r}x{c}": (lambda r=r, c=c: (rand(r, c, dtype=I64),)) for r, c in SIZES})

# Scans
op("gpu_cumsum_i64", lambda x: (x.cumsum(0), x.cumsum(1)), lambda: (rand(37, 50_003, dtype=I64),))
op("gpu_cumsum_bf16", lambda x: x.cumsum(-1), lambda: (rand(33, 3001, dtype=BF16, low=0, high=1),), tolerance=3e-2)
op("gpu_cumsum_f64", lambda x: x.cumsum(-1), lambda: (rand(3, 100_001, dtype=F64),))
op("gpu_cumprod", lambda x: x.cumprod(-1), lambda: (rand(17, 20_001, low=0.999, high=1.001),), tolerance=1e-3)
op("gpu_cumsum_column", lambda x: x.cumsum(0), lambda: (rand(5001, 65),), tolerance=3e-4)
op("gpu_cummax", lambda x: (*x.cummax(-1), x.logcumsumexp(-1)), lambda: (distinct(9, 5001) / 1000,))

# Normalisation, pooling, resampling at image sizes
big_image = lambda b=3, c=32, h=57, w=56, dtype=F32: lambda: (rand(b, c, h, w, dtype=dtype),)
op("gpu_batch_norm", Lazy(lambda: nn.Sequential(nn.BatchNorm2d(32), nn.ReLU())), big_image())
op("gpu_batch_norm_statistics", lambda x: F.batch_norm(x, None, None, training=True), big_image())
op("gpu_group_norm", Lazy(lambda: nn.GroupNorm(8, 32)), big_image())
op("gpu_group_norm_bf16", Lazy(lambda: nn.Sequential(nn.GroupNorm(4, 32), nn.SiLU()).to(BF16)), big_image(dtype=BF16))
op("gpu_instance_norm", Lazy(lambda: nn.InstanceNorm2d(32)), big_image())
op("gpu_max_pool", lambda x: (F.max_pool2d(x, 3, 2, 1), *F.max_pool2d(x, 2, return_indices=True)), big_image())
op("gpu_avg_pool", lambda x: (F.avg_pool2d(x, 3, 2, 1), F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, 7)), big_image())
op("gpu_max_pool_channels_last", lambda x: F.max_pool2d(x.to(memory_format=torch.channels_last), 3, 2, 1), big_image())
op("gpu_interpolate", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), big_image(1, 8))

# Indexing
table = lambda rows, width, count, dtype=F32: lambda: (rand(rows, width, dtype=dtype), rand(count, dtype=I64, low=0, high=rows))
op("gpu_embedding", lambda w, i: (F.embedding(i, w), F.embedding(i, w).sum(0)), table(30_001, 384, 4097))
op("gpu_embedding_bf16", lambda w, i: F.embedding(i.view(3, -1), w) * 2, table(5001, 770, 999, BF16))
op("gpu_index_select", lambda x, i: (x.index_select(0, i), x.index_select(1, i % 65)), table(2049, 65, 777))
op("gpu_gather", lambda x, i: (x.gather(1, i), x.gather(0, i % 65)), lambda: (rand(65, 5001), rand(65, 333, dtype=I64, low=0, high=5001)))
op("gpu_index_two", lambda x, i, j: x[i, j], lambda: (rand(513, 257, 5), rand(99, 1, dtype=I64, low=-513, high=513), rand(77, dtype=I64, low=0, high=257)))
op("gpu_index_put_accumulate", lambda x, i, v: x.index_put((i,), v, accumulate=True), lambda: (rand(31, 65), rand(5001, dtype=I64, low=0, high=31), rand(5001, 65)))
op("gpu_scatter_add", lambda x, i, v: x.scatter_add(0, i, v), lambda: (rand(31, 65), rand(3001, 65, dtype=I64, low=0, high=31), rand(3001, 65)))
op("gpu_scatter", lambda x, i, v: x.scatter(1, i, v), lambda: (rand(65, 1001), torch.stack([torch.randperm(1001)[:300] for _ in range(65)]), rand(65, 300)))
op("gpu_cat", lambda x, y, z: (torch.cat([x, y * 2, z], 1), torch.cat([x.t(), y.t()], 0), torch.stack([y, y + 1], 1)), lambda: (rand(513, 33), rand(513, 1), rand(513, 255)))
op("gpu_pad", lambda x: (F.pad(x, (1, 2, 3, 4)), F.pad(x, (2, 3, 1, 1), mode="reflect"), F.pad(x, (-3, 5), value=7.0)), lambda: (rand(5, 129, 257),))
op("gpu_roll_flip", lambda x: (x.roll((3, -5), (0, 1)), x.flip((0, 1)), x.triu(3), x.tril()), lambda: (rand(515, 1027),))
op("gpu_where_mask", lambda x, m: (torch.where(m, x, -x), x.masked_fill(m, -INF).softmax(-1)), lambda: (rand(257, 1025), rand(257, 1025, dtype=BOOL)))

# Sorting
op("gpu_sort_short", lambda x: (*x.sort(stable=True), x.argsort(dim=-1, descending=True, stable=True)), lambda: (rand(2049, 31).mul_(4).round_(),))
op("gpu_sort_block", lambda x: (*x.sort(stable=True), *x.sort(dim=0, descending=True, stable=True)), lambda: (rand(65, 1500).mul_(100).round_(),))
op("gpu_sort_long", lambda x: torch.sort(x, dim=-1, stable=True), lambda: (rand(3, 100_003).mul_(1000).round_(),))
op("gpu_sort_i64", lambda x: torch.sort(x, dim=-1, stable=True), lambda: (rand(17, 5003, dtype=I64, low=-50, high=50),))
op("gpu_sort_nan", lambda x: (*x.sort(stable=True), *x.sort(descending=True, stable=True)), lambda: (torch.where(torch.rand(9, 3001) < 0.01, NAN, rand(9, 3001)),))
op("gpu_topk", lambda x: (*x.topk(50), *x.topk(5, largest=False)), lambda: (distinct(7, 50_257),))
op("gpu_topk_bf16", lambda x: x.topk(8)[0], lambda: (rand(257, 64, dtype=BF16),))
op("gpu_median", lambda x: (*x.median(1), *x.kthvalue(7, 1)), lambda: (distinct(33, 2049),))

# Matrix products: sizes around tiles, one row, long and odd K, batches, epilogues
MM = {"one_row": (1, 4096, 1000), "few_rows": (7, 1030, 2051), "odd_k": (130, 3421, 257), "tile": (256, 512, 384), "long_k": (65, 20_001, 33), "tall": (20_001, 65, 17)}
for name, (m, k, n) in MM.items():
    for dtype in (F32, BF16):
        suffix = "" if dtype is F32 else "_bf16"
        op(f"gpu_mm_{name}{suffix}", torch.mm, lambda m=m, k=k, n=n, d=dtype: (rand(m, k, dtype=d), rand(k, n, dtype=d)))
    op(f"gpu_linear_gelu_{name}_bf16", lambda x, w, b, r: F.gelu(F.linear(x, w, b)) + r, lambda m=m, k=k, n=n: (rand(m, k, dtype=BF16), rand(n, k, dtype=BF16) * 0.05, rand(n, dtype=BF16), rand(m, n, dtype=BF16)))
op("gpu_mm_f16", torch.mm, lambda: (rand(257, 515, dtype=F16), rand(515, 130, dtype=F16)))
op("gpu_mm_f64", torch.mm, lambda: (rand(257, 515, dtype=F64), rand(515, 130, dtype=F64)))
op("gpu_mm_large_bf16", torch.mm, lambda: (rand(2048, 2048, dtype=BF16), rand(2048, 2048, dtype=BF16)))
op("gpu_mm_transposed", lambda a, b: (a.t() @ b, a.t() @ b.t().contiguous().t(), b.t() @ a), lambda: (rand(333, 257), rand(333, 129)))
op("gpu_mm_transposed_bf16", lambda a, b: (a.t() @ b, b.t() @ a), lambda: (rand(333, 257, dtype=BF16), rand(333, 129, dtype=BF16)))
op("gpu_mm_special", torch.mm, lambda: (torch.where(torch.rand(65, 130) < 0.01, INF, rand(65, 130)), rand(130, 65)))
op("gpu_bmm", lambda a, b: (a @ b, a @ b[0]), lambda: (rand(33, 65, 70), rand(33, 70, 35)))
op("gpu_bmm_bf16", torch.bmm, lambda: (rand(300, 17, 64, dtype=BF16), rand(300, 64, 33, dtype=BF16)))
op("gpu_mm_prologue_epilogue", lambda a, b, c: ((a.relu() * 2) @ b + c).softmax(-1), lambda: (rand(130, 257), rand(257, 515), rand(515)))
M = Dim("m", min=1, max=4096)
for dtype in (F32, BF16):
    op(f"gpu_dynamic_linear{'' if dtype is F32 else '_bf16'}", Lazy(lambda d=dtype: nn.Sequential(nn.Linear(512, 768), nn.GELU(), nn.Linear(768, 130)).to(d)), lambda d=dtype: (rand(9, 512, dtype=d),),
       dynamic=({0: M},), sets={f"m{m}": (lambda m=m, d=dtype: (rand(m, 512, dtype=d),)) for m in (1, 2, 8, 17, 64, 129, 1000, 4096)})

# Convolution
CONV = {
    "3x3": (64, 64, 3, {"padding": 1}), "stride": (33, 65, 3, {"padding": 1, "stride": 2}), "dilated": (32, 48, 3, {"padding": 2, "dilation": 2}), "1x1": (64, 130, 1, {}),
    "grouped": (64, 96, 3, {"groups": 4, "padding": 1}), "depthwise": (64, 64, 5, {"groups": 64, "padding": 2, "stride": 2}), "stem": (3, 64, 7, {"stride": 2, "padding": 3}),
}
for name, (i, o, k, options) in CONV.items():
    for dtype in (F32, BF16, F16):
        suffix = "" if dtype is F32 else "_" + str(dtype).removeprefix("torch.").replace("float16", "f16")
        op(f"gpu_conv_{name}{suffix}", Lazy(lambda i=i, o=o, k=k, options=options, d=dtype: nn.Sequential(nn.Conv2d(i, o, k, **options), nn.ReLU()).to(d)), big_image(2, i, dtype=dtype))
op("gpu_conv_channels_last_bf16", Lazy(lambda: nn.Conv2d(64, 64, 3, padding=1).to(BF16, memory_format=torch.channels_last)), lambda: (rand(2, 64, 28, 28, dtype=BF16).to(memory_format=torch.channels_last),))
op("gpu_conv_residual", lambda x, w, b, y: F.relu(F.conv2d(x, w, b, padding=1) + y), lambda: (rand(2, 32, 29, 31), rand(32, 32, 3, 3) * 0.1, rand(32), rand(2, 32, 29, 31)))
op("gpu_conv_transpose", Lazy(lambda: nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1)), big_image(2, 32, 15, 17))
op("gpu_conv1d", Lazy(lambda: nn.Conv1d(33, 64, 9, padding=4)), lambda: (rand(3, 33, 1001),))
op("gpu_conv_dynamic", Lazy(lambda: nn.Conv2d(16, 33, 3, padding=1)), big_image(2, 16, 28, 28), dynamic=({0: Dim("batch", min=1, max=256)},), sets={f"b{b}": big_image(b, 16, 28, 28) for b in (1, 3, 130)})

# Attention
sdpa = F.scaled_dot_product_attention


def qkv(rows, keys, heads=8, width=64, dtype=F32, kv_heads=None, batch=2):
    return lambda: (rand(batch, heads, rows, width, dtype=dtype), rand(batch, kv_heads or heads, keys, width, dtype=dtype), rand(batch, kv_heads or heads, keys, width, dtype=dtype))


for dtype in (F32, BF16, F16):
    suffix = {F32: "f32", BF16: "bf16", F16: "f16"}[dtype]
    op(f"gpu_attention_{suffix}", sdpa, qkv(257, 257, dtype=dtype))
    op(f"gpu_attention_causal_{suffix}", lambda q, k, v: sdpa(q, k, v, is_causal=True), qkv(385, 385, width=128, dtype=dtype))
    op(f"gpu_attention_mask_{suffix}", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), lambda d=dtype: (*qkv(130, 65, dtype=d)(), rand(2, 1, 130, 65, dtype=BOOL) | torch.eye(130, 65, dtype=BOOL)))
    op(f"gpu_attention_float_mask_{suffix}", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), lambda d=dtype: (*qkv(65, 130, dtype=d)(), rand(2, 8, 65, 130, dtype=d)))
    op(f"gpu_attention_grouped_{suffix}", lambda q, k, v: sdpa(q, k, v, is_causal=True, enable_gqa=True), qkv(129, 129, 8, 64, dtype, 2))
    op(f"gpu_attention_decode_{suffix}", lambda q, k, v: sdpa(q, k, v, enable_gqa=True), qkv(1, 2049, 8, 128, dtype, 2, 1))
op("gpu_attention_odd_width", sdpa, qkv(65, 77, 3, 40))
op("gpu_attention_repeat_bf16", lambda q, k, v: sdpa(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1), is_causal=True), qkv(200, 200, 8, 128, BF16, 2, 1))
T = Dim("seq", min=1, max=4096)
op("gpu_attention_dynamic_bf16", lambda q, k, v: sdpa(q, k, v, is_causal=True), qkv(9, 9, 4, 64, BF16), dynamic=({2: T}, {2: T}, {2: T}),
   sets={f"s{s}": qkv(s, s, 4, 64, BF16) for s in (1, 2, 127, 128, 129, 1500)})


# Whole models
def model(make):
    MODELS.append(Program(make.__name__, make, "model", __file__, ("cpu",)))
    return make


def big():
    import big as models

    return models


def converted(case, dtype):
    """The same program in another floating type."""
    change = lambda v: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v
    return Case(case.module.to(dtype), tuple(map(change, case.args)), case.kwargs, case.dynamic, {tag: tuple(map(change, args)) for tag, args in case.inputs.items()})


def read_weights(path):
    """The state of an exported program, read from its archive: works for files of a PyTorch newer than this one."""
    from coil_torch import DTYPES  # coil's numbers of dtypes are c10's, an export's are one higher

    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        prefix = next(n for n in names if n.endswith("data/weights/model_weights_config.json")).removesuffix("model_weights_config.json")
        config = json.loads(archive.read(prefix + "model_weights_config.json"))["config"]
        state = {}
        for name, row in config.items():
            meta = row["tensor_meta"]
            sizes = [s["as_int"] for s in meta["sizes"]]
            state[name] = torch.frombuffer(bytearray(archive.read(prefix + row["path_name"])), dtype=DTYPES[meta["dtype"] - 1]).reshape(sizes)
    return state


@model
def digits():
    module = big().example_module("digits", "train")
    net = module.Digits()
    net.load_state_dict(read_weights(REPO / "examples/digits/digits.pt2"))
    sets = {f"b{b}": (rand(b, 1, 8, 8, low=0, high=1),) for b in (1, 2, 7, 64, 512)}
    return Case(net.eval(), (rand(4, 1, 8, 8, low=0, high=1),), dynamic={"image": {0: Dim("batch", min=1, max=512)}}, inputs=sets)


for name in ("mlp", "mlp_bf16", "sin_mm_cos", "norm_gelu_softmax", "resnet18_b2", "resnet18", "resnet50", "mobilenet_v3_large", "vit_b_16", "gpt2_f32", "gpt2_bf16", "llama_f32", "llama_bf16", "encoder_1", "encoder_12"):
    MODELS.append(Program(name, lambda name=name: getattr(big(), name)(), "model", __file__, ("cpu",)))


class RandomMiniLM(nn.Module):
    """MiniLM's configuration with random weights, for machines without its package."""

    def __init__(self):
        from transformers import BertConfig, BertModel

        super().__init__()
        config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536, attn_implementation="sdpa")
        self.bert = BertModel(config, add_pooling_layer=False).eval()

    def forward(self, input_ids, attention_mask):
        hidden = self.bert(input_ids=input_ids, attention_mask=attention_mask, return_dict=False)[0]
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        return F.normalize((hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9), p=2.0, dim=1), hidden


@model
def minilm():
    try:
        return big().minilm()
    except ImportError:
        pass

    def tokens(batch, seq):
        ids = torch.randint(1000, 30000, (batch, seq))
        length = torch.randint(1, seq + 1, (batch,))
        length[0] = seq
        return ids, (torch.arange(seq)[None] < length[:, None]).to(I64)

    shapes = {0: Dim("batch", min=1, max=64), 1: Dim("seq", min=1, max=256)}
    return Case(RandomMiniLM(), tokens(2, 9), dynamic={"input_ids": shapes, "attention_mask": shapes},
                inputs={f"b{b}_s{s}": tokens(b, s) for b, s in ((1, 1), (2, 9), (3, 33), (8, 128), (1, 256))})


HALVES = {"norm_gelu_softmax": BF16, "sin_mm_cos": BF16, "resnet18": BF16, "resnet50": BF16, "mobilenet_v3_large": BF16, "vit_b_16": BF16, "minilm": BF16, "digits": BF16}
makers = lambda: {p.name: p.make for p in MODELS}
for name, dtype in HALVES.items():
    MODELS.append(Program(f"{name}_bf16", lambda name=name, dtype=dtype: converted(makers()[name](), dtype), "model", __file__, ("cpu",)))
for name in ("mlp", "resnet18", "llama_f32", "minilm"):
    MODELS.append(Program(f"{name.removesuffix('_f32')}_f16", lambda name=name: converted(makers()[name](), F16), "model", __file__, ("cpu",)))


@model
def resnet50_channels_last_bf16():
    net = big().vision("resnet50").to(BF16, memory_format=torch.channels_last)
    return Case(net, (rand(4, 3, 224, 224, dtype=BF16).to(memory_format=torch.channels_last),))


class LlamaBlock(nn.Module):
    """One block of Llama, written out: rms norm, rotary attention with grouped heads, gated linear unit."""

    def __init__(self, width=4096, heads=32, kv_heads=8, inner=14336):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        linear = lambda i, o: nn.Linear(i, o, bias=False)
        self.q, self.k, self.v = linear(width, width), linear(width, kv_heads * self.head), linear(width, kv_heads * self.head)
        self.o, self.gate, self.up, self.down = linear(width, width), linear(width, inner), linear(width, inner), linear(inner, width)
        self.norm1, self.norm2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))

    @staticmethod
    def norm(x, weight):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * weight

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat((-b, a), -1) * sin

    def forward(self, x, cos, sin):
        batch, rows, width = x.shape
        y = self.norm(x, self.norm1)
        q = self.q(y).view(batch, rows, self.heads, self.head).transpose(1, 2)
        k = self.k(y).view(batch, rows, self.kv_heads, self.head).transpose(1, 2)
        v = self.v(y).view(batch, rows, self.kv_heads, self.head).transpose(1, 2)
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        k, v = k.repeat_interleave(self.heads // self.kv_heads, 1), v.repeat_interleave(self.heads // self.kv_heads, 1)
        x = x + self.o(sdpa(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, rows, width))
        y = self.norm(x, self.norm2)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@model
def llama_block_bf16():
    inputs = lambda rows: (rand(1, rows, 512, dtype=BF16), rand(rows, 64, dtype=BF16), rand(rows, 64, dtype=BF16))
    rows = Dim("rows", min=1, max=2048)
    return Case(LlamaBlock(512, 8, 2, 1792).to(BF16), inputs(9), dynamic={"x": {1: rows}, "cos": {0: rows}, "sin": {0: rows}}, inputs={f"s{s}": inputs(s) for s in (1, 2, 77, 512)})


# Indices out of range: {name: (function, good arguments, bad arguments)}
def faults():
    bad_at = lambda count, value, high: torch.cat([rand(count - 1, dtype=I64, low=0, high=high), torch.tensor([value])])
    make = lambda value: lambda: (rand(100, 33), bad_at(57, value, 100))
    return {
        "embedding_high": (lambda w, i: F.embedding(i, w), make(5), make(100)), "embedding_negative": (lambda w, i: F.embedding(i, w), make(5), make(-1)),
        "embedding_far": (lambda w, i: F.embedding(i, w), make(5), make(1 << 40)), "index_select": (lambda w, i: w.index_select(0, i), make(5), make(100)),
        "index": (lambda w, i: w[i] * 2, make(-100), make(-101)), "gather": (lambda w, i: w.gather(0, i[:, None]), make(5), make(100)),
        "index_put": (lambda w, i: w.index_put((i,), w[:1, :1].expand(57, 33)), make(5), make(100)),
        "scatter_add": (lambda w, i: w.scatter_add(0, i[:, None].expand(57, 33), w[:57]), make(5), make(100)),
        "two_levels": (lambda w, i: F.embedding(i, w).sum(0) + w.mean(0), make(5), make(100)),
    }


@functools.cache
def programs():
    """{name: Program}: this file's, then the zoo's small ones."""
    import ops_core
    import ops_counting
    import ops_f64
    import ops_lines
    import ops_messages
    import ops_statistics
    import ops_nn
    import ops_pointwise
    import ops_recurrent
    import ops_resized
    import ops_vectors

    rows = [*MODELS, *PROGRAMS, *ops_pointwise.PROGRAMS, *ops_core.PROGRAMS, *ops_nn.PROGRAMS, *ops_lines.PROGRAMS, *ops_messages.PROGRAMS, *ops_statistics.PROGRAMS, *ops_recurrent.PROGRAMS,
            *ops_resized.PROGRAMS, *ops_counting.PROGRAMS, *ops_f64.PROGRAMS, *ops_vectors.PROGRAMS]
    table = {row.name: row for row in rows}
    assert len(table) == len(rows), "two programs of one name: " + str([r.name for r in rows if table[r.name] is not r])
    return table


seeded = zoo_case.seeded
