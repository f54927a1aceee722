"""What the C API, the command and stock PyTorch have to do on a CUDA device beyond right numbers. models.py runs them as api/NAME.

A check takes program_checks.Bench, raises when something is wrong, and may return a note for its row. On the CPU those that are about
CUDA say so and do nothing.
"""

import ctypes
import functools
import json
import os
import subprocess
import threading
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import coil_torch
from paths import COIL, REPO

CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def cuda_check(function):
    @functools.wraps(function)
    def on_cuda(bench):
        return function(bench) if bench.cuda else "about CUDA only"

    return check(on_cuda)


class Net(nn.Module):
    """Two layers with a softmax: a few kernels of different kinds."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Linear(64, 256), nn.Linear(256, 33)

    def forward(self, x):
        return self.b(F.gelu(self.a(x))).softmax(-1)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count.add_(1)
        return x * self.count


def package(bench, name, module, args, dynamic=None, target=None):
    source, path = bench.path(f"api/{name}", ".pt2"), bench.path(f"api/{name}", ".coil.pt2")
    torch.export.save(torch.export.export(module, args, dynamic_shapes=dynamic), source)
    bench.compile(source, path, target=target)
    return path


def net(bench, name, target=None):
    return package(bench, name, Net(), (torch.randn(4, 64),), {"x": {0: Dim("batch", min=1, max=4096)}}, target)


def expected(bench, x):
    return Net().to(x.device)(x)


def close(got, want, tolerance=1e-4):
    error = float((got.double() - want.to(got.device).double()).abs().max() / want.double().abs().max())
    assert error <= tolerance, f"relative error {error:.2e}"


def refused(bench, call, *codes, text=""):
    try:
        call()
    except coil_torch.Error as error:
        assert error.code in codes, f"wanted COIL-E{codes}, got: {error}"
        assert text.lower() in str(error).lower(), f"'{text}' is not in: {error}"
        return str(error)
    raise AssertionError(f"accepted; wanted COIL-E{codes}")


@check
def describes_itself(bench):
    model = bench.open(net(bench, "describes"))
    info = model.info(0)
    assert info.name.decode() == "x" and info.rank == 2 and info.dims[0].max == 4096, "the description of the input"
    assert info.device_type == (1 if bench.cuda else 0)
    if bench.cuda:
        assert bench.lib.coil_cuda_device_count() == torch.cuda.device_count()
        assert model.isa() == bench.target.removeprefix("cuda:"), model.isa()
    return model.isa()


@check
def wrong_inputs(bench):
    model, d = bench.open(net(bench, "wrong")), bench.device
    messages = [refused(bench, lambda x=x: model.run([x]), 202, 203, 204, 205) for x in (
        torch.randn(4, 65, device=d), torch.randn(4097, 64, device=d), torch.randn(4, 64, device=d).double(), torch.randn(64, device=d), torch.randn(0, 64, device=d))]
    x = torch.randn(7, 64, device=d)
    close(model.run([x])[0], expected(bench, x))
    return messages


@cuda_check
def wrong_memory(bench):
    """Addresses of the CPU never reach a kernel, whatever the caller says that they are."""
    model = bench.open(net(bench, "memory"))
    host, x = torch.randn(4, 64), torch.randn(4, 64, device=bench.device)
    messages = [refused(bench, lambda: model.run([host]), 202, 203, 204, 206)]
    call = model.bind([host])
    call.inputs[0].device_type = 1
    messages.append(refused(bench, lambda: model.call(call), 206))
    call = model.bind([x])
    call.into([torch.empty(4, 33)])
    call.outputs[0].device_type = 1
    messages.append(refused(bench, lambda: model.call(call), 202, 203, 204, 205, 206, 207))
    call = model.bind([x])
    call.inputs[0].data += 2
    messages.append(refused(bench, lambda: model.call(call), 206, 207))
    close(model.run([x])[0], expected(bench, x))
    return messages


@cuda_check
def wrong_device(bench):
    messages = []
    path = net(bench, "device")
    messages.append(refused(bench, lambda: bench.open(path, "cuda:99"), 307))
    messages.append(refused(bench, lambda: bench.open(path, "cpu"), 303))
    messages.append(refused(bench, lambda: bench.open(path, "tpu"), 402, 303, 307))
    messages.append(refused(bench, lambda: bench.open(net(bench, "device_cpu", "cpu"), "cuda:0"), 303))
    other = net(bench, "device_other", "cuda:sm_100" if "sm_100" not in bench.target else "cuda:sm_90")
    messages.append(refused(bench, lambda: bench.open(other), 303, text=bench.target.removeprefix("cuda:")))
    return messages


@cuda_check
def older_architecture(bench):
    """Code for sm_80 only: runs here when the package has a form that can, else is refused by name."""
    path = net(bench, "older", "cuda:sm_80")
    try:
        model = bench.open(path)
    except coil_torch.Error as error:
        assert error.code == 303 and "sm_80" in str(error), error
        return str(error)
    x = torch.randn(7, 64, device=bench.device)
    close(model.run([x])[0], expected(bench, x))
    return f"runs as {model.isa()}"


@cuda_check
def ptx_for_later_chips(bench):
    """The driver compiles it while it loads the package."""
    try:
        model = bench.open(net(bench, "ptx", "cuda:compute_80"))
    except coil_torch.Error as error:  # a driver older than NVRTC
        assert "PTX" in str(error), error
        return str(error)
    x = torch.randn(7, 64, device=bench.device)
    close(model.run([x])[0], expected(bench, x))
    return f"runs as {model.isa()}"


@cuda_check
def two_targets(bench):
    path = net(bench, "targets", f"cpu,{bench.target}")
    x = torch.randn(7, 64)
    want = expected(bench, x)
    on_cpu, on_gpu = bench.open(path, "cpu"), bench.open(path, bench.device)
    assert not on_cpu.on_cuda and on_gpu.on_cuda
    close(on_cpu.run([x])[0], want)
    close(on_gpu.run([x.to(bench.device)])[0], want)
    loaded = torch._inductor.aoti_load_package(str(path))
    close(loaded(x), want)
    return [on_cpu.isa(), on_gpu.isa()]


@cuda_check
def stream_order(bench):
    """Work before and after on the same side stream, with no synchronisation between."""
    model = bench.open(net(bench, "stream"))
    x = torch.randn(512, 64, device=bench.device)
    slow = torch.randn(4096, 4096, device=bench.device)
    stream = torch.cuda.Stream()
    for _ in range(5):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            y = torch.zeros_like(x)
            for _ in range(8):
                slow = (slow @ slow).sin_()
            y.copy_(x + slow[:1, :1] * 0)
            call = model.bind([y])
            model.call(call)
            result = model.results(call)[0] * 2
            y.zero_()
        stream.synchronize()
        close(result, expected(bench, x) * 2)


@cuda_check
def contexts_side_by_side(bench):
    """Four threads, each with a context and a stream of its own, share one model."""
    model, problems = bench.open(net(bench, "threads")), []
    inputs = [torch.randn(64 * (i + 1), 64, device=bench.device) for i in range(4)]
    wanted = [expected(bench, x) for x in inputs]
    torch.cuda.synchronize()

    def serve(i):
        try:
            context, stream = model.new_context(), torch.cuda.Stream()
            with torch.cuda.stream(stream), torch.no_grad():
                for n in range(60):
                    call = model.bind([inputs[i]])
                    model.call(call, context)
                    got = model.results(call)[0].clone()
                    stream.synchronize()
                    if n % 20 == 0:
                        close(got, wanted[i])
            bench.lib.coil_context_destroy(context)
        except Exception as error:
            problems.append(f"thread {i}: {error}")

    threads = [threading.Thread(target=serve, args=(i,)) for i in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not problems, problems


@cuda_check
def one_context_on_two_streams(bench):
    model = bench.open(net(bench, "streams"))
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    inputs = [torch.randn(2048, 64, device=bench.device) for _ in streams]
    outputs = [torch.empty(2048, 33, device=bench.device) for _ in streams]
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, x, y in zip(streams, inputs, outputs):
            call = model.bind([x])
            call.into([y])
            with torch.cuda.stream(stream):
                model.call(call)
    torch.cuda.synchronize()
    for x, y in zip(inputs, outputs):
        close(y, expected(bench, x))


@cuda_check
def cuda_graph(bench):
    """Capturable: replays see new contents of the inputs."""
    model = bench.open(net(bench, "graph"))
    x, y = torch.randn(32, 64, device=bench.device), torch.empty(32, 33, device=bench.device)
    call = model.bind([x])
    call.into([y])
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        model.call(call)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        model.call(call)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        y.fill_(7)
        graph.replay()
        torch.cuda.synchronize()
        close(y, expected(bench, x))


@cuda_check
def stock_in_a_cuda_graph(bench):
    loaded = torch._inductor.aoti_load_package(str(net(bench, "stock_graph")))
    x = torch.randn(32, 64, device=bench.device)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        loaded(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        y = loaded(x)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        close(y, expected(bench, x))


@cuda_check
def stock_on_a_side_stream(bench):
    loaded = torch._inductor.aoti_load_package(str(net(bench, "stock_stream")))
    x = torch.randn(512, 64, device=bench.device)
    slow, stream = torch.randn(4096, 4096, device=bench.device), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        y = torch.zeros_like(x)
        for _ in range(8):
            slow = (slow @ slow).sin_()
        y.copy_(x + slow[:1, :1] * 0)
        result = loaded(y)
        y.zero_()
    stream.synchronize()
    close(result, expected(bench, x))
    for bad in (x.cpu(), x.double(), x[:, :63].contiguous()):
        try:
            loaded(bad)
            torch.cuda.synchronize()
        except RuntimeError:
            continue
        raise AssertionError(f"accepted {bad.dtype} {list(bad.shape)} on {bad.device}")
    close(loaded(x), expected(bench, x))


@check
def state(bench):
    model = bench.open(package(bench, "state", Counter(), (torch.randn(3),)))
    x = torch.ones(3, device=bench.device)
    other = model.new_context()
    seen = [float(model.run([x])[0][0]) for _ in range(3)]
    call = model.bind([x])
    model.call(call, other)
    model.synchronize(other)
    seen.append(float(model.results(call)[0][0]))
    assert seen == [1, 2, 3, 4], seen
    bench.lib.coil_context_destroy(other)
    model.reset_state()
    assert float(model.run([x])[0][0]) == 1


@check
def own_memory(bench):
    """coil_alloc and the copies, without torch's memory."""
    model = bench.open(net(bench, "own"))
    x, y = torch.randn(7, 64), torch.empty(7, 33)
    data = ctypes.c_void_p()
    model.check(bench.lib.coil_alloc(model.model, ctypes.c_size_t(x.nbytes), ctypes.byref(data)))
    assert data.value % 64 == 0
    model.check(bench.lib.coil_copy_to_device(model.context, data, ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(x.nbytes)))
    call = model.bind([x])
    call.inputs[0].data = data.value
    call.inputs[0].device_type = 1 if bench.cuda else 0
    model.call(call)
    model.check(bench.lib.coil_copy_from_device(model.context, ctypes.c_void_p(y.data_ptr()), ctypes.c_void_p(call.outputs[0].data), ctypes.c_size_t(y.nbytes)))
    close(y, expected(bench, x))
    bench.lib.coil_free(model.model, data)


@cuda_check
def out_of_memory(bench):
    """A call that needs 800 GB says so, and the next one is right."""

    class Wide(nn.Module):
        def forward(self, x):
            return x[:, None] + torch.arange(1 << 20, device=x.device)

    model = bench.open(package(bench, "memory_out", Wide(), (torch.randn(2),), {"x": {0: Dim("n", min=1, max=1 << 20)}}))
    message = refused(bench, lambda: model.run([torch.randn(200_000, device=bench.device)]), 401)
    x = torch.randn(3, device=bench.device)
    assert torch.equal(model.run([x])[0], x[:, None] + torch.arange(1 << 20, device=bench.device))
    return message


@cuda_check
def gives_memory_back(bench):
    path = net(bench, "leak")
    x = torch.randn(4096, 64, device=bench.device)
    used = []
    for _ in range(12):
        model = bench.open(path)
        model.run([x])
        model.close()
        torch.cuda.synchronize()
        used.append(process_memory())
    if None in used:
        return "nvidia-smi tells no memory of processes here"
    assert used[-1] <= used[2] + 2, f"MiB after each open, run and close: {used}"
    return used


def process_memory():
    """MiB of GPU memory that this process holds: the device's total changes with the workers beside it."""
    done = subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        pid, used = (field.strip() for field in line.split(","))
        if pid == str(os.getpid()) and used.isdigit():
            return int(used)
    return None


@check
def same_bits_each_time(bench):
    """Sums over blocks and split products come out the same in each call."""

    class Sums(nn.Module):
        def forward(self, x, i):
            return x.sum(), x.var(0), x.t() @ x, torch.zeros(7, x.shape[1], device=x.device).index_add(0, i, x)

    x, i = torch.randn(50_001, 33), torch.randint(0, 7, (50_001,))
    model = bench.open(package(bench, "bits", Sums(), (x, i)))
    inputs = [x.to(bench.device), i.to(bench.device)]
    first = model.run(inputs)
    for _ in range(10):
        assert all(torch.equal(a, b) for a, b in zip(first, model.run(inputs)))


@check
def digits_accuracy(bench):
    """The example as it is checked in, on the images that training did not see."""
    path = bench.path("api/digits", ".coil.pt2")
    bench.compile(REPO / "examples/digits/digits.pt2", path)
    with np.load(REPO / "examples/digits/digits_test.npz") as data:
        logits = bench.open(path).run([torch.from_numpy(data["in_0"]).to(bench.device)])[0]
        accuracy = float((logits.argmax(1).cpu() == torch.from_numpy(data["labels"])).double().mean())
    assert accuracy >= 0.97, accuracy
    return round(accuracy, 4)


@check
def command_run(bench):
    path, x = net(bench, "command"), torch.randn(7, 64)
    arrays, out = bench.path("api/command_in", ".npz"), bench.path("api/command_out", ".npz")
    np.savez(arrays, in_0=x.numpy())
    start = time.perf_counter()
    done = subprocess.run([COIL, "run", path, "--device", bench.device, "--input", arrays, "--output", out], capture_output=True, text=True, timeout=60)
    seconds = time.perf_counter() - start
    assert done.returncode == 0, done.stderr[-800:]
    with np.load(out) as data:
        close(torch.from_numpy(data["out_0"]), expected(bench, x))
    if bench.cuda:
        hidden = subprocess.run([COIL, "run", path, "--device", "cuda:0", "--input", arrays], capture_output=True, text=True, timeout=60, env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))
        assert hidden.returncode == 7 and ("COIL-E307" in hidden.stderr or "COIL-E306" in hidden.stderr), hidden.stderr[-500:]
        lost = subprocess.run([COIL, "run", path, "--device", "cuda:0", "--input", arrays], capture_output=True, text=True, timeout=60, env=dict(os.environ, COIL_CUDA_DRIVER="libno-such-driver.so"))
        assert lost.returncode == 7 and "COIL-E306" in lost.stderr, lost.stderr[-500:]
        return [f"{seconds:.3f} s", hidden.stderr.strip()[-300:], lost.stderr.strip()[-300:]]
    return f"{seconds:.3f} s"


@check
def command_bench(bench):
    arrays = bench.path("api/bench_in", ".npz")
    np.savez(arrays, in_0=np.ones((64, 64), np.float32))
    done = subprocess.run([COIL, "bench", net(bench, "bench"), "--device", bench.device, "--input", arrays, "--seconds", "0.3", "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-800:]
    report = json.loads(done.stdout)
    if bench.cuda:
        assert report["enqueue_us"]["median"] > 0 and report["device_us"]["median"] > 0
    return {k: report[k] for k in ("load_ms", "first_call_us", "enqueue_us", "device_us") if k in report}
