"""Softmax of rows: a row is one block, the number of warps grows with it."""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

tolerance = 1e-5
dims = ({0: "rows"},)


@triton.jit
def softmax_rows(x, y, x_row, y_row, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * x_row + at, mask=inside, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + row * y_row + at, value / tl.sum(value, axis=0), mask=inside)


@triton_op("coiltest::softmax", mutates_args={})
def softmax(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    wrap_triton(softmax_rows)[(rows,)](x, y, x.stride(0), y.stride(0), columns, BLOCK=block, num_warps=4 if block < 2048 else 8)
    return y


class Model(torch.nn.Module):
    def forward(self, x):
        return softmax(x * 2) + 1


def example(device):
    torch.manual_seed(0)
    return (torch.randn(37, 1000, device=device),)


def reference(model, x):
    return torch.softmax(x * 2, -1) + 1
