"""Repeated calls of CUDA packages as CUDA graphs (device/cuda_graph.h), emulated: the same bits as kernel by kernel, whatever changes
between calls; and what the command says of it."""

import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import pytest

import emulated_cuda
import harness
import test_museum
import zoo

ZOO = ["digits", "norm_gelu_softmax", "encoder_1"]
MUSEUM = ["torch-2.15.0/attn_dynamic.pt2", "torch-2.15.0/counter.pt2", "torch-2.15.0/cnn_dynamic.pt2", "torch-2.15.0/stats.pt2", "torch-2.11.0/mlp_bf16.pt2"]


def cases():
    return ZOO + MUSEUM


def zoo_names(program=None, **_):
    return [program] if program in ZOO else []


def manifest(package):
    with zipfile.ZipFile(package) as archive:
        return json.loads(archive.read(next(n for n in archive.namelist() if n.endswith("data/coil/manifest.json"))))


def job(program):
    if program in ZOO:
        folder = zoo.make(program)
        model, sets = folder / f"{program}.aten.pt2", [folder / f"{tag}.npz" for tag in harness.zoo_meta(folder)["sets"]][:3]
    else:
        model, sets = test_museum.MUSEUM / program, [test_museum.arrays_of(program)]
    with tempfile.TemporaryDirectory(prefix="coil-emulated-") as folder:
        made = emulated_cuda.Emulated(model, pathlib.Path(folder), level="-O1")
        assert made.compiled.returncode == 0, made.compiled.stderr
        reports = {}
        for mode in ("0", "2"):
            call = [sys.executable, pathlib.Path(__file__).with_name("emulated_graphs.py"), harness.BUILD / "libcoil_runtime.so", made.package, *sets]
            done = subprocess.run([str(c) for c in call], capture_output=True, text=True, env={**made.environment(), "COIL_CUDA_GRAPHS": mode})
            assert done.returncode == 0, done.stderr[-3000:]
            reports[mode] = json.loads(done.stdout)
        return reports, len(sets), manifest(made.package)


@pytest.mark.parametrize("program", cases())
def test_the_same_bits(program, result):
    reports, sets, told = result
    without, graphs = reports["0"], reports["2"]
    assert graphs["digests"] == without["digests"]
    assert without["graph_launches"] == without["graphs"] == 0
    assert told["targets"][0]["graphs"]
    calls = sets * 3 * 11 + sets * 2
    assert graphs["graph_launches"] == calls - 4 * sets
    assert graphs["changed_nodes"] > 0
    assert graphs["launches"] * calls == without["launches"] * 4 * sets


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "digits.coil.pt2"

    def compile(*options):
        env = {**emulated_cuda.os.environ, "COIL_NVRTC": str(emulated_cuda.made_tools() / "libnvrtc.so")}
        harness.coil_ok("compile", harness.DIGITS, "--target", "cuda:sm_80", "-o", path, "--threads", 1, *options, env=env)
        return path

    return compile


def test_inspect_tells_and_the_option_forbids(package):
    assert "repeated calls as CUDA graphs" in harness.coil_ok("inspect", package()).stdout
    path = package("--no-graphs")
    assert "CUDA graphs" not in harness.coil_ok("inspect", path).stdout
    assert "graphs" not in manifest(path)["targets"][0]


def test_bench_counts_them(package, tmp_path):
    path = package()
    emulated_cuda.build_kernels(*emulated_cuda.kernels_of(path), tmp_path / "kernels.so")
    for mode, most in (("2", 1.0), ("0", 0.0)):
        env = {**emulated_cuda.environment(tmp_path / "kernels.so", 80), "COIL_CUDA_GRAPHS": mode}
        report = json.loads(harness.coil_ok("bench", path, "--device", "cuda:0", "--repeat", "5", "--json", env=env).stdout)["graphs"]
        assert report["graph_calls"] == (report["calls"] - 4) * most and (report["calls"] > 10 or not most)
        text = harness.coil_ok("bench", path, "--device", "cuda:0", "--repeat", "5", env=env).stdout
        assert "as CUDA graphs" in text
