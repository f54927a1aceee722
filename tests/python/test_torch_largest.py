"""Gradients that look for the largest number by its value, and comparisons of 16-bit numbers: both see numbers as memory has them."""

import operator
import random

import pytest
import torch
import torch.nn.functional as F

import coil  # noqa: F401  (the backend)

STEPS = [lambda x, w: x * w, lambda x, w: x + w, lambda x, w: torch.tanh(x), lambda x, w: x.sigmoid() * x, lambda x, w: x * 0.3 + w * x,
         lambda x, w: x / (w.abs() + 0.7), lambda x, w: x - x.mean(-1, keepdim=True), lambda x, w: F.leaky_relu(x, 0.2), lambda x, w: x.exp().log1p(),
         lambda x, w: x + x.roll(1, 0), lambda x, w: x * (x.sum(0, keepdim=True) * 0.01 + 1)]


def scattered(x):
    index = (torch.arange(x.shape[0]) % 5)[:, None].expand_as(x)
    return torch.full((5, x.shape[1]), float("-inf"), dtype=x.dtype).scatter_reduce(0, index, x, "amax")


LARGEST = {"amax": lambda x: x.amax(-1), "amin": lambda x: x.amin(0), "max": lambda x: x.max(), "norm": lambda x: torch.linalg.vector_norm(x, float("inf"), -1),
           "scatter": scattered, "aminmax": lambda x: torch.stack(torch.aminmax(x, dim=-1))}


def program(seed, largest):
    source = random.Random(seed)
    steps = [(source.choice(STEPS), source.random() < 0.3) for _ in range(source.randint(2, 6))]

    def run(x, w):
        kept = []
        for step, keep in steps:
            x = step(x, w)
            if keep:
                kept.append(x)
        return largest(x) * 2 + 1, *kept

    return run


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("name", LARGEST)
def test_the_largest_is_found_again(name, dtype):
    """By the backward graph, which computes most of a chain anew: else gradients are divided by a count of none."""
    for seed in (1, 10):
        torch._dynamo.reset()
        torch.manual_seed(seed)
        x, w = torch.randn(24, 33).to(dtype).requires_grad_(), torch.randn(33).to(dtype).requires_grad_()
        function = torch.compile(program(seed, LARGEST[name]), backend="coil")
        loss = sum(o.float().pow(2).mean() for o in function(x, w))
        for gradient in torch.autograd.grad(loss, [x, w], allow_unused=True):
            assert gradient is None or bool(gradient.isfinite().all()), (seed, name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_comparisons_see_rounded_numbers(dtype):
    """A product is exact in the 32 bits of a kernel, and rounded in memory."""
    torch.manual_seed(0)
    a, b = torch.randn(400).to(dtype), torch.randn(400).to(dtype)
    known = (a * b).roll(1).where(torch.arange(400) % 2 == 0, a * b)
    compare = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
    middle = (a * b)[7].item()
    function = lambda a, b: [f(a * b, other) for f in compare for other in (known, middle)]
    for found, wanted in zip(torch.compile(function, backend="coil")(a, b), function(a, b)):
        assert torch.equal(found, wanted)
