"""torch.compile of programs that go on with as many rows as data decides, with Dynamo's capture of such sizes: coil compiles what PyTorch's own backends do, and
asks no question about a size that has no answer yet."""

import collections
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import coil

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


def nonzero(x, w):
    return x[(x[:, 0] > 0).nonzero().squeeze(1)].tanh() @ w


def masked_select(x, w):
    return x.masked_select(x > 0).softmax(0)


def unique(x, w):
    values, places = torch.unique((x[:, 0] * 2).long(), return_inverse=True)
    return w[values.clamp(0, 3)].sin(), x * places.unsqueeze(1)


def repeated(x, w):
    return x.repeat_interleave((x[:, 0] > 0).long() * 2, 0).sin() @ w


def experts(x, w):
    scores, chosen = (x @ w).softmax(-1).topk(2, -1)
    result = torch.zeros_like(x)
    for expert in range(2):
        rows, place = torch.where(chosen == expert)
        result = result.index_add(0, rows, (x[rows] @ w * (expert + 1)).relu() * scores[rows, place].unsqueeze(1))
    return result


def chosen_twice(x, w):
    rows = x[x[:, 0] > 0]
    again = rows[rows[:, 1] > 0]
    return torch.cat([rows @ w, again.sin()]), rows.t(), rows.shape[0]


def number(x, w):
    """A number that is a size: Python reads it between two programs."""
    count = (x[:, 0] > 0).sum().item()
    torch._check(count >= 0)
    torch._check(count <= x.shape[0])
    return x[:count].sin() @ w, torch.ones(count, 4) * x.sum()


def drawn(x, w):
    """PyTorch draws as many numbers as the first program has found, and the second program asks for the size alone."""
    rows = x[x[:, 0] > 0]
    noise = torch.rand(rows.shape[0], 4)
    return F.dropout(rows @ w, 0.5).sum(0), torch.ones(rows.shape[0], 4) * noise.cos() * w.sum()


def by_library(x, w):
    rows = x[x[:, 0] > 0]
    return torch.zeros(rows.shape[0]).add(torch.linalg.det(w) * 0.1).sum() * x, rows.sum()


PROGRAMS = (nonzero, masked_select, unique, repeated, experts, chosen_twice, number, drawn, by_library)


def outcome(call, x, w):
    """Results, and gradients of them all."""
    leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
    torch.manual_seed(1)
    results = call(*leaves)
    tensors = [r for r in (results if isinstance(results, tuple) else (results,)) if isinstance(r, torch.Tensor) and r.requires_grad]
    return results, torch.autograd.grad(sum(r.cos().sum() for r in tensors), leaves, allow_unused=True)


@pytest.mark.parametrize("function, dynamic", [*((f, False) for f in PROGRAMS), *((f, True) for f in (chosen_twice, number, drawn))],
                         ids=lambda value: getattr(value, "__name__", str(value)))
def test_nothing_stays_in_pytorch(function, dynamic):
    """Forward and backward, no rows and one row included; what PyTorch draws is its own."""
    before = collections.Counter(coil.compile_stats().fallbacks)
    compiled = torch.compile(function, backend="coil", fullgraph=True, dynamic=dynamic)
    torch.manual_seed(0)
    w = torch.randn(4, 4)
    some, none, one = torch.randn(7, 4), -torch.rand(7, 4), torch.cat([-torch.rand(6, 4), torch.rand(1, 4)])
    for x in (some, none, one, some, *([torch.randn(5, 4)] if dynamic else [])):
        torch.testing.assert_close(outcome(compiled, x, w), outcome(function, x, w), atol=1e-5, rtol=1e-4)
    left = collections.Counter(coil.compile_stats().fallbacks) - before
    assert all("random numbers" in reason for reason in left), left


@pytest.mark.parametrize("function", (nonzero, repeated), ids=lambda f: f.__name__)
def test_sixteen_bits(function):
    """As near to double precision as eager is, give or take a last digit."""
    torch.manual_seed(0)
    x, w = torch.randn(7, 4).bfloat16(), torch.randn(4, 4).bfloat16()
    exact, theirs, ours = (torch.utils._pytree.tree_leaves(r) for r in (
        outcome(function, x.double(), w.double()), outcome(function, x, w), outcome(torch.compile(function, backend="coil"), x, w)))
    for e, t, o in zip(exact, theirs, ours):
        assert o.dtype == t.dtype and o.shape == t.shape
        last = 2 ** -7 * e.abs().max()
        assert (o - e).abs().max() <= 2 * (t - e).abs().max() + last


def test_what_the_user_asserts():
    def checked(x, w):
        rows = x[x[:, 0] > 0]
        torch._check(rows.shape[0] <= 3)
        return rows @ w

    compiled, w = torch.compile(checked, backend="coil", fullgraph=True), torch.randn(4, 4)
    few = torch.cat([torch.rand(2, 4), -torch.rand(5, 4)])
    torch.testing.assert_close(compiled(few, w), checked(few, w))
    with pytest.raises(RuntimeError):
        compiled(torch.rand(7, 4), w)


@pytest.mark.parametrize("rows", [0, 3])
def test_masks_of_no_elements(rows):
    """Eager's mask of an empty dropout is no bool."""
    def dropped(x):
        return F.dropout(x.sin(), 0.5).cos()

    x = torch.randn(rows, 4)
    torch.testing.assert_close(outcome(lambda x, w: torch.compile(dropped, backend="coil")(x * w), x, torch.ones(4)),
                               outcome(lambda x, w: dropped(x * w), x, torch.ones(4)))
