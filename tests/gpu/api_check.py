"""What checks of the API share: their list, the networks that they run, and how results and refusals are judged."""

import functools

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import coil_torch


CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def cuda_check(function):
    @functools.wraps(function)
    def on_cuda(bench):
        return function(bench) if bench.cuda else "about CUDA only"

    return check(on_cuda)


class Net(nn.Module):
    """Two layers with a softmax: a few kernels of different kinds."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(64, 256), nn.Linear(256, 33)

    def forward(self, x):
        return self.b(F.gelu(self.a(x))).softmax(-1)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(1)
        return x * self.count


def package(bench, name, module, args, dynamic=None, target=None):
    source, path = bench.path(f"api/{name}", ".pt2"), bench.path(f"api/{name}", ".coil.pt2")
    torch.export.save(torch.export.export(module, args, dynamic_shapes=dynamic), source)
    bench.compile(source, path, target=target)
    return path


def net(bench, name, target=None):
    return package(bench, name, Net(), (torch.randn(4, 64),), {"x": {0: Dim("batch", min=1, max=4096)}}, target)


def expected(bench, x):
    return Net().to(x.device)(x)


def close(got, want, tolerance=1e-4):
    error = float((got.double() - want.to(got.device).double()).abs().max() / want.double().abs().max())
    assert error <= tolerance, f"relative error {error:.2e}"


def refused(bench, call, *codes, text=""):
    try:
        call()
    except coil_torch.Error as error:
        assert error.code in codes, f"wanted COIL-E{codes}, got: {error}"
        assert text.lower() in str(error).lower(), f"'{text}' is not in: {error}"
        return str(error)
    raise AssertionError(f"accepted; wanted COIL-E{codes}")
