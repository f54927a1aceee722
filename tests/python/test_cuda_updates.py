"""An optimizer's step over many parameters is a few kernels on CUDA, whatever each parameter's size: emulated (tests/cuda_emulation), beside eager."""

import itertools
import re

import pytest
import torch

from harness import coil
from test_cuda_sorts import check

SIZES = [(7,), (6, 5), (40,), (4, 3, 2)] * 4
LISTS = 5  # parameters, gradients, means, squares, steps


def lists(tensors):
    count = len(tensors) // LISTS
    return [list(tensors[i * count: (i + 1) * count]) for i in range(LISTS)]


def over_lists(*tensors):
    """AdamW as torch.optim writes it for lists (foreach, capturable): the step is a tensor of each parameter."""
    parameters, gradients, means, squares, steps = lists(tensors)
    steps = torch._foreach_add(steps, 1)
    parameters = torch._foreach_mul(parameters, 1 - 1e-5)
    means = torch._foreach_lerp(means, gradients, 0.1)
    squares = torch._foreach_addcmul(torch._foreach_mul(squares, 0.999), gradients, gradients, 0.001)
    first = torch._foreach_reciprocal(torch._foreach_div(torch._foreach_sub(torch._foreach_pow(0.9, steps), 1), 1e-3))
    second = torch._foreach_sqrt(torch._foreach_neg(torch._foreach_sub(torch._foreach_pow(0.999, steps), 1)))
    divisors = torch._foreach_div(torch._foreach_add(torch._foreach_div(torch._foreach_sqrt(squares), second), 1e-8), first)
    return [*torch._foreach_addcdiv(parameters, means, divisors), *means, *squares, *steps]


def one_by_one(*tensors):
    """The same, written for one parameter after the other."""
    results = [over_lists(*(one[i] for one in lists(tensors))) for i in range(len(SIZES))]
    return [result[i] for i in range(LISTS - 1) for result in results]


@pytest.mark.parametrize("function", [over_lists, one_by_one])
def test_steps_of_many_parameters(function, tmp_path):
    torch.manual_seed(0)
    made = tuple([torch.randn(s) for _ in range(2) for s in SIZES] + [torch.zeros(s) for s in SIZES] + [torch.rand(s) for s in SIZES] + [torch.tensor(3.0) for _ in SIZES])
    package = check(function, [made], tmp_path, tolerance=1e-6).package
    names = re.findall(r"^ +\d+  (\S+) +loop", coil("inspect", package, "--kernels").stdout, re.M)  # kernels of one launch have its name
    launches = [name for name, _ in itertools.groupby(names)]
    assert len(names) >= len(SIZES) and len(launches) <= len(SIZES) // 3, names
