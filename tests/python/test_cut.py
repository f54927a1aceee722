"""Backward programs in pieces: what the forward graph has saved is freed on the way (coil.dynamo._cut)."""

import random
import weakref

import pytest
import torch

import coil
from coil.dynamo import _cut, _program
from coil.dynamo._cut import _Value, pieces

MB = 1 << 20


class Lives:
    def __init__(self, steps, values):
        self.steps, self.values = steps, [_Value(*v, v[2]) for v in values]


def peak_of(lives, parts):
    """Bytes at the worst time: a program's results are there from its beginning, what it reads up to its end."""
    worst = 0
    for begin, end in parts:
        held = sum(v.size for v in lives.values if v.made < begin <= v.last)
        results = sum(v.size for v in lives.values if begin <= v.made < end and v.last >= lives.steps)
        between = [sum(v.size for v in lives.values if begin <= v.made <= at <= v.last < lives.steps) for at in range(begin, end)]
        worst = max(worst, held + results + max(between))
    return worst


def eager(lives):
    return peak_of(lives, [(at, at + 1) for at in range(lives.steps)])


def layers(count, saved, weight, gradient=MB):
    """Each layer of 20 operators reads what it saved, gives its weight's gradient and hands on that of its input; within it there is more."""
    values = [(-1, 20 * i + 19, saved) for i in range(count)]
    for i in range(count):
        values += [(20 * i + 10, 20 * count, weight), (20 * i + 19, min(20 * i + 20, 20 * count - 1), gradient), (20 * i, 20 * i + 19, 2 * gradient)]
    return Lives(20 * count, values)


@pytest.mark.parametrize("saved, weight, over", [(64 * MB, 32 * MB, 1.05), (200 * MB, 16 * MB, 1.03), (40 * MB, 40 * MB, 1.2)])
def test_layers_are_cut_until_eagers_peak_is_kept(saved, weight, over):
    """The last: gradients of which each is more than the slack are handed out by few pieces all the same."""
    lives = layers(24, saved, weight)
    whole, found = peak_of(lives, [(0, lives.steps)]), pieces(lives)
    assert 1 < len(found) <= _cut._MOST_PIECES
    assert all(begin % 20 == 0 for begin, _ in found)
    assert peak_of(lives, found) <= over * eager(lives) < 0.99 * whole


def test_programs_that_take_no_more_than_eager_stay_whole():
    assert pieces(layers(24, MB, MB // 2)) == [(0, 480)]  # 12 MB of gradients
    assert pieces(layers(24, 200 * MB, 64 << 10)) == [(0, 480)]
    assert pieces(Lives(0, [])) == [(0, 0)]
    assert pieces(Lives(1, [(-1, 0, 1 << 40)])) == [(0, 1)]


def test_chains_of_pointwise_operators_are_no_reason_to_cut():
    """What only they read is not in memory."""
    chain = [_Value(at, at + 1, 500 * MB, 0) for at in range(0, 40)]
    lives = Lives(42, [])
    lives.values = [_Value(-1, 41, 600 * MB, 600 * MB), *chain, _Value(41, 42, 10 * MB, 10 * MB)]
    assert pieces(lives) == [(0, 42)]


def test_any_lives_are_cut_into_consecutive_pieces():
    draw = random.Random(3)
    for _ in range(200):
        steps = draw.randint(1, 60)
        values = []
        for at in range(steps):
            values.append((at, draw.choice([steps, draw.randint(at, steps - 1)]), draw.choice([0, 1, MB, 20 * MB, 300 * MB])))
            if draw.random() < 0.6:
                values.append((-1, draw.randint(at, steps), draw.randint(0, 400) * MB))
        lives = Lives(steps, values)
        found = pieces(lives)
        assert [begin for begin, _ in found] == [0] + [end for _, end in found[:-1]] and found[-1][1] == steps
        assert all(begin < end for begin, end in found) and len(found) <= _cut._MOST_PIECES
        assert peak_of(lives, found) <= peak_of(lives, [(0, steps)])


class Layers(torch.nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.LayerNorm(width), torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(count)])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


def gradients(module, x):
    module.zero_grad(set_to_none=True)
    x = x.clone().requires_grad_()
    module(x).square().mean().backward()
    return [x.grad, *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_saved_tensors_go_between_the_pieces(monkeypatch, dynamic, half):
    """What the first piece alone reads is gone when the last runs; the gradients are eager's."""
    monkeypatch.setattr(_cut, "_SLACK", 1 << 16)
    torch.manual_seed(0)
    torch._dynamo.reset()
    module, x = Layers(6, 128), torch.randn(400, 128)
    calls = []
    plain = _program._caller

    def watched(model, inputs):
        call = plain(model, inputs)

        def run(*args):
            calls.append([weakref.ref(a) for a in args if isinstance(a, torch.Tensor)])
            before.append([sum(r() is not None for r in refs) for refs in calls[:-1]])
            return call(*args)

        return run

    before = []
    monkeypatch.setattr(_program, "_caller", watched)
    compiled = torch.compile(module, backend="coil", dynamic=dynamic)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        expected = gradients(module, x)
        found = gradients(compiled, x)
        calls.clear(), before.clear()
        found = gradients(compiled, x)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=5e-2 if half else 1e-4, atol=1e-3 if half else 1e-5)
    assert len(calls) >= 4, "a forward program and pieces of the backward one"
    first, at_last = len(calls[1]), before[-1][1]
    assert at_last <= first // 2, f"{at_last} of the {first} tensors that the first piece reads are still there when the last one runs"


def test_several_pieces_give_eagers_gradients(monkeypatch):
    monkeypatch.setattr(_cut, "_SLACK", 1 << 16)
    torch._dynamo.reset()
    module, x = Layers(12, 128), torch.randn(300, 128)
    before = coil.compile_stats()
    found = gradients(torch.compile(module, backend="coil"), x)
    after = coil.compile_stats()
    for a, b in zip(found, gradients(module, x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert after.packages + after.cache_hits - before.packages - before.cache_hits > 3
