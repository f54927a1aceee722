"""What the C API, the command and stock PyTorch have to do on a CUDA device beyond right numbers. models.py runs them as api/NAME.

A check takes program_checks.Bench, raises when something is wrong, and may return a note for its row. On the CPU those that are about
CUDA say so and do nothing.
"""

import json
import os
import subprocess
import time

import numpy as np
import torch
from torch import nn

import api_cuda_checks  # noqa: F401 (it adds checks)
import coil_torch
from api_check import CHECKS, Counter, check, close, cuda_check, expected, net, package, refused  # noqa: F401 (models.py reads CHECKS)
from paths import COIL, REPO


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
