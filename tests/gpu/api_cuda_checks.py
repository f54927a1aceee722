"""Checks of the API about streams, graphs of CUDA and the device's memory."""

import ctypes
import os
import subprocess
import threading

import torch
from torch import nn
from torch.export import Dim

from api_check import check, close, cuda_check, expected, net, package, refused


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
