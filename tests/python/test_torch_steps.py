"""torch.compile(backend="coil") in the ways that training steps are written: compiled autograd, gradients that add up, scaled losses, checkpoints, averages of weights,
second gradients, hooks. Each beside eager, step by step."""

import contextlib
import copy
import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import coil

pytestmark = pytest.mark.usefixtures("fresh_compiles")


class Net(nn.Module):
    def __init__(self, dropout=0.0, saved=None):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(dropout), nn.LayerNorm(16), nn.Linear(16, 8))
        self.last, self.saved = nn.Linear(8, 4), saved

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x))).mean((2, 3))
        return self.last(x + (self.saved(self.body, x) if self.saved else self.body(x)))


def batch(step, rows=5):
    source = torch.Generator().manual_seed(step)
    return torch.randn(rows, 3, 6, 6, generator=source), torch.randint(0, 4, (rows,), generator=source)


def twins(*arguments, **keywords):
    torch.manual_seed(0)
    model = Net(*arguments, **keywords)
    return model, copy.deepcopy(model)


def same(ours, theirs, atol=1e-5, rtol=1e-4):
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values()):
        torch.testing.assert_close(a, b, atol=atol, rtol=rtol, msg=lambda text, n=name: f"{n}: {text}")
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters()):
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, atol=atol, rtol=rtol, msg=lambda text, n=name: f"gradient of {n}: {text}")


def step_of(model, run, optimizer, step):
    torch.manual_seed(step)
    x, y = batch(step)
    optimizer.zero_grad()
    loss = F.cross_entropy(run(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def train_both(ours, theirs, run, steps=3, optimizer=torch.optim.SGD, **close):
    optimizers = [optimizer(m.parameters(), lr=0.05) for m in (ours, theirs)]
    for step in range(steps):
        a, b = step_of(ours, run, optimizers[0], step), step_of(theirs, theirs, optimizers[1], step)
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)
    same(ours, theirs, **close)


@pytest.fixture
def compiled_autograd():
    with torch._dynamo.config.patch(compiled_autograd=True):
        yield
    torch._dynamo.reset()


def test_compiled_autograd(compiled_autograd):
    """Backward is one graph of its own, made when it runs, of all that forward graphs left."""
    ours, theirs = twins()

    def step(model, x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()

    compiled = torch.compile(step, backend="coil")
    for n in range(3):
        x, y = batch(n)
        for m in (ours, theirs):
            m.zero_grad()
        torch.testing.assert_close(compiled(ours, x, y), step(theirs, x, y), atol=1e-5, rtol=1e-4)
        same(ours, theirs)
    stats = coil.compile_stats()
    assert stats.graphs >= 2 and stats.packages and not any("aten" in f and "random" not in f for f in stats.fallbacks), str(stats)


def test_compiled_autograd_of_an_eager_forward():
    """torch._dynamo.compiled_autograd's own context: what autograd of eager recorded becomes coil's graph, gradients are added in it."""
    ours, theirs = twins()
    x, y = batch(0)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="coil", dynamic=False)):
        for _ in range(2):
            F.cross_entropy(ours(x), y).backward()
    for _ in range(2):
        F.cross_entropy(theirs(x), y).backward()
    same(ours, theirs)
    assert coil.compile_stats().packages, str(coil.compile_stats())


def test_compiled_autograd_with_hooks_and_sizes(compiled_autograd):
    """A hook on a parameter and one on a tensor inside, and batches of several sizes."""
    ours, theirs = twins()
    seen = {id(ours): [], id(theirs): []}
    for m in (ours, theirs):
        m.last.weight.register_hook(lambda g: g * 0.5)
        m.body[0].weight.register_post_accumulate_grad_hook(lambda p, m=m: seen[id(m)].append(p.grad.abs().sum().item()))

    def loss_of(model, x, y):
        return F.cross_entropy(model(x), y)

    compiled = torch.compile(loss_of, backend="coil")
    for rows in (5, 7, 9):
        x, y = batch(rows, rows)
        torch.compile(lambda: compiled(ours, x, y).backward(), backend="coil")()
        loss_of(theirs, x, y).backward()
    same(ours, theirs)
    assert seen[id(ours)] == pytest.approx(seen[id(theirs)], rel=1e-4) and len(seen[id(theirs)]) == 3


@pytest.mark.parametrize("parts", [2, 3])
def test_gradients_add_up(parts):
    """Into what is there already; also where a gradient was set by hand."""
    ours, theirs = twins()
    compiled = torch.compile(ours, backend="coil")
    for m in (ours, theirs):
        m.last.bias.grad = torch.ones(4)
    places = {}
    for n in range(parts):
        x, y = batch(n)
        for model, run in ((ours, compiled), (theirs, theirs)):
            (F.cross_entropy(run(x), y) / parts).backward()
        if n == 0:
            places = {name: p.grad.data_ptr() for name, p in ours.named_parameters()}
    same(ours, theirs)
    assert places == {name: p.grad.data_ptr() for name, p in ours.named_parameters()}
    assert not coil.compile_stats().fallbacks


def test_one_backward_for_two_calls():
    """The same graph's saved tensors twice, before either is used up; a graph kept for a second backward."""
    ours, theirs = twins()
    compiled = torch.compile(ours, backend="coil")
    for model, run in ((ours, compiled), (theirs, theirs)):
        losses = [F.cross_entropy(run(x), y) for x, y in map(batch, (0, 1))]
        sum(losses).backward(retain_graph=True)
        losses[0].backward()
    same(ours, theirs)


def save_products(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default) else CheckpointPolicy.PREFER_RECOMPUTE


CHECKPOINTS = {
    "plain": lambda f, x: checkpoint(f, x, use_reentrant=False),
    "reentrant": lambda f, x: checkpoint(f, x, use_reentrant=True),
    "selective": lambda f, x: checkpoint(f, x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, save_products)),
    "no random states": lambda f, x: checkpoint(f, x, use_reentrant=False, preserve_rng_state=False),
    "nested": lambda f, x: checkpoint(lambda x: checkpoint(f, x, use_reentrant=False) * 2, x, use_reentrant=False),
}


@pytest.mark.parametrize("name", list(CHECKPOINTS))
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_checkpoints(name, dropout):
    if dropout and name == "no random states":
        pytest.skip("masks differ in eager, too")
    ours, theirs = twins(dropout, CHECKPOINTS[name])
    train_both(ours, theirs, torch.compile(ours, backend="coil"))
    stats = coil.compile_stats()
    assert stats.packages + stats.cache_hits, str(stats)


def test_a_checkpoint_around_a_compiled_block():
    """Eager checkpoints what coil computes: it is called again in backward."""
    ours, theirs = twins(0.3)
    body = ours.body
    block = torch.compile(body, backend="coil")
    ours.saved = lambda f, x: checkpoint(block, x, use_reentrant=False)
    train_both(ours, theirs, ours)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["f16", "bf16"])
def test_scaled_losses(dtype):
    """autocast and GradScaler; a step whose gradients overflow is left out and the scale halved, in both."""
    ours, theirs = twins()
    compiled = torch.compile(ours, backend="coil")
    rows = []
    for model, run in ((ours, compiled), (theirs, theirs)):
        scaler, optimizer, history = torch.amp.GradScaler("cpu", init_scale=2.0 ** 12, growth_interval=2), torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), []
        for step in range(5):
            x, y = batch(step)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype):
                loss = F.cross_entropy(run(x), y)
            scaler.scale(loss * (float("inf") if step == 2 else 1)).backward()
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            history.append((loss.item(), scaler.get_scale()))
        rows.append((history, norm))
    close = 2e-2
    assert [s for _, s in rows[0][0]] == [s for _, s in rows[1][0]] and len({s for _, s in rows[0][0]}) > 1
    assert [v for v, _ in rows[0][0]] == pytest.approx([v for v, _ in rows[1][0]], rel=close)
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values()):
        torch.testing.assert_close(a, b, atol=close, rtol=close, msg=lambda text, n=name: f"{n}: {text}")


def test_the_scaler_in_the_graph():
    """What GradScaler does to gradients, compiled."""
    def unscale(grads, found, scale):
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale)
        return found

    def update(scale, growth, found):
        return torch._amp_update_scale_(scale, growth, found, 2.0, 0.5, 2)

    for value in (1.0, float("inf"), float("nan")):
        torch._dynamo.reset()
        results = []
        for one, other in ((torch.compile(unscale, backend="coil"), torch.compile(update, backend="coil")), (unscale, update)):
            grads = [torch.full((3, 4), 8.0), torch.tensor([value, 2.0])]
            scale, growth, found = torch.tensor(4.0), torch.tensor(1, dtype=torch.int32), torch.zeros(1)
            one(grads, found, torch.tensor(0.25))
            other(scale, growth, found)
            results.append([*grads, scale, growth, found])
        for a, b in zip(*results):
            torch.testing.assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize("kind", ["mean", "exponential", "buffers"])
def test_averaged_models(kind):
    """torch.optim.swa_utils beside a compiled model, its update compiled as well."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    ours, theirs = twins()
    options = {"mean": {}, "exponential": {"multi_avg_fn": get_ema_multi_avg_fn(0.9)}, "buffers": {"multi_avg_fn": get_ema_multi_avg_fn(0.9), "use_buffers": True}}[kind]
    averages = []
    for model, run, wrap in ((ours, torch.compile(ours, backend="coil"), lambda f: torch.compile(f, backend="coil")), (theirs, theirs, lambda f: f)):
        average, optimizer = AveragedModel(model, **options), torch.optim.SGD(model.parameters(), lr=0.1)
        update = wrap(average.update_parameters)
        for step in range(4):
            step_of(model, run, optimizer, step)
            update(model)
        averages.append(average)
    for (name, a), b in zip(averages[0].state_dict().items(), averages[1].state_dict().values()):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3, msg=lambda text, n=name: f"{n}: {text}")
    assert int(averages[0].n_averaged) == 4


def test_hooks_of_tensors_and_modules():
    ours, theirs = twins()
    for m in (ours, theirs):
        m.body.register_full_backward_hook(lambda module, given, out: tuple(None if g is None else g * 2 for g in given))
        m.last.register_forward_hook(lambda module, inputs, output: output * 1.5)
        m.norm.weight.register_hook(lambda g: g.clamp(-0.01, 0.01))
    train_both(ours, theirs, torch.compile(ours, backend="coil"))


def test_gradients_of_gradients_are_named():
    """AOTAutograd has none of compiled graphs: PyTorch's own error, no wrong number."""
    x = torch.randn(4, requires_grad=True)
    y = torch.compile(lambda x: x.sin().square(), backend="coil")(x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        first.sum().backward()


def test_gradients_of_gradients_in_one_graph():
    """torch.func's transforms, traced whole."""
    function = lambda x: torch.func.grad(lambda x: torch.func.grad(lambda x: (x.sin() * x.exp()).sum())(x).square().sum())(x)
    jacobian = lambda x: torch.func.jacrev(lambda x: (x.sin() * x.sum()))(x)
    hessian = lambda x: torch.func.hessian(lambda x: (x.tanh() * x.roll(1)).sum())(x)
    x = torch.randn(5)
    for f in (function, jacobian, hessian):
        torch.testing.assert_close(torch.compile(f, backend="coil", fullgraph=True)(x), f(x), atol=1e-5, rtol=1e-4)
    assert not coil.compile_stats().fallbacks, str(coil.compile_stats())


def test_parameters_that_change_their_place():
    """load_state_dict, p.data = ..., .to(): the next call takes what is there."""
    ours, theirs = twins()
    compiled = torch.compile(ours, backend="coil")
    state = {k: v * 1.5 if v.is_floating_point() else v for k, v in theirs.state_dict().items()}
    changes = [lambda m: m.load_state_dict(copy.deepcopy(state)), lambda m: setattr(m.last.weight, "data", m.last.weight.data.clone() + 1),
               lambda m: m.load_state_dict({k: v.clone() * 0.9 if v.is_floating_point() else v for k, v in m.state_dict().items()}, assign=True)]
    for n, change in enumerate(changes):
        x, y = batch(n)
        for model, run in ((ours, compiled), (theirs, theirs)):
            change(model)
            model.zero_grad()
            F.cross_entropy(run(x), y).backward()
        same(ours, theirs)


@contextlib.contextmanager
def nothing():
    yield


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, nothing], ids=["no_grad", "inference", "training"])
def test_one_model_in_all_modes(context):
    """Evaluation between steps, with what the steps have changed."""
    ours, theirs = twins(0.2)
    compiled = torch.compile(ours, backend="coil")
    for n in range(2):
        train_both(ours, theirs, compiled, 1)
        for m in (ours, theirs):
            m.eval()
        with context():
            torch.testing.assert_close(compiled(batch(9)[0]), theirs(batch(9)[0]), atol=1e-5, rtol=1e-4)
        for m in (ours, theirs):
            m.train()
