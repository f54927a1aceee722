"""Values that lie in memory with gaps, and storages seen through as_strided: by coil, as eager computes them."""

import random

import pytest
import torch

import coil

TYPES = [pytest.param(t, id=str(t)[6:]) for t in (torch.float32, torch.bfloat16, torch.float16)]
VIEWS = [lambda x: x[1:], lambda x: x[:, ::2], lambda x: x.t(), lambda x: x[..., 1], lambda x: x.unsqueeze(1), lambda x: x[2], lambda x: x.t()[1:, ::3],
         lambda x: x.unfold(0, 3, 2), lambda x: x.diagonal(), lambda x: x.split(2)[1], lambda x: x.view(-1, 2)]


LIMIT = {torch.float32: 2e-6, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}


def gradients(function, tensors, train):
    if not train:
        with torch.no_grad():
            return list(function(*tensors))
    tensors = [t.detach().clone().requires_grad_() for t in tensors]
    results = function(*tensors)
    return [*results, *torch.autograd.grad(sum(r.float().sin().sum() for r in results), tensors)]


def check(function, *sets, dynamic=False, train=True):
    torch._dynamo.reset()
    coil.reset_compile_stats()
    compiled = torch.compile(function, backend="coil", dynamic=dynamic)
    for tensors in sets:
        for found, wanted in zip(gradients(compiled, tensors, train), gradients(function, tensors, train), strict=True):
            assert found.dtype == wanted.dtype and found.shape == wanted.shape
            if found.numel():
                assert found.stride() == wanted.stride()
                assert (found - wanted).abs().max() <= LIMIT[found.dtype] * wanted.abs().max().clamp_min(1)
    assert coil.compile_stats().fallbacks == {}


def numbers(rows, columns, dtype=torch.float32):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows + columns)).to(dtype)


def written_into(seed):
    """A computed matrix of which views are written, one after the other, some by their own elements."""
    source = random.Random(seed)
    views = source.sample(VIEWS[:6] + VIEWS[8:9], 3)

    def run(x):
        y = x * 2
        for i, view in enumerate(views):
            part = view(y)
            part.copy_(part.flip(0) * 0.5 if i % 2 else torch.full_like(part, 0.25) + x.sum() * 0.01)
        return y.cos(), views[0](y) * 3

    return run


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("seed", range(4))
def test_views_that_are_written(seed, dtype):
    check(written_into(seed), [numbers(8, 6, dtype)])


def test_written_views_of_other_sizes():
    check(written_into(1), *[[numbers(n, n + 3)] for n in (5, 8, 11)], dynamic=True)


@pytest.mark.parametrize("dtype", TYPES)
def test_copies_of_what_has_gaps(dtype):
    """Written in the functional form that AOTAutograd gives such programs."""
    def run(x):
        y = x + 1
        gaps = torch.ops.aten.copy(y[:, 1], x[:, 0] * 2)
        parts = torch.ops.aten.unsafe_split.Tensor(y, 4, 1)
        scattered = torch.ops.aten.slice_scatter(y[:, 1:4], x[:, :2] * 3, 1, 1, 3)
        return gaps.exp(), parts[1] * 2 + parts[0], scattered.sum(0), scattered[:, 1:].cos()

    check(run, [numbers(5, 8, dtype)], train=False)
    check(run, [numbers(1, 8, dtype)], train=False)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("view", range(len(VIEWS)))
def test_storages_of_views(view, dtype):
    def run(x):
        y = x * 2 + 1
        part = VIEWS[view](y)
        return torch.as_strided(part, (3, 4), (5, 2), 7) * 2, torch.as_strided(part, (2, 5), (3, 1)).tanh(), torch.as_strided(part, (0, 2), (1, 1), 3) + 1

    check(run, [numbers(8, 6, dtype)])


def test_a_strided_view_of_another():
    def run(x):
        y = x.cos()
        part = torch.as_strided(y[1:], (4, 3), (6, 2), 3)
        written = torch.as_strided_scatter(y * 2, part * 3, (4, 3), (6, 2), 5)
        return torch.as_strided(part.t(), (5, 2), (2, 7), 1) * 2, torch.as_strided(written, (6, 5), (7, 1), 2) + 1

    check(run, [numbers(8, 6)])


def equal_results_that_lie_otherwise(x):
    z = x + torch.zeros(3, 4, 2, 2)
    return z.relu(), z.contiguous(memory_format=torch.channels_last).relu(), z.clone(memory_format=torch.channels_last) * 2, z * 2


@pytest.mark.parametrize("door", ["torch.compile", "package"])
def test_equal_results_that_lie_otherwise(door):
    """Copies in another memory format are no operators; what is computed of them is equal, but lies as they did."""
    class Program(torch.nn.Module):
        def forward(self, x):
            return equal_results_that_lie_otherwise(x)

    x = torch.ones(1)
    torch._dynamo.reset()
    compiled = torch.compile(equal_results_that_lie_otherwise, backend="coil") if door == "torch.compile" else coil.compile(torch.export.export(Program(), (x,)))
    for found, wanted in zip(compiled(x), equal_results_that_lie_otherwise(x), strict=True):
        assert torch.equal(found, wanted) and found.stride() == wanted.stride()
