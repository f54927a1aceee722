"""What tests of profiles share: a model of three layers, and what is in a trace."""

import pytest
import torch

import coil

DYNAMIC = torch.export.Dim.DYNAMIC


class Layers(torch.nn.Module):
    def __init__(self, width=64, layers=3):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return self.norm(x).softmax(-1)


def compiled(module, *inputs, **options):
    return coil.compile(torch.export.export(module.eval(), inputs, **options))


@pytest.fixture(scope="module")
def layers():
    torch.manual_seed(0)
    return compiled(Layers(), torch.randn(4, 64), dynamic_shapes=({0: DYNAMIC},))


def events(trace, category):
    return [e for e in trace["traceEvents"] if e.get("cat") == category]
