"""Small programs of neural network layers: convolution, pooling, normalisation, attention, recurrence, resampling."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from case import BF16, BOOL, F16, F32, F64, Lazy, rand, registry

PROGRAMS, op = registry(__file__)
B = Dim("batch", min=1, max=64)
img = lambda b=2, c=6, h=13, w=17: lambda: (rand(b, c, h, w),)

# Convolution
CONV2D = {
    "3x3": (6, 8, 3, {}), "3x3_pad": (6, 8, 3, {"padding": 1}), "1x1": (6, 10, 1, {}), "1x1_stride": (6, 10, 1, {"stride": 2}),
    "stride": (6, 8, 3, {"stride": 2, "padding": 1}), "uneven": (6, 8, (3, 5), {"stride": (2, 1), "padding": (0, 2)}),
    "dilated": (6, 8, 3, {"dilation": 2, "padding": 2}), "grouped": (6, 9, 3, {"groups": 3, "padding": 1}),
    "depthwise": (6, 6, 3, {"groups": 6, "padding": 1}), "depthwise_stride": (6, 6, 5, {"groups": 6, "padding": 2, "stride": 2}),
    "depthwise_multiplier": (6, 12, 3, {"groups": 6}), "no_bias": (6, 8, 3, {"bias": False}), "7x7": (6, 16, 7, {"stride": 2, "padding": 3}),
    "same": (6, 8, 4, {"padding": "same"}), "one_output": (6, 1, 3, {}), "wide": (6, 67, 3, {"padding": 1}),
    "reflect": (6, 8, 3, {"padding": 1, "padding_mode": "reflect"}),
}
for name, (i, o, k, options) in CONV2D.items():
    op(f"conv2d_{name}", Lazy(lambda i=i, o=o, k=k, options=options: nn.Conv2d(i, o, k, **options)), img())
op("conv2d_one_channel", Lazy(lambda: nn.Conv2d(1, 5, 3)), img(2, 1))
op("conv2d_1x1_image", Lazy(lambda: nn.Conv2d(6, 5, 1)), img(3, 6, 1, 1))
op("conv2d_whole_image", Lazy(lambda: nn.Conv2d(6, 5, (13, 17))), img())
op("conv2d_functional", lambda x, w, b: F.conv2d(x, w, b, padding=1), lambda: (rand(2, 6, 9, 9), rand(4, 6, 3, 3), rand(4)))
op("conv2d_unbatched", Lazy(lambda: nn.Conv2d(6, 5, 3)), lambda: (rand(6, 9, 9),))
op("conv2d_bf16", Lazy(lambda: nn.Conv2d(6, 8, 3, padding=1).to(BF16)), lambda: (rand(2, 6, 9, 11, dtype=BF16),))
op("conv2d_f64", Lazy(lambda: nn.Conv2d(6, 8, 3, padding=1).to(F64)), lambda: (rand(2, 6, 9, 11, dtype=F64),))
op("conv2d_channels_last", Lazy(lambda: nn.Conv2d(6, 8, 3, padding=1)), lambda: (rand(2, 6, 9, 11),))
op("conv2d_relu", Lazy(lambda: nn.Sequential(nn.Conv2d(6, 8, 3, padding=1), nn.ReLU())), img())
op("conv2d_dynamic", Lazy(lambda: nn.Conv2d(6, 8, 3, padding=1, stride=2)), img(3), dynamic=({0: B},),
   sets={f"b{b}": img(b) for b in (1, 2, 64)})
op("conv1d", Lazy(lambda: nn.Conv1d(5, 7, 3, padding=1)), lambda: (rand(2, 5, 29),))
op("conv1d_dilated_grouped", Lazy(lambda: nn.Conv1d(6, 9, 3, dilation=2, groups=3, stride=2)), lambda: (rand(2, 6, 29),))
op("conv3d", Lazy(lambda: nn.Conv3d(3, 4, 3, padding=1)), lambda: (rand(1, 3, 5, 6, 7),))
op("conv_transpose2d", Lazy(lambda: nn.ConvTranspose2d(5, 4, 3, stride=2, padding=1, output_padding=1)), lambda: (rand(2, 5, 6, 7),))
op("conv_transpose1d", Lazy(lambda: nn.ConvTranspose1d(5, 4, 4, stride=2, padding=1)), lambda: (rand(2, 5, 9),))


def normed(norm):
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias)
    if hasattr(norm, "running_mean"):
        nn.init.normal_(norm.running_mean)
        nn.init.uniform_(norm.running_var, 0.5, 2)
    return norm


op("conv_bn_relu", Lazy(lambda: nn.Sequential(nn.Conv2d(6, 8, 3, bias=False), normed(nn.BatchNorm2d(8)), nn.ReLU())), img())
op("conv_bn_silu_grouped", Lazy(lambda: nn.Sequential(nn.Conv2d(6, 8, 3, groups=2), normed(nn.BatchNorm2d(8)), nn.SiLU())), img())


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(6, 6, 3, padding=1), nn.Conv2d(6, 6, 1)
        self.norm = normed(nn.BatchNorm2d(6))

    def forward(self, x):
        return F.relu(self.norm(self.b(F.relu(self.a(x)))) + x)


class SqueezeExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.b(F.relu(self.a(F.adaptive_avg_pool2d(x, 1)))))


op("residual_block", Residual, img())
op("squeeze_excite", SqueezeExcite, img())

# Linear and normalisation
op("linear", Lazy(lambda: nn.Linear(33, 21)), lambda: (rand(5, 33),))
op("linear_no_bias", Lazy(lambda: nn.Linear(33, 21, bias=False)), lambda: (rand(5, 33),))
op("linear_vector", Lazy(lambda: nn.Linear(33, 21)), lambda: (rand(33),))
op("linear_3d", Lazy(lambda: nn.Linear(33, 21)), lambda: (rand(2, 5, 33),))
op("linear_one_row", Lazy(lambda: nn.Linear(300, 257)), lambda: (rand(1, 300),))
op("linear_bf16", Lazy(lambda: nn.Linear(65, 33).to(BF16)), lambda: (rand(7, 65, dtype=BF16),))
op("linear_f16", Lazy(lambda: nn.Linear(65, 33).to(F16)), lambda: (rand(7, 65, dtype=F16),))
# Rows of 2048 and 4096 bytes, which other code than the products' must not see.
wide = lambda dtype=F32: Lazy(lambda: nn.Sequential(nn.Linear(24, 512), nn.GELU(), nn.Linear(512, 1024), nn.Linear(1024, 9)).to(dtype))
rows = lambda n, dtype=F32: lambda: (rand(n, 24, dtype=dtype),)
op("linear_wide", wide(), rows(33), dynamic=({0: Dim("rows", min=1, max=512)},), sets={f"r{n}": rows(n) for n in (1, 16, 17, 300)})
op("linear_wide_bf16", wide(BF16), rows(40, BF16))
op("linear_wide_windows", Lazy(lambda: nn.Sequential(nn.Linear(24, 1024), nn.ReLU(), nn.Linear(1024, 5))), lambda: (rand(3, 2, 7, 24),))
op("linear_f64", Lazy(lambda: nn.Linear(65, 33).to(F64)), lambda: (rand(7, 65, dtype=F64),))
# 16-bit operands whose lines begin at odd places, across the summed dimension and along it: as inputs, as results of loops, in batches.
odd_lines = lambda dtype: lambda: (rand(70, 601, dtype=dtype), rand(70, 160, dtype=dtype), rand(601, 160, dtype=dtype))
for dtype in (BF16, F16):
    op(f"products_odd_lines_{str(dtype)[6:]}", lambda d, h, w: (d.t() @ h, h.t() @ d, d @ w, torch.relu(d).t() @ h, torch.relu(d) @ w), odd_lines(dtype))
op("products_odd_lines_batches", lambda d, h: torch.einsum("bkm,bkn->bmn", d, h), lambda: (rand(3, 33, 601, dtype=BF16), rand(3, 33, 130, dtype=BF16)))
op("products_odd_lines_softmax", lambda d, h: (d.softmax(-1).t() @ h, d.float().sin().to(d.dtype) @ d.t(), d.softmax(-1)), lambda: (rand(40, 777, dtype=BF16), rand(40, 136, dtype=BF16)))
op("products_odd_lines_twice", lambda d, h: (d.t() @ h).float() + (d.t() @ (h * 2)).float(), lambda: (rand(48, 515, dtype=BF16), rand(48, 128, dtype=BF16)))
# What comes out of attention's gradients, joined by heads and by q, k and v: two products and a sum read it, one across.
op("products_joined_heads", lambda q, k, x, w: (lambda g: (g @ w, g.t() @ x, g.sum(0)))(torch.stack([q, k]).permute(3, 1, 0, 2, 4).reshape(110, 384)),
   lambda: (rand(5, 3, 22, 64, dtype=BF16), rand(5, 3, 22, 64, dtype=BF16), rand(110, 130, dtype=BF16), rand(384, 130, dtype=BF16)))
op("bilinear", Lazy(lambda: nn.Bilinear(6, 7, 5)),
   lambda: (rand(4, 6), rand(4, 7)))
op("batch_norm_2d", Lazy(lambda: normed(nn.BatchNorm2d(6))), img())
op("batch_norm_1d", Lazy(lambda: normed(nn.BatchNorm1d(6))), lambda: (rand(9, 6),))
op("batch_norm_no_affine", Lazy(lambda: nn.BatchNorm2d(6, affine=False)), img())
op("batch_norm_statistics", lambda x: F.batch_norm(x, None, None, training=True), img())
op("layer_norm", Lazy(lambda: normed(nn.LayerNorm(33))), lambda: (rand(4, 5, 33),))
op("layer_norm_two_dims", Lazy(lambda: normed(nn.LayerNorm((5, 33)))), lambda: (rand(4, 5, 33),))
op("layer_norm_plain", lambda x: F.layer_norm(x, (33,)), lambda: (rand(4, 5, 33),))
op("layer_norm_no_bias", Lazy(lambda: nn.LayerNorm(33, bias=False)), lambda: (rand(4, 5, 33),))
op("layer_norm_bf16", Lazy(lambda: normed(nn.LayerNorm(66)).to(BF16)), lambda: (rand(4, 5, 66, dtype=BF16),))
op("group_norm", Lazy(lambda: normed(nn.GroupNorm(3, 6))), img())
op("instance_norm", Lazy(lambda: nn.InstanceNorm2d(6)), img())
op("rms_norm", Lazy(lambda: nn.RMSNorm(33)), lambda: (rand(4, 5, 33),))
op("rms_norm_eps_bf16", lambda x, w: F.rms_norm(x, (64,), w, 1e-6), lambda: (rand(4, 64, dtype=BF16), rand(64, dtype=BF16)))
op("local_response_norm", Lazy(lambda: nn.LocalResponseNorm(3)), img())
op("dropout_eval", Lazy(lambda: nn.Dropout(0.5)), lambda: (rand(4, 5),))

# Pooling and resampling
op("max_pool2d", lambda x: (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, (3, 2), (1, 2))), img())
op("max_pool2d_ceil", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), img(2, 6, 12, 16))
op("max_pool2d_dilated", lambda x: F.max_pool2d(x, 3, 1, dilation=2), img())
op("max_pool2d_indices", lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), img())
op("max_pool2d_negative_pad", lambda x: F.max_pool2d(-x.abs() - 1, 3, 2, 1), img())
op("max_pool2d_nan", lambda x: F.max_pool2d(torch.where(x > 1, float("nan"), x), 2), img())
op("max_pool1d", lambda x: F.max_pool1d(x, 3, 2, 1), lambda: (rand(2, 5, 19),))
op("avg_pool2d", lambda x: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)), img())
op("avg_pool2d_ceil", lambda x: (F.avg_pool2d(x, 3, 2, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)), img(2, 6, 12, 16))
op("avg_pool2d_divisor", lambda x: F.avg_pool2d(x, 3, 2, divisor_override=5), img())
op("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2, 1), lambda: (rand(2, 5, 19),))
op("avg_pool3d", lambda x: F.avg_pool3d(x, 2), lambda: (rand(1, 2, 4, 6, 8),))
op("large_windows", lambda x: (F.avg_pool2d(x, (9, 7), 1, (4, 3)), F.avg_pool2d(x, 11, (1, 2), 5, ceil_mode=True, count_include_pad=False), F.avg_pool2d(x, (5, 7), divisor_override=3, stride=1),
                               F.max_pool2d(x, 5, 1, 2), F.max_pool2d(torch.where(x > 1.5, float("nan"), x), (13, 5), 1, (6, 1), ceil_mode=True)), lambda: (rand(2, 3, 15, 19),))
op("large_windows_bf16", lambda x: (F.avg_pool2d(x, 9, 1, 4), F.max_pool2d(x.contiguous(memory_format=torch.channels_last), 7, 1, 3, dilation=1)), lambda: (rand(1, 4, 17, 13, dtype=torch.bfloat16),))
op("large_volumes", lambda x: (F.avg_pool3d(x, 5, 1, 2), F.max_pool3d(x, (5, 3, 7), 1, (2, 1, 3))), lambda: (rand(1, 2, 7, 8, 9),))
op("adaptive_avg_pool2d", lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 5)), F.adaptive_avg_pool2d(x, (None, 4))), img())
op("adaptive_avg_pool2d_even", lambda x: F.adaptive_avg_pool2d(x, (7, 7)), img(2, 3, 14, 21))
op("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 4), lambda: (rand(2, 5, 19),))
op("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (3, 4)), img())
op("global_mean_pool", lambda x: x.mean((2, 3)), img())
op("interpolate_nearest", lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(5, 9))), img())
op("interpolate_bilinear", lambda x: (F.interpolate(x, scale_factor=2, mode="bilinear"), F.interpolate(x, size=(9, 30), mode="bilinear", align_corners=True)), img())
op("interpolate_bicubic", lambda x: F.interpolate(x, size=(9, 30), mode="bicubic"), img())
op("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), lambda: (rand(1, 3, 6, 7), rand(1, 4, 5, 2, low=-1, high=1)))

# Attention. q [batch, heads, rows, width]
qkv = lambda rows=9, keys=9, heads=3, dtype=F32: lambda: (rand(2, heads, rows, 16, dtype=dtype), rand(2, heads, keys, 16, dtype=dtype), rand(2, heads, keys, 16, dtype=dtype))
sdpa = F.scaled_dot_product_attention
op("attention", sdpa, qkv())
op("attention_cross", sdpa, qkv(5, 21))
op("attention_one_query", sdpa, qkv(1, 21))
op("attention_causal", lambda q, k, v: sdpa(q, k, v, is_causal=True), qkv(33, 33))
op("attention_causal_cross", lambda q, k, v: sdpa(q, k, v, is_causal=True), qkv(5, 9))
op("attention_scale", lambda q, k, v: sdpa(q, k, v, scale=0.3), qkv())
op("attention_bool_mask", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), lambda: (*qkv()(), (rand(9, 9, dtype=BOOL) | torch.eye(9, dtype=BOOL))))
op("attention_float_mask", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), lambda: (*qkv()(), rand(2, 1, 9, 9)))
op("attention_padding_mask", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m[:, None, None, :]), lambda: (*qkv()(), torch.arange(9)[None] < torch.tensor([[9], [4]])))
op("attention_fully_masked", lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), lambda: (*qkv()(), torch.arange(9)[:, None].expand(9, 9) > 0))
op("attention_grouped", lambda q, k, v: sdpa(q, k, v, is_causal=True, enable_gqa=True), lambda: (rand(2, 6, 9, 16), rand(2, 2, 9, 16), rand(2, 2, 9, 16)))


def repeated(x, times):
    """Each head `times` times, as transformers' repeat_kv does."""
    b, heads, length, dim = x.shape
    return x[:, :, None].expand(b, heads, times, length, dim).reshape(b, heads * times, length, dim)


op("attention_repeated", lambda q, k, v: sdpa(q, repeated(k, 3), repeated(v, 3), is_causal=True), lambda: (rand(2, 6, 9, 16), rand(2, 2, 9, 16), rand(2, 2, 9, 16)))
op("attention_repeated_keys", lambda q, k, v: sdpa(q, repeated(k, 3), repeated(v, 2)), lambda: (rand(2, 6, 9, 16), rand(2, 2, 9, 16), rand(2, 3, 9, 16)))
op("attention_long", lambda q, k, v: sdpa(q, k, v, is_causal=True), qkv(300, 300, 1))
op("attention_value_width", sdpa, lambda: (rand(2, 3, 9, 16), rand(2, 3, 9, 16), rand(2, 3, 9, 24)))
op("attention_rank_3", sdpa, lambda: (rand(3, 9, 16), rand(3, 9, 16), rand(3, 9, 16)))
five = lambda *sizes: rand(2, 5, *sizes)
op("attention_rank_5", sdpa, lambda: (five(3, 9, 16), five(3, 7, 16), five(3, 7, 16)))
op("attention_rank_5_masks", lambda q, k, v, m: (sdpa(q, k, v, attn_mask=m), sdpa(q[:, :1], k, v, attn_mask=m[0]), sdpa(q, k, v, attn_mask=m[0, 0, 0])),
   lambda: (five(3, 9, 16), five(3, 7, 16), five(3, 7, 16), rand(2, 5, 1, 9, 7)))
op("attention_rank_6_causal", lambda q, k, v: sdpa(q[None], k[None], v[None], is_causal=True, enable_gqa=True), lambda: (five(6, 9, 16), five(2, 9, 16), five(2, 9, 16)))
op("attention_transposed", lambda q, k, v: sdpa(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2).reshape(2, 9, -1), lambda: tuple(rand(2, 9, 3, 16) for _ in range(3)))
op("attention_bf16", lambda q, k, v: sdpa(q, k, v, is_causal=True), qkv(33, 33, 3, BF16))
op("attention_f16", sdpa, qkv(9, 9, 3, F16))
op("attention_large_scores", lambda q, k, v: sdpa(q * 30, k * 30, v), qkv())
op("attention_by_hand", lambda q, k, v: (q @ k.transpose(-1, -2) * 0.25).softmax(-1) @ v, qkv())
op("attention_by_hand_masked", lambda q, k, v, m: (q @ k.transpose(-1, -2) * 0.25 + m).softmax(-1) @ v, lambda: (*qkv(49, 50)(), rand(3, 49, 50)))
# A plain softmax of a row that sees nothing is NaN.
op("attention_by_hand_masked_rows", lambda q, k, v, m: (q @ k.transpose(-1, -2) * 0.25 + m).softmax(-1) @ v, lambda: (*qkv(49, 9)(), torch.where(torch.arange(49)[:, None] == 4, -torch.inf, rand(2, 1, 49, 9))))


def windows(q, k, v, bias, shift):
    """As in a Swin transformer: a bias for each head, and for shifted windows a mask for each window of an image."""
    n = shift.shape[0]
    scores = (q * 0.25) @ k.transpose(-2, -1) + bias[:, torch.arange(49)].unsqueeze(0)
    scores = scores.view(q.shape[0] // n, n, q.shape[1], 49, 49) + shift.unsqueeze(1).unsqueeze(0)
    return scores.view(-1, q.shape[1], 49, 49).softmax(-1) @ v


window_data = lambda images: lambda: (*(rand(4 * images, 3, 49, 16) for _ in range(3)), rand(3, 49, 49), torch.where(rand(4, 49, 49) > 0, 0.0, -100.0))
op("attention_windows", windows, window_data(1))
op("attention_windows_of_images", windows, window_data(3))
S = Dim("seq", min=1, max=512)
seq = lambda s: lambda: tuple(rand(2, 3, s, 16) for _ in range(3))
op("attention_dynamic", lambda q, k, v: sdpa(q, k, v, is_causal=True), seq(9), dynamic=({2: S}, {2: S}, {2: S}), sets={f"s{s}": seq(s) for s in (1, 2, 63, 64, 65, 512)})


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=True)


op("multihead_attention", Heads, lambda: (rand(2, 7, 32),))
op("transformer_layer", Lazy(lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)), lambda: (rand(2, 7, 32),))


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


op("rotary", rotate, lambda: (rand(2, 3, 9, 16), rand(9, 16), rand(9, 16)))
op("gru_cell", Lazy(lambda: nn.GRUCell(6, 8)), lambda: (rand(3, 6), rand(3, 8)))
op("lstm_cell", lambda x, h, c, w: (lambda g: ((lambda n: (n, g[3].sigmoid() * n.tanh()))(g[1].sigmoid() * c + g[0].sigmoid() * g[2].tanh())))((torch.cat([x, h], 1) @ w).chunk(4, 1)),
   lambda: (rand(3, 6), rand(3, 8), rand(3, 8), rand(14, 32)))
op("branch", lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.cos() - 1, (x,)), lambda: (rand(5),), sets={"up": lambda: (rand(5).abs(),), "down": lambda: (-rand(5).abs(),)})


# The operators into which PyTorch puts a whole layer in inference.
class FastAttention(torch.nn.Module):
    def __init__(self, dtype=F32, mask_type=None, **options):
        super().__init__()
        self.layer = torch.nn.MultiheadAttention(24, 3, batch_first=True, dtype=dtype).eval()
        self.mask_type, self.options = mask_type, options

    def forward(self, q, k, v, mask=None):
        a = self.layer
        found = torch.ops.aten._native_multi_head_attention(q, k, v, 24, 3, a.in_proj_weight, a.in_proj_bias, a.out_proj.weight, a.out_proj.bias, mask,
                                                            mask_type=self.mask_type, **self.options)
        return found if self.options.get("need_weights", True) else found[0]


class FastEncoder(torch.nn.Module):
    def __init__(self, dtype=F32, gelu=False, norm_first=False, mask_type=None):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(24, 3, 40, batch_first=True, dtype=dtype).eval()
        self.gelu, self.norm_first, self.mask_type = gelu, norm_first, mask_type

    def forward(self, x, mask=None):
        m, a = self.layer, self.layer.self_attn
        return torch.ops.aten._transformer_encoder_layer_fwd(
            x, 24, 3, a.in_proj_weight, a.in_proj_bias, a.out_proj.weight, a.out_proj.bias, self.gelu, self.norm_first, 1e-5, m.norm1.weight, m.norm1.bias,
            m.norm2.weight, m.norm2.bias, m.linear1.weight, m.linear1.bias, m.linear2.weight, m.linear2.bias, mask, self.mask_type)


def hidden(*sizes):
    mask = torch.rand(*sizes) < 0.3
    mask[..., 0] = False
    return mask


triple = lambda dtype=F32: tuple(rand(2, 7, 24, dtype=dtype) for _ in range(3))
op("fast_attention", Lazy(lambda: FastAttention(need_weights=False)), triple)
op("fast_attention_weights", Lazy(lambda: FastAttention(average_attn_weights=False)), triple)
op("fast_attention_mean", Lazy(lambda: FastAttention()), triple)
op("fast_attention_bf16", Lazy(lambda: FastAttention(BF16, 0, need_weights=False)), lambda: (*triple(BF16), hidden(7, 7)))
op("fast_attention_keys", Lazy(lambda: FastAttention(mask_type=1)), lambda: (*triple(), hidden(2, 7)))
op("fast_attention_heads", Lazy(lambda: FastAttention(mask_type=2, need_weights=False)), lambda: (*triple(), hidden(2, 3, 7, 7)))
op("fast_encoder", Lazy(FastEncoder), lambda: (rand(2, 7, 24),))
op("fast_encoder_gelu_first", Lazy(lambda: FastEncoder(gelu=True, norm_first=True, mask_type=1)), lambda: (rand(2, 7, 24), hidden(2, 7)))
op("fast_encoder_causal", Lazy(lambda: FastEncoder(gelu=True, mask_type=0)), lambda: (rand(3, 6, 24), torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)))
op("fast_encoder_bf16", Lazy(lambda: FastEncoder(BF16, norm_first=True)), lambda: (rand(2, 7, 24, dtype=BF16),))
op("fast_encoder_f16", Lazy(lambda: FastEncoder(F16, gelu=True, mask_type=2)), lambda: (rand(2, 7, 24, dtype=F16), hidden(2, 3, 7, 7)))
for gelu in (False, True):
    op(f"addmm_activation_{'gelu' if gelu else 'relu'}", lambda x, a, b, gelu=gelu: torch.ops.aten._addmm_activation(x, a, b, beta=0.5, alpha=2, use_gelu=gelu), lambda: (rand(9), rand(7, 13), rand(13, 9)))
