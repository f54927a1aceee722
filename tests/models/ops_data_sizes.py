"""Small programs with sizes that only data decides, and with the steps of scan and map. FAILING holds inputs that must not pass."""

import torch
import torch.nn.functional as F
from torch.export import Dim

from case import BF16, BOOL, F32, F64, I32, I64, U8, rand, registry

PROGRAMS, op = registry(__file__)
FAILING = {}  # name: [(inputs, number of the error, text of its message)]
AUTO = Dim.AUTO


def sized(name, function, inputs, failing, **options):
    op(name, function, inputs, **options)
    FAILING[name] = failing


def number(value, dtype=I64):
    return torch.tensor(value, dtype=dtype)


def sparse(*shape, dtype=F32):
    return rand(*shape, dtype=dtype) * (torch.rand(*shape) < 0.3)


NONE_AND_ALL = {"some": lambda: (sparse(5, 7),), "none": lambda: (torch.zeros(5, 7),), "all": lambda: (torch.ones(5, 7),), "nan": lambda: (torch.full((5, 7), float("nan")),)}
op("nonzero", lambda x: x.nonzero(), lambda: (sparse(5, 7),), sets=NONE_AND_ALL)
op("nonzero_bool", lambda x: (x.nonzero(), torch.argwhere(x)), lambda: (rand(3, 4, 5, dtype=BOOL),))
op("nonzero_long", lambda x: x.nonzero().squeeze(1), lambda: (sparse(5000),), dynamic=({0: AUTO},),
   sets={"short": lambda: (sparse(3),), "blocks": lambda: (sparse(2048),), "one_more": lambda: (sparse(2049),), "zeros": lambda: (torch.zeros(3000),)})
op("nonzero_strided", lambda x: x.t().nonzero(), lambda: (sparse(40, 60),))
op("nonzero_scalar", lambda x: x.sum().nonzero(), lambda: (rand(3),), sets={"one": lambda: (rand(3),), "none": lambda: (torch.zeros(3),)})
op("nonzero_count", lambda x: (x / (x.nonzero().shape[0] + 1), x.nonzero().shape[0] * 2), lambda: (sparse(4, 6),))
op("where_positions", lambda x: torch.where(x > 0), lambda: (rand(6, 5),))
op("masked_select", lambda x, m: torch.masked_select(x, m), lambda: (rand(4, 5), rand(5, dtype=BOOL)),
   sets={"some": lambda: (rand(4, 5), rand(5, dtype=BOOL)), "none": lambda: (rand(4, 5), torch.zeros(5, dtype=BOOL))})
op("mask_index", lambda x: x[x > 0] * 2 + 1, lambda: (rand(4, 5),), sets={"some": lambda: (rand(4, 5),), "none": lambda: (-torch.ones(4, 5),)})
op("mask_rows", lambda x, m: F.gelu(x[m]), lambda: (rand(9, 16), rand(9, dtype=BOOL)))
op("mask_columns", lambda x, m: (x[:, m], x[:, m].sum(1)), lambda: (rand(6, 9, 3), rand(9, dtype=BOOL)))
op("mask_plane", lambda x, m: x[:, m], lambda: (rand(2, 4, 5), rand(4, 5, dtype=BOOL)))
op("mask_twice", lambda x: x[x > 0][x[x > 0] < 1], lambda: (rand(80),), sets={"some": lambda: (rand(80),), "none": lambda: (-torch.ones(80),)})
op("mask_then_product", lambda x, m, w: torch.softmax(x[m] @ w, -1), lambda: (rand(12, 8), rand(12, dtype=BOOL), rand(8, 24)),
   sets={"some": lambda: (rand(12, 8), rand(12, dtype=BOOL), rand(8, 24)), "none": lambda: (rand(12, 8), torch.zeros(12, dtype=BOOL), rand(8, 24))})
op("mask_nonzero_bf16", lambda x, m: x[m].cumsum(0), lambda: (rand(70, 3, dtype=BF16), rand(70, dtype=BOOL)))
op("mask_reduced", lambda x, m: (x[m].sum(), x[m].amax(0, keepdim=True) if x.dim() > 1 else x[m].mean()), lambda: (rand(30), rand(30, dtype=BOOL)))


# Numbers of other kinds
def complex_of(x):
    return torch.view_as_complex(x)


op("nonzero_complex", lambda x: (complex_of(x).nonzero(), *torch.where(complex_of(x)), torch.argwhere(complex_of(x)), torch.view_as_real(torch.masked_select(complex_of(x), x[..., 0] > 0)), torch.nonzero_static(complex_of(x), size=9)),
   lambda: (sparse(5, 7, 2),), sets={"some": lambda: (sparse(5, 7, 2),), "none": lambda: (torch.zeros(5, 7, 2),)})
op("nonzero_half_complex", lambda x: (complex_of(x).nonzero(), torch.view_as_real(torch.masked_select(complex_of(x), x[..., 0] > 0))), lambda: (sparse(5, 7, 2, dtype=torch.float16),))
for _kind, _signed in ((torch.uint16, torch.int16), (torch.uint32, I32), (torch.uint64, I64)):
    op(f"unique_{str(_kind)[6:]}", lambda x: (*torch.unique(x, return_inverse=True, return_counts=True),), lambda k=_kind, s=_signed: (torch.randint(-9, 9, (60,)).to(s).view(k),))


# tensor_split before positions from data
SPLITS = {"some": lambda: (rand(10, 3), torch.tensor([2, 5])), "ends": lambda: (rand(10, 3), torch.tensor([0, 10])), "behind": lambda: (rand(10, 3), torch.tensor([4, 90])),
          "back": lambda: (rand(10, 3), torch.tensor([-3, 2])), "before": lambda: (rand(10, 3), torch.tensor([-40, -1]))}
op("split_at_data", lambda x, i: torch.tensor_split(x, i), lambda: (rand(10, 3), torch.tensor([2, 5])), sets=SPLITS)
op("split_at_data_columns", lambda x, i: torch.tensor_split(x * 2, i, 1), lambda: (rand(3, 10), torch.tensor([2, 2, 7])))
op("split_at_data_used", lambda x, i: [part.sum(0) for part in torch.tensor_split(x, i)], lambda: (rand(10, 3), torch.tensor([2, 5])), sets=SPLITS)
op("split_at_constant", lambda x: torch.tensor_split(x, torch.tensor([1, 4]))[1] * 2, lambda: (rand(10, 3),))


# x.item() as a size
def counted(n, x):
    k = n.item()
    torch._check(k >= 2)
    torch._check(k <= 8)
    return torch.arange(k) * 2, x[:k] + 1, torch.full((k, k), 1.5).sum(1), x[k:]


def unbounded(n):
    k = n.item()
    torch._check(k >= 0)
    return torch.arange(k, dtype=F32).cumsum(0).flip(0), torch.ones(k, 3) * k


def doubled(n, x):
    k = n.item()
    torch._check(k >= 0)
    torch._check(2 * k <= x.shape[0])
    return x.narrow(0, k, k).softmax(0), torch.zeros(2 * k, 3).add(k)


def parts(x, sizes):
    a = sizes.tolist()
    for s in a:
        torch._check(s >= 0)
    torch._check(a[0] + a[1] == x.shape[0])
    left, right = torch.split(x, a)
    return left * 2, right.sum(0)


sized("item_sizes", counted, lambda: (number(3), rand(10, 3)),
      [((number(1), rand(10, 3)), 211, "u0"), ((number(9), rand(10, 3)), 211, "u0"), ((number(-(2**62)), rand(10, 3)), 211, "u0")],
      sets={"three": lambda: (number(3), rand(10, 3)), "least": lambda: (number(2), rand(10, 3)), "most": lambda: (number(8), rand(10, 3))})
sized("item_size_unbounded", unbounded, lambda: (number(5),), [((number(-1),), 211, "u0")],
      sets={"none": lambda: (number(0),), "some": lambda: (number(5),), "many": lambda: (number(5000),)})
sized("item_size_of_input", doubled, lambda: (number(4), rand(11)), [((number(6), rand(11)), 211, "u0"), ((number(-1), rand(11)), 211, "u0")], dynamic=(None, {0: AUTO}),
      sets={"some": lambda: (number(4), rand(11)), "edge": lambda: (number(8), rand(16)), "none": lambda: (number(0), rand(5))})
sized("item_split", parts, lambda: (rand(7, 2), torch.tensor([3, 4])),
      [((rand(7, 2), torch.tensor([3, 5])), 211, "u"), ((rand(7, 2), torch.tensor([-1, 8])), 211, "u")],
      sets={"some": lambda: (rand(7, 2), torch.tensor([3, 4])), "none": lambda: (rand(7, 2), torch.tensor([0, 7]))})

REPEATS = {"some": lambda: (rand(4, 3), torch.tensor([1, 0, 3, 2])), "none": lambda: (rand(4, 3), torch.zeros(4, dtype=I64)), "many": lambda: (rand(4, 3), torch.tensor([0, 1000, 0, 7]))}
sized("repeat_interleave_data", lambda x, r: torch.repeat_interleave(x, r, dim=0), REPEATS["some"], [((rand(4, 3), torch.tensor([1, -1, 3, 2])), 211, "repeats")], sets=REPEATS)
op("repeat_interleave_flat", lambda x, r: (torch.repeat_interleave(r), x.repeat_interleave(r, dim=1)), lambda: (rand(2, 5), torch.tensor([2, 0, 1, 4, 1], dtype=I32)))

VALUES = {"some": lambda: (rand(40, dtype=I64),), "equal": lambda: (torch.full((40,), 3),), "distinct": lambda: (torch.randperm(40),)}
op("unique", lambda x: torch.unique(x), VALUES["some"], sets=VALUES)
op("unique_all", lambda x: torch.unique(x, return_inverse=True, return_counts=True), lambda: (rand(6, 7, dtype=I32, low=0, high=6),))
op("unique_float", lambda x: torch.unique((x * 2).round(), return_inverse=True), lambda: (rand(300),))
op("unique_nan", lambda x: torch.unique(x, return_counts=True), lambda: (torch.tensor([1.0, float("nan"), 1.0, float("nan"), -0.0, 0.0, float("inf")]),))
op("unique_bool", lambda x: torch.unique(x > 0, return_counts=True), lambda: (rand(9),))
op("unique_rows", lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True), lambda: (rand(50, 3, dtype=I64, low=0, high=3),), dynamic=({0: AUTO},),
   sets={"other": lambda: (rand(9, 3, dtype=I64, low=-1, high=1),), "one": lambda: (rand(2, 3, dtype=I64, low=5, high=6),)})
op("unique_columns", lambda x: torch.unique(x, dim=1, return_inverse=True, return_counts=True), lambda: (rand(2, 30, 2, low=0, high=2).round(),))
op("unique_rows_bool", lambda x: torch.unique(x > 0, dim=-1), lambda: (rand(3, 20),))
op("unique_consecutive", lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), lambda: (rand(60, dtype=I64, low=0, high=3),), dynamic=({0: AUTO},),
   sets={"some": lambda: (rand(60, dtype=I64, low=0, high=3),), "long": lambda: (rand(3000, dtype=I64, low=0, high=2),)})
op("unique_consecutive_rows", lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=0), lambda: (rand(20, 2, dtype=U8, low=0, high=2),))
sized("bincount", lambda x: torch.bincount(x), lambda: (rand(50, dtype=I64, low=0, high=9),), [((torch.tensor([1] * 49 + [-1]),), 211, "bincount")],
      sets={"some": lambda: (rand(50, dtype=I64, low=0, high=9),), "zeros": lambda: (torch.zeros(50, dtype=I64),), "far": lambda: (torch.tensor([5000] * 50),)})
op("bincount_weights", lambda x, w: (torch.bincount(x, w), torch.bincount(x, minlength=12)), lambda: (rand(50, dtype=I64, low=0, high=9), rand(50, dtype=F64)))
op("bincount_many", lambda x, w: (torch.bincount(x, minlength=300), torch.bincount(x, w), torch.bincount(x[:9000], w[:9000].double(), minlength=20000), torch.bincount(x // 100)),
   lambda: (rand(90000, dtype=I32, low=0, high=1000), rand(90000)), dynamic=({0: Dim("n", min=9000)}, {0: Dim("n", min=9000)}),
   sets={"many": lambda: (rand(200000, dtype=I32, low=0, high=1000), rand(200000)), "same": lambda: (torch.full((90000,), 77, dtype=I32), rand(90000))})


# Numbers that are computed from sizes, and expressions of sizes that data decides
def of_sizes(x, y):
    a, b = x.shape[0], y.shape[0]
    return x * (torch.sym_float(a) ** 0.5), x / a, x + a // 2, x + a % 3, torch.full((a,), a * 2.0), x.new_zeros(a * 2, a + 1).sum() + b / a


def sym_functions(x, y):
    a, b = x.shape[0], y.shape[0]
    least = torch.sym_min(a, b)
    return torch.arange(least), x[:least].sum(), torch.zeros(torch.sym_max(a, b) + 1), x * torch.sym_float(a) / torch.sym_sqrt(b)


def expressions(n, x):
    k = n.item()
    torch._check(k >= 1)
    torch._check(k <= 50)
    v = torch.arange(k * 6).view(k, 2, 3)
    return v.sum(0), torch.arange(2, k * 3 + 2, 3), x[None].expand(k, 4).sum(0), torch.arange(k).view(-1, 1).expand(-1, k).sum(), x * torch.sym_float(k), torch.zeros(torch.sym_max(k, 3))


def joined(n, x):
    k = n.item()
    torch._check_is_size(k)
    torch._check(k < 5)
    return x.narrow(0, 0, k).sum(), torch.cat([x, torch.ones(k)]).cumsum(0), x.repeat(k + 1), torch.eye(k + 1), torch.ones(k, 3).t().contiguous().reshape(-1)


PAIRS = {"some": lambda: (rand(5), rand(7)), "equal": lambda: (rand(4), rand(4)), "many": lambda: (rand(90), rand(30))}
op("numbers_of_sizes", of_sizes, PAIRS["some"], dynamic=({0: AUTO}, {0: AUTO}), sets=PAIRS)
op("sym_functions", sym_functions, PAIRS["some"], dynamic=({0: AUTO}, {0: AUTO}), sets=PAIRS)
op("item_expressions", expressions, lambda: (number(4), rand(4)), sets={"one": lambda: (number(1), rand(4)), "many": lambda: (number(50), rand(4))})
op("item_joined", joined, lambda: (number(3), rand(6)), sets={"none": lambda: (number(0), rand(6)), "some": lambda: (number(4), rand(6))})
op("mask_joined", lambda x, m: (x[m].reshape(-1)[None].expand(2, -1).sum(1), F.pad(x[m], (1, 2)), torch.stack([x[m], x[m] * 2]).mean(0)), lambda: (rand(6), rand(6, dtype=BOOL)))
op("mask_then_mask", lambda x, a, b: x[a][:, b], lambda: (rand(4, 5), rand(4, dtype=BOOL), rand(5, dtype=BOOL)))


# Loops whose number of steps is known
def running(x):
    from torch._higher_order_ops.scan import scan

    return scan(lambda c, y: (torch.tanh(c + y), c * y), x[0] * 0, x, dim=0)


def mapped(x, b):
    from torch._higher_order_ops.map import map as map_rows

    return map_rows(lambda row, other: torch.softmax(row, 0) + other, x, b)


op("scan_steps", running, lambda: (rand(6, 5),))
op("map_rows", mapped, lambda: (rand(4, 5), rand(5)))
