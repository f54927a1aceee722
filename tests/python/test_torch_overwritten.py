"""torch.compile of training where the forward pass writes to buffers that its gradients ask for: these see the values of the forward pass."""

import copy

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.usefixtures("fresh_compiles")


class Counting(nn.Module):
    """The gradient divides by the new count, which follows from the old one."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        y = self.linear(x)
        self.mean.lerp_(y.detach().mean(0), 0.1)
        self.count += 1
        return (y - self.mean) / self.count * self.mean.exp()


class Decaying(nn.Module):
    """A row of the state, a view of it, and what follows from both."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("state", torch.ones(2, 4))

    def forward(self, x):
        scale = self.state[0] * 2 + self.state.sum(0).sin()
        y = self.linear(x) * scale
        self.state.mul_(0.5)
        self.state[1] += y.detach().mean(0)
        return y.tanh() * self.state[1]


@pytest.mark.parametrize("network", (Counting, Decaying))
@pytest.mark.parametrize("dynamic", (False, True))
def test_gradients_see_the_forward_pass(network, dynamic):
    ours = network()
    eagers = copy.deepcopy(ours)
    compiled = torch.compile(ours, backend="coil", dynamic=dynamic)
    for step in range(3):
        x = torch.randn(3 + step * dynamic, 4, requires_grad=True)
        found, wanted = compiled(x), eagers(x)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(torch.autograd.grad(found.sum(), [x, *ours.parameters()]), torch.autograd.grad(wanted.sum(), [x, *eagers.parameters()]))
        torch.testing.assert_close(dict(ours.named_buffers()), dict(eagers.named_buffers()))
