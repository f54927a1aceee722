"""Linear layers with quantised weights, in plain operators of PyTorch (torchao is not everywhere), with or without activations that the program itself rounds
to int8, row by row."""

import torch
from torch import nn


def quantised_rows(x):
    """Rows of x as numbers of int8 and their scales, by `--activations int8`'s formula (src/lower/quantised_rows.cc)."""
    wide = x.float()
    greatest = wide.abs().amax(-1, keepdim=True)
    factor = torch.where(greatest == 0, 0.0, 127 / greatest)
    return torch.round(wide * factor).to(torch.int8), greatest * torch.tensor(1 / 127, dtype=torch.float32)


class QuantisedLinear(nn.Module):
    """group: rows of k that share a scale, 0: all. zeros: zero points that are no integers, as Q4_K has them. dynamic: the program rounds the rows."""

    def __init__(self, k, n, bits=8, group=0, zeros=False, dynamic=False, bias=False, scale_dtype=torch.float32, generator=None, device="cpu"):
        super().__init__()
        group = group or k
        random = dict(generator=generator, device=device)
        low, high = (-8, 8) if bits == 4 else (-128, 128)
        self.register_buffer("numbers", torch.randint(low, high, (n, k), dtype=torch.int8, **random))
        self.register_buffer("scale", ((torch.rand(n, k // group, **random) + 0.5) / high / k**0.5).to(scale_dtype).float())
        self.register_buffer("zero", torch.randn(n, k // group, **random) * high / 16 if zeros else None)
        self.register_buffer("bias", torch.randn(n, **random) if bias else None)
        self.group, self.dynamic = group, dynamic

    def weight(self):
        wide = self.numbers.float().unflatten(1, (-1, self.group))
        if self.zero is not None:
            wide = wide - self.zero[..., None]
        return (wide * self.scale[..., None]).flatten(1)

    def forward(self, x):
        rows = x
        if self.dynamic:
            numbers, scale = quantised_rows(x)
            rows = (numbers.float() * scale).to(x.dtype)
        y = nn.functional.linear(rows, self.weight().to(x.dtype))
        return y if self.bias is None else y + self.bias.to(x.dtype)

    def rounded(self, x):
        """What products of bytes compute, in float64: sums of integers within groups, scaled."""
        numbers, scale = quantised_rows(x)
        y = numbers.double() @ self.weight().double().t() * scale.double()
        return y if self.bias is None else y + self.bias.double()
