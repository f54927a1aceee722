"""Small programs of matrix products that a kernel's tiles are too large for: matrices of a few rows and columns, and long sums for few results."""

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import BF16, F16, F64, rand, registry, special

PROGRAMS, op = registry(__file__)


def heads(x, w, v):
    """Attention weights that are mixed over heads before and after the softmax."""
    mixed = F.linear(x.permute(0, 2, 3, 1), w).permute(0, 3, 1, 2).softmax(-1)
    return F.linear(mixed.permute(0, 2, 3, 1), v).permute(0, 3, 1, 2)


op("mixed_heads", heads, lambda: (rand(2, 4, 25, 25), rand(4, 4), rand(6, 4)))
op("mixed_heads_bf16", heads, lambda: (rand(2, 4, 25, 25, dtype=BF16), rand(4, 4, dtype=BF16), rand(4, 4, dtype=BF16)), tolerance=2e-2)
op("mixed_heads_dynamic", heads, lambda: (rand(2, 8, 33, 31), rand(8, 8), rand(8, 8)), dynamic=({0: Dim("batch", min=1, max=64), 2: Dim("rows", min=1, max=400)}, None, None),
   sets={"one": lambda: (rand(1, 8, 1, 31), rand(8, 8), rand(8, 8)), "more": lambda: (rand(3, 8, 57, 31), rand(8, 8), rand(8, 8))})
# In float32 8192 terms in one row are 1e-4 off, in sums near 0 as in large ones.
for dtype, name, tolerance in ((None, "f32", 5e-4), (BF16, "bf16", 2e-2), (F16, "f16", 2e-2), (F64, "f64", None)):
    more = {"tolerance": tolerance} if tolerance else {}
    kind = {"dtype": dtype} if dtype else {}
    op(f"small_matrix_{name}", lambda x, w: (x @ w, (x @ w).relu() + 1, w.t() @ x.t()), lambda kind=kind: (rand(1500, 7, **kind), rand(7, 5, **kind)), **more)
    op(f"small_gradient_{name}", lambda x, y: x.t() @ y, lambda kind=kind: (rand(70001, 3, **kind), rand(70001, 5, **kind)), **more)
    op(f"long_sum_{name}", lambda x, y: (x.t() @ y, (x.t() @ y).tanh()), lambda kind=kind: (rand(8192, 40, **kind), rand(8192, 72, **kind)), **more)
op("small_batches", lambda x, y: torch.bmm(x, y), lambda: (rand(3, 700, 6), rand(3, 6, 9)))
op("small_bias", lambda x, w, b: (F.linear(x, w, b), torch.addmm(b, x, w.t(), beta=0.5, alpha=2.0)), lambda: (rand(2048, 8), rand(8, 8), rand(8)))
op("small_special", lambda x, w: x @ w, lambda: (special().repeat(200).reshape(-1, 2), special()[:6].reshape(2, 3)))
op("long_sum_batches", lambda x, y: torch.bmm(x.transpose(1, 2), y), lambda: (rand(2, 4096, 24), rand(2, 4096, 40)))
op("long_sum_pixels", lambda g, x: torch.einsum("bihw,bjhw->ij", g, x), lambda: (rand(4, 20, 64, 32), rand(4, 28, 64, 32)))
op("long_sum_indivisible", lambda x, y: x.t() @ y, lambda: (rand(8191, 20), rand(8191, 33)))
op("long_sum_special", lambda x, y: x.t() @ y, lambda: (special().repeat(4096 // special().numel() + 1)[:4096].reshape(-1, 1).repeat(1, 20), rand(4096, 24)))


def positions(*sizes):
    return torch.randint(0, 196, sizes, generator=torch.Generator().manual_seed(3))


# Sums for the few rows of a table, such as the gradient of a table of relative positions: each row looks at all that is for it.
op("few_rows_added", lambda t, i, g: torch.ops.aten.index_put(t, [None, i], g, True), lambda: (rand(3, 196), positions(30, 31), rand(3, 30, 31)))
op("few_rows_added_bf16", lambda t, i, g: torch.ops.aten.index_put(t, [i], g, True), lambda: (rand(196, 4, dtype=BF16), positions(333), rand(333, 4, dtype=BF16)), tolerance=2e-2)
op("few_rows_written", lambda t, i, g: torch.ops.aten.index_put(t, [i], g), lambda: (rand(196, 5), torch.arange(190).flip(0), rand(190, 5)))
op("few_rows_embedding", lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, 196, 7, False), lambda: (rand(300, 8), positions(300)))
op("few_rows_index_add", lambda t, i, g: t.index_add(0, i, g), lambda: (rand(196, 6), positions(500), rand(500, 6)))
op("few_elements_scatter", lambda t, i, g: (t.scatter_add(0, i, g), t.scatter_reduce(0, i, g, "amax")), lambda: (rand(196), positions(700), rand(700)))
op("few_elements_counted", lambda i: torch.zeros(196, dtype=torch.int64).index_put((i,), torch.ones_like(i), accumulate=True), lambda: (positions(900),))
# Results whose rows no wide store fits: logits of odd vocabularies.
for columns in (33, 50, 91, 130, 202):
    op(f"odd_columns_{columns}", lambda x, w, b: (F.linear(x, w), F.linear(x, w, b).relu()), lambda columns=columns: (rand(70, 64, dtype=BF16), rand(columns, 64, dtype=BF16), rand(columns, dtype=BF16)), tolerance=2e-2)
op("odd_columns_f32", lambda x, w: x @ w, lambda: (rand(200, 40), rand(40, 77)))
op("odd_columns_mixed", lambda x, w, y: (x @ w).float() + y, lambda: (rand(70, 64, dtype=F16), rand(64, 90, dtype=F16), rand(70, 90)), tolerance=2e-2)
op("odd_columns_batches", lambda x, w: torch.bmm(x, w), lambda: (rand(2, 130, 64, dtype=BF16), rand(2, 64, 67, dtype=BF16)), tolerance=2e-2)
