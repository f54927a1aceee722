"""Small programs of reductions, scans, views, copies, indexing, sorting, matrix products and mutation."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from case import BF16, BOOL, F16, F32, F64, I32, I64, distinct, rand, registry, special

PROGRAMS, op = registry(__file__)
x3 = lambda: (rand(5, 13, 33),)
x2 = lambda: (rand(11, 39),)

# Reductions
REDUCE = {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin, "prod": None, "var": torch.var, "std": torch.std,
          "logsumexp": torch.logsumexp, "norm": torch.linalg.vector_norm}
for name, f in REDUCE.items():
    if name == "prod":
        op("reduce_prod", lambda x: (x.prod(), x.prod(0), x.prod(-1, keepdim=True)), lambda: (rand(5, 9, low=0.7, high=1.3),))
        continue
    op(f"reduce_{name}_inner", lambda x, f=f: f(x, dim=-1), x3)
    op(f"reduce_{name}_outer", lambda x, f=f: f(x, dim=0), x3)
    op(f"reduce_{name}_middle_keep", lambda x, f=f: f(x, dim=1, keepdim=True), x3)
    op(f"reduce_{name}_pair", lambda x, f=f: f(x, dim=(0, 2)), x3)
    op(f"reduce_{name}_all", lambda x, f=f: f(x, dim=(0, 1, 2)), x3)
op("reduce_full", lambda x: (x.sum(), x.mean(), x.max(), x.min(), x.std(), x.var()), x3)
op("reduce_keepdim", lambda x: (x.sum(-1, True), x.mean(0, keepdim=True), x.amax((0, 1), keepdim=True)), x3)
op("reduce_large_inner", lambda x: (x.sum(-1), x.amax(-1)), lambda: (rand(3, 70001),))
op("reduce_large_outer", lambda x: (x.sum(0), x.mean(0)), lambda: (rand(3001, 7),))
op("reduce_size_1", lambda x: (x.sum(1), x.amax(1), x.mean(1)), lambda: (rand(7, 1, 5),))
op("reduce_empty", lambda x: (x.sum(1), x.sum(), x.prod(1)), lambda: (rand(4, 0),))
op("reduce_integers", lambda x: (x.sum(), x.sum(0), x.amax(1), x.amin(0), x.prod(1)), lambda: (rand(7, 6, dtype=I64, low=1, high=4),))
op("reduce_i32", lambda x: (x.sum(), x.sum(0), x.amax(1)), lambda: (rand(7, 6, dtype=I32),))
op("reduce_bool", lambda x: (x.sum(), x.any(), x.all(), x.any(1), x.all(0)), lambda: (rand(7, 6, dtype=BOOL),))
op("reduce_any_all_f32", lambda x: ((x > 1).any(1), (x > -3).all(0), x.any(), x.all(-1)), x2)
op("reduce_bf16", lambda x: (x.sum(-1), x.mean(0), x.amax(-1), x.var(-1)), lambda: (rand(9, 300, dtype=BF16),))
op("reduce_f16", lambda x: (x.sum(-1), x.mean(0), x.amax(-1)), lambda: (rand(9, 300, dtype=F16),))
op("reduce_f64", lambda x: (x.sum(-1), x.mean(0), x.amax(-1), x.std(-1)), lambda: (rand(9, 300, dtype=F64),))
op("reduce_dtype", lambda x: (x.sum(-1, dtype=F64), x.float().mean(0), x.sum(0, dtype=F32)), lambda: (rand(9, 30, dtype=BF16),))
op("reduce_special", lambda x: (x.sum(), x.amax(), x.max(), x.nan_to_num().amin()), lambda: (special(),))
op("reduce_inf", lambda x: (x.amax(0), x.amin(0), x.logsumexp(0)), lambda: (torch.tensor([[float("-inf"), 1.0], [float("-inf"), float("inf")]]),))
op("var_correction", lambda x: (x.var(1, correction=0), x.var(0, unbiased=False), x.std(1, correction=2), torch.var_mean(x, 1)), x2)
op("var_large_mean", lambda x: (x.var(1), x.std(1)), lambda: (rand(6, 400) * 0.5 + 300,), tolerance=1e-3)
op("norms", lambda x: (x.norm(), x.norm(dim=1), x.norm(1, dim=0), torch.linalg.vector_norm(x, float("inf"), 1), torch.linalg.vector_norm(x, 3, 1)), x2)
op("normalize", lambda x: (F.normalize(x, dim=1), F.normalize(x, p=1, dim=0)), x2)
op("cosine_similarity", lambda x, y: F.cosine_similarity(x, y, dim=1), lambda: (rand(9, 30), rand(9, 30)))
op("mse_l1", lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y)), lambda: (rand(9, 30), rand(9, 30)))
op("argmax", lambda x: (x.argmax(), x.argmax(0), x.argmax(1), x.argmin(1, keepdim=True)), lambda: (distinct(9, 30),))
op("argmax_ties", lambda x: (x.argmax(1), x.argmin(0)), lambda: (torch.tensor([[1.0, 3.0, 3.0, 2.0], [5.0, 5.0, 5.0, 5.0], [0.0, -1.0, -1.0, 0.0]]),))
op("argmax_nan", lambda x: x.argmax(1), lambda: (torch.tensor([[1.0, float("nan"), 9.0], [float("nan"), float("nan"), 2.0]]),))
op("max_dim", lambda x: (*x.max(1), *x.min(0), *x.max(-1, keepdim=True)), lambda: (distinct(9, 30),))
op("mean_centre_chain", lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5), x3)
op("softmax_last", lambda x: x.softmax(-1), x3)
op("softmax_first", lambda x: x.softmax(0), x3)
op("softmax_middle", lambda x: x.softmax(1), x3)
op("softmax_long", lambda x: x.softmax(-1), lambda: (rand(3, 5003) * 8,))
op("softmax_masked", lambda x: x.masked_fill(x > 0, float("-inf")).softmax(-1), x3)
op("softmax_row_of_inf", lambda x: x.softmax(-1), lambda: (torch.full((2, 5), float("-inf")),))
# Rows that no block of threads holds in registers, of an odd length
op("softmax_very_long_bf16", lambda x: x.softmax(-1), lambda: ((rand(2, 40003) * 8).to(BF16),), tolerance=2e-2)
op("log_softmax_very_long", lambda x, m: x.masked_fill(m, float("-inf")).log_softmax(-1), lambda: (rand(3, 40003) * 8, rand(3, 40003) > -1.5))
op("softmax_very_long_special", lambda x: x.softmax(-1), lambda: (torch.cat([torch.full((1, 40003), float("-inf")), rand(1, 40003), rand(2, 40003)]).index_put((torch.tensor([2, 3]), torch.tensor([40001, 7])), torch.tensor([float("inf"), float("nan")])),))
op("cross_entropy_long", lambda x, y: F.cross_entropy(x.float(), y, reduction="none"), lambda: ((rand(4, 40003) * 4).to(BF16), torch.tensor([0, 40002, -100, 77])))
op("divided_by_row", lambda x: x / x.abs().sum(-1, keepdim=True), lambda: (torch.cat([rand(3, 600) * 30, rand(2, 600) * 1e-5, torch.zeros(1, 600)]),))
# Read along another dimension than written
op("transposed_tiles", lambda x, y: x.t() * 2 + y, lambda: (rand(70, 133), rand(133, 70)))
op("transposed_tiles_bf16", lambda x: x.t().contiguous(), lambda: (rand(200, 96).to(BF16),))
op("transposed_tiles_odd_f16", lambda x: (x.t() + 1).contiguous(), lambda: (rand(67, 45).to(F16),))
op("transposed_tiles_u8", lambda x: x.permute(2, 0, 1).contiguous(), lambda: (torch.randint(0, 255, (9, 35, 67), dtype=torch.uint8),))
op("transposed_tiles_two", lambda x, y: x.transpose(1, 2) - y.transpose(1, 2).exp(), lambda: (rand(2, 33, 65), rand(2, 33, 65)))
op("channels_to_last", lambda x: x.permute(0, 2, 3, 1).contiguous() * 2, lambda: (rand(2, 40, 9, 10),))
op("half_of_dear", lambda x: (x.exp() / (1 + x.exp()))[:, ::3], lambda: (rand(7, 33),))
op("softmax_twice", lambda x: x.softmax(-1).softmax(-1), x3)
op("layer_norm_gelu_softmax", lambda x: F.gelu(F.layer_norm(x, (33,))).softmax(-1), x3)
op("softmax_bf16", lambda x: (x.softmax(-1), x.softmax(-1, dtype=F32)), lambda: (rand(9, 300, dtype=BF16),))
op("log_softmax", lambda x: (x.log_softmax(-1), x.log_softmax(0)), x3)
op("cross_entropy", lambda x, y: F.cross_entropy(x, y), lambda: (rand(12, 10), rand(12, dtype=I64, low=0, high=10)))
op("nll_loss", lambda x, y: F.nll_loss(x.log_softmax(1), y, reduction="none"), lambda: (rand(12, 10), rand(12, dtype=I64, low=0, high=10)))
op("cumsum", lambda x: (x.cumsum(0), x.cumsum(1), x.cumsum(-1)), x3)
op("cumsum_i64", lambda x: (x.cumsum(0), x.cumsum(1)), lambda: (rand(6, 9, dtype=I64),))
op("cumsum_bool", lambda x: x.cumsum(1), lambda: (rand(6, 9, dtype=BOOL),))
op("cumprod_cummax", lambda x: (x.cumprod(1), *x.cummax(1), x.logcumsumexp(1)), lambda: (distinct(4, 8) / 8,))

# Views and copies
op("permute", lambda x: (x.permute(2, 0, 1), x.transpose(0, 2), x.mT, x.movedim(0, -1)), x3)
op("reshape", lambda x: (x.reshape(13, -1), x.view(65, 33), x.flatten(), x.unflatten(2, (3, 11)), x.transpose(0, 1).reshape(-1, 33)), x3)
op("squeeze", lambda x: (x.squeeze(1), x.squeeze(), x.unsqueeze(0), x.unsqueeze(-1), x[:, 0], x[..., None]), lambda: (rand(6, 1, 5, 1),))
op("slice", lambda x: (x[1:4], x[:, 3:-2], x[..., ::2], x[1, 2:9:3], x[-1], x.narrow(1, 2, 5), x.select(2, 7)), x3)
op("slice_empty", lambda x: (x[3:3], x[100:]), x2)
op("flip_roll", lambda x: (x.flip(0), x.flip((1, 2)), x.roll(2, 1), x.roll((1, -3), (0, 2)), x.roll(5)), x3)
for kind in (F32, BF16, I64, BOOL):  # by vectors, whose lanes wrap around
    op(f"roll_{str(kind).removeprefix('torch.')}", lambda x: (x.roll(5, -1), x.roll((3, -2), (0, -1)), x.roll(7), x.roll(32, 1), x.roll(0, 1), x.roll(70, 1)[:, ::3], x.roll(1, 1) == x), lambda kind=kind: (rand(6, 33, dtype=kind),))
op("rot90", lambda x: torch.rot90(x, 1, (0, 1)), x2)
op("expand_repeat", lambda x: (x.expand(4, 6, 5), x.repeat(2, 1, 3), x.repeat_interleave(3, 0), x.tile(2)), lambda: (rand(6, 5),))
op("cat", lambda x, y: (torch.cat([x, y]), torch.cat([x, x[:, :2]], 1), torch.cat([x.t(), y.t()], 1)), lambda: (rand(4, 7), rand(3, 7)))
op("cat_many", lambda x, y, z: torch.cat([x, y * 2, z.relu(), x - 1], dim=1), lambda: (rand(5, 3, 4), rand(5, 1, 4), rand(5, 6, 4)))
op("neighbours", lambda x, y, z: (lambda s: (torch.cat([x, y * 2, z.relu()], 1), y.sin(), s * 2, z.flatten(1).t() + 1, s.exp() - y.mean(), x[:, 1:] * 3))(x.sum(1)), lambda: (rand(5, 3, 4), rand(5, 1, 4), rand(5, 6, 4)))
op("cat_empty", lambda x, y: torch.cat([x, y], 0), lambda: (rand(0, 4), rand(3, 4)))
op("cat_dtypes", lambda x, y: torch.cat([x, y]), lambda: (rand(4), rand(3, dtype=I64)))
op("cat_last_of_sum", lambda x, y: torch.cat([x, y], -1).sum(-1), lambda: (rand(6, 9), rand(6, 5)))
op("stack", lambda x, y: (torch.stack([x, y]), torch.stack([x, y], 1), torch.stack([x, y, x], -1), torch.hstack([x, y]), torch.vstack([x, y])), lambda: (rand(4, 7), rand(4, 7)))
op("split_chunk", lambda x: (*x.split(5, 1), *x.chunk(3, 2), *x.split([2, 3], 0), *x.unbind(0)), x3)
op("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), lambda: (rand(2, 8, 3, 5),))
op("pad_constant", lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, 3, 2, 1), value=1.5), F.pad(x, (-1, 2)), F.pad(x, (1, 1, 0, 0, 2, 0))), x3)
op("pad_modes", lambda x: (F.pad(x, (2, 1), mode="reflect"), F.pad(x, (2, 1), mode="replicate"), F.pad(x, (2, 1), mode="circular")), lambda: (rand(2, 3, 9),))
op("pad_2d_modes", lambda x: (F.pad(x, (2, 1, 1, 2), mode="reflect"), F.pad(x, (2, 1, 3, 0), mode="replicate")), lambda: (rand(2, 3, 7, 8),))
op("pad_bool", lambda x: F.pad(x, (1, 1), value=True), lambda: (rand(4, 5, dtype=BOOL),))
op("tril_triu", lambda x: (x.tril(), x.triu(1), x.tril(-2), x.triu(-1)), lambda: (rand(3, 7, 9),))
op("causal_mask", lambda x: x.masked_fill(torch.ones(7, 7, dtype=BOOL).triu(1), float("-inf")).softmax(-1), lambda: (rand(2, 7, 7),))
op("diagonal", lambda x: (x.diagonal(), x.diagonal(1), torch.diag_embed(x[0])), lambda: (rand(6, 8),))
op("instance_norm_empty", lambda x: F.instance_norm(x), lambda: (rand(5, 0, 4, 15),))
op("as_strided_of_copies", lambda x: (x.t().contiguous().as_strided((3, 2), (1, 1), 1), x.t().contiguous().detach().as_strided((2, 2), (5, 1), 0), x.t().clone(memory_format=torch.contiguous_format).as_strided((3,), (7,), 2)), lambda: (rand(6, 8),))
op("as_strided", lambda x: torch.as_strided(x, (3, 4), (8, 2), 1), lambda: (rand(6, 8),))
op("unfold", lambda x: (x.unfold(1, 5, 3), x.unfold(0, 2, 1)), lambda: (rand(6, 20),))
op("clone_contiguous", lambda x: (x.clone(), x.t().contiguous(), x.detach() + 1, x.t().contiguous().view(-1)), lambda: (rand(6, 8),))
op("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), lambda: (rand(6), rand(8)))
op("outputs_repeat", lambda x: (x + 1, x, (lambda y: (y, y))(x * 2)), lambda: (rand(6, 8),))
op("output_view_of_input", lambda x: (x.t(), x[1:], x.view(-1)), lambda: (rand(6, 8),))
op("output_constants", lambda x: {"a": x * 2, "b": [torch.tensor([1.0, 2.0]), x.shape[0]]}, lambda: (rand(6, 8),))

# Indexing
rows = lambda: (rand(10, 7), rand(5, dtype=I64, low=0, high=10))
op("index_select", lambda x, i: (x.index_select(0, i), x.t().index_select(1, i)), rows)
op("index_one", lambda x, i: (x[i], x[i, 2:4], x[:, i % 7]), rows)
op("index_two", lambda x, i: (x[i, i % 7], x[i[:, None], (i % 7)[None]]), rows)
op("index_computed", lambda x: (x[torch.arange(5)], x[torch.arange(9, 0, -3)], x[torch.arange(5)[:, None], torch.arange(7)]), lambda: (rand(10, 7),))
op("index_negative", lambda x, i: x[i - 10], rows)
op("index_none_slice", lambda x, i: (x[None, i], x[1:][i % 9]), rows)
op("index_i32", lambda x, i: x[i], lambda: (rand(10, 7), rand(5, dtype=I32, low=0, high=10)))
op("gather", lambda x, i: (x.gather(1, i), x.gather(0, i), torch.take_along_dim(x, i, 1)), lambda: (rand(7, 9), rand(7, 9, dtype=I64, low=0, high=7)))
op("gather_smaller", lambda x, i: x.gather(1, i), lambda: (rand(7, 9, 4), rand(5, 3, 2, dtype=I64, low=0, high=9)))
op("take", lambda x, i: torch.take(x, i), lambda: (rand(7, 9), rand(4, 3, dtype=I64, low=0, high=63)))
op("embedding", nn.Embedding(31, 12).requires_grad_(False), lambda: (rand(4, 6, dtype=I64, low=0, high=31),))
op("embedding_i32", lambda w, i: F.embedding(i, w), lambda: (rand(31, 12), rand(4, 6, dtype=I32, low=0, high=31)))
op("one_hot", lambda i: F.one_hot(i, 9), lambda: (rand(4, 6, dtype=I64, low=0, high=9),))
op("scatter", lambda x, i, v: (x.scatter(1, i, v), x.scatter(1, i, 2.5)), lambda: (rand(5, 8), torch.stack([torch.randperm(8)[:3] for _ in range(5)]), rand(5, 3)))
op("scatter_add", lambda x, i, v: x.scatter_add(0, i, v), lambda: (rand(5, 8), rand(9, 8, dtype=I64, low=0, high=5), rand(9, 8)))
op("scatter_reduce", lambda x, i, v: (x.scatter_reduce(0, i, v, "amax"), x.scatter_reduce(0, i, v, "sum")), lambda: (rand(5, 8), rand(9, 8, dtype=I64, low=0, high=5), rand(9, 8)))
op("index_put", lambda x, i, v: x.index_put((i,), v), lambda: (rand(9, 8), torch.tensor([0, 4, 7]), rand(3, 8)))
# Tables of many rows: the rows that are added are sorted first.
ROWS = lambda *shape: torch.randint(0, 300, shape)
op("index_put_many_rows", lambda x, i, v: x.index_put((i,), v, accumulate=True), lambda: (rand(300, 5), ROWS(40, 7), rand(40, 7, 5)), dynamic=(None, {0: Dim.AUTO}, {0: Dim.AUTO}),
   sets={"some": lambda: (rand(300, 5), ROWS(40, 7), rand(40, 7, 5)), "long": lambda: (rand(300, 5), ROWS(300, 7), rand(300, 7, 5)), "one": lambda: (rand(300, 5), ROWS(40, 7) * 0 - 2, rand(40, 7, 5))})
op("index_put_many_places", lambda x, i, j, v: x.index_put((i, j), v, accumulate=True), lambda: (rand(300, 20, 3), ROWS(9, 1) - 300, ROWS(8) % 20, rand(9, 8, 3)))
op("embedding_backward_many_rows", lambda g, i: (torch.ops.aten.embedding_dense_backward(g, i, 300, 7, False), torch.ops.aten.embedding_dense_backward(g, i, 300, -1, True)),
   lambda: (rand(33, 9, 4), ROWS(33, 9)), dynamic=({0: Dim.AUTO}, {0: Dim.AUTO}), sets={"many": lambda: (rand(33, 9, 4), ROWS(33, 9)), "few rows": lambda: (rand(300, 9, 4), ROWS(300, 9) % 5 + 5)})
op("index_put_accumulate", lambda x, i, v: x.index_put((i,), v, accumulate=True), lambda: (rand(9, 8), torch.tensor([0, 4, 4]), rand(3, 8)))
op("index_add", lambda x, i, v: x.index_add(0, i, v), lambda: (rand(9, 8), torch.tensor([0, 4, 4]), rand(3, 8)))
op("index_fill_copy", lambda x, i, v: (x.index_fill(0, i, 1.0), x.index_copy(0, i, v)), lambda: (rand(9, 8), torch.tensor([0, 4, 6]), rand(3, 8)))
op("slice_scatter", lambda x, y: (torch.slice_scatter(x, y, 0, 2, 5), torch.select_scatter(x, y[0], 0, 1)), lambda: (rand(9, 8), rand(3, 8)))
op("bucketize", lambda x, b: (torch.bucketize(x, b), torch.searchsorted(b, x, right=True)), lambda: (rand(5, 8), torch.linspace(-2, 2, 9)))
op("isin", lambda x, y: torch.isin(x, y), lambda: (rand(40, dtype=I64), torch.tensor([1, 3, -2])))
op("isin_large", lambda x, y: (torch.isin(x, y), torch.isin(x, y, invert=True), torch.isin(x, y.float() + 0.5), torch.isin(x.reshape(4, 10), y.view(10, -1))),
   lambda: (rand(40, dtype=I64), torch.arange(-900, 900, 3)[:590]))
op("isin_special", lambda x, y: (torch.isin(x, y), torch.isin(y, x)), lambda: (special(), torch.cat([rand(100), special(), -special()])))
op("isin_none", lambda x, y: (torch.isin(x, y), torch.isin(y, x)), lambda: (rand(70, dtype=I64), rand(0, dtype=I64)))
op("topk", lambda x: (*x.topk(3), *x.topk(2, dim=0), *x.topk(4, largest=False)), lambda: (distinct(6, 19),))
op("sort", lambda x: (*x.sort(), *x.sort(0, descending=True), x.argsort(1)), lambda: (distinct(6, 19),))
op("sort_i64", lambda x: (*x.sort(), *x.topk(2)), lambda: (distinct(6, 19, dtype=I64) * 3 + torch.arange(114).reshape(6, 19) * 100,))
op("sort_stable", lambda x: torch.sort(x, stable=True), lambda: (rand(4, 50, dtype=I64, low=0, high=5),))
op("kthvalue_median", lambda x: (*x.median(1), *x.kthvalue(3, 1)), lambda: (distinct(6, 19),))

# Matrix products
op("mm", torch.mm, lambda: (rand(17, 33), rand(33, 29)))
op("mm_sizes", lambda a, b, c: (a @ b, a @ c, b.t() @ c), lambda: (rand(1, 64), rand(64, 1), rand(64, 100)))
op("mm_transposed", lambda a, b: (a.t() @ b, a.t() @ b.t().contiguous().t()), lambda: (rand(33, 17), rand(33, 29)))
op("mm_large", torch.mm, lambda: (rand(257, 300), rand(300, 193)))
op("mm_tall", torch.mm, lambda: (rand(1000, 9), rand(9, 5)))
op("mm_long_k", torch.mm, lambda: (rand(3, 5000), rand(5000, 4)))
op("mm_empty_k", torch.mm, lambda: (rand(3, 0), rand(0, 4)))
op("mm_empty_m", torch.mm, lambda: (rand(0, 3), rand(3, 4)))
op("mm_f64", torch.mm, lambda: (rand(17, 33, dtype=F64), rand(33, 29, dtype=F64)))
op("mm_bf16", torch.mm, lambda: (rand(17, 130, dtype=BF16), rand(130, 29, dtype=BF16)))
op("mm_f16", torch.mm, lambda: (rand(17, 130, dtype=F16), rand(130, 29, dtype=F16)))
op("mm_i64", torch.mm, lambda: (rand(7, 13, dtype=I64), rand(13, 9, dtype=I64)))
op("mm_epilogue", lambda a, b, c, d: F.gelu(a @ b + c) * d, lambda: (rand(40, 33), rand(33, 50), rand(50), rand(40, 50)))
op("mm_prologue", lambda a, b: (a * 2 + 1).relu() @ b.sigmoid(), lambda: (rand(40, 33), rand(33, 50)))
op("mm_twice", lambda a, b: (a @ b) @ (a @ b).t(), lambda: (rand(40, 33), rand(33, 50)))
op("matmul_ranks", lambda v, m, b: (v @ v, m @ v, v @ m.t(), b @ v, b @ m.t(), m @ b.transpose(1, 2), v @ b.transpose(1, 2)), lambda: (rand(13), rand(7, 13), rand(3, 7, 13)))
op("matmul_rank_4", torch.matmul, lambda: (rand(2, 3, 9, 11), rand(2, 3, 11, 5)))
op("matmul_broadcast", lambda a, b: (a @ b, a[0] @ b), lambda: (rand(4, 1, 9, 11), rand(3, 11, 5)))
op("bmm", torch.bmm, lambda: (rand(5, 9, 17), rand(5, 17, 6)))
op("bmm_transposed", lambda a, b: torch.bmm(a, b.transpose(1, 2)) * 0.5, lambda: (rand(5, 9, 17), rand(5, 6, 17)))
op("bmm_bf16", torch.bmm, lambda: (rand(5, 9, 17, dtype=BF16), rand(5, 17, 6, dtype=BF16)))
op("addmm", lambda c, a, b: (torch.addmm(c, a, b), torch.addmm(c, a, b, beta=0.5, alpha=2)), lambda: (rand(6), rand(9, 17), rand(17, 6)))
op("addmm_2d", lambda c, a, b: torch.addmm(c, a, b), lambda: (rand(9, 6), rand(9, 17), rand(17, 6)))
op("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2), lambda: (rand(5, 9, 6), rand(5, 9, 17), rand(5, 17, 6)))
op("mv_dot_outer", lambda m, v, w: (m.mv(v), v.dot(v), torch.outer(v, w), torch.addmv(w, m, v)), lambda: (rand(7, 13), rand(13), rand(7)))
op("einsum", lambda a, b: (torch.einsum("bij,bjk->bik", a, b), torch.einsum("bij,bjk->ik", a, b), torch.einsum("bij->bji", a), torch.einsum("bij,bjk->", a, b)), lambda: (rand(4, 6, 7), rand(4, 7, 5)))
op("einsum_attention", lambda q, k: torch.einsum("bqhd,bkhd->bhqk", q, k), lambda: (rand(2, 5, 3, 8), rand(2, 6, 3, 8)))
op("tensordot", lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 1])), lambda: (rand(4, 6, 7), rand(6, 7, 5)))
op("cdist_like", lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1).sqrt(), lambda: (rand(9, 5), rand(8, 5)))

# Dynamic shapes
B, S = Dim("batch", min=1, max=64), Dim("seq", min=1, max=128)
bs = lambda b, s: lambda: (rand(b, s, 12),)
sets = {f"b{b}_s{s}": bs(b, s) for b, s in ((1, 1), (1, 7), (64, 2), (3, 128))}
op("dynamic_reshape", lambda x: (x.reshape(x.shape[0] * x.shape[1], 3, 4), x.reshape(x.shape[0], -1), x.flatten(0, 1)), bs(2, 5), dynamic=({0: B, 1: S},), sets=sets)
op("dynamic_heads", lambda x: x.view(x.shape[0], x.shape[1], 3, 4).transpose(1, 2).contiguous().view(-1, x.shape[1], 4), bs(2, 5), dynamic=({0: B, 1: S},), sets=sets)
op("dynamic_reduce", lambda x: (x.sum(1), x.mean((0, 2)), x.softmax(1), x.amax(0)), bs(2, 5), dynamic=({0: B, 1: S},), sets=sets)
op("dynamic_matmul", lambda x: (x @ x.transpose(1, 2)).softmax(-1) @ x, bs(2, 5), dynamic=({0: B, 1: S},), sets=sets)
op("dynamic_cat", lambda x: (torch.cat([x, x], 1), torch.cat([x, torch.ones(x.shape[0], 1, 12)], 1)), bs(2, 5), dynamic=({0: B, 1: S},), sets=sets)
op("dynamic_slice", lambda x: (x[:, -1], x[:, 1:] * 2, x[:, 0]), bs(2, 5), dynamic=({0: B, 1: Dim("seq", min=3, max=128)},),
   sets={k: v for k, v in sets.items() if int(k.split("_s")[1]) > 2})
op("dynamic_mask", lambda x: torch.tril(torch.ones(x.shape[1], x.shape[1]))[None] @ x, bs(2, 5), dynamic=({0: B, 1: S},), sets=sets)
op("dynamic_cumsum", lambda x: (x.cumsum(1), x.flip(1), F.pad(x, (0, 0, 1, 0))), bs(2, 5), dynamic=({0: B, 1: S},), sets=sets)
op("dynamic_expand", lambda x: x[:, :1].expand(-1, x.shape[1], -1) + x, bs(2, 5), dynamic=({0: B, 1: S},), sets=sets)
op("dynamic_equal", lambda x, y: x @ y, lambda: (rand(4, 6), rand(6, 3)), dynamic=({1: S}, {0: S}), sets={f"s{s}": (lambda s=s: (rand(4, s), rand(s, 3))) for s in (1, 50, 128)})
even = lambda n: lambda: (rand(2 * n, 3),)
op("dynamic_even", lambda x: x.reshape(-1, 2, 3).sum(1), even(3), dynamic=({0: 2 * Dim("pairs", min=1, max=50)},), sets={f"p{n}": even(n) for n in (2, 3, 50)})  # 1 pair: the export says 2 <= s3


# Mutation, state, nesting, control flow
class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("scratch", torch.ones(3), persistent=False)

    def forward(self, x):
        self.count.add_(1)
        return x * self.count + self.scratch


class Window(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.arange(12.0).reshape(4, 3))

    def forward(self, x):
        self.window[1:3].copy_(x)
        self.window.mul_(2)
        return self.window.sum(0), x + 1


def inplace(x):
    y = x + 1
    y[:, 1:3] = 0
    y[0].add_(5)
    y.mul_(2).relu_()
    return y


def mutate_input(x, y):
    x.add_(y)
    return x * 2


def fill_views(x):
    out = torch.empty(4, 6)
    out[:, ::2] = x
    out[:, 1::2] = -x
    return out


op("mutate_counter", Counter, lambda: (rand(3),))
op("mutate_window", Window, lambda: (rand(2, 3),))
op("mutate_input", mutate_input, lambda: (rand(5, 4), rand(5, 4)))
op("mutate_temporary", inplace, lambda: (rand(5, 4),))
op("mutate_views", fill_views, lambda: (rand(4, 3),))
op("nested_inputs", lambda d, xs: {"sum": d["a"] + d["b"], "rest": [xs[0] * xs[1], (xs[1],)]}, lambda: ({"b": rand(4), "a": rand(4)}, [rand(4), rand(4)]))
op("plain_arguments", lambda x, k, flag, name: x * k if flag and name == "twice" else x, lambda: (rand(4), 3, True, "twice"))
op("unused_input", lambda x, y: x * 2, lambda: (rand(4), rand(5)))
op("dead_code", lambda x: (x.exp().sum(), x * 2)[1], lambda: (rand(4),))
op("shared_subexpression", lambda x: (x.exp() + 1) * (x.exp() + 1) + x.exp(), lambda: (rand(40),))
op("constant_fold", lambda x: x + (torch.arange(4.0) * 2 + 1).sin(), lambda: (rand(3, 4),))
op("identity", lambda x: x, lambda: (rand(3, 4),))
