"""One package on several GPUs of one process: both at work at once, from threads of their own, by the C API and by stock PyTorch;
weights go to each device once, whatever the number of contexts.

    python3 tests/gpu/test_several_devices.py        needs two GPUs; says so where there are fewer
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import pytest
import torch
from torch import nn

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import coil_torch  # noqa: E402
from paths import COIL, RUNTIME  # noqa: E402

DEVICES = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = pytest.mark.skipif(DEVICES < 2, reason=f"needs two GPUs, this machine has {DEVICES}")
FOLDER = tempfile.TemporaryDirectory(prefix="coil-devices-")
WIDTH, LAYERS = 2048, 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.softmax(-1)


WEIGHTS = LAYERS * (WIDTH * WIDTH + WIDTH) * 4


@pytest.fixture(scope="module")
def package():
    source, made = pathlib.Path(FOLDER.name) / "net.pt2", pathlib.Path(FOLDER.name) / "net.coil.pt2"
    args = (torch.randn(4, WIDTH, device="cuda:0"),)
    torch.export.save(torch.export.export(Net().cuda(), args, dynamic_shapes={"x": {0: torch.export.Dim("rows", min=1, max=4096)}}), source)
    targets = ",".join(sorted({"cuda:sm_%d%d" % torch.cuda.get_device_capability(d) for d in range(DEVICES)}))
    done = subprocess.run([str(COIL), "compile", str(source), "--target", targets, "-o", str(made)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return made


def wanted(x):
    with torch.no_grad():
        return Net().to(x.device)(x)


def used(device):
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def run(model, x, context=None):
    """On torch's current stream of x's device."""
    call = model.bind([x])
    model.call(call, context)
    return model.results(call)[0].clone()


def both(work):
    """work(device number) in a thread for each device; what went wrong."""
    problems = []

    def guarded(d):
        try:
            torch.cuda.set_device(d)
            with torch.no_grad():
                work(d)
        except Exception as error:
            problems.append(f"cuda:{d}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=guarded, args=(d,)) for d in range(2)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not problems, problems


def test_both_at_once(package):
    library = coil_torch.library(RUNTIME)
    models = [coil_torch.Model(library, package, f"cuda:{d}") for d in range(2)]
    inputs = [[torch.randn(rows, WIDTH, device=f"cuda:{d}") for rows in (1, 7, 300)] for d in range(2)]
    expected = [[wanted(x) for x in xs] for xs in inputs]

    def work(d):
        stream = torch.cuda.Stream(d)
        with torch.cuda.stream(stream):
            for n in range(60):
                i = n // 10 % 3  # runs of one size: graphs, too
                got = run(models[d], inputs[d][i])
                stream.synchronize()
                error = float((got - expected[d][i]).abs().max() / expected[d][i].abs().max())
                assert error < 1e-4, (n, error)

    both(work)
    [m.close() for m in models]


def test_they_do_not_wait_for_each_other(package):
    library = coil_torch.library(RUNTIME)
    models = [coil_torch.Model(library, package, f"cuda:{d}") for d in range(2)]
    inputs = [torch.randn(4096, WIDTH, device=f"cuda:{d}") for d in range(2)]
    times = {}

    def work(d):
        stream = torch.cuda.Stream(d)
        with torch.cuda.stream(stream):
            call = models[d].bind([inputs[d]])
            for calls in (5, 30):
                stream.synchronize()
                start = time.perf_counter()
                for _ in range(calls):
                    models[d].call(call)
                stream.synchronize()
                times[d] = time.perf_counter() - start

    for d in range(2):
        torch.cuda.set_device(d)
        work(d)
    alone = dict(times)
    both(work)
    torch.cuda.set_device(0)
    assert max(times.values()) < 1.5 * max(alone.values()), f"alone {alone}, together {times}"
    [m.close() for m in models]


def test_weights_once_a_device(package):
    library = coil_torch.library(RUNTIME)
    torch.cuda.empty_cache()  # what PyTorch still holds would count against the growth
    before = [used(d) for d in range(2)]
    models = [coil_torch.Model(library, package, f"cuda:{d}") for d in range(2)]
    contexts = [[models[d].new_context() for _ in range(5)] for d in range(2)]
    inputs = [torch.randn(3, WIDTH, device=f"cuda:{d}") for d in range(2)]
    wants = [wanted(x) for x in inputs]  # not in the threads: they share the generator of the weights

    def work(d):
        want = wants[d]
        for context in contexts[d]:
            got = run(models[d], inputs[d], context)
            torch.cuda.synchronize(d)
            assert float((got - want).abs().max() / want.abs().max()) < 1e-4

    both(work)
    torch.cuda.empty_cache()
    for d in range(2):
        grown = used(d) - before[d]
        assert WEIGHTS * 0.9 < grown < WEIGHTS * 1.9, f"cuda:{d}: {grown >> 20} MiB for weights of {WEIGHTS >> 20} MiB"
        [library.coil_context_destroy(c) for c in contexts[d]]
        models[d].close()


def test_tensors_of_another_device_are_refused(package):
    model = coil_torch.Model(coil_torch.library(RUNTIME), package, "cuda:1")
    with torch.cuda.device(1), pytest.raises(coil_torch.Error) as error:
        model.run([torch.randn(3, WIDTH, device="cuda:0")])
    assert error.value.code == 206 and "cuda:0" in str(error.value)
    x = torch.randn(3, WIDTH, device="cuda:1")
    with torch.cuda.device(1):
        got = model.run([x])[0]
    assert float((got - wanted(x)).abs().max()) < 1e-4
    model.close()


def test_stock_pytorch_on_both(package):
    loaded = [torch._inductor.aoti_load_package(str(package), device_index=d) for d in range(2)]
    inputs = [torch.randn(5, WIDTH, device=f"cuda:{d}") for d in range(2)]
    wants = [wanted(x) for x in inputs]

    def work(d):
        want = wants[d]
        for _ in range(20):
            got = loaded[d].loader.run([inputs[d]])[0]
            assert got.device == inputs[d].device
            torch.cuda.synchronize(d)
            assert float((got - want).abs().max() / want.abs().max()) < 1e-4

    both(work)


if __name__ == "__main__":
    if DEVICES < 2:
        print(f"skipped: needs two GPUs, this machine has {DEVICES}")
        sys.exit(0)
    sys.exit(pytest.main(["-q", __file__]))
