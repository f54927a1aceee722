"""torch.compile of programs that go on with as many rows as data decides, with Dynamo's capture of such sizes: coil compiles what PyTorch's own backends do, and
asks no question about a size that has no answer yet."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytestmark = pytest.mark.usefixtures("fresh_compiles")

IMAGES, ROWS, TOKENS = (5, 2, 6, 6), (5, 4), (5, 3, 8)
NETWORKS = {  # what reads the rows that a mask chooses
    "linear": (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), ROWS),
    "convolution": (nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.MaxPool2d(2)), IMAGES),
    "transposed": (nn.ConvTranspose2d(2, 3, 2, 2), IMAGES),
    "group_norm": (nn.GroupNorm(2, 2), IMAGES),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), TOKENS),
    "resized": (nn.Upsample(scale_factor=2, mode="bilinear"), IMAGES),
}


class Chosen(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, mask):
        return self.net(x[mask]).square().sum(0)


@pytest.fixture(autouse=True)
def captured_sizes():
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def gradients(call, module, inputs, seed):
    leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    torch.manual_seed(seed)
    results = call(*leaves)
    wanted = [x for x in leaves if x.requires_grad] + list(module.parameters())
    return results, torch.autograd.grad(sum(r.sum() for r in (results if isinstance(results, tuple) else (results,))), wanted)


def check(module, *inputs):
    ours = copy.deepcopy(module)
    found = gradients(torch.compile(ours, backend="coil", fullgraph=True), ours, inputs, 1)
    torch.testing.assert_close(found, gradients(module, module, inputs, 1), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name, rows", [*((name, 3) for name in NETWORKS), ("linear", 0), ("linear", 1), ("group_norm", 0), ("convolution", 0)])
def test_rows_by_a_mask(name, rows):
    net, sizes = NETWORKS[name]
    check(Chosen(net), torch.randn(sizes), torch.arange(5) < rows)


def test_masks_are_eagers():
    """Dropout of rows whose number is not known when the mask's place in the program is chosen."""
    check(Chosen(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))), torch.randn(ROWS), torch.arange(5) > 1)


class Written(nn.Module):
    """As PyTorch's distributions and torchvision's losses are written."""

    def forward(self, x, y):
        result = torch.zeros_like(x)
        result[x > 0] = (x[x > 0] * y[x > 0]).tanh()
        result[x < -1] += 1
        return F.softplus(result) * y


def test_elements_are_written_by_masks():
    check(Written(), torch.randn(4, 5), torch.randn(4, 5))
