"""Small programs whose control flow depends on data: branches and loops. FAILING holds inputs that must not pass."""

import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import Dim

from case import BF16, F32, F64, I32, I64, rand, registry

PROGRAMS, op = registry(__file__)
FAILING = {}  # name: [(inputs, number of the error, text of its message)]
AUTO = Dim.AUTO


def checked(name, function, inputs, failing, **options):
    op(name, function, inputs, **options)
    FAILING[name] = failing


def number(value, dtype=I64):
    return torch.tensor(value, dtype=dtype)


UP, DOWN = lambda *shape: rand(*shape, low=0.5, high=2), lambda *shape: -rand(*shape, low=0.5, high=2)


def both_ways(*shape):
    return {"yes": lambda: (UP(*shape),), "no": lambda: (DOWN(*shape),)}


class TwoNetworks(nn.Module):
    """Weights of both branches; the convolution and the products are packed."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.large, self.small = nn.Linear(8 * 6 * 6, 10), nn.Linear(3 * 6 * 6, 10)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: self.large(F.relu(self.conv(x)).flatten(1)).softmax(-1), lambda x: self.small(x.flatten(1)).softmax(-1), (x,)) * 2


op("cond_networks", TwoNetworks, lambda: (UP(2, 3, 6, 6),), sets=both_ways(2, 3, 6, 6))
op("cond_dynamic", lambda x: torch.cond(x.sum() > 0, lambda x: (x.cumsum(0), x.t() @ x), lambda x: (x.flip(0), x.sum(0)[:, None] + x.amax(0)), (x,)), lambda: (UP(4, 5),),
   dynamic=({0: AUTO},), sets={"yes": lambda: (UP(7, 5),), "no": lambda: (DOWN(3, 5),), "long": lambda: (UP(300, 5),)})
op("cond_strided", lambda x: torch.cond(x.sum() > 0, lambda x: x.t().relu(), lambda x: x.t() * 2, (x[1:, ::2],))[1:] + 1, lambda: (UP(6, 8),), sets=both_ways(6, 8))
op("cond_same", lambda x: torch.cond(x.sum() > 0, lambda x: (x.clone(), x.clone()), lambda x: (x + 1, x.clone()), (x,)), lambda: (UP(6),), sets=both_ways(6))
op("cond_types", lambda x, n: torch.cond(n > 2, lambda x, n: (x.to(BF16), n * 2, x > 0, torch.complex(x, x)), lambda x, n: (x.to(BF16) * 2, n - 1, x < 0, torch.complex(x, -x)), (x, n)),
   lambda: (rand(5), number(4)), sets={"yes": lambda: (rand(5), number(4)), "no": lambda: (rand(5), number(1))})


def nested(x, y):
    def inner(x, y):
        return torch.cond(y.sum() > 0, lambda x, y: x * 3 + y, lambda x, y: (x * y).sort().values, (x, y))

    return torch.cond(x.sum() > 0, inner, lambda x, y: inner(y, x) - 1, (x + 0, y * 2))


op("cond_nested", nested, lambda: (UP(6), UP(6)), sets={"yes yes": lambda: (UP(6), UP(6)), "yes no": lambda: (UP(6), DOWN(6)), "no yes": lambda: (DOWN(6), UP(6)), "no no": lambda: (DOWN(6), DOWN(6))})
op("cond_sizes", lambda x: torch.cond(x.sum() > 0, lambda x: x[:3] * 2, lambda x: x[:4] + 1, (x,)), lambda: (UP(5, 2),), sets=both_ways(5, 2))


def positions(x, n):
    """Each branch has sizes that it alone reads."""
    return torch.cond(x.sum() > 0, lambda x, n: x.nonzero().sum(0) * n, lambda x, n: x[x < -1].sum().long()[None] + n, (x, n))


op("cond_inner_sizes", positions, lambda: (UP(40), number(2)), sets={"yes": lambda: (UP(40), number(2)), "no": lambda: (DOWN(40), number(3))})


def kept_then_cond(x):
    kept = x[x > 0.75]
    return torch.cond(x.sum() > 0, lambda k, x: k.sum() + x.sum(), lambda k, x: (k * 2).sum() - x.sum(), (kept, x))


op("cond_outer_sizes", kept_then_cond, lambda: (UP(30),), sets=both_ways(30))


def solved(a, b):
    """The branch that is not taken would fail."""
    return torch.cond(a.sum() > 0, lambda a, b: torch.linalg.solve(a, b).sum(0), lambda a, b: b.sum(0) * 2, (a, b))


op("cond_library", solved, lambda: (UP(3, 3) + 4 * torch.eye(3), rand(3, 2)),
   sets={"yes": lambda: (UP(3, 3) + 4 * torch.eye(3), rand(3, 2)), "singular": lambda: (-torch.ones(3, 3), rand(3, 2))})


# while_loop
def collatz(n):
    steps, n = while_loop(lambda s, n: n != 1, lambda s, n: (s + 1, torch.where(n % 2 == 0, n // 2, 3 * n + 1)), (torch.zeros((), dtype=I64), n))
    return steps, n


def newton(a, x):
    def step(i, x, error):
        next = (x + a / x) / 2
        return i + 1, next, (next - x).abs().max()

    return while_loop(lambda i, x, error: torch.logical_and(error > 1e-6, i < 50), step, (torch.zeros((), dtype=I32), x, torch.full((), float("inf"))))


class Power(nn.Module):
    """A product with a packed weight in each step."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, n):
        return while_loop(lambda i, x: i < n, lambda i, x: (i + 1, torch.tanh(self.linear(x)) + i), (torch.zeros((), dtype=I64), x))[1].sum(-1)


def nested_loops(x, n):
    def outer(i, x):
        def inner(j, x):
            return j + 1, x * 0.5 + j

        return i + 1, while_loop(lambda j, x: j < i, inner, (torch.zeros((), dtype=I64), x))[1] + torch.cond(x.sum() > 3, lambda x: x - 2, lambda x: x + 1, (x,))

    return while_loop(lambda i, x: i < n, outer, (torch.zeros((), dtype=I64), x))[1]


op("while_collatz", collatz, lambda: (number(27),), sets={"none": lambda: (number(1),), "some": lambda: (number(6),), "many": lambda: (number(97),)})
op("while_newton", newton, lambda: (UP(5), UP(5)), dynamic=({0: AUTO}, {0: AUTO}), sets={"some": lambda: (UP(5), UP(5)), "many": lambda: (UP(3000), UP(3000))})
op("while_linear", Power, lambda: (rand(4, 8), number(3)), sets={"none": lambda: (rand(4, 8), number(0)), "some": lambda: (rand(4, 8), number(7))})
op("while_nested", nested_loops, lambda: (rand(6), number(4)), sets={"none": lambda: (rand(6), number(0)), "some": lambda: (rand(6), number(5))})


def rows_until(table, limit):
    """Positions from data in each step."""
    def step(i, total):
        return i + 2, total + table.index_select(0, i[None])[0]

    return while_loop(lambda i, total: total.sum() < limit, step, (torch.zeros((), dtype=I64), torch.zeros(3)))


checked("while_index", rows_until, lambda: (torch.ones(9, 3), number(8.0, F32)), [((torch.ones(9, 3), number(100.0, F32)), 210, "out of range")],
        sets={"none": lambda: (torch.ones(9, 3), number(-1.0, F32)), "some": lambda: (torch.ones(9, 3), number(10.0, F32))})


# Steps
op("scan_200", lambda x: scan(lambda c, y: (torch.tanh(c + y), c * y), x[0] * 0, x, dim=0), lambda: (rand(200, 5),))
op("scan_dynamic", lambda x: scan(lambda c, y: (c * 0.5 + y, (c - y).sum()), x[0] * 0, x, dim=0), lambda: (rand(20, 5),), dynamic=({0: Dim("n", min=1), 1: AUTO},),
   sets={"one": lambda: (rand(1, 5),), "some": lambda: (rand(33, 4),)})
op("scan_reverse", lambda x: scan(lambda c, y: (c * 0.5 + y, c.to(F64)), x[:, 0] * 0, x, dim=1, reverse=True), lambda: (rand(4, 70),))


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 8)

    def forward(self, *args):
        x, = args

        def step(h, x):
            h = self.cell(x, h)
            return h, h.sum(-1)

        return scan(step, torch.zeros(x.shape[1], 8), x, dim=0)


op("scan_gru", Cell, lambda: (rand(70, 3, 6),), dynamic=({0: AUTO},), sets={"some": lambda: (rand(90, 3, 6),)})
op("scan_branches", lambda x: scan(lambda c, y: (torch.cond(y.sum() > 0, lambda c, y: c + y, lambda c, y: c * 0.9, (c, y)), y * 2), x[0] * 0, x, dim=0), lambda: (rand(60, 5),))
op("map_long", lambda x, b: map_rows(lambda row, b: (torch.softmax(row, -1) @ b, row.sum()), x, b), lambda: (rand(60, 3, 5), rand(5, 4)))
op("map_dynamic", lambda x, b: map_rows(lambda row, b: row.sort().values + b, x, b), lambda: (rand(9, 5), rand(5)), dynamic=({0: AUTO}, None), sets={"some": lambda: (rand(40, 5), rand(5))})
op("associative_sums", lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="pointwise"), lambda: (rand(90, 3),))
op("associative_pairs", lambda x, y: associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, y), 1, combine_mode="pointwise"), lambda: (rand(4, 70), rand(4, 70)))
