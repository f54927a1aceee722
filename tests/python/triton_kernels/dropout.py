"""Dropout whose mask is a function of a seed and the element's number."""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

tolerance = 1e-6
dims = ({0: "rows"},)


@triton.jit
def dropout_elements(x, y, count, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    keep = tl.rand(seed, at) >= p
    tl.store(y + at, tl.where(keep, tl.load(x + at, mask=inside) / (1 - p), 0.0), mask=inside)


@triton_op("coiltest::dropout", mutates_args={})
def dropout(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    y = torch.empty_like(x)
    wrap_triton(dropout_elements)[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), p, seed, BLOCK=1024)
    return y


class Model(torch.nn.Module):
    def forward(self, x):
        return dropout(x.abs() + 1, 0.25, 1234), dropout(x, 0.25, 1234) != 0


def example(device):
    torch.manual_seed(0)
    return (torch.randn(33, 517, device=device),)


def _philox(seed, counters):
    """The first word of Philox 4x32-10 for each counter, in whole numbers of Python's size."""
    mask = 0xFFFFFFFF
    c = [counters.to(torch.int64), *(torch.zeros_like(counters, dtype=torch.int64) for _ in range(3))]
    key = [seed & mask, seed >> 32 & mask]

    def product(a, b):  # of 32 bits each: (high, low), without leaving 63 bits
        low = (b & 0xFFFF) * a
        high = (b >> 16) * a + (low >> 16)
        return high >> 16 & mask, (high << 16 & mask) | (low & 0xFFFF)

    for _ in range(10):
        high_b, low_b = product(0xCD9E8D57, c[2])
        high_a, low_a = product(0xD2511F53, c[0])
        c = [high_b ^ c[1] ^ key[0], low_b, high_a ^ c[3] ^ key[1], low_a]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c[0]


def reference(model, x):
    word = _philox(1234, torch.arange(x.numel(), device=x.device))
    signed = torch.where(word >= 2**31, word - 2**32, word)
    uniform = torch.where(signed < 0, -signed - 1, signed).float() * 4.6566127342e-10
    keep = (uniform >= 0.25).view(x.shape)
    return torch.where(keep, (x.abs() + 1) / 0.75, 0.0), keep & (x != 0)
