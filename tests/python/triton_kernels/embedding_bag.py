"""Sums of a table's rows over bags of any length."""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

tolerance = 1e-4
dims = ({0: "ids"}, {0: "ends"})


@triton.jit
def sum_bags(table, ids, offsets, y, width, BLOCK: tl.constexpr):
    bag = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    sums = tl.zeros([BLOCK], tl.float32)
    for i in range(tl.load(offsets + bag), tl.load(offsets + bag + 1)):
        sums += tl.load(table + tl.load(ids + i) * width + at, mask=inside, other=0.0)
    tl.store(y + bag * width + at, sums, mask=inside)


@triton_op("coiltest::embedding_bag", mutates_args={})
def embedding_bag(table: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    bags, width = offsets.shape[0] - 1, table.shape[1]
    y = torch.empty((bags, width), dtype=table.dtype, device=table.device)
    wrap_triton(sum_bags)[(bags, triton.cdiv(width, 64))](table, ids, offsets, y, width, BLOCK=64)
    return y


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.table = torch.nn.Parameter(torch.randn(101, 90))

    def forward(self, ids, offsets):
        return embedding_bag(self.table, ids, offsets) * 0.5


def example(device):
    torch.manual_seed(0)
    return torch.randint(0, 101, (40,), device=device), torch.tensor([0, 3, 3, 20, 31, 40], device=device)


def reference(model, ids, offsets):
    return torch.nn.functional.embedding_bag(ids, model.table, offsets, mode="sum", include_last_offset=True) * 0.5
