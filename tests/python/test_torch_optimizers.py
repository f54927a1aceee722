"""torch.compile(backend="coil") of what a training step does besides its gradients: optimizers, clipping, averages of weights, scaled losses, statistics. Each beside
eager; nothing of it stays in PyTorch, and tensors are written where they lie."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing._internal.common_optimizers import optim_db

import coil

# They look at numbers between operators (item()), where Dynamo leaves the whole to eager.
NOT_TRACED = {"LBFGS", "SparseAdam", "Adafactor"}


pytestmark = pytest.mark.usefixtures("fresh_compiles")


def configurations():
    """The default and the fullest of each of PyTorch's own configurations, over lists and one tensor at a time in turns."""
    lists = itertools.cycle((True, False))
    for info in optim_db:
        name = info.optim_cls.__name__
        if name in NOT_TRACED:
            continue
        inputs = info.optim_inputs_func(device="cpu")
        for chosen in (inputs[0], max(inputs, key=lambda i: len(i.kwargs))):
            foreach = {"foreach": next(lists)} if "foreach" in info.supported_impls else {}
            yield pytest.param(info.optim_cls, dict(chosen.kwargs, **foreach), id=f"{name}-{chosen.desc}-{'list' if foreach.get('foreach') else 'single'}".replace(" ", "_"))


def parameters(optimizer, dtype=torch.float32):
    shapes = [(4, 5), (3, 7)] if optimizer.__name__ == "Muon" else [(4, 5), (37,), (1,), (), (2, 0), (2, 3, 2)]
    return [nn.Parameter(torch.randn(s).to(dtype)) for s in shapes]


def twins(made):
    return made, [nn.Parameter(p.detach().clone(memory_format=torch.preserve_format)) for p in made]


def give_gradients(ours, theirs, step):
    for p, q in zip(ours, theirs):
        q.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(step + p.numel())).to(p.dtype)
        p.grad = q.grad.clone()


def run_beside_eager(optimizer, keywords, made, steps=3):
    """Steps of both; returns what was compared."""
    ours, theirs = twins(made)
    compiled, eager = optimizer(ours, **copy.deepcopy(keywords)), optimizer(theirs, **copy.deepcopy(keywords))
    step = torch.compile(compiled.step, backend="coil")
    places, versions = [p.data_ptr() for p in ours], [p._version for p in ours]
    for number in range(steps):
        give_gradients(ours, theirs, number)
        step()
        eager.step()
    assert places == [p.data_ptr() for p in ours]
    assert all(p._version > v for p, v in zip(ours, versions))
    pairs = list(zip(ours, theirs))
    for p, q in zip(ours, theirs):
        pairs += [(compiled.state[p][k], v) for k, v in eager.state[q].items() if isinstance(v, torch.Tensor)]
    return pairs


@pytest.mark.parametrize("optimizer, keywords", list(configurations()))
def test_optimizers_are_eagers(optimizer, keywords):
    for a, b in run_beside_eager(optimizer, keywords, parameters(optimizer)):
        rough = optimizer is torch.optim.Muon  # its products are of bfloat16
        torch.testing.assert_close(a, b, atol=2e-3 if rough else 1e-5, rtol=1e-2 if rough else 1e-4)
    stats = coil.compile_stats()
    assert stats.graphs >= 1 and not stats.fallbacks, str(stats)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=lambda d: str(d).rpartition(".")[2])
@pytest.mark.parametrize("foreach", [True, False])
def test_other_types(dtype, foreach):
    for a, b in run_beside_eager(torch.optim.AdamW, {"lr": 1e-2, "foreach": foreach}, parameters(torch.optim.AdamW, dtype)):
        exact = dtype == torch.float64  # but the number of steps is float32 when it is traced, and so is beta's power
        torch.testing.assert_close(a, b, atol=1e-6 if exact else 2e-2, rtol=1e-5 if exact else 2e-2)
    assert not coil.compile_stats().fallbacks


def test_parameters_in_other_orders_of_memory():
    """Channels last, and a transposed one: they keep their strides."""
    made = [nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)), nn.Parameter(torch.randn(7, 5).t())]
    strides = [p.stride() for p in made]
    for a, b in run_beside_eager(torch.optim.Adam, {"lr": 1e-2}, made):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)
    assert strides == [p.stride() for p in made] and not coil.compile_stats().fallbacks


def test_a_schedule_compiles_once():
    ours, theirs = twins(parameters(torch.optim.SGD))
    optimizers = [torch.optim.SGD(p, lr=torch.tensor(0.1), momentum=0.9) for p in (ours, theirs)]
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.5) for o in optimizers]
    step = torch.compile(optimizers[0].step, backend="coil")
    for number in range(4):
        give_gradients(ours, theirs, number)
        for one, schedule in zip((step, optimizers[1].step), schedules):
            one()
            schedule.step()
        if number == 1:  # the first step has no momentum yet
            packages = coil.compile_stats().packages
    assert coil.compile_stats().packages == packages
    for p, q in zip(ours, theirs):
        torch.testing.assert_close(p, q, atol=1e-5, rtol=1e-4)


def test_clipping_and_averages():
    def function(model, average):
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        nn.utils.clip_grad_value_(model.parameters(), 0.01)
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.1)
        return norm

    results = []
    for run in (torch.compile(function, backend="coil"), function):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 3))
        average = copy.deepcopy(model)
        for p in model.parameters():
            p.grad = torch.randn_like(p)
            p.data.add_(1)
        with torch.no_grad():
            norm = run(model, average)
        results.append([norm, *[p.grad for p in model.parameters()], *average.parameters()])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    assert not coil.compile_stats().fallbacks, str(coil.compile_stats())


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.last = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Linear(6, 4)

    def forward(self, x):
        return self.last(F.relu(self.norm(self.conv(x))).mean((2, 3)))


def test_running_statistics_are_written_by_the_program():
    """In training and in evaluation, in turns; the statistics are the module's own tensors."""
    ours = Normed()
    theirs = copy.deepcopy(ours)
    compiled = torch.compile(ours, backend="coil")
    place, version = ours.norm.running_var.data_ptr(), ours.norm.running_var._version
    for training in (True, True, False, True):
        x = torch.randn(5, 3, 9, 9)
        for module, run in ((ours, compiled), (theirs, theirs)):
            module.train(training)
            module.zero_grad()
            run(x).square().sum().backward()
        for (name, a), (_, b) in zip(ours.named_buffers(), theirs.named_buffers()):
            torch.testing.assert_close(a, b, msg=lambda text, n=name: f"{n}: {text}")
        for a, b in zip(ours.parameters(), theirs.parameters()):
            torch.testing.assert_close(a.grad, b.grad, atol=1e-4, rtol=1e-3)
    assert ours.norm.running_var.data_ptr() == place and ours.norm.running_var._version > version
    assert not any("copy_" in row for row in coil.compile_stats().fallbacks), str(coil.compile_stats())


def test_a_whole_step():
    """Loss, gradients, clipping and the optimizer in one function."""
    def made():
        torch.manual_seed(4)
        model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    ours, theirs = made(), made()
    compiled = torch.compile(step, backend="coil")
    for number in range(4):
        x, y = torch.randn(8, 6), torch.randint(3, (8,))
        torch.testing.assert_close(compiled(*ours, x, y), step(*theirs, x, y), atol=1e-4, rtol=1e-3)


def test_inputs_that_functions_write():
    """Old values are read before, elsewhere, by PyTorch's operators, and through views; inputs may be each other's views."""
    def function(x, y, z):
        old = x.clone()
        x.mul_(2).add_(y)
        y.copy_(old.flip(0))
        drawn = F.dropout(z, 0.5)  # PyTorch's: it reads the old one
        z[1].add_(1)
        return old + x, drawn * 0 + z, x.t() @ y

    for dynamic in (False, True):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="coil", dynamic=dynamic)
        for rows in (4, 6):
            ours = [torch.randn(rows, 3) for _ in range(3)]
            theirs = [t.clone() for t in ours]
            for a, b in zip([*compiled(*ours), *ours], [*function(*theirs), *theirs]):
                torch.testing.assert_close(a, b)

    def swap(a, b):
        old = a.clone()
        a.copy_(b)
        b.copy_(old)

    base = torch.arange(12.0).reshape(4, 3)
    pair = base[:2], base[2:]
    torch.compile(swap, backend="coil")(*pair)
    torch.testing.assert_close(base, torch.arange(12.0).reshape(4, 3).roll(2, 0))


def test_a_failed_call_leaves_inputs_as_they_were():
    def function(total, x, index):
        total.add_(x)
        return x[index] + total

    total, x = torch.zeros(4), torch.ones(4)
    compiled = torch.compile(function, backend="coil")
    compiled(total, x, torch.tensor([0, 1, 2, 3]))
    with pytest.raises(Exception, match="COIL-E210|index"):
        compiled(total, x, torch.tensor([0, 1, 2, 9]))
    torch.testing.assert_close(total, torch.ones(4))
