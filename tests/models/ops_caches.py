"""Caches: states of which a call changes some elements, in the ways in which models write them; those are written where they lie."""

import torch
from torch import nn
from torch.export import Dim

from case import BF16, F32, Lazy, rand, registry

PROGRAMS, op = registry(__file__)


class Cache(nn.Module):
    """`write(cache, *inputs)` changes the state; what comes out is a product with the new one."""

    def __init__(self, write, *sizes, dtype=F32):
        super().__init__()
        self.write = write
        self.register_buffer("cache", torch.linspace(-2, 2, torch.Size(sizes).numel()).reshape(sizes).to(dtype))
        self.register_buffer("weight", torch.linspace(-1, 1, 3 * sizes[-1]).reshape(sizes[-1], 3).to(dtype))

    def forward(self, *inputs):
        self.write(self.cache, *inputs)
        return self.cache.flatten(0, -2) @ self.weight


def cache(name, write, sizes, inputs, dtype=F32, **options):
    op("cache_" + name, Lazy(lambda: Cache(write, *sizes, dtype=dtype)), inputs, **options)


def at(*positions, dtype=torch.int64):
    return torch.tensor(positions, dtype=dtype)


def batch_rows(c, p, x):
    c[torch.arange(c.shape[0]), p] = x


def turned_rows(c, p, x):
    c.transpose(0, 1)[p] = x


def two_writes(c, p, q, x, y):
    c.index_copy_(0, p, x)
    c.index_copy_(0, q, y)


def grown(c, p, x):
    c.index_copy_(0, p, x + c[:1])


def moved(c, p, x):
    """The new row needs old ones, the last one too, wherever it is."""
    c.index_copy_(0, p, x + c.sum(0, keepdim=True))


def shifted(c, x):
    c.copy_(torch.cat([c[1:], x]))


def ring(c, p, x):
    c.index_copy_(0, p % c.shape[0], x)


N, SIZES = Dim("n", min=1, max=6), (2, 7, 5)
cache("one_row", lambda c, p, x: c.index_copy_(1, p, x), SIZES, lambda: (at(3), rand(2, 1, 5)))
cache("one_row_bf16", lambda c, p, x: c.index_copy_(1, p, x), (3, 9, 40), lambda: (at(8), rand(3, 1, 40, dtype=BF16)), dtype=BF16)
cache("last_axis", lambda c, p, x: c.index_copy_(2, p, x), SIZES, lambda: (at(4), rand(2, 7, 1)))
cache("first_axis", lambda c, p, x: c.index_copy_(0, p, x), SIZES, lambda: (at(1), rand(1, 7, 5)))
cache("two_rows", lambda c, p, x: c.index_copy_(1, p, x), SIZES, lambda: (at(0, 6), rand(2, 2, 5)))
cache("twice_the_same", lambda c, p, x: c.index_copy_(1, p, x), SIZES, lambda: (at(2, 2, 5), rand(2, 3, 5)))
cache("many_rows", lambda c, p, x: c.index_copy_(0, p, x), (200, 12), lambda: (torch.randperm(200)[:150], rand(150, 12)))
cache("no_rows", lambda c, p, x: c.index_copy_(1, p, x), SIZES, lambda: (at(), rand(2, 0, 5)))
cache("dynamic_rows", lambda c, p, x: c.index_copy_(1, p, x), SIZES, lambda: (at(1, 4, 2), rand(2, 3, 5)), dynamic=({0: N}, {1: N}))
cache("dynamic_rows_bf16", lambda c, p, x: c.index_copy_(0, p, x), (300, 33), lambda: (at(1, 299), rand(2, 33, dtype=BF16)), dynamic=({0: N}, {0: N}), dtype=BF16)
cache("put", lambda c, p, x: c.index_put_((p,), x), SIZES, lambda: (at(-1), rand(1, 7, 5)))
cache("put_pairs", lambda c, p, q, x: c.index_put_((p, q), x), SIZES, lambda: (at(0, 1, -1), at(6, -7, 2), rand(3, 5)))
cache("put_one_element", lambda c, p, q, x: c.index_put_((p, q), x), (6, 7), lambda: (at(3), at(-2), rand(1)))
cache("put_added", lambda c, p, x: c.index_put_((p,), x, accumulate=True), SIZES, lambda: (at(1), rand(1, 7, 5)))
cache("batch_rows", batch_rows, SIZES, lambda: (at(6, 0), rand(2, 5)))
cache("turned_rows", turned_rows, SIZES, lambda: (at(4), rand(1, 2, 5)))
cache("scatter", lambda c, p, x: c.scatter_(1, p, x), SIZES, lambda: (torch.tensor([[[1, 6, 0, 3, 2]], [[5, 5, 4, 6, 0]]]), rand(2, 1, 5)))
cache("where_position", lambda c, p, x: c.copy_(torch.where(torch.arange(7)[:, None] == p, x, c)), SIZES, lambda: (at(5), rand(2, 1, 5)))
cache("where_position_i32", lambda c, p, x: c.copy_(torch.where(torch.arange(7, dtype=torch.int32) == p, x, c)), (5, 7), lambda: (at(9, dtype=torch.int32), rand(5, 1)))
cache("where_range", lambda c, p, x: c.copy_(torch.where((torch.arange(7) >= p) & (torch.arange(7) < p + 3), x, c)), (5, 7), lambda: (at(2), rand(5, 7)))
cache("masked", lambda c, m, x: c.masked_fill_(m, 3.5).add_(x), SIZES, lambda: (torch.rand(*SIZES) > 0.5, rand(5)))
cache("assigned_by_mask", lambda c, m, x: c.copy_(torch.where(m, x, c)), SIZES, lambda: (torch.rand(7, 1) > 0.5, rand(*SIZES)))
cache("slice", lambda c, x: c[:, 2:4].copy_(x), SIZES, lambda: (rand(2, 2, 5),))
cache("strided_slice", lambda c, x: c[:, 1::3].copy_(x), SIZES, lambda: (rand(2, 2, 5),))
cache("select", lambda c, x: c.select(1, -1).copy_(x), SIZES, lambda: (rand(2, 5),))
cache("fill", lambda c, p: c.index_fill_(1, p, 7.0), SIZES, lambda: (at(3),))
cache("two_writes", two_writes, (7, 5), lambda: (at(3), at(3), rand(1, 5), rand(1, 5)))
cache("grown", grown, (7, 5), lambda: (at(0), rand(1, 5)))
cache("moved", moved, (7, 5), lambda: (at(2), rand(1, 5)))
cache("shifted", shifted, (7, 5), lambda: (rand(1, 5),))
cache("filled_from_the_end", lambda c, p: c.index_fill_(0, p, 3), (6, 4), lambda: (at(-1, 2),))
cache("ring", ring, (7, 5), lambda: (at(17), rand(1, 5)))


class Kept(nn.Module):
    """The old state is asked for when the new one is there."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(6, 4))

    def forward(self, p, x):
        old = self.cache.clone()
        self.cache.index_copy_(0, p, x)
        return self.cache @ x.t(), old @ x.t()


class Counted(nn.Module):
    """Positions that the state has."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(6, 4))
        self.register_buffer("length", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        self.cache.index_copy_(0, self.length, x)
        self.length.add_(1)
        mask = torch.arange(6) < self.length
        return torch.softmax((self.cache @ x.t()).squeeze(1).masked_fill(~mask, -1e9), 0) @ self.cache


op("cache_kept", Lazy(Kept), lambda: (at(3), rand(1, 4)))
op("cache_counted", Lazy(Counted), lambda: (rand(1, 4),))


class Running(torch.nn.Module):
    """Statistics of a batch behind its sums, as a batch norm keeps them: of each point of what is left of the sums."""

    def __init__(self, read=False):
        super().__init__()
        self.read = read
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("largest", torch.ones(5))

    def forward(self, x):
        mean = (x * self.mean).mean(0) if self.read else x.mean(0)
        self.mean.copy_(0.9 * self.mean + 0.1 * mean)
        self.largest.copy_(torch.maximum(self.largest, x.amax(0)))
        return x - mean


op("cache_statistics", Lazy(Running), lambda: (rand(7, 5),))
op("cache_statistics_large", Lazy(Running), lambda: (rand(700, 5),))
op("cache_statistics_read", Lazy(lambda: Running(True)), lambda: (rand(7, 5),))
