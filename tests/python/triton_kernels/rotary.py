"""Rotary position embedding, written into its argument."""

import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

tolerance = 1e-4  # a sum of thousands of numbers of both signs
dims = ({1: "tokens"}, {0: "tokens"}, {0: "tokens"})


@triton.jit
def rotate(x, cosine, sine, tokens, HEADS: tl.constexpr, HALF: tl.constexpr):
    row = tl.program_id(0)
    token = row % tokens
    d = tl.arange(0, HALF)
    c = tl.load(cosine + token * HALF + d)
    s = tl.load(sine + token * HALF + d)
    for head in range(HEADS):
        at = x + (row * HEADS + head) * 2 * HALF + d
        a = tl.load(at)
        b = tl.load(at + HALF)
        tl.store(at, a * c - b * s)
        tl.store(at + HALF, b * c + a * s)


@triton_op("coiltest::rotary_", mutates_args={"x"})
def rotary_(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> None:
    batch, tokens, heads, dim = x.shape
    wrap_triton(rotate)[(batch * tokens,)](x, cosine, sine, tokens, HEADS=heads, HALF=dim // 2, num_warps=1)


class Model(torch.nn.Module):
    def forward(self, x, cosine, sine):
        y = x * 2
        before = y.sum()
        rotary_(y, cosine, sine)
        return y, before


def example(device):
    torch.manual_seed(0)
    angles = torch.randn(21, 32, device=device)
    return torch.randn(3, 21, 4, 64, device=device), angles.cos(), angles.sin()


def reference(model, x, cosine, sine):
    a, b = (x * 2).chunk(2, -1)
    c, s = cosine[:, None], sine[:, None]
    return torch.cat([a * c - b * s, b * c + a * s], -1), (x * 2).sum()
