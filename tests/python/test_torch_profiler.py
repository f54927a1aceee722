"""torch.profiler shows what coil's code does: a range for each call, and in it one for each kernel."""

import pytest
import torch

import coil
from profiled import compiled, layers  # noqa: F401 (layers is a fixture)


def test_torch_profiler_shows_kernels_with_their_places(layers, tmp_path):
    layers.save(tmp_path / "layers.pt2")
    x = torch.randn(11, 64)
    stock = torch._inductor.aoti_load_package(str(tmp_path / "layers.pt2"))
    want = stock(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        got = stock(x)
    assert torch.equal(got, want)
    names = [e.key for e in p.key_averages()]
    for i in range(3):
        assert any(f": layers.{i} (profiled.py:" in name for name in names), names


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(64, 32), torch.nn.Linear(32, 8)

    def forward(self, x):
        return self.last(torch.nn.functional.gelu(self.first(x)))


def names_seen(call):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        got = call()
    return [e.name for e in p.events()], p, got


def test_torch_profiler_shows_kernels_of_coils_own_models(layers, fresh_compiles):
    """coil.load and torch.compile: a range for each call, and in it one for each kernel, with its module and line; backward, too. What is computed stays the same."""
    x = torch.randn(11, 64)
    want = layers(x)
    names, p, got = names_seen(lambda: layers(x))
    assert torch.equal(got, want) and any(name.startswith("coil: ") for name in names)
    (call,) = [e for e in p.events() if e.name.startswith("coil: ")]
    inside = [e for e in p.events() if e.cpu_parent is call]
    for i in range(3):
        assert any(f": layers.{i} (profiled.py:" in e.name for e in inside), names
    array = x.numpy()
    assert names_seen(lambda: layers(array))[0] == []  # NumPy's arrays are no calls of PyTorch's
    fast = torch.compile(Small(), backend="coil")
    fast(x).sum().backward()
    names, _, _ = names_seen(lambda: fast(x).sum().backward())
    assert {"coil: forward", "coil: backward"} <= set(names), names
    assert any(": first (test_torch_profiler.py:" in name for name in names) and any(": last (test_torch_profiler.py:" in name for name in names), names
    assert watched_by_nobody(layers, x)


def watched_by_nobody(model, x):
    """After a profile, calls are what they were: nothing is recorded, and no range is left open."""
    model(x)
    names, p, _ = names_seen(lambda: torch.ones(2) + 1)
    return not [name for name in names if "layers" in name or "coil" in name]


def test_a_call_of_coils_that_fails_leaves_no_open_range():
    table, good, bad = torch.randn(9, 4), torch.tensor([0, 8]), torch.tensor([0, 99])

    class Gather(torch.nn.Module):
        def forward(self, table, i):
            return table.softmax(-1)[i].cumsum(0)

    model = compiled(Gather(), table, good)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        with pytest.raises(coil.InputError):
            model(table, bad)
        model(table, good)
    calls = [e for e in p.events() if e.name.startswith("coil: ")]
    assert len(calls) == 2 and all(e.cpu_parent is None for e in calls)


def test_a_stock_call_that_fails_leaves_no_open_range(tmp_path):
    table, good, bad = torch.randn(9, 4), torch.tensor([0, 8]), torch.tensor([0, 99])

    class Gather(torch.nn.Module):
        def forward(self, table, i):
            return table.softmax(-1)[i].cumsum(0)

    compiled(Gather(), table, good).save(tmp_path / "g.pt2")
    stock = torch._inductor.aoti_load_package(str(tmp_path / "g.pt2"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as p:
        with pytest.raises(RuntimeError):
            stock(table, bad)
        stock(table, good)
    mine = [e for e in p.events() if "softmax" in e.name]
    assert len(mine) >= 2
