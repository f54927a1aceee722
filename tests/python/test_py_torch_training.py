"""torch.compile(backend="coil"): training beside eager."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import coil
from compiled_beside_eager import nothing_in_torch
from test_py_torch_compile import Attention

pytestmark = pytest.mark.usefixtures("fresh_compiles")


def train(make, inputs, loss, steps=5, dynamic=None, optimizer=torch.optim.SGD, rel=2e-4, **compile_options):
    """Losses of eager and of coil, step by step, and both models."""
    losses, models = [], []
    for backend in (None, "coil"):
        torch.manual_seed(0)
        model = make()
        run = torch.compile(model, backend=backend, dynamic=dynamic, **compile_options) if backend else model
        optimizer_ = optimizer(model.parameters(), lr=0.05)
        history = []
        for step in range(steps):
            torch.manual_seed(100 + step)
            arguments = inputs(step)
            optimizer_.zero_grad()
            value = loss(run(*arguments))
            value.backward()
            optimizer_.step()
            history.append(value.item())
        losses.append(history)
        models.append(model)
    assert losses[1] == pytest.approx(losses[0], rel=rel), coil.compile_stats()
    assert len(set(losses[0])) == steps
    for (name, ours), theirs in zip(models[1].state_dict().items(), models[0].state_dict().values()):
        torch.testing.assert_close(ours, theirs, atol=rel, rtol=5 * rel, msg=lambda m, name=name: f"{name}: {m}")


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(32), nn.Linear(32, 4))


def square(output):
    return output.float().pow(2).mean()


def test_train_mlp():
    train(mlp, lambda step: (torch.randn(8, 16),), square, optimizer=torch.optim.AdamW)
    stats = coil.compile_stats()
    assert stats.packages == 2 and set(stats.fallbacks) == {"aten.native_dropout.default: random numbers are PyTorch's"}, str(stats)


def test_train_with_dynamic_batch():
    train(mlp, lambda step: (torch.randn(5 + step, 16),), square, dynamic=True)
    assert coil.compile_stats().packages == 2, str(coil.compile_stats())


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.last = nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.Linear(12 * 16, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.last(F.relu(self.second(x)).flatten(1))


def test_train_convolutions():
    train(Convolutions, lambda step: (torch.randn(4, 3, 16, 16),), square)


@pytest.mark.parametrize("norm, pool, kept", [(False, nn.MaxPool2d(2), False), (False, nn.MaxPool2d(3, 2, 1), False), (False, nn.AdaptiveMaxPool2d(5), False),
                                              (True, nn.MaxPool2d(2), True)], ids=str)
def test_places_of_maxima_are_kept_where_what_is_pooled_is_not(norm, pool, kept):
    """Of whole numbers, among which there are many ties: the first one's place is eager's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), *([nn.BatchNorm2d(4)] if norm else []), nn.ReLU(), pool, nn.Conv2d(4, 3, 1))
    if not norm:
        for parameter in model.parameters():
            parameter.data = torch.randint(-2, 3, parameter.shape).float()
    x = torch.randint(-2, 3, (3, 2, 17, 14)).float().requires_grad_()
    expected = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        loss = torch.compile(model, backend="coil")(x).square().sum()
    found = torch.autograd.grad(loss, [x, *model.parameters()])
    assert any(t.dtype == torch.int64 and t.dim() == 4 for t in saved) == kept, [(t.dtype, tuple(t.shape)) for t in saved]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * max(g.abs().max().item() for g in expected))
    nothing_in_torch()


def test_train_attention():
    train(Attention, lambda step: (torch.randint(0, 50, (2, 12)),), lambda out: F.cross_entropy(out.view(-1, 50), torch.arange(24)))


def test_train_encoder_layer_with_dropout():
    """Dropout of tensors that lie in another order than their dimensions: the masks are eager's, element by element."""
    train(lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), lambda step: (torch.randn(2, 6, 32),), square)


def test_train_under_autocast():
    class Cast(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(16, 4)

        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.linear(x)

    train(Cast, lambda step: (torch.randn(8, 16),), square, rel=1e-2)


def test_gradients_of_inputs_and_frozen_parameters():
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    module[0].weight.requires_grad_(False)
    x = torch.randn(3, 6, requires_grad=True)
    module(x).sum().backward()
    expected, bias = x.grad.clone(), module[0].bias.grad.clone()
    x.grad = module[0].bias.grad = None
    torch.compile(module, backend="coil")(x).sum().backward()
    torch.testing.assert_close(x.grad, expected)
    torch.testing.assert_close(module[0].bias.grad, bias)
    assert module[0].weight.grad is None
    nothing_in_torch()


def test_gradient_through_a_strided_tangent():
    """The backward's tangent comes expanded, the results' views go through autograd."""
    a = torch.randn(4, 6, requires_grad=True)
    compiled = torch.compile(lambda x: x.sin() * 2, backend="coil")
    (expected,) = torch.autograd.grad((a.sin() * 2).sum(), a)
    (found,) = torch.autograd.grad(compiled(a).sum(), a)
    torch.testing.assert_close(found, expected)
    (found,) = torch.autograd.grad(compiled(a).t()[1].sum(), a)
    (expected,) = torch.autograd.grad((a.sin() * 2).t()[1].sum(), a)
    torch.testing.assert_close(found, expected)


def test_gradients_share_no_memory():
    """The gradient of the first row of a sum of one item is a view of that of the whole; what is done to it in place (clipping) must not reach
    the other."""
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.places = nn.Parameter(torch.randn(1, 1, 4)), nn.Parameter(torch.randn(1, 3, 4))

        def forward(self, x):
            return torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places

    module, x = Tokens(), torch.randn(1, 2, 4)
    torch.compile(module, backend="coil")(x).square().sum().backward()
    gradients = [module.first.grad, module.places.grad]
    kept = gradients[1].clone()
    gradients[0].zero_()
    assert torch.equal(gradients[1], kept) and kept.abs().min() > 0


def test_checkpointing():
    from torch.utils.checkpoint import checkpoint

    class Saved(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = mlp(), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(checkpoint(self.body, x, use_reentrant=False))

    train(Saved, lambda step: (torch.randn(8, 16),), square, steps=3)


def test_train_through_a_branch():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: self.one(x).relu(), lambda x: self.other(x).sin(), (x,)) * 2

    train(Branches, lambda step: (torch.rand(3, 4) * (-1) ** step,), square, steps=4)
    nothing_in_torch()
