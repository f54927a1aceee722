"""Small programs that assert something about sizes or data, and programs that return None. FAILING holds inputs that must not pass."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from case import F32, I64, rand, registry

PROGRAMS, op = registry(__file__)
FAILING = {}  # name: [(inputs, number of the error, text of its message)]


def checked(name, function, inputs, failing, **options):
    op(name, function, inputs, **options)
    FAILING[name] = failing


def number(value, dtype=I64):
    return torch.tensor(value, dtype=dtype)


# Sizes alone: the export makes guards of them.
def related_sizes(x, y):
    torch._check(2 * x.shape[0] <= y.shape[0] + 5)
    torch._check(x.shape[0] % 2 == 0)
    return x.sum() + y


AUTO = Dim.AUTO
checked("assert_sizes", related_sizes, lambda: (rand(4), rand(20)),
        [((rand(14), rand(20)), 204, "must satisfy"), ((rand(5), rand(20)), 204, "% 2 == 0|%2 == 0")],
        dynamic=({0: AUTO}, {0: AUTO}), sets={"small": lambda: (rand(2), rand(3)), "edge": lambda: (rand(12), rand(19))})


# Numbers that are read from tensors
def bounded(x, n):
    k = n.item()
    torch._check(k > 2)
    torch._check(k < 10)
    return x * k + k


def computed(x, n, m):
    k, j = n.item(), m.item()
    total = 3 * k - j
    torch._check(total >= 0)
    torch._check((k + 1) % 4 != 0)
    return x * total, x - k // 2


def fraction(x, n):
    k = n.item()
    torch._check(k > 0.5)
    return x * k, k * 2 + 1 - x


def row(x, n):
    k = n.item()
    torch._check(k >= 0)
    torch._check(k < x.shape[0])
    return x.select(0, k)


def divided(x, n, m):
    k, j = n.item(), m.item()
    return x + k % j, x * (k // j), x - k / j


BETWEEN = [((rand(4), number(2)), 211, "assertion failed"), ((rand(4), number(10)), 211, "u0"), ((rand(4), number(-(2**62))), 211, "in forward")]
checked("assert_item", bounded, lambda: (rand(4), number(4)), BETWEEN, sets={"least": lambda: (rand(4), number(3)), "most": lambda: (rand(4), number(9))})
checked("assert_item_i32", bounded, lambda: (rand(4), number(4, torch.int32)), [((rand(4), number(11, torch.int32)), 211, "assertion failed")])
checked("assert_item_one_element", bounded, lambda: (rand(4), torch.tensor([[5]])), [((rand(4), torch.tensor([[1]])), 211, "assertion failed")])
checked("assert_item_computed", computed, lambda: (rand(4), number(4), number(7)),
        [((rand(4), number(1), number(4)), 211, ""), ((rand(4), number(7), number(1)), 211, "")],
        sets={"negative": lambda: (rand(4), number(-2), number(-6)), "usual": lambda: (rand(4), number(4), number(12))})
checked("assert_item_division", divided, lambda: (rand(4), number(7), number(2)), [((rand(4), number(7), number(0)), 211, "division by zero")],
        sets={"negative": lambda: (rand(4), number(-7), number(2)), "divisor": lambda: (rand(4), number(7), number(-3)), "exact": lambda: (rand(4), number(-8), number(-4))})
checked("assert_item_float", fraction, lambda: (rand(4), number(0.75, F32)), [((rand(4), number(0.5, F32)), 211, "0.5")],
        sets={"large": lambda: (rand(4), number(1e20, F32)), "close": lambda: (rand(4), number(0.5000001, F32))})
checked("assert_item_index", row, lambda: (rand(4, 3), number(2)), [((rand(4, 3), number(4)), 211, ""), ((rand(4, 3), number(-1)), 211, "")],
        sets={"first": lambda: (rand(4, 3), number(0)), "last": lambda: (rand(4, 3), number(3))})


# Whole tensors
def positive(x):
    torch._assert_async((x > 0).all(), "x must be positive")
    return x.sqrt()


def ordered(x, y):
    torch._check_value((x > 0).any().item())
    torch._check_tensor_all(y >= x[0])
    return y - x


class Account(nn.Module):
    """A failed assertion leaves the state as it was."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.tensor([100.0]))

    def forward(self, amount):
        rest = self.total - amount.sum()
        torch._assert_async((rest >= 0).all(), "no credit")
        self.total.copy_(rest)
        return self.total * 1.0


def chosen(x):
    def yes(x):
        torch._assert_async((x < 10).all(), "too large")
        return x + 1

    def no(x):
        torch._assert_async((x < 5).all(), "large")
        return x - 1

    return torch.cond(x.sum() > 20, yes, no, (x,))


SEVEN = torch.full((3,), 7.0)
checked("assert_async", positive, lambda: (rand(6, low=1, high=2),), [((-rand(6, low=1, high=2),), 211, "x must be positive")], dynamic=({0: AUTO},),
        sets={"longer": lambda: (rand(7001, low=1, high=2),), "one": lambda: (rand(2, low=1, high=2),)})
checked("assert_tensors", ordered, lambda: (rand(4, low=1, high=2), rand(4, low=3, high=4)),
        [((-rand(4, low=1, high=2), rand(4, low=3, high=4)), 211, ""), ((rand(4, low=1, high=2), torch.tensor([3.0, 3, 0, 3])), 211, "")])
checked("assert_then_write", Account, lambda: (rand(3, low=1, high=2),), [((torch.full((3,), 50.0),), 211, "no credit")])
checked("assert_in_branch", chosen, lambda: (torch.full((3,), 2.0),), [((SEVEN * 0 + 12,), 211, "too large"), ((torch.tensor([6.0, 0, 0]),), 211, "large")],
        sets={"not taken": lambda: (SEVEN,), "taken": lambda: (SEVEN * 0 + 1,)})


class Rows(nn.Module):
    """Each branch has positions that are out of range for what the other one is for."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(24.0).reshape(4, 6))

    def forward(self, ids, x):
        def few(ids, x):
            return self.table[ids] + F.embedding(ids, x[:4]) + x.gather(0, ids[:, None].expand(-1, 6))

        def many(ids, x):
            return x.index_select(0, ids - 4) + torch.zeros(5, 6).scatter(1, (ids - 4)[:, None], 1.0)

        return torch.cond(ids.max() < 4, few, many, (ids, x))


IDS = torch.tensor([0, 3, 1, 2, 3])
checked("index_in_branch", Rows, lambda: (IDS, rand(6, 6)), [((IDS - 1 - 4, rand(6, 6)), 210, ""), ((IDS + 7, rand(6, 6)), 210, "")],
        sets={"other": lambda: (IDS + 4, rand(6, 6)), "other end": lambda: (IDS + 6, rand(6, 6))})


# None among the results
class Silent(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += x.sum()


NONE = {  # name: the places of None among the flattened results
    "none_second": [1],
    "none_first": [0],
    "none_nested": [1, 2, 4],
    "none_only": [0],
}
op("none_second", lambda x: (x + 1, None), lambda: (rand(4),))
op("none_first", lambda x: (None, x * 2), lambda: (rand(4),), dynamic=({0: AUTO},), sets={"long": lambda: (rand(40),)})
op("none_nested", lambda x: [x.sum(), None, {"a": None, "b": x}, [None, x - 1]], lambda: (rand(4),))
op("none_only", Silent, lambda: (rand(4),))
