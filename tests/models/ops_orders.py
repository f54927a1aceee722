"""Results of other sizes than what was computed, of the same elements; products of stacks in another order than that of their dimensions."""

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import BF16, rand, registry

PROGRAMS, op = registry(__file__)
BATCH = Dim("batch", min=1, max=64)


def in_both_sizes(x, w):
    """A layer's result as its gradient wants it (rows), which the program itself reads as it was."""
    y = x @ w
    return F.gelu(y), y.reshape(-1, w.shape[1])


def several(x, w):
    y = F.relu(x @ w)
    return y, y.flatten(), y.reshape(2, -1), y.transpose(0, 1), y.reshape(-1, 3, 2), y.sum()


def stacked(q, k, v, w):
    """What the gradient of attention's joined projection does: rows of all three, twice as products' operands."""
    joined = torch.stack([q, k, v]).permute(1, 2, 0, 3).reshape(q.shape[0] * q.shape[1], 3 * q.shape[2])
    return joined @ w, joined.t() @ q.reshape(-1, q.shape[2]), joined.sum(0)


def stacked_heads(q, k, v, w):
    """The same of heads, whose pieces are written apart (a concatenation)."""
    rows = torch.stack([q, k, v]).permute(1, 3, 0, 2, 4).reshape(-1, 3 * q.shape[1] * q.shape[3])
    return rows @ w, rows.t() @ q.transpose(1, 2).reshape(rows.shape[0], -1), rows.float().sum(0)


def turned(x, w):
    """A cast image of rows that a product reads with its first two dimensions exchanged."""
    y = (x * 2).to(w.dtype).transpose(0, 1)
    return y.reshape(-1, w.shape[0]) @ w, (y + 1).sum((0, 1))


def taken_apart(x):
    """Indices that take a dimension apart and put it together."""
    y = x.exp().reshape(6, 4, -1)
    return y.reshape(24, -1).sum(0), y.permute(1, 0, 2).reshape(24, -1).amax(0), (y.reshape(-1) * 2).reshape(x.shape) + x


for dtype in (torch.float32, BF16):
    name = str(dtype)[6:]
    op(f"result_in_both_sizes_{name}", in_both_sizes, lambda dtype=dtype: (rand(3, 5, 8, dtype=dtype), rand(8, 16, dtype=dtype)))
    op(f"products_of_a_stack_{name}", stacked, lambda dtype=dtype: (*(rand(7, 4, 32, dtype=dtype) for _ in range(3)), rand(96, 24, dtype=dtype)))
    op(f"products_of_stacked_heads_{name}", stacked_heads,
       lambda dtype=dtype: (*(rand(5, 9, 3, 16, dtype=dtype).transpose(1, 2) for _ in range(3)), rand(144, 24, dtype=dtype)))
    op(f"products_turned_{name}", turned, lambda dtype=dtype: (rand(4, 9, 16), rand(16, 8, dtype=dtype)))
op("result_in_both_sizes_dynamic", in_both_sizes, lambda: (rand(3, 5, 8), rand(8, 16)), dynamic=({0: BATCH}, None))
op("result_in_both_sizes_long", lambda x, w: (F.gelu(x @ w), (x @ w).reshape(-1)), lambda: (rand(1, 5, 8), rand(8, 16)))
op("results_in_several_sizes", several, lambda: (rand(4, 3, 5), rand(5, 6)))
op("result_of_a_loop_in_both_sizes", lambda x: ((x.sin() + 1).sum(1), x.sin().reshape(6, -1)), lambda: (rand(3, 4, 5),))
op("products_of_a_stack_dynamic", stacked, lambda: (*(rand(7, 4, 32) for _ in range(3)), rand(96, 24)), dynamic=(*({0: BATCH} for _ in range(3)), None))
op("products_of_stacked_heads_dynamic", stacked_heads, lambda: (*(rand(5, 3, 9, 16) for _ in range(3)), rand(144, 24)), dynamic=(*({0: BATCH} for _ in range(3)), None))
op("dimensions_taken_apart", taken_apart, lambda: (rand(24, 5),))
