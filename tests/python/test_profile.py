"""Times of calls, kernel by kernel: right names and places, the same results, from Python. (The environment, the command and C: test_profile_command.py;
torch.profiler: test_torch_profiler.py.)"""

import json
import os
import threading
import time

import pytest
import torch

import coil
from profiled import Layers, compiled, events, layers  # noqa: F401 (layers is a fixture)


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(1)
        return x.cumsum(0) + self.count


class Rows(torch.nn.Module):
    """A size from data."""

    def forward(self, x):
        return x[x.sum(1) > 0] * 2


class Loop(torch.nn.Module):
    def forward(self, x, n):
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y @ y.softmax(0)), (torch.zeros((), dtype=torch.int64), x))[1]


class Branch(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda v: v.softmax(-1), lambda v: v.sin() @ v, (x,))


def saved(profile, tmp_path):
    path = tmp_path / "trace.json"
    profile.save(path)
    return json.loads(path.read_text())


def same_bits(a, b):
    a, b = (a, b) if isinstance(a, (tuple, list)) else ((a,), (b,))
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_the_table_of_a_model(layers):
    x = torch.randn(300, 64)
    before = layers(x)
    with layers.profile() as p:
        for _ in range(5):
            assert same_bits(layers(x), before)
    assert p.num_calls == 5
    layers(x)
    assert p.num_calls == 5, "a call after the end was recorded"
    [model] = p.summary()["models"]
    assert model["calls"] == 5 and model["failed_calls"] == 0 and list(model["sizes"].values()) == [300]
    kernels = p.kernels()
    products = [k for k in kernels if k["kind"] == "gemm"]
    assert len(products) == 3 and {k["module"] for k in products} == {"layers.0", "layers.1", "layers.2"}
    for k in products:
        assert k["launches"] == 1 and k["us"] > 0 and "profiled.py" in k["source"] and "layer(x)" in k["line"]
        # The product, and no more than a handful of operations for each result beside it.
        assert 2 * 300 * 64 * 64 <= k["flops"] <= 2 * 300 * 64 * 64 + 8 * 300 * 64
        assert (300 * 64 * 2 + 64 * 64) * 4 <= k["bytes"] <= (300 * 64 * 4 + 64 * 64 + 64) * 4 * 1.1
        assert k["gflop_s"] == pytest.approx(k["flops"] / k["us"] / 1e3, rel=0.01)
    assert kernels == sorted(kernels, key=lambda k: -k["us"])
    assert sum(k["share"] for k in kernels) == pytest.approx(model["kernels_us"] / model["call_us"], rel=0.01)
    assert sum(k["us"] for k in kernels) + model["host_us"] == pytest.approx(model["call_us"], rel=0.01)


def test_times_are_those_of_the_clock(layers):
    x = torch.randn(4000, 64)
    layers(x)
    for _ in range(20):  # until nobody took the processor between two calls
        with layers.profile() as p:
            begin = time.perf_counter()
            for _ in range(20):
                layers(x)
            took = (time.perf_counter() - begin) / 20 * 1e6
        [model] = p.summary()["models"]
        if model["call_us"] > 0.5 * took:
            break
    assert 0.5 * took < model["call_us"] <= took * 1.05
    assert model["least_us"] <= model["median_us"] <= model["most_us"]


def test_a_trace_nests(layers, tmp_path):
    with layers.profile() as p:
        layers(torch.randn(2000, 64))
        layers(torch.randn(3, 64))
    trace = saved(p, tmp_path)
    calls = events(trace, "call")
    assert [list(c["args"]["sizes"].values()) for c in calls] == [[2000], [3]] and calls[0]["args"]["threads"] == layers.num_threads
    for call in calls:
        inside = [e for e in events(trace, "kernel") + events(trace, "host") if call["ts"] <= e["ts"] < call["ts"] + call["dur"]]
        kernels = [e for e in inside if e["cat"] == "kernel"]
        assert len(kernels) >= 4 and {e["name"] for e in inside} >= {"check inputs", "place outputs", "kernels"}
        for a, b in zip(kernels, kernels[1:]):
            assert a["ts"] + a["dur"] <= b["ts"] + 0.01, "kernels that follow one another overlap"
        assert all(e["ts"] + e["dur"] <= call["ts"] + call["dur"] + 0.01 for e in inside)
        assert {e["args"]["sizes"][next(iter(e["args"]["sizes"]))] for e in kernels} == set(call["args"]["sizes"].values())
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert any(n.startswith("caller ") for n in names)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_threads_of_the_pool_have_tracks(layers, tmp_path):
    x = torch.randn(60000, 64)
    with layers.profile() as p:
        for _ in range(20):
            layers(x)
    trace = saved(p, tmp_path)
    work = events(trace, "work")
    assert work, "no work of a pool's thread was recorded"
    callers = {e["tid"] for e in events(trace, "call")}
    assert all(e["tid"] not in callers and e["args"]["items"] > 0 for e in work)
    kernels = {e["args"]["kernel"]: e["name"] for e in events(trace, "kernel")}
    assert all(kernels[e["args"]["kernel"]] == e["name"] for e in work)
    assert any(k.get("threads_us", 0) > k["us"] for k in p.kernels()), "no kernel ran on two threads at once"


def test_control_flow_counts_each_launch():
    x = torch.rand(5, 5)
    model = compiled(Loop(), x, torch.tensor(3))
    for steps in (0, 1, 4):
        want = model(x, torch.tensor(steps))
        with model.profile() as p:
            assert same_bits(model(x, torch.tensor(steps)), want)
        launches = [k["launches"] for k in p.kernels() if k["kind"] == "gemm"]
        assert launches == ([steps] if steps else [])


def test_only_the_branch_that_runs():
    x = torch.rand(6, 6)
    model = compiled(Branch(), x)
    seen = []
    for value in (x, -x):
        want = model(value)
        with model.profile() as p:
            assert same_bits(model(value), want)
        seen.append({k["kernel"] for k in p.kernels()})
    assert seen[0] - seen[1] and seen[1] - seen[0]


def test_sizes_from_data_are_those_of_each_kernel(tmp_path):
    x = torch.randn(40, 8)
    model = compiled(Rows(), x)
    want = model(x)
    with model.profile() as p:
        assert same_bits(model(x), want)
    sizes = [e["args"]["sizes"] for e in events(saved(p, tmp_path), "kernel")]
    rows = len(want)
    assert rows not in sizes[0].values() and rows in sizes[-1].values()
    assert any(k["bytes"] == 2 * rows * 8 * 4 or k["bytes"] > rows * 8 * 4 for k in p.kernels())


def test_state_moves_on_as_ever():
    watched, plain = (compiled(Counter(), torch.randn(7)) for _ in range(2))
    x = torch.randn(7)
    with watched.profile():
        for _ in range(3):
            assert same_bits(watched(x), plain(x))
    assert same_bits(watched(x), plain(x))


def test_image_by_image(tmp_path):
    conv = torch.nn.Conv2d

    class Deep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.deep, self.narrow = conv(3, 16, 3, 2, 1), conv(16, 16, 3, padding=1, groups=16), conv(16, 16, 1)

        def forward(self, x):
            x = torch.nn.functional.hardswish(self.first(x))
            return torch.nn.functional.avg_pool2d(x + self.narrow(self.deep(x).relu()), 2)

    x = torch.randn(5, 3, 242, 230)
    model = compiled(Deep(), x)
    want = model(x)
    shares = []
    while not shares or (max(shares) < 0.8 and len(shares) < 20):  # other work on the machine may stop a call between kernels
        with model.profile() as p:
            assert same_bits(model(x), want)
        [summary] = p.summary()["models"]
        assert max(k["launches"] for k in p.kernels()) == 5
        shares.append(sum(k["us"] for k in p.kernels()) / summary["call_us"])
        assert shares[-1] <= 1.001, "kernels that run at once count more time than passes"
    assert max(shares) >= 0.8


def test_a_call_that_fails_is_told_and_the_next_is_right(tmp_path):
    class Gather(torch.nn.Module):
        def forward(self, table, i):
            return table.softmax(-1)[i].cumsum(0)

    table, good, bad = torch.randn(9, 4), torch.tensor([0, 8]), torch.tensor([0, 99])
    model = compiled(Gather(), table, good)
    want = model(table, good)
    with model.profile() as p:
        with pytest.raises(coil.InputError, match="COIL-E210"):
            model(table, bad)
        with pytest.raises(coil.InputError):
            model(table, torch.zeros(2))
        assert same_bits(model(table, good), want)
    [summary] = p.summary()["models"]
    assert summary["failed_calls"] == 2 and summary["calls"] == 1
    assert [c["args"].get("error") for c in events(saved(p, tmp_path), "call")] == [210, 202, None]


def test_many_threads_and_profiles_at_once(layers):
    x = torch.randn(30, 64)
    want = layers(x)
    wrong = []

    def work():
        for _ in range(50):
            if not same_bits(layers(x), want):
                wrong.append(1)

    with layers.profile(all_calls=True) as all_calls, coil.profile(calls=10) as ten:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for _ in range(20):
            with layers.profile() as short:
                layers(x)
            assert short.num_calls >= 1
        for t in threads:
            t.join()
    assert not wrong and all_calls.num_calls == 220 and ten.num_calls == 10
    assert all_calls.summary()["models"][0]["calls"] == 220


def test_of_many_short_calls_some_are_left_out(tmp_path):
    """Recording a call of a microsecond takes more than 2 % of it: after the first ones some are left out, and the table says how many."""
    model, x = compiled(Layers(4, 1), torch.randn(1, 4)), torch.randn(1, 4)
    want, calls = model(x), 0
    with model.profile() as p:
        # Where another program takes the processor from a call, many that follow it are left out, and are told with the next one that is recorded.
        for _ in range(50):
            for _ in range(20000):
                model(x)
            calls += 20000
            [summary] = p.summary()["models"]
            if summary["calls"] < calls / 2 and calls * 0.95 < summary["calls"] + summary["left_out_calls"]:
                break
    [summary] = p.summary()["models"]
    assert 128 <= summary["calls"] < calls / 2 and summary["calls"] == p.num_calls
    assert calls * 0.95 < summary["calls"] + summary["left_out_calls"] <= calls
    assert all(k["launches"] == 1 for k in p.kernels()), "a call is recorded whole"
    trace = saved(p, tmp_path)
    assert trace["otherData"]["left_out_calls"] == summary["left_out_calls"]
    assert sum(e["args"].get("calls_left_out_before", 0) for e in events(trace, "call")) == summary["left_out_calls"]
    with model.profile(all_calls=True) as every, model.profile() as other:
        for _ in range(3000):
            model(x)
    assert every.num_calls == other.num_calls == 3000 and every.summary()["models"][0]["left_out_calls"] == 0
    assert same_bits(model(x), want)


def test_calls_that_take_long_are_all_recorded(layers):
    """A call of milliseconds: recording it is far below its share whatever else the machine does."""
    x = torch.randn(30000, 64)
    with layers.profile() as p:
        for _ in range(1500):
            layers(x)
    assert p.num_calls == 1500


def test_of_another_model_nothing_is_recorded(layers):
    other = compiled(Counter(), torch.randn(7))
    with layers.profile() as p:
        other(torch.randn(7))
    assert p.num_calls == 0 and p.kernels() == [] and p.summary()["models"] == []


def test_torch_compile_is_recorded(fresh_compiles):
    fast = torch.compile(Layers(), backend="coil")
    with torch.no_grad(), coil.profile() as p:
        fast(torch.randn(4, 64))
    assert sum(k["kind"] == "gemm" for k in p.kernels()) == 3, p.kernels()


def test_wrong_use(layers, tmp_path):
    with pytest.raises(coil.OptionError, match="not started"):
        layers.profile().save(tmp_path / "x.json")
    with pytest.raises(coil.OptionError, match="'calls' is -1"):
        layers.profile(calls=-1).start()
    with layers.profile() as p:
        pass
    with pytest.raises(coil.FileError):
        p.save(tmp_path / "none" / "x.json")


def test_counters_or_a_reason(layers):
    with layers.profile(counters=True) as p:
        layers(torch.randn(500, 64))
    summary = p.summary()
    if "counters" in summary:
        assert "perf_event" in summary["counters"]
    else:
        assert all(k["cycles"] > 0 and k["instructions"] > 0 for k in p.kernels())


def test_stock_pytorch_still_loads_it(layers, tmp_path):
    layers.save(tmp_path / "layers.pt2")
    x = torch.randn(11, 64)
    stock = torch._inductor.aoti_load_package(str(tmp_path / "layers.pt2"))
    with coil.profile():
        assert torch.allclose(stock(x), layers(x), atol=1e-6)
