"""Messages to the nodes of a graph: many rows that are added to, or joined in other ways with, the rows of a table; and many other writes at
positions that are data."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from case import BF16, BOOL, F16, I64, rand, registry

PROGRAMS, op = registry(__file__)
NODES, EDGES = 150, 400


def places(edges=EDGES, nodes=NODES):
    """Some nodes get no message, one gets many."""
    made = torch.randint(0, nodes // 2, (edges,))
    made[edges // 3:edges // 2] = nodes - 1
    return made


def both(function, *shapes, dtype=torch.float32):
    return function, lambda: (rand(NODES, *shapes, dtype=dtype), places(), rand(EDGES, *shapes, dtype=dtype))


op("messages_added", *both(lambda x, i, v: (x.index_add(0, i, v), x.index_add(0, i, v, alpha=0.5)), 7))
op("messages_added_f16", *both(lambda x, i, v: x.index_add(0, i, v), 3, 5, dtype=F16))
op("messages_added_i64", *both(lambda x, i, v: x.index_add(0, i, v), 3, dtype=I64))
op("messages_along_columns", lambda x, i, v: x.index_add(1, i, v), lambda: (rand(3, NODES, 2), places(), rand(3, EDGES, 2)))
op("messages_scattered", *both(lambda x, i, v: (x.scatter_add(0, i[:, None].expand_as(v), v), x.scatter_add(0, i[:, None].repeat(1, 6), v)), 6))
op("messages_to_vector", *both(lambda x, i, v: (x.scatter_add(0, i, v), x.scatter_reduce(0, i, v, "amax"))))
op("messages_counted", lambda i: torch.zeros(NODES).index_add(0, i, torch.ones(EDGES)).clamp(min=1), lambda: (places(),))
for _how in ("sum", "prod", "mean", "amax", "amin"):
    op(f"messages_{_how}", *both(lambda x, i, v, how=_how: (x.scatter_reduce(0, i[:, None].expand_as(v), v, how), x.scatter_reduce(0, i[:, None].expand_as(v), v, how, include_self=False)), 5))
op("messages_mean_i64", *both(lambda x, i, v: x.scatter_reduce(0, i[:, None].expand_as(v), v, "mean"), 5, dtype=I64))
op("messages_index_reduce", *both(lambda x, i, v: (x.index_reduce(0, i, v, "amax"), x.index_reduce(0, i, v, "mean", include_self=False)), 5))
op("messages_special", lambda x, i, v: (x.index_add(0, i, v), x.index_reduce(0, i, v, "amin")),
   lambda: (rand(NODES, 2), places(), torch.where(torch.rand(EDGES, 2) < 0.02, torch.tensor(float("nan")), torch.where(torch.rand(EDGES, 2) < 0.02, torch.tensor(float("inf")), rand(EDGES, 2)))))
op("messages_copied", lambda x, i, v: (x.index_copy(0, i, v), x.index_fill(0, i, 2.0)), lambda: (rand(NODES, 3), torch.randperm(NODES)[:140], rand(140, 3)))
op("messages_dynamic", lambda x, i, v: x.index_add(0, i, v), lambda: (rand(200, 5), places(300, 200), rand(300, 5)),
   dynamic=({0: Dim("nodes", min=2)}, {0: Dim("edges", min=0)}, {0: Dim("edges", min=0)}),
   sets={"none": lambda: (rand(9, 5), torch.empty(0, dtype=I64), rand(0, 5)), "few": lambda: (rand(3, 5), torch.tensor([2, 0, 2]), rand(3, 5)), "many": lambda: (rand(999, 5), places(5000, 999), rand(5000, 5))})


class Attention(nn.Module):
    """A graph attention layer: softmax over the edges that end in a node."""

    def __init__(self):
        super().__init__()
        self.values, self.scores = nn.Linear(8, 12), nn.Linear(24, 1)

    def forward(self, *args):
        x, source, target = args
        h = self.values(x)
        e = nn.functional.leaky_relu(self.scores(torch.cat([h[source], h[target]], -1)).squeeze(-1), 0.2)
        top = torch.full((x.shape[0],), float("-inf")).scatter_reduce(0, target, e, "amax")
        e = (e - top[target]).exp()
        total = torch.zeros(x.shape[0]).index_add(0, target, e)
        return torch.zeros_like(h).index_add(0, target, h[source] * (e / total[target])[:, None])


op("graph_attention", Attention, lambda: (rand(NODES, 8), places(), places()))


def in_rows(rows, size, writes, repeats=False):
    """Positions in each of some rows."""
    return torch.randint(0, size, (rows, writes)) if repeats else torch.stack([torch.randperm(size)[:writes] for _ in range(rows)])


for _name, _dtype in (("f32", torch.float32), ("bf16", BF16), ("i64", I64), ("bool", BOOL)):
    op(f"elements_written_{_name}", lambda x, i, j, v: (x.scatter(1, i, v), x.scatter(1, i, 1), x.scatter(0, j.t(), v)), lambda t=_dtype: (rand(40, 90, dtype=t), in_rows(30, 90, 70), in_rows(80, 40, 30), rand(40, 80, dtype=t)))
for _name, _dtype in (("f32", torch.float32), ("f16", F16), ("i64", I64)):
    op(f"elements_joined_{_name}", lambda x, i, v: (x.scatter_add(1, i, v), x.scatter_reduce(1, i, v, "amax"), x.scatter_reduce(1, i, v, "amin", include_self=False), x.scatter_reduce(1, i, v, "mean")),
       lambda t=_dtype: (rand(40, 90, dtype=t), in_rows(30, 90, 70, repeats=True), rand(40, 80, dtype=t)))
op("elements_of_volumes", lambda x, i, v: (x.scatter_add(1, i, v), x.scatter(1, i.clamp(max=0) + torch.arange(70)[:, None], v)), lambda: (rand(5, 80, 7), torch.randint(0, 80, (5, 70, 6)), rand(5, 70, 7)))
op("elements_dynamic", lambda x, i, v: (x.scatter_add(1, i, v), x.scatter(1, i[:, :1], 2.0)), lambda: (rand(3, 2000), in_rows(3, 2000, 300, repeats=True), rand(3, 300)),
   dynamic=({0: Dim("rows", min=2)}, {0: Dim("rows", min=2), 1: Dim("writes", min=1)}, {0: Dim("rows", min=2), 1: Dim("writes", min=1)}),
   sets={"one": lambda: (rand(2, 2000), in_rows(2, 2000, 1), rand(2, 1)), "many": lambda: (rand(9, 2000), in_rows(9, 2000, 900, repeats=True), rand(9, 900))})
op("rows_put", lambda x, i, v: (x.index_put((i,), v), x.index_put((i - 200,), v), x.index_put((i,), v[0])), lambda: (rand(200, 5), torch.randperm(200)[:170], rand(170, 5)))
op("pairs_put", lambda x, i, j, v: (x.index_put((i, j), v), x.index_put((i, j), v, accumulate=True)), lambda: (rand(60, 70, 2), torch.arange(600) % 60, torch.arange(600) // 60 * 7 - 3, rand(600, 2)))
op("columns_put", lambda x, i, v: (torch.ops.aten.index_put(x, [None, i], v), torch.ops.aten.index_put(x, [None, i], v, True), torch.ops.aten.index_put(x, [i[:20, None] % 4, None, i % 6], v[0, 0, 0])),
   lambda: (rand(4, 150, 6), torch.randperm(150)[:140], rand(4, 140, 6)))
op("last_put_wins", lambda x, i, v: x.index_put((i,), v), lambda: (rand(150, 3), torch.arange(450) % 150, rand(450, 3)))
op("put_sums", lambda x, i, v: x.index_put((i,), v, accumulate=True), lambda: (rand(150, 3, dtype=F16), places(), rand(EDGES, 3, dtype=F16)))
op("put_counts", lambda i: torch.zeros(NODES, dtype=I64).index_put((i,), torch.ones(EDGES, dtype=I64), accumulate=True), lambda: (places(),))
op("put_flat", lambda x, i, v: (x.put(i[:300] % 900, v[:300], accumulate=True), x.put(torch.arange(400) * 2 - 900, v)), lambda: (rand(30, 30), torch.randint(0, 900, (400,)), rand(400)))
BAGS = lambda: (rand(50, 6), torch.randint(0, 50, (700,)), torch.cat([torch.zeros(3, dtype=I64), torch.sort(torch.randint(0, 700, (190,)))[0], torch.full((7,), 700)]))
op("many_bags", lambda w, i, o: tuple(F.embedding_bag(i, w, o, mode=m) for m in ("sum", "mean", "max")), BAGS)
op("many_bags_more", lambda w, i, o: (F.embedding_bag(i, w, o, mode="sum", per_sample_weights=i * 0.5), F.embedding_bag(i, w, o, mode="mean", padding_idx=3), F.embedding_bag(i, w, o, include_last_offset=True)), BAGS)
op("many_unpooled", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), lambda: (rand(3, 5, 20, 22),))
op("overlapping_unpooled", lambda x: F.max_unpool1d(*F.max_pool1d(x, 3, 1, return_indices=True), 3, 1), lambda: (rand(3, 5, 130),))
op("pools_gradient", lambda g, x: torch.ops.aten.max_pool2d_with_indices_backward(g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, F.max_pool2d(x, 3, 2, 1, return_indices=True)[1]),
   lambda: (rand(2, 3, 10, 12, dtype=BF16), rand(2, 3, 20, 24, dtype=BF16)))
op("unfold_gradient", lambda g, h, e: (torch.ops.aten.unfold_backward(g, [3, 23, 4], 1, 7, 3), torch.ops.aten.unfold_backward(h, [3, 23], -1, 2, 5), torch.ops.aten.unfold_backward(e, [0, 9], 1, 4, 1)),
   lambda: (rand(3, 6, 4, 7), rand(3, 5, 2, dtype=BF16), rand(0, 6, 4)))
