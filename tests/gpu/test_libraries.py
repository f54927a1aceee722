"""Products and convolutions that packages leave to cuBLASLt and cuDNN (device/cuda_blas.h, cuda_dnn.h) on a GPU, beside torch in float64
and beside the same programs compiled with --no-libraries. Needs a built coil (paths.py) and an sm_90 GPU.

    python3 -m pytest -q tests/gpu/test_libraries.py
    python3 tests/gpu/test_libraries.py --bench [PROBLEM...]   own kernels beside the library's, in microseconds
    python3 tests/gpu/test_libraries.py --compile              every program; needs no GPU
"""
import atexit
import concurrent.futures
import dataclasses
import functools
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile

import pytest
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import coil_torch  # noqa: E402
import cuda_kernels as ck  # noqa: E402
from paths import COIL, RUNTIME  # noqa: E402

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
pytestmark = pytest.mark.skipif(not HOPPER, reason="needs an sm_90 GPU")

BLAS, DNN = "libcublasLt.so.13", "libcudnn.so.9"
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
TOLERANCE = {"f32": 1e-5, "bf16": 1e-2, "f16": 2e-3}  # of the largest result
# The rows of DYNAMIC that go to cuBLASLt, by the model of src/templates/cuda_library.cc: it must gain, and what it needs is bounded.
FEWEST_SERVED, MOST_SERVED = 1535, 43690
MOST_ROWS = MOST_SERVED + 1


@dataclasses.dataclass(frozen=True)
class Problem:
    """linear: x @ weight.T + bias, sizes m, n, k. matmul: a @ b, the same sizes. conv: a convolution and ReLU; sizes are batch, channels,
    channels of the result, pixels a side, kernel, stride."""
    kind: str
    dtype: str
    sizes: tuple
    library: str = ""          # what the package must say that it uses; of a convolution: may say, where the tuner finds cuDNN's kernels the faster ones
    dynamic: bool = False      # in the first size
    channels_last: bool = True

    def __str__(self):
        return f"{self.kind}-{self.dtype}-{'x'.join(map(str, self.sizes))}" + ("-dynamic" if self.dynamic else "") + ("" if self.channels_last else "-nchw")


# What the libraries serve (src/templates/cuda_library.cc), then what they do not.
DYNAMIC = Problem("linear", "f32", (2048, 1536, 1540), BLAS, dynamic=True)
CONV = Problem("conv", "f32", (32, 128, 128, 28, 3, 1), DNN)
PROBLEMS = [
    DYNAMIC,
    Problem("linear", "f32", (2048, 2048, 2048), BLAS),
    Problem("linear", "f32", (1536, 4096, 1536), BLAS),
    Problem("linear", "f32", (4096, 4096, 4096), BLAS),
    Problem("matmul", "f32", (4097, 1541, 1539), BLAS),
    CONV,
    Problem("conv", "f32", (16, 60, 68, 32, 3, 1), DNN),
    Problem("conv", "f32", (24, 128, 256, 56, 3, 2), DNN),
    Problem("conv", "f32", (32, 64, 512, 64, 3, 1), DNN),
    Problem("conv", "f32", (64, 904, 64, 16, 3, 1), DNN),
    Problem("conv", "f32", (32, 64, 72, 28, 3, 1), DNN, dynamic=True),
    Problem("conv", "f32", (32, 128, 128, 28, 3, 1), DNN, channels_last=False),
    Problem("linear", "bf16", (17, 96, 40)),
    Problem("linear", "bf16", (64, 4096, 4096)),
    Problem("linear", "f32", (98, 512, 4608)),
    Problem("matmul", "f32", (1537, 1541, 1539)),
    Problem("conv", "f32", (4, 64, 64, 28, 3, 1)),
    Problem("conv", "bf16", (32, 256, 256, 14, 3, 1)),
]
# Outside of the tables: own kernels beside torch, for whoever moves their borders.
OTHERS = [Problem("linear", d, s) for d, s in [
    ("f16", (33, 2048, 2056)), ("bf16", (64, 14336, 4096)), ("bf16", (64, 4096, 14336)), ("bf16", (128, 4096, 4096)), ("bf16", (128, 4096, 14336)),
    ("bf16", (256, 4096, 4096)), ("bf16", (560, 1280, 3420)), ("bf16", (1024, 3072, 768)), ("bf16", (1024, 768, 3072)), ("bf16", (512, 1024, 1024)),
    ("bf16", (2048, 4096, 4096)), ("bf16", (2048, 1280, 3420)), ("f32", (512, 512, 512)), ("f32", (256, 1024, 4096)), ("f32", (1024, 1024, 1024)),
    ("f32", (1280, 1280, 1280)), ("f32", (6144, 4096, 4096))]]
OTHERS += [Problem("linear", "bf16", (48, 4096, 4096), dynamic=True), Problem("conv", "bf16", (8, 128, 136, 28, 3, 1), dynamic=True),
           Problem("conv", "bf16", (8, 128, 128, 28, 3, 1), channels_last=False)]
OTHERS += [Problem("conv", d, s) for d, s in [
    ("bf16", (32, 512, 512, 7, 3, 1)), ("f16", (8, 256, 512, 28, 3, 2)), ("bf16", (32, 1024, 2048, 14, 1, 2)), ("bf16", (32, 64, 64, 56, 3, 1)),
    ("bf16", (32, 1024, 256, 14, 1, 1)), ("bf16", (2, 256, 256, 14, 3, 1)), ("bf16", (2, 512, 512, 7, 3, 1)), ("f32", (2, 64, 64, 56, 3, 1)),
    ("f32", (2, 256, 256, 14, 3, 1)), ("f32", (8, 128, 128, 28, 3, 1)), ("f32", (16, 128, 128, 28, 3, 1)), ("f32", (32, 256, 256, 14, 3, 1)),
    ("f32", (32, 64, 32, 56, 3, 1))]]


class Product(torch.nn.Module):
    def forward(self, a, b):
        return a @ b


def program(problem):
    """(module, inputs) on the CPU."""
    torch.manual_seed(sum(problem.sizes))
    if problem.kind == "conv":
        batch, channels, results, side, kernel, stride = problem.sizes
        module = torch.nn.Sequential(torch.nn.Conv2d(channels, results, kernel, stride, kernel // 2), torch.nn.ReLU())
        inputs = [torch.randn(batch, channels, side, side)]
        if problem.channels_last:
            inputs = [inputs[0].to(memory_format=torch.channels_last)]
    else:
        m, n, k = problem.sizes
        module = Product() if problem.kind == "matmul" else torch.nn.Linear(k, n)
        inputs = [torch.randn(m, k), torch.randn(k, n)] if problem.kind == "matmul" else [torch.randn(m, k)]
    return module.to(TYPES[problem.dtype]).eval(), [x.to(TYPES[problem.dtype]) for x in inputs]


class Packages:
    """Each problem's package and the one without libraries, compiled in the background from the beginning."""

    def __init__(self, problems):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="coil-libraries-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        pool = concurrent.futures.ThreadPoolExecutor(max(1, min(8, (os.cpu_count() or 2) - 1)))
        self.made = {}
        for p in problems:
            module, inputs = program(p)
            shapes = ({0: torch.export.Dim("rows", min=1, max=5000 if p.kind == "conv" else MOST_ROWS)},) if p.dynamic else None
            torch.export.save(torch.export.export(module, tuple(inputs), dynamic_shapes=shapes), self.path(p, "program"))
            timed = ["--tune", "fast", "--tune-budget", "20s"] if p.library == DNN else []
            for kind, options in (("with", timed), ("own", ["--no-libraries"])):
                self.made[p, kind] = pool.submit(self.compile, self.path(p, "program"), self.path(p, kind), options)

    def path(self, problem, kind):
        return self.folder / f"{problem}.{kind}.pt2"

    @staticmethod
    def compile(source, package, options):
        command = [COIL, "compile", source, "--target", "cuda:sm_90", "-o", package, "--threads", 1, *options]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}"
        return package

    def get(self, problem, kind):
        return self.made[problem, kind].result()

    def fresh(self, problem):
        """A copy of the package, whose code has not looked for libraries yet."""
        copy = self.folder / f"copy{len(list(self.folder.iterdir()))}.pt2"
        shutil.copyfile(self.get(problem, "with"), copy)
        return copy


@functools.cache
def packages():
    return Packages(PROBLEMS)


@functools.cache
def runtime():
    return coil_torch.library(RUNTIME)


def open_model(package):
    return coil_torch.Model(runtime(), package, "cuda:0")


def library_path(name):
    """The library in torch's own packages; "" without them: then coil looks for it."""
    for place in filter(None, sys.path):
        for path in sorted(glob.glob(os.path.join(place, "nvidia/*/lib", name))):
            return path
    return ""


def find_libraries():
    for variable, name in (("COIL_CUBLASLT", BLAS), ("COIL_CUDNN", DNN)):
        os.environ[variable] = library_path(name)


@pytest.fixture(autouse=True)
def traced_libraries(monkeypatch):
    monkeypatch.setenv("COIL_CUDA_TRACE", "1")
    for variable, name in (("COIL_CUBLASLT", BLAS), ("COIL_CUDNN", DNN)):
        monkeypatch.setenv(variable, library_path(name))


def on_gpu(inputs):
    return [x.to("cuda") for x in inputs]


def rows_of(problem, rows):
    """Inputs with another first size."""
    x = program(problem)[1][0]
    return on_gpu([torch.randn(rows, *x.shape[1:]).to(x.dtype).to(memory_format=torch.channels_last if x.dim() == 4 else torch.contiguous_format)])


def reference(problem, inputs):
    with torch.no_grad():
        return program(problem)[0].double().to("cuda")(*[x.double() for x in inputs])


def error(got, want):
    return ((got.double() - want).abs().max() / want.abs().max()).item()


def same(a, b):
    return torch.equal(a.contiguous(), b.contiguous())


def uses(package):
    with zipfile.ZipFile(package) as archive:
        name = next(n for n in archive.namelist() if n.endswith("data/coil/manifest.json"))
        return [u for t in json.loads(archive.read(name))["targets"] for u in t.get("uses", [])]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_equals_torch_with_and_without(problem, capfd):
    inputs = on_gpu(program(problem)[1])
    want = reference(problem, inputs)
    for kind in ("with", "own"):
        package = packages().get(problem, kind)
        used = uses(package)
        assert used == ([problem.library] if kind == "with" and problem.library else []) or (kind == "with" and problem.library == DNN and used == [])
        model = open_model(package)
        got, again = model.run(inputs)[0], model.run(inputs)[0]
        assert same(got, again), f"{kind}: other bits in a second run"
        assert error(got, want) <= TOLERANCE[problem.dtype], kind
        trace = capfd.readouterr().err
        assert (": used" in trace) == bool(used), f"{kind}: {trace}"
        model.close()


@pytest.mark.parametrize("problem", [DYNAMIC, CONV], ids=str)
def test_library_that_is_not_there(problem, capfd, monkeypatch):
    monkeypatch.setenv("COIL_CUBLASLT", "/no/such/library.so")
    monkeypatch.setenv("COIL_CUDNN", "/no/such/library.so")
    inputs = on_gpu(program(problem)[1])
    model, own = open_model(packages().fresh(problem)), open_model(packages().get(problem, "own"))
    assert same(model.run(inputs)[0], own.run(inputs)[0])
    assert "used" not in capfd.readouterr().err
    model.close(), own.close()


@pytest.mark.parametrize("rows", [1, 500, 1000, FEWEST_SERVED, 4097, MOST_SERVED, MOST_ROWS])
def test_rows_that_the_library_serves_and_others(rows, capfd):
    inputs = rows_of(DYNAMIC, rows)
    model = open_model(packages().fresh(DYNAMIC))
    assert error(model.run(inputs)[0], reference(DYNAMIC, inputs)) <= TOLERANCE["f32"]
    assert (": used" in capfd.readouterr().err) == (FEWEST_SERVED <= rows <= MOST_SERVED)
    model.close()


def test_operands_at_odd_addresses(capfd):
    """Aligned to their elements only: cuBLASLt has kernels for it."""
    x = rows_of(DYNAMIC, 1600)[0]
    odd = torch.empty(x.numel() + 1, dtype=x.dtype, device="cuda")[1:].view(x.shape).copy_(x)
    model = open_model(packages().fresh(DYNAMIC))
    assert error(model.run([odd])[0], reference(DYNAMIC, [x])) <= TOLERANCE["f32"]
    assert ": used" in capfd.readouterr().err
    model.close()


def test_special_values():
    """NaN and infinities come through as in torch."""
    for problem in (DYNAMIC, CONV):
        inputs = on_gpu(program(problem)[1])
        place = (3,) * (inputs[0].dim() - 1)
        inputs[0][(1, *place)], inputs[0][(5, *place)] = float("nan"), float("inf")
        with torch.no_grad():
            want = program(problem)[0].to("cuda")(*inputs)
        model = open_model(packages().fresh(problem))
        got = model.run(inputs)[0]
        assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got.isinf(), want.isinf()), problem
        model.close()


@pytest.mark.parametrize("problem", [DYNAMIC, CONV], ids=str)
def test_in_cuda_graphs(problem, capfd):
    """A shape that has not run before is captured as own kernels, one that has as the library's."""
    inputs = on_gpu(program(problem)[1])
    others = rows_of(problem, MOST_ROWS) if problem.dynamic else inputs
    model = open_model(packages().fresh(problem))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    if problem.dynamic:
        with torch.cuda.stream(stream):
            model.run(others)  # makes room for a call
    for used in ([False, True] if problem.dynamic else [True]):
        with torch.cuda.stream(stream):
            if used:
                model.run(inputs)
            call = model.bind(inputs)
            call.into(model.empty_outputs(inputs))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            model.call(call)
        for _ in range(2):
            graph.replay()
        torch.cuda.synchronize()
        assert error(call.owned[0], reference(problem, inputs)) <= TOLERANCE[problem.dtype]
        assert (": used" in capfd.readouterr().err) == (used and bool(uses(packages().get(problem, "with"))))
    model.close()


@pytest.mark.parametrize("problem", [DYNAMIC, CONV], ids=str)
def test_several_threads(problem):
    """Each with a context and a stream of its own."""
    model = open_model(packages().fresh(problem))
    sets = [rows_of(problem, rows) if problem.dynamic else on_gpu(program(problem)[1]) for rows in (1536, 2048, 4096, 20)]
    wants = [reference(problem, s) for s in sets]
    wrong = []

    def work(i):
        context, stream = model.new_context(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(20):
                call = model.bind(sets[i])
                model.call(call, context)
                model.synchronize(context)
                if error(model.results(call)[0], wants[i]) > TOLERANCE[problem.dtype]:
                    wrong.append(i)
        runtime().coil_context_destroy(context)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(sets))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong
    model.close()


@pytest.mark.parametrize("problem", [DYNAMIC, CONV], ids=str)
def test_closing_gives_memory_back(problem):
    """The library's kernels are loaded into the device's context when they first run, some 10 MB, and stay; what each model takes does not."""
    inputs, free = on_gpu(program(problem)[1]), []
    for _ in range(16):
        model = open_model(packages().get(problem, "with"))
        model.run(inputs)
        model.close()
        torch.cuda.synchronize()
        free.append(torch.cuda.mem_get_info()[0])
    assert free[5] - free[-1] < 4 << 20, free


# --- the benchmark

def call_microseconds(package, inputs):
    model = open_model(package)
    call = model.bind(inputs)
    call.into(model.empty_outputs(inputs))
    result = ck.microseconds(lambda: model.call(call))
    model.close()
    return result


def bench(names):
    find_libraries()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    problems = [p for p in PROBLEMS + OTHERS if not names or any(n in str(p) for n in names)]
    made = Packages(problems)
    print(f"{torch.cuda.get_device_name(0)}; microseconds of a call in CUDA graphs, warm caches\n{'':40} {'own':>8} {'library':>8} {'torch':>8}")
    for p in problems:
        try:
            module, inputs = program(p)
            module, inputs = module.to("cuda"), on_gpu(inputs)
            if p.kind == "conv":
                module = module.to(memory_format=torch.channels_last) if p.channels_last else module
            with torch.no_grad():
                theirs = ck.microseconds(lambda: module(*inputs))
            own = call_microseconds(made.get(p, "own"), inputs)
            library = call_microseconds(made.get(p, "with"), inputs) if uses(made.get(p, "with")) else None
            text = f"{library:8.1f} {theirs:8.1f}   own / library {own / library:.2f}" if library else f"{'-':>8} {theirs:8.1f}   own / torch {own / theirs:.2f}"
            print(f"{str(p):40} {own:8.1f} {text}", flush=True)
        except Exception as e:  # one broken problem must not hide the others' times
            print(f"{str(p):40} FAILED {str(e)[:300]}", flush=True)


if __name__ == "__main__":
    if "--compile" in sys.argv:
        made = Packages(PROBLEMS + OTHERS)
        for p in PROBLEMS + OTHERS:
            print(p, uses(made.get(p, "with")), uses(made.get(p, "own")), flush=True)
    elif "--bench" in sys.argv:
        bench([x for x in sys.argv[1:] if not x.startswith("-")])
    else:
        sys.exit(pytest.main(["-q", os.path.abspath(__file__)]))
