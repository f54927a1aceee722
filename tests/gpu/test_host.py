"""The host's side of calls on a GPU: repeated calls as CUDA graphs (device/cuda_graph.h) with changing contents, addresses, sizes,
streams and captures, by the C API and by stock PyTorch, bit for bit as without graphs; and what a launch costs the host.

    python3 -m pytest -q tests/gpu/test_host.py
    python3 tests/gpu/test_host.py --bench      microseconds of the host with and without graphs, as JSON
"""
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import coil_torch  # noqa: E402
from paths import COIL, REPO, RUNTIME  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
FOLDER = tempfile.TemporaryDirectory(prefix="coil-host-")
MODES = {"never": "0", "measured": "1", "always": "2"}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    def __init__(self, layers=2, width=128, heads=4, vocabulary=1000):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(256, width)
        self.blocks, self.norm = nn.ModuleList(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.t()


class Counter(nn.Module):
    """A few kernels and a copy, with a state."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(64, 256), nn.Linear(256, 33)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(1)
        return self.second(F.gelu(self.first(x))).softmax(-1) * self.count[0]


def target():
    return "cuda:sm_%d%d" % torch.cuda.get_device_capability() if torch.cuda.is_available() else "cuda:sm_90"


def compiled(name, module, args, dynamic=None, device="cuda"):
    source, package = (pathlib.Path(FOLDER.name) / (name + end) for end in (".pt2", ".coil.pt2"))
    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval().to(device), args, dynamic_shapes=dynamic), source)
    done = subprocess.run([str(COIL), "compile", str(source), "--target", target(), "-o", str(package)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return package


@functools.cache
def gpt():
    ids = torch.zeros(2, 24, dtype=torch.int64, device="cuda")
    return compiled("gpt", Gpt(), (ids,), {"ids": {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=2, max=256)}})


@functools.cache
def counter():
    return compiled("counter", Counter(), (torch.randn(8, 64, device="cuda"),), {"x": {0: torch.export.Dim("rows", min=1, max=4096)}})


@functools.cache
def runtime():
    return coil_torch.library(RUNTIME)


def opened(package, mode, device="cuda:0"):
    os.environ["COIL_CUDA_GRAPHS"] = MODES[mode]
    os.environ["COIL_CUDA_TRACE"] = "1"
    try:
        return coil_torch.Model(runtime(), package, device)
    finally:
        del os.environ["COIL_CUDA_GRAPHS"]


def tokens(batch, length, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 1000, (batch, length), generator=generator).cuda()


def wanted(package, calls):
    """What the calls give without graphs; `calls`: lists of tensors."""
    model = opened(package, "never")
    results = [[t.clone() for t in model.run(c)] for c in calls]
    model.close()
    return results


def same(got, want):
    return len(got) == len(want) and all(torch.equal(g, w) for g, w in zip(got, want))


def test_without_graphs_it_is_right():
    ids = tokens(2, 24, 0)
    with torch.no_grad():
        want = Gpt().eval().cuda()(ids)
    assert float((wanted(gpt(), [[ids]])[0][0] - want).abs().max() / want.abs().max()) < 1e-4


@pytest.mark.parametrize("mode", ["measured", "always"])
def test_contents_and_addresses(mode, capfd):
    calls = [[tokens(2, 24, i)] for i in range(12)]  # each with memory of its own
    want, model = wanted(gpt(), calls), opened(gpt(), mode)
    for turn in range(5):
        for c, w in zip(calls, want):
            assert same(model.run(c), w), turn
    fixed = calls[0][0].clone()
    for c, w in zip(calls, want):
        fixed.copy_(c[0])
        assert same(model.run([fixed]), w)
    outputs = [torch.empty_like(want[0][0]) for _ in range(3)]
    for i in range(12):
        call = model.bind(calls[i])
        call.into([outputs[i % 3]])
        model.call(call)
        assert same([outputs[i % 3].clone()], want[i])
    model.close()
    if mode == "always":
        assert "graph of" in capfd.readouterr().err


def test_sizes_come_and_go():
    sizes = [(1 + i % 5, 2 + 7 * i % 50) for i in range(30)]
    calls = [[tokens(*s, i)] for i, s in enumerate(sizes)]
    want, model = wanted(gpt(), calls), opened(gpt(), "always")
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for turn in range(3):
        for c, w in zip(calls, want):
            bound = model.bind(c)
            for _ in range(80):  # enough that the graphs before are idle, and replaced while they may still run
                model.call(bound)
            assert same(model.results(bound), w)
    model.synchronize()
    used = free - torch.cuda.mem_get_info()[0]
    model.close()
    assert used < 256 << 20, f"{used >> 20} MiB more than before"


def test_state_and_copies():
    calls = [[torch.randn(8, 64, device="cuda")] for _ in range(40)]
    want, model = wanted(counter(), calls), opened(counter(), "always")
    for i, (c, w) in enumerate(zip(calls, want)):
        assert same(model.run(c), w), i
    model.close()


def test_streams_in_turn():
    calls = [[tokens(2, 24, i)] for i in range(4)]
    want, model = wanted(gpt(), calls), opened(gpt(), "always")
    streams = [torch.cuda.Stream() for _ in range(3)] + [torch.cuda.default_stream()]
    outputs = [torch.empty_like(w[0]) for w in want]
    torch.cuda.synchronize()
    for turn in range(15):
        for c, y, stream in zip(calls, outputs, streams):
            call = model.bind(c)
            call.into([y])
            with torch.cuda.stream(stream):
                model.call(call)
    torch.cuda.synchronize()
    assert all(same([y], w) for y, w in zip(outputs, want))
    model.close()


def test_threads_with_contexts_of_their_own():
    sizes = [(1, 16), (2, 24), (2, 24), (3, 8)]
    calls = [[[tokens(*s, 10 * k + i)] for i in range(3)] for k, s in enumerate(sizes)]
    want, model, problems = [wanted(gpt(), c) for c in calls], opened(gpt(), "always"), []
    torch.cuda.synchronize()

    def serve(k):
        try:
            context, stream = model.new_context(), torch.cuda.Stream()
            with torch.cuda.stream(stream), torch.no_grad():
                for n in range(90):
                    call = model.bind(calls[k][n % 3])
                    model.call(call, context)
                    got = [t.clone() for t in model.results(call)]
                    stream.synchronize()
                    if not same(got, want[k][n % 3]):
                        problems.append(f"thread {k}, call {n}")
            runtime().coil_context_destroy(context)
        except Exception as error:
            problems.append(f"thread {k}: {error}")

    threads = [threading.Thread(target=serve, args=(k,)) for k in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    model.close()
    assert not problems, problems[:5]


def test_captured_by_the_caller_beside_graphs_of_its_own():
    want, model = wanted(gpt(), [[tokens(2, 24, i)] for i in range(3)]), opened(gpt(), "always")
    ids, y = tokens(2, 24, 0), torch.empty_like(want[0][0])
    call = model.bind([ids])
    call.into([y])
    for _ in range(8):
        model.call(call)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model.call(call)
    for i in range(3):
        ids.copy_(tokens(2, 24, i))
        y.zero_()
        graph.replay()
        assert same([y.clone()], want[i])
        y.zero_()
        model.call(call)
        assert same([y.clone()], want[i])
    model.synchronize()
    model.close()


def test_a_graph_is_made_while_another_thread_captures():
    want, model = wanted(gpt(), [[tokens(3, 9, 1)]]), opened(gpt(), "always")
    context, stream, go, done, problems = model.new_context(), torch.cuda.Stream(), threading.Event(), threading.Event(), []
    x = torch.randn(100, device="cuda")
    call = model.bind([tokens(3, 9, 1)])
    call.into([torch.empty_like(want[0][0])])
    with torch.cuda.stream(stream):
        model.call(call, context)  # all memory is there
    stream.synchronize()

    def serve():
        go.wait()
        try:
            with torch.cuda.stream(stream):
                for _ in range(8):
                    model.call(call, context)
        except Exception as error:
            problems.append(str(error))
        done.set()

    thread = threading.Thread(target=serve)
    thread.start()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # in the mode that forbids every thread what could disturb it
        y = x * 2
        go.set()
        done.wait()
        y = y + 1
    thread.join()
    graph.replay()
    torch.cuda.synchronize()
    assert not problems, problems
    assert torch.equal(y, x * 2 + 1) and same(call.owned, want[0])
    runtime().coil_context_destroy(context)
    model.close()


def test_a_fault_in_the_data():
    good, bad = tokens(2, 24, 0), tokens(2, 24, 0)
    bad[1, 5] = 1000
    want, model = wanted(gpt(), [[good]]), opened(gpt(), "always")
    for _ in range(8):
        assert same(model.run([good]), want[0])
    with pytest.raises(coil_torch.Error) as error:
        model.run([bad])
    assert error.value.code == 210
    assert same(model.run([good]), want[0])
    model.close()


@pytest.mark.parametrize("mode", ["measured", "always"])
def test_stock_pytorch(mode):
    calls = [[tokens(2, 24, i)] for i in range(10)]
    want = wanted(gpt(), calls)
    os.environ["COIL_CUDA_GRAPHS"] = MODES[mode]
    try:
        loaded = torch._inductor.aoti_load_package(str(gpt()))
        for turn in range(4):
            kept = []
            for c, w in zip(calls, want):
                y = loaded.loader.run([c[0].clone()])
                assert same(y, w), turn
                kept.append(y)  # so that the next result lies elsewhere
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for c, w in zip(calls, want):
                assert same(loaded.loader.run(c), w)
    finally:
        del os.environ["COIL_CUDA_GRAPHS"]


# ---- What a launch costs ----------------------------------------------------------------------------------------------------


def chain(count):
    """`count` kernels: products with reductions between, so that nothing fuses."""

    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(count))

        def forward(self, x):
            for layer in self.layers:
                x = F.relu(layer(x))
            return x

    return Chain(), (torch.randn(4, 256, device="cuda"),)


def bench_program(name, package, seconds=0.4):
    row = {"program": name}
    for label, mode in (("without", "0"), ("with", "1")):
        env = {**os.environ, "COIL_CUDA_GRAPHS": mode}
        done = subprocess.run([str(COIL), "bench", str(package), "--device", "cuda:0", "--seconds", str(seconds), "--json"], capture_output=True, text=True, env=env)
        if done.returncode:
            return row | {"failed": done.stderr[-500:]}
        report = json.loads(done.stdout)
        row[label] = {k: round(report[k]["median"], 2) for k in ("enqueue_us", "device_us", "latency_us")} | {"host_least": round(report["enqueue_us"]["min"], 2), "graphs": report["graphs"]}
    inspected = subprocess.run([str(COIL), "inspect", str(package), "--json"], capture_output=True, text=True)
    try:
        row["launches"] = len(json.loads(inspected.stdout)["kernels"])
        row["host_us_a_launch"] = {k: round(row[k]["enqueue_us"] / row["launches"], 3) for k in ("without", "with")}
    except (ValueError, KeyError):
        pass
    return row


def bench():
    programs = {f"chain_{n}": chain(n) for n in (1, 2, 3, 4, 6, 10)}
    programs["gpt_2_layers_1_token"] = (Gpt(2), (torch.zeros(1, 2, dtype=torch.int64, device="cuda"),))
    programs["gpt_12_layers_768_2_tokens_bf16"] = (Gpt(12, 768, 12, 50257).bfloat16(), (torch.zeros(1, 2, dtype=torch.int64, device="cuda"),))
    programs["gpt_12_layers_768_8x128_bf16"] = (Gpt(12, 768, 12, 50257).bfloat16(), (torch.zeros(8, 128, dtype=torch.int64, device="cuda"),))
    rows = []
    for name, (module, args) in programs.items():
        rows.append(bench_program(name, compiled(name, module, args)))
        print(json.dumps(rows[-1]), flush=True)
    return rows


if __name__ == "__main__":
    if "--bench" in sys.argv:
        bench()
    else:
        sys.exit(pytest.main(["-q", __file__]))
