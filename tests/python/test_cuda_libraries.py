"""Packages that may use cuBLASLt and cuDNN: what they say of it, and what they do with the libraries (fakes, tests/runtime/fake_libraries.cpp)
and without, their kernels emulated (emulated_cuda.py)."""

import json
import os
import subprocess
import zipfile

import numpy as np
import pytest

import emulated_cuda
import harness

# Small problems that src/templates/cuda_library.cc sends to cuBLASLt, a convolution for which a record asks for cuDNN as a tuner would, and what stays.
PROGRAMS = ["linear", "linear_dynamic", "conv", "small", "linear_bf16"]
LIBRARY = 8  # kLibraryCall of src/templates/cuda_variants.h
USES = {"linear": ["libcublasLt.so.13"], "linear_dynamic": ["libcublasLt.so.13"], "conv": ["libcudnn.so.9"], "small": [], "linear_bf16": []}


def build(name):
    """(module, example input, dynamic shapes)"""
    import torch

    torch.manual_seed(1)
    if name == "linear":
        return torch.nn.Sequential(torch.nn.Linear(1536, 1540), torch.nn.ReLU()), torch.randn(1536, 1536), None
    if name == "linear_dynamic":
        return torch.nn.Linear(1536, 1537), torch.randn(1540, 1536), ({0: torch.export.Dim("rows", min=1, max=5000)},)
    if name == "linear_bf16":
        return torch.nn.Linear(1536, 1540).bfloat16(), torch.randn(1536, 1536).bfloat16(), None
    if name == "conv":
        x = torch.randn(4, 60, 64, 64).to(memory_format=torch.channels_last)
        return torch.nn.Sequential(torch.nn.Conv2d(60, 68, 3, 1, 1), torch.nn.ReLU()), x, None
    return torch.nn.Linear(16, 4), torch.randn(3, 16), None


class Programs:
    """Exported, compiled and made for the CPU once."""

    def __init__(self, folder):
        self.folder = folder
        self.fakes = folder / "libfakes.so"
        emulated_cuda.command(emulated_cuda.CLANG, "-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-march=x86-64-v3",
                              harness.REPO / "tests/runtime/fake_libraries.cpp", "-o", self.fakes)

    def exported(self, name):
        import torch

        path = self.folder / f"{name}.pt2"
        if not path.exists():
            module, x, shapes = build(name)
            torch.export.save(torch.export.export(module.eval(), (x,), dynamic_shapes=shapes), path)
        return path

    def package(self, name, *options, target="cuda:sm_90"):
        path = self.folder / ("_".join([name, target.replace(",", "_"), *options]) + ".coil.pt2")
        if not path.exists():
            env = {**os.environ, "COIL_NVRTC": str(emulated_cuda.made_tools() / "libnvrtc.so")}
            if name == "conv" and target == "cuda:sm_90" and "--no-libraries" not in options:
                options = (*options, "--replay", self.record(env))
            harness.coil_ok("compile", self.exported(name), "--target", target, "-o", path, "--threads", 1, *options, env=env)
        return path

    def record(self, env):
        """Of a tuner that found cuDNN the fastest for the convolution."""
        path = self.folder / "record.json"
        harness.coil_ok("compile", self.exported("conv"), "--target", "cuda:sm_90", "-o", self.folder / "own.coil.pt2", "--tune", "max", "--record", path, env=env)
        record = json.loads(path.read_text())
        record.pop("untimed")
        problem, = record["problems"]
        library, = (choice for choice in problem.pop("to_time") if choice == {"kind": LIBRARY})
        problem["rows"] = [{"up_to": None, "choice": library, "text": ""}]
        path.write_text(json.dumps(record))
        return path

    def run(self, name, x, libraries):
        """(output, the lines of COIL_CUDA_TRACE)"""
        package, kernels = self.package(name), self.folder / f"{name}.kernels.so"
        if not kernels.exists():
            emulated_cuda.build_kernels(*emulated_cuda.kernels_of(package), kernels, "-O1")
        np.savez(self.folder / "in.npz", in_0=x.float().numpy())
        env = {**emulated_cuda.environment(kernels), "COIL_CUDA_TRACE": "1", "COIL_CUBLASLT": str(libraries), "COIL_CUDNN": str(libraries)}
        done = harness.coil_ok("run", package, "--device", "cuda:0", "--input", self.folder / "in.npz", "--output", self.folder / "out.npz", env=env)
        return harness.load_outputs(self.folder / "out.npz")[0], done.stderr


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return Programs(tmp_path_factory.mktemp("libraries"))


def targets(package):
    with zipfile.ZipFile(package) as archive:
        return json.loads(archive.read(next(n for n in archive.namelist() if n.endswith("data/coil/manifest.json"))))["targets"]


def code(package):
    with zipfile.ZipFile(package) as archive:
        return b"".join(archive.read(n) for n in archive.namelist() if n.endswith((".so", ".cc", ".cu", ".json"))).lower()


@pytest.mark.parametrize("name", PROGRAMS)
def test_manifest_says_what_is_used(programs, name):
    package = programs.package(name)
    target, = targets(package)
    assert target["needs"] == ["libcuda.so.1"]
    assert target.get("uses", []) == USES[name]
    for library, word in (("libcublasLt.so.13", b"cublas"), ("libcudnn.so.9", b"cudnn")):
        assert (word in code(package)) == (library in USES[name])
    text = harness.coil_ok("inspect", package).stdout
    assert "needs libcuda.so.1" in text
    assert ("uses " + ", ".join(USES[name]) in text) == bool(USES[name])


@pytest.mark.parametrize("name", PROGRAMS)
def test_package_without_libraries(programs, name):
    package = programs.package(name, "--no-libraries")
    target, = targets(package)
    assert "uses" not in target and target["needs"] == ["libcuda.so.1"]
    assert b"cublas" not in code(package) and b"cudnn" not in code(package)
    if not USES[name]:
        assert package.read_bytes() == programs.package(name).read_bytes()


def test_only_measured_architectures(programs):
    assert [t.get("uses", []) for t in targets(programs.package("linear", target="cpu,cuda:sm_90,cuda:sm_80"))] == [[], ["libcublasLt.so.13"]]
    assert "uses" not in targets(programs.package("linear", target="cuda:sm_80"))[0]


def test_convolutions_are_cudnns_only_where_that_was_timed(programs):
    assert "uses" not in targets(programs.package("conv", target="cpu,cuda:sm_90"))[1]


def check(name, x, got):
    module = build(name)[0].float()
    import torch

    with torch.no_grad():
        want = module(x.float()).numpy()
    harness.compare([got], [want], 1e-5, name)


@pytest.mark.parametrize("name", ["linear", "linear_dynamic", "conv"])
def test_library_computes(programs, name):
    x = build(name)[1]
    got, trace = programs.run(name, x, programs.fakes)
    assert ": used" in trace, trace
    check(name, x, got)


@pytest.mark.parametrize("name, rows, libraries", [("conv", 4, "/no/such/library.so"), ("linear", 1536, "/no/such/library.so"),
                                                   ("linear_dynamic", 8, "fakes")])
def test_own_kernels_where_the_library_is_not_there_or_not_wanted(programs, name, rows, libraries):
    x = build(name)[1][:rows]
    got, trace = programs.run(name, x, programs.fakes if libraries == "fakes" else libraries)
    assert "used" not in trace
    check(name, x, got)


def test_settings_are_listed():
    text = harness.coil_ok("env").stdout
    for name in ("COIL_CUBLASLT", "COIL_CUDNN", "COIL_CUDA_TRACE"):
        assert name in text
    assert "--no-libraries" in subprocess.run([harness.COIL, "compile", "--help"], capture_output=True, text=True).stdout
