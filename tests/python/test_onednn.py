"""oneDNN as a choice of the CPU's tuner: right results with the library and without it, what a package and a tuning log say of it."""

import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import harness

ONEDNN = 4  # its number among the methods of products and convolutions (codegen/cpu/choices.h)
TRACE = {**os.environ, "COIL_ONEDNN_TRACE": "1"}
WITHOUT = {**TRACE, "COIL_ONEDNN": "/no/such/library.so"}


def programs():
    """name -> (module, input, dynamic shapes, how far results may be from eager's)."""
    import torch
    from torch import nn

    class Product(nn.Module):
        def forward(self, x):
            return (x @ x.transpose(1, 2)).relu() + 1

    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(300, 200), nn.GELU(), nn.Linear(200, 64)).bfloat16()

        def forward(self, x):
            return self.layers(x.bfloat16()).float()

    torch.manual_seed(0)
    rows = {0: torch.export.Dim("rows", min=1, max=1000)}
    mlp = nn.Sequential(nn.Linear(300, 200), nn.GELU(), nn.Linear(200, 41))
    convolutions = nn.Sequential(nn.Conv2d(3, 32, 7, stride=2, padding=3), nn.ReLU(), nn.Conv2d(32, 48, 3, padding=1), nn.Conv2d(48, 48, 3, padding=2, dilation=2, groups=3), nn.ReLU(),
                                 nn.Conv2d(48, 48, 5, padding=2, groups=48), nn.Conv2d(48, 48, 3, groups=6), nn.Conv2d(48, 64, 1, stride=2), nn.SiLU(), nn.Conv2d(64, 33, 3))
    # Large images: cut into strips of which the first, the last and those between differ, the last being shorter; padding on one side, none, more than the stride; too few lines.
    strips = nn.Sequential(nn.Conv2d(16, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, stride=2, padding=1), nn.Conv2d(64, 64, 5, padding=4, dilation=2), nn.GELU(),
                           nn.Conv2d(64, 128, 3), nn.Conv2d(128, 128, 7, stride=3, padding=3, groups=2), nn.Conv2d(128, 256, 1))
    return {"strips": (strips, torch.randn(2, 16, 101, 97), None, 1e-5),
            "mlp": (mlp, torch.randn(8, 300), (rows,), 1e-5),
            "bf16": (Half(), torch.randn(8, 300), (rows,), 2e-2),
            "batched": (Product(), torch.randn(3, 50, 70), None, 1e-5),
            "convolutions": (convolutions, torch.randn(3, 3, 40, 40), None, 1e-5)}


def replayed(name, folder, change):
    """A package whose record names oneDNN wherever that may be; the record as the tuner without the library wrote it, changed."""
    program, record = folder / f"{name}.pt2", folder / f"{name}.json"
    for p in (written := json.loads(record.read_text()))["problems"]:
        change(p)
    (folder / f"{name}.changed.json").write_text(json.dumps(written))
    package = folder / f"{name}.{change.__name__}.pt2"
    harness.coil_ok("compile", program, "-o", package, "--replay", folder / f"{name}.changed.json")
    return package


def by_onednn(problem):
    if problem["problem"].startswith(("gemm", "conv2d")):
        problem["rows"] = [{"up_to": None, "choice": {"method": ONEDNN}, "text": "onednn"}]


def by_direct(problem):
    if problem["problem"].startswith("conv2d") and not problem["problem"].endswith(("groups 48", "groups 6")):
        problem["rows"] = [{"up_to": None, "choice": {"method": 1}, "text": "direct"}]
    else:
        problem["rows"] = [{"up_to": None, "choice": {}, "text": "own rule"}]


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """name -> (folder with the program and packages, module, its input)."""
    import torch

    folder = tmp_path_factory.mktemp("onednn")
    made = {}
    for name, (module, x, dims, tolerance) in programs().items():
        torch.export.save(torch.export.export(module.eval(), (x,), dynamic_shapes=dims), folder / f"{name}.pt2")
        harness.coil_ok("compile", folder / f"{name}.pt2", "-o", folder / f"{name}.tuned.pt2", "--tune", "fast", "--tune-budget", "1s", "--record", folder / f"{name}.json",
                        env=WITHOUT)
        replayed(name, folder, by_onednn), replayed(name, folder, by_direct)
        made[name] = (folder, module, x, tolerance)
    return made


def run(package, x, folder, env, *arguments):
    """The result, and what the library was asked."""
    np.save(folder / "x.npy", x)
    done = harness.coil_ok("run", package, "--input", folder / "x.npy", "--output", folder / "y.npz", *arguments, env=env)
    return harness.load_outputs(folder / "y.npz")[0], [line for line in done.stderr.splitlines() if line.startswith("onednn")]


def inputs(name, x):
    """Of the program's sizes; of several numbers of rows where they are free."""
    counts = (1, 8, 255, 256, 257, 700) if name in ("mlp", "bf16") else (x.shape[0],)
    for rows in counts:
        yield np.random.default_rng(rows).standard_normal((rows, *x.shape[1:])).astype(np.float32)


def has_avx512():
    return re.search(r"\bavx512bw\b", pathlib.Path("/proc/cpuinfo").read_text()) is not None


def eager(module, x):
    import torch

    with torch.no_grad():
        return module(torch.from_numpy(x)).numpy()


@pytest.mark.parametrize("name", ("mlp", "bf16", "batched", "convolutions", "strips"))
def test_results_with_the_library(name, packages, tmp_path):
    folder, module, x, tolerance = packages[name]
    for array in inputs(name, x):
        one, trace = run(folder / f"{name}.by_onednn.pt2", array, tmp_path, TRACE, "--threads", "1")
        assert harness.max_error(one, eager(module, array)) < tolerance
        used = [line for line in trace if "cannot" not in line and ("product" in line or "convolution" in line)]
        # Version 2 has bfloat16 only for AVX-512: on other machines it says so, and the own kernels answer.
        refuses = name == "bf16" and not has_avx512() and trace[0].split()[1][0] == "2"
        assert trace[0].split()[1][0] in "23" and bool(used) != refuses, trace
        three, _ = run(folder / f"{name}.by_onednn.pt2", array, tmp_path, TRACE, "--threads", "3")
        assert one.tobytes() == three.tobytes()
    if name == "convolutions":
        assert len([line for line in used if "convolution" in line]) >= 4, trace
    if name == "strips":
        rows = {int(re.search(r"of (\d+) rows", line)[1]) for line in used}
        assert 26 * 97 in rows and 23 * 97 in rows and 101 * 97 not in rows, trace  # four strips of an image of 101 lines


@pytest.mark.parametrize("name", ("mlp", "bf16", "batched", "convolutions", "strips"))
def test_results_without_the_library_are_our_own(name, packages, tmp_path):
    folder, _, x, _ = packages[name]
    for array in inputs(name, x):
        absent, trace = run(folder / f"{name}.by_onednn.pt2", array, tmp_path, WITHOUT)
        own, _ = run(folder / f"{name}.by_direct.pt2", array, tmp_path, WITHOUT)
        assert not trace and absent.tobytes() == own.tobytes()


def test_what_packages_say(packages):
    folder = packages["mlp"][0]
    shown = harness.coil_ok("inspect", folder / "mlp.by_onednn.pt2").stdout
    assert "uses libdnnl if there" in shown and "onednn" in shown, shown
    for other in ("mlp.by_direct.pt2", "mlp.tuned.pt2"):
        assert "dnnl" not in harness.coil_ok("inspect", folder / other).stdout
    harness.coil_ok("compile", folder / "mlp.pt2", "-o", folder / "mlp.untuned.pt2", env=TRACE)
    assert "dnnl" not in harness.coil_ok("inspect", folder / "mlp.untuned.pt2").stdout


def test_the_tuner_tries_it_where_it_may(packages, tmp_path):
    folder = packages["batched"][0]

    def log(env, *arguments):
        harness.coil_ok("compile", folder / "batched.pt2", "-o", tmp_path / "p.pt2", "--tune", "max", "--tune-budget", "2s", "--tune-log", tmp_path / "log.txt", *arguments, env=env)
        return (tmp_path / "log.txt").read_text()

    assert "  onednn" in log(TRACE)
    assert "  onednn" not in log(TRACE, "--no-libraries")
    assert "  onednn" not in log(WITHOUT)


def test_a_file_that_is_no_library_means_none(packages, tmp_path):
    folder, module, x, tolerance = packages["batched"]
    for library in (__file__, "libz.so.1"):
        y, trace = run(folder / "batched.by_onednn.pt2", x.numpy(), tmp_path, {**TRACE, "COIL_ONEDNN": library})
        assert not trace and harness.max_error(y, eager(module, x.numpy())) < tolerance


MANY = """
import resource, sys
import numpy as np
import coil
x = np.ones((300, 300), np.float32)
def once():
    model = coil.load(sys.argv[1], num_threads=2)
    y = np.asarray(model(x))
    return y.tobytes()
first = once()
for _ in range(5): assert once() == first
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(150): assert once() == first
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 16 << 10, grown
kept = coil.load(sys.argv[1])
kept(x)
"""


def test_what_is_kept_goes_with_the_package(packages):
    folder = packages["mlp"][0]
    env = {**os.environ, "PYTHONPATH": str(harness.PYTHON_PATH)}
    subprocess.run([sys.executable, "-c", MANY, folder / "mlp.by_onednn.pt2"], check=True, env=env)


def test_copies_of_weights_count_as_memory(packages, tmp_path):
    """Weights of 300 x 200 and 200 x 41 floats: beside the scratch memory there has to be room for the library's copies of both, or it may compute the small one."""
    folder, _, _, _ = packages["mlp"]
    program = ("compile", folder / "mlp.pt2", "-o", tmp_path / "p.pt2")
    arena = harness.coil_json(*program)["arena_bytes"]
    scratch = eval(re.sub(r"\bs\d+\b", "1000", arena), {"workers": 1})  # at the most rows

    def timed(copies):
        tuning = harness.coil_json(*program, "--tune", "fast", "--tune-budget", "3s", "--tune-threads", "1", "--tune-memory", scratch + copies)["tuning"]
        return ["onednn" in {t["choice"] for m in p["measured"] for t in m["timings"]} for p in tuning["problems"] if p["problem"].startswith("gemm")]

    small, large = 200 * 41 * 4, 300 * 200 * 4
    assert [timed(n) for n in (small - 1, small, small + large - 1, small + large)] == [[False, False], [False, True], [False, True], [True, True]]
