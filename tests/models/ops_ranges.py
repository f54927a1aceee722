"""Programs that use a part of what they compute: rows, columns, images, pieces (src/loop/demanded_ranges.h)."""

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import BF16, F16, F32, I64, Lazy, distinct, rand, registry, special

PROGRAMS, op = registry(__file__)
BATCH, LENGTH = Dim("batch", min=1, max=64), Dim("length", min=1, max=512)
TOKENS = ({0: BATCH, 1: LENGTH},)


def tokens(width, *sizes, dtype=F32):
    return {f"b{b}_s{s}": lambda b=b, s=s: (rand(b, s, width, dtype=dtype),) for b, s in sizes}


SIZES = [(1, 1), (1, 7), (3, 2), (2, 33)]


class Encoder(torch.nn.Module):
    """Two layers with residuals, and a head over what `pick` leaves of the tokens."""

    def __init__(self, pick, causal=False, flat=False):
        super().__init__()
        self.pick, self.causal, self.flat = pick, causal, flat
        new = torch.nn.Linear
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleDict({"qkv": new(32, 96), "out": new(32, 32), "up": new(32, 48), "down": new(48, 32), "n1": torch.nn.LayerNorm(32), "n2": torch.nn.LayerNorm(32)})
            for _ in range(2))
        self.norm, self.head = torch.nn.LayerNorm(32), new(32, 40)

    def linear(self, layer, x):
        if not self.flat:
            return layer(x)
        return torch.addmm(layer.bias, x.reshape(-1, x.shape[-1]), layer.weight.t()).view(*x.shape[:-1], layer.bias.shape[0])

    def forward(self, x):
        for layer in self.layers:
            q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.linear(layer["qkv"], layer["n1"](x)).chunk(3, -1))
            attention = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)
            x = x + self.linear(layer["out"], attention)
            x = x + self.linear(layer["down"], F.gelu(self.linear(layer["up"], layer["n2"](x))))
        return self.head(self.pick(self.norm(x)))


def encoder(name, pick, sizes=SIZES, dtype=F32, length=LENGTH, **options):
    op(f"range_{name}", Lazy(lambda: Encoder(pick, **options).to(dtype)), lambda: (rand(2, 9, 32, dtype=dtype),), dynamic=({0: BATCH, 1: length},), sets=tokens(32, *sizes, dtype=dtype))


encoder("first_token", lambda x: x[:, 0])
encoder("last_token", lambda x: x[:, -1], causal=True)
encoder("last_token_flat", lambda x: x[:, -1], causal=True, flat=True)
encoder("last_token_bf16", lambda x: x[:, -1], causal=True, dtype=BF16)
encoder("first_image", lambda x: x[0], causal=True)
encoder("half_of_tokens", lambda x: x[:, x.shape[1] // 2:], sizes=[(2, 4), (2, 9), (3, 64)], length=Dim.AUTO, causal=True)
encoder("prefix", lambda x: x[:, : (x.shape[1] + 1) // 2], sizes=[(2, 4), (2, 9), (3, 64)], length=Dim.AUTO, causal=True)
encoder("all_but_last", lambda x: x[:, :-1], sizes=[(1, 3), (2, 33)], length=Dim("long", min=3, max=512))
op("range_vit", Lazy(lambda: Encoder(lambda x: x[:, 0])), lambda: (rand(2, 17, 32),))
op("range_vit_rows", Lazy(lambda: Encoder(lambda x: x[:, 3:9:2], causal=True)), lambda: (rand(2, 17, 32),))

op("range_both_ends", lambda x: ((x.exp() + 1)[:, 0], (x.exp() + 1)[:, -1]), lambda: (rand(3, 9, 5),), dynamic=TOKENS, sets=tokens(5, *SIZES))
op("range_two_of_one", lambda x: (torch.tanh(x)[2:5] + 1, torch.tanh(x)[3:7] * 2), lambda: (rand(20, 9),))
op("range_of_range", lambda x: (x * 2).softmax(-1)[4:16][2:5, 1:].cumsum(0), lambda: (rand(20, 9),))
op("range_empty", lambda x: ((x * 2).softmax(-1)[3:3], (x + 1)[:, 9:]), lambda: (rand(20, 9),))
op("range_steps", lambda x: ((x * 2).softmax(-1)[1::3].sum(-1), (x * 3).exp()[:, ::2].sum(0)), lambda: (rand(20, 10),))
op("range_backwards", lambda x: x.softmax(-1).flip(0)[:3], lambda: (rand(20, 10),))
op("range_beside", lambda x: (lambda y: (y, y[:, 0].exp()))(x.softmax(-1) + 1), lambda: (rand(3, 9, 5),))
op("range_residual", lambda x: (lambda y: (y + y.relu().cumsum(-1))[1:3])(x.exp()), lambda: (rand(9, 5),))
op("range_specials", lambda x: x.view(19, 1).expand(19, 40).softmax(0)[:, 3:7].mul(2)[2:], lambda: (special(),))
op("range_rows_of_specials", lambda x: (x.repeat(4, 1) + 1).softmax(-1)[1], lambda: (special(),))
op("range_columns", Lazy(lambda: torch.nn.Sequential(torch.nn.Linear(16, 100), Slice(1, 37, 70), torch.nn.GELU())), lambda: (rand(5, 16),))
op("range_gates", Lazy(lambda: torch.nn.Sequential(torch.nn.Linear(16, 96, bias=False), Slice(1, 64, 96))), lambda: (rand(5, 16),))
op("range_bmm", lambda a, b: (a @ b)[1, 2:4, 5:], lambda: (rand(3, 9, 8), rand(3, 8, 11)))
op("range_bmm_dynamic", lambda a, b: (a @ b)[:, -1:], lambda: (rand(3, 9, 8), rand(3, 8, 11)), dynamic=({0: BATCH, 1: LENGTH}, {0: BATCH}),
   sets={"b1_s1": lambda: (rand(1, 1, 8), rand(1, 8, 11)), "b2_s30": lambda: (rand(2, 30, 8), rand(2, 8, 11))})


class Slice(torch.nn.Module):
    def __init__(self, dim, begin, end):
        super().__init__()
        self.place = dim, begin, end

    def forward(self, x):
        return x.narrow(self.place[0], self.place[1], self.place[2] - self.place[1])


def attend(rows, **options):
    return lambda q, k, v, *mask: F.scaled_dot_product_attention(q, k, v, *mask, **options)[:, :, rows]


QKV = lambda n=13, m=13, heads=2: (rand(2, 2, n, 8), rand(2, heads, m, 8), rand(2, heads, m, 8))  # noqa: E731
for rows_name, rows in [("last", slice(-1, None)), ("third", 3), ("middle", slice(4, 8)), ("first_rows", slice(0, 5)), ("apart", slice(0, None, 4))]:
    op(f"range_attention_causal_{rows_name}", attend(rows, is_causal=True), QKV)
    op(f"range_attention_{rows_name}", attend(rows), QKV)
op("range_attention_long_queries", attend(11, is_causal=True), lambda: QKV(13, 6))
op("range_attention_long_keys", attend(slice(2, 5), is_causal=True), lambda: QKV(6, 13))
op("range_attention_masked", attend(slice(4, 8)), lambda: (*QKV(), rand(13, 13, dtype=torch.bool)))
op("range_attention_added", attend(-1), lambda: (*QKV(), rand(2, 1, 13, 13)))
op("range_attention_head", lambda q, k, v: F.scaled_dot_product_attention(q, k, v)[:, 1], QKV)
op("range_attention_groups", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)[1, 1], lambda: QKV(heads=1))
op("range_attention_image", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)[1], QKV)
op("range_attention_columns", lambda q, k, v: F.scaled_dot_product_attention(q, k, v)[..., 2:4], QKV)

op("range_conv_image", Lazy(lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), Slice(0, 1, 2), torch.nn.Conv2d(8, 4, 1))), lambda: (rand(4, 3, 9, 9),))
op("range_conv_images", Lazy(lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), Slice(0, 0, 2))), lambda: (rand(4, 3, 9, 9),),
   dynamic=({0: Dim("images", min=2, max=64)},), sets={"b3": lambda: (rand(3, 3, 9, 9),), "b5": lambda: (rand(5, 3, 9, 9),)})
op("range_conv_part", Lazy(lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), Slice(2, 1, 4), Slice(1, 2, 5), torch.nn.AvgPool2d(2))), lambda: (rand(2, 3, 9, 9),))
op("range_concat_piece", lambda x, y: torch.cat([x.exp(), y.softmax(0), x * 2], 0)[12:15] + 1, lambda: (rand(10, 5), rand(9, 5)))
op("range_concat_across", lambda x, y: torch.cat([x.exp(), y.softmax(0), x * 2], 0)[8:21].cumsum(1), lambda: (rand(10, 5), rand(9, 5)))
op("range_concat_rows", lambda x, y: torch.cat([x.exp(), y.softmax(0)], 1)[2].softmax(0), lambda: (rand(10, 5), rand(10, 4)))
op("range_concat_last", lambda x, y: torch.cat([x, y.exp()], 1)[:, -1:].softmax(-1), lambda: (rand(2, 9, 5), rand(2, 3, 5)), dynamic=(TOKENS[0], {0: BATCH}),
   sets={"b1_s1": lambda: (rand(1, 1, 5), rand(1, 3, 5)), "b2_s40": lambda: (rand(2, 40, 5), rand(2, 3, 5))})
op("range_pad", lambda x: F.pad(x.exp(), (2, 3, 1, 1))[2:5, 1:6].sum(0), lambda: (rand(10, 5),))
op("range_scan", lambda x: (x.cumsum(0)[3:6].exp(), x.cumsum(1)[3:6].exp(), x.cumprod(1)[:, 2:4]), lambda: (rand(20, 9),))
op("range_sort", lambda x: (x.sort(1)[0][4:7], x.topk(3, 0)[1][1], x.sort(0)[0][2:5]), lambda: (distinct(20, 9),))
op("range_extremes", lambda x: (x.exp().argmax(1)[3:9], x.exp().amax(0)[2], x.sum(-1, keepdim=True)[4:6] + x[4:6]), lambda: (distinct(20, 9),))
op("range_groups", Lazy(lambda: torch.nn.Sequential(torch.nn.GroupNorm(2, 6), Slice(0, 1, 3), Slice(1, 2, 4))), lambda: (rand(4, 6, 5, 5),))
op("range_embedding", Lazy(lambda: torch.nn.Sequential(torch.nn.Embedding(30, 8), torch.nn.LayerNorm(8), Slice(1, 2, 4), torch.nn.Linear(8, 3))), lambda: (torch.randint(0, 30, (3, 11)),))
op("range_gather", lambda x, i: (x.exp().gather(1, i)[1:3], x.exp()[i[:, 0]][:, 2:4]), lambda: (rand(9, 5), torch.randint(0, 5, (9, 4), dtype=I64)))
op("range_scatter", lambda x, i, y: (x * 2).scatter(1, i, y)[3:5], lambda: (rand(9, 5), torch.rand(9, 5).argsort(1)[:, :4].contiguous(), rand(9, 4)))
op("range_index_put", lambda x, i, y: torch.index_put(x * 2, (i,), y)[3:5], lambda: (rand(9, 5), torch.randint(0, 9, (4,), dtype=I64), rand(4, 5)))
op("range_complex", lambda x: (lambda y: (torch.view_as_real(y)[2:4], y.real[3:5, :2]))(torch.view_as_complex(x) * 2j), lambda: (rand(9, 5, 2),))
op("range_f16", lambda x: (x.softmax(-1) * 2)[:, 1:4].float().softmax(0)[5:7], lambda: (rand(20, 9, dtype=F16),))
op("range_unfold", lambda x: x.exp().unfold(0, 4, 3)[1:3].sum(-1), lambda: (rand(30, 5),))
op("range_pool", lambda x: F.max_pool2d(x.exp()[:, 1:3], 3, 2)[:, :, 1:3], lambda: (rand(2, 5, 12, 12),))
op("range_expand", lambda x: (x.exp().expand(6, 7, 5) + 1)[2:4, 3], lambda: (rand(7, 5),))
op("range_reshape", lambda x: (x.exp().reshape(6, 4, 5) + x.view(24, 5).exp().view(6, 4, 5))[2, 1:3], lambda: (rand(24, 5),))
op("range_wide_reshape", lambda x: x.exp().reshape(4, 30)[1:3].softmax(-1), lambda: (rand(24, 5),))
