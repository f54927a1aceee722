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
    done = subprocess.run([str(COIL), "compile", str(source), "--target", targets, "--no-libraries", "-o", str(made)], capture_output=True, text=True)
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
    """More contexts of a model do not bring its weights again. What one of them brings besides (PyTorch's own, the driver's) is not ours to judge."""
    library = coil_torch.library(RUNTIME)
    models = [coil_torch.Model(library, package, f"cuda:{d}") for d in range(2)]
    inputs = [torch.randn(3, WIDTH, device=f"cuda:{d}") for d in range(2)]
    wants = [wanted(x) for x in inputs]  # not in the threads: they share the generator of the weights

    def work(d, contexts):
        for context in contexts[d]:
            got = run(models[d], inputs[d], context)
            torch.cuda.synchronize(d)
            assert float((got - wants[d]).abs().max() / wants[d].abs().max()) < 1e-4

    def memory():
        torch.cuda.empty_cache()
        return [used(d) for d in range(2)]

    contexts = [[models[d].new_context()] for d in range(2)]
    both(lambda d: work(d, contexts))
    one = memory()
    more = [[models[d].new_context() for _ in range(4)] for d in range(2)]
    both(lambda d: work(d, more))
    five = memory()
    for d in range(2):
        grown = five[d] - one[d]
        assert grown < WEIGHTS * 0.5, f"cuda:{d}: four more contexts took {grown >> 20} MiB, the weights are {WEIGHTS >> 20} MiB"
        [library.coil_context_destroy(c) for c in contexts[d] + more[d]]
        models[d].close()
