"""Gradients taken inside of a compiled function, and gradients of these: with trace_autograd_ops Dynamo traces torch.autograd.grad, and all is coil's."""

import copy

import pytest

torch = pytest.importorskip("torch")
coil = pytest.importorskip("coil")
config = pytest.importorskip("torch._dynamo.config")

if not hasattr(config, "trace_autograd_ops"):
    pytest.skip("this PyTorch does not trace gradients", allow_module_level=True)

functional = torch.nn.functional


def gradient_penalty(net, x):
    slope, = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    return (slope.flatten(1).norm(2, dim=1) - 1).square().mean()


def heat_residual(net, x):
    u = net(x)
    du, = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
    ddu, = torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)
    return (du[:, 1] - ddu[:, 0]).square().mean()


def one_step_ahead(net, x):
    names, weights = zip(*net.named_parameters())
    slopes = torch.autograd.grad(net(x).square().mean(), weights, create_graph=True)
    ahead = {name: w - 0.1 * slope for name, w, slope in zip(names, weights, slopes)}
    return torch.func.functional_call(net, ahead, (x,)).square().mean()


def hessian_times_ones(net, x):
    weights = list(net.parameters())
    slopes = torch.autograd.grad(net(x).square().sum(), weights, create_graph=True)
    return sum(h.square().sum() for h in torch.autograd.grad(sum(s.sum() for s in slopes), weights, create_graph=True))


def dense():
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.LayerNorm(16), torch.nn.Tanh(), torch.nn.Linear(16, 1)), torch.randn(8, 6)


def images():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.GroupNorm(2, 4), torch.nn.SiLU(), torch.nn.AvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(48, 1)), torch.randn(2, 3, 6, 8)


def results(loss, net, x):
    x = x.clone().requires_grad_()
    value = loss(net, x)
    return [value, *torch.autograd.grad(value, [x, *net.parameters()], allow_unused=True)]


@pytest.mark.parametrize("make, loss", [(dense, gradient_penalty), (dense, heat_residual), (dense, one_step_ahead), (dense, hessian_times_ones), (images, gradient_penalty)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_gradients(make, loss, dtype):
    torch.manual_seed(0)
    net, x = (value.to(dtype) for value in make())
    wanted = results(loss, net, x)
    torch._dynamo.reset()
    before = coil.compile_stats()
    with config.patch(trace_autograd_ops=True):
        found = results(torch.compile(loss, backend="coil", fullgraph=True), net, x)
    after = coil.compile_stats()
    assert after.graphs > before.graphs and after.fallbacks == before.fallbacks
    bound = 1e-4 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(found, wanted, rtol=bound, atol=bound)


def test_a_whole_step_is_one_graph():
    """backward() inside: gradients are what they are after eager's step, added to those of the step before."""
    torch.manual_seed(0)
    net, x = dense()
    peer = copy.deepcopy(net)

    def step(net, x):
        loss = net(x).square().mean()
        loss.backward()
        with torch.no_grad():
            for weight in net.parameters():
                weight.sub_(0.1 * weight.grad)
        return loss.detach()

    torch._dynamo.reset()
    with config.patch(trace_autograd_ops=True):
        compiled = torch.compile(step, backend="coil")
        found = [compiled(net, x) for _ in range(3)]
    torch.testing.assert_close(found, [step(peer, x) for _ in range(3)])
    torch.testing.assert_close([p for w in net.parameters() for p in (w, w.grad)], [p for w in peer.parameters() for p in (w, w.grad)])


def test_without_it_gradients_are_pytorchs():
    """Dynamo leaves the function at torch.autograd.grad; what it compiled has no second gradients, in any backend. That is an error, never a wrong number."""
    torch.manual_seed(0)
    net, x = dense()
    torch._dynamo.reset()
    with config.patch(trace_autograd_ops=False), pytest.raises(RuntimeError, match="double backward"):
        results(torch.compile(gradient_penalty, backend="coil"), net, x)
