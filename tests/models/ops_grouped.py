"""Small programs of grouped products (torch._grouped_mm, torch.nn.functional.grouped_mm): rows, columns or terms of the sums in groups whose sizes are data."""

import torch
import torch.nn.functional as F
from torch import nn

from case import BF16, F16, F32, Lazy, rand, registry

PROGRAMS, op = registry(__file__)


def ends(*values):
    return torch.tensor(values, dtype=torch.int32)


def product(a, b, offs):
    return torch._grouped_mm(a, b, offs)


def turned(*shape, dtype):
    """A tensor whose last two dimensions lie the other way round in memory."""
    return rand(*shape[:-2], shape[-1], shape[-2], dtype=dtype).transpose(-2, -1)


# Empty groups in front, between and behind; one group; one row each; long ones.
ENDS = {"plain": (3, 7, 10, 37), "empty": (0, 0, 9, 9, 37, 37), "one": (37,), "single_rows": (1, 2, 3, 37), "all_in_one": (0, 37, 37)}
NAMES = {F32: "f32", BF16: "bf16", F16: "f16"}

for dtype, name in NAMES.items():
    for kind, last in ENDS.items():
        groups = len(last)
        op(f"grouped_rows_{kind}_{name}", product,
           lambda d=dtype, e=last, g=groups: (rand(37, 48, dtype=d), rand(g, 48, 72, dtype=d), ends(*e)))
    op(f"grouped_rows_turned_{name}", product, lambda d=dtype: (rand(37, 48, dtype=d), turned(3, 48, 70, dtype=d), ends(5, 30, 37)))
    op(f"grouped_columns_{name}", product, lambda d=dtype: (rand(3, 19, 48, dtype=d), turned(48, 40, dtype=d), ends(7, 7, 40)))
    op(f"grouped_columns_rows_{name}", product, lambda d=dtype: (turned(3, 19 + 5, 48, dtype=d), rand(48, 40, dtype=d), ends(16, 33, 40)))
    op(f"grouped_depth_{name}", product, lambda d=dtype: (turned(24, 45, dtype=d), rand(45, 40, dtype=d), ends(0, 17, 17, 45)))
    op(f"grouped_depth_turned_{name}", product, lambda d=dtype: (rand(21, 48, dtype=d), turned(48, 35, dtype=d), ends(13, 31, 48)))
    op(f"grouped_batches_{name}", lambda a, b: torch._grouped_mm(a, b), lambda d=dtype: (rand(3, 19, 48, dtype=d), turned(3, 48, 35, dtype=d)))
    op(f"grouped_depth_of_rows_{name}", lambda a, b, offs: torch._grouped_mm(a.t(), b, offs), lambda d=dtype: (rand(45, 24, dtype=d), rand(45, 40, dtype=d), ends(3, 17, 17, 45)))
    # Terms enough for partial sums.
    op(f"grouped_rows_deep_{name}", product, lambda d=dtype: (rand(50, 1104, dtype=d), rand(3, 1104, 72, dtype=d), ends(9, 30, 50)))
    op(f"grouped_depth_deep_{name}", product, lambda d=dtype: (turned(24, 1301, dtype=d), rand(1301, 40, dtype=d), ends(0, 517, 1301)))

# Rows that lie apart; rows behind the last group are zeros (eager leaves them as they are: those alone are compared that have a group).
op("grouped_rows_apart", product, lambda: (rand(74, 48, dtype=BF16)[::2], rand(2, 48, 72, dtype=BF16)[:, :, :64], ends(20, 37)))
op("grouped_rows_left_over", lambda a, b, offs: torch._grouped_mm(a, b, offs)[:30], lambda: (rand(37, 48), rand(3, 48, 72), ends(5, 5, 30)))
op("grouped_rows_short_weight", lambda a, b: torch._grouped_mm(a, b, ends(11, 30, 37)), lambda: (rand(37, 48), rand(3, 48, 8)))


# Groups of rows and numbers of them that change from call to call.
op("grouped_dynamic_rows", product, lambda: (rand(24, 32, dtype=BF16), rand(3, 32, 40, dtype=BF16), ends(5, 20, 24)),
   dynamic=[{0: torch.export.Dim("rows", min=2, max=4096)}, None, None],
   sets={"r24": lambda: (rand(24, 32, dtype=BF16), rand(3, 32, 40, dtype=BF16), ends(5, 20, 24)),
         "r3": lambda: (rand(3, 32, dtype=BF16), rand(3, 32, 40, dtype=BF16), ends(0, 3, 3)),
         "r300": lambda: (rand(300, 32, dtype=BF16), rand(3, 32, 40, dtype=BF16), ends(170, 172, 300))})
op("grouped_dynamic_depth", product, lambda: (turned(16, 24, dtype=F32), rand(24, 40), ends(5, 20, 24)),
   dynamic=[{1: torch.export.Dim("terms", min=2, max=4096)}, {0: torch.export.Dim("terms", min=2, max=4096)}, None],
   sets={"k24": lambda: (turned(16, 24, dtype=F32), rand(24, 40), ends(5, 20, 24)),
         "k700": lambda: (turned(16, 700, dtype=F32), rand(700, 40), ends(5, 5, 700))})


class Experts(nn.Module):
    """Weights that are parameters, rows that are sorted by expert, and what comes before and behind."""

    def __init__(self, dtype, experts=5, size=32, inner=48):
        super().__init__()
        self.up = nn.Parameter(rand(experts, size, 2 * inner, dtype=dtype) * 0.2)
        self.down = nn.Parameter(rand(experts, size, inner, dtype=dtype) * 0.2)
        self.bias = nn.Parameter(rand(experts, size, dtype=dtype))

    def forward(self, x, expert):
        order = expert.argsort(stable=True)
        offs = torch.bincount(expert, minlength=5).cumsum(0).to(torch.int32)
        gate, up = torch._grouped_mm(x[order], self.up, offs).chunk(2, dim=-1)
        y = torch._grouped_mm(F.silu(gate) * up, self.down.transpose(-2, -1), offs)
        return torch.zeros_like(x).index_copy(0, order, y + self.bias[expert[order]])


for dtype, name in NAMES.items():
    op(f"grouped_experts_{name}", Lazy(lambda d=dtype: Experts(d)), lambda d=dtype: (rand(41, 32, dtype=d), torch.randint(0, 5, (41,))))
op("grouped_experts_few_rows", Lazy(lambda: Experts(BF16)), lambda: (rand(2, 32, dtype=BF16), torch.tensor([3, 0])))
