"""Modules that the tests of `import coil` compile."""

import os
import subprocess
import sys

import torch

import harness


DYNAMIC = torch.export.Dim.DYNAMIC


class Nested(torch.nn.Module):
    """Arguments and results of every kind."""

    def forward(self, x, more, *, flag=True, n=3):
        return {"y": x * n, "rows": x.shape[0]}, [more["k"][0] + 1, (x.sum(),)], None


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return x + self.count


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(16, 8)

    def forward(self, x):
        return torch.relu(self.linear(x))


class ScaleInPlace(torch.nn.Module):
    def forward(self, x):
        x.mul_(2)
        return x + 1


def python(code, **options):
    environment = dict(os.environ, PYTHONPATH=str(harness.PYTHON_PATH))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment, **options)
