"""Messages to the nodes of a graph: many rows that are added to, or joined in other ways with, the rows of a table."""

import torch
from torch import nn
from torch.export import Dim

from case import F16, I64, rand, registry

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
