"""`coil diff` and `coil bisect` of programs for CUDA, kernel by kernel: on emulated devices (emulated_cuda.py), with the same planted faults as on the CPU."""

import json
import os
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import torch

import emulated_cuda
import planted
from harness import coil, coil_ok

NAMES = list(planted.programs())
NVCC = shutil.which("nvcc") or pathlib.Path("/usr/local/cuda/bin/nvcc").exists()
FAKE_NVRTC = {} if emulated_cuda.ALL else {"COIL_NVRTC": str(emulated_cuda.made_tools() / "libnvrtc.so")}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return planted.export(tmp_path_factory.mktemp("planted"))


class Device:
    """A program with its kernels compiled for the emulated device, as the options make them."""

    def __init__(self, program, folder, options=()):
        self.program = program
        made = emulated_cuda.Emulated(program, folder, options=options)
        assert made.compiled.returncode == 0, made.compiled.stderr
        self.target, self.package = f"cuda:sm_{made.sm}", made.package
        self.env = {**made.environment(), **FAKE_NVRTC}

    def run(self, command, *arguments):
        return coil(command, self.program, "--target", self.target, *arguments, env=self.env)

    def diff(self, *arguments):
        done = self.run("diff", *arguments, "--json")
        assert done.returncode in (0, 1), done.stderr
        return done.returncode, json.loads(done.stdout)


def wrong_kernel(program, folder):
    """(function, options) of a kernel with a wrong constant; None: there is none."""
    plain = Device(program, folder)
    manifest = json.loads(coil_ok("inspect", plain.package, "--json").stdout)
    for function in dict.fromkeys(k["function"] for k in manifest["kernels"] if k["function"]):
        text = coil_ok("inspect", plain.package, "--source", function).stdout
        bad = planted.wrong_constant(text) if "COIL_KERNEL" in text else None
        if bad and bad != text:
            (folder / "bad.cu").write_text(bad)
            return function, ("--replace-kernel", f"{function}={folder / 'bad.cu'}")
    return None


@pytest.mark.parametrize("name", NAMES)
def test_what_is_right_is_the_same(programs, name, tmp_path):
    program, inputs = programs[name]
    code, found = Device(program, tmp_path).diff("-i", inputs)
    assert code == 0 and found["same"] and found["first"] is None
    assert found["kernels"] and all(k["compared"] and k["largest_error"] <= 1 for k in found["kernels"])
    assert [r["different"] for r in found["results"]] == [0]


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_constant_is_named(programs, name, tmp_path):
    program, inputs = programs[name]
    (tmp_path / "plain").mkdir()
    fault = wrong_kernel(program, tmp_path / "plain")
    if not fault:
        pytest.skip("no kernel has a constant")
    function, options = fault
    device = Device(program, tmp_path, options)
    code, found = device.diff("-i", inputs, *options, "--kernels-only")
    assert code == 1 and found["first"]["function"][:-9] == function[:-9] and found["first"]["kind"] == "wrong"
    assert abs(found["first"]["found"] - found["first"]["expected"]) > found["first"]["bound"] and "planted.py" in found["first"]["origins"][0]["source"]


def test_without_a_device_it_says_so(programs):
    program, inputs = programs["norm"]
    done = coil("diff", program, "--target", "cuda:sm_90", "-i", inputs, env={**os.environ, **FAKE_NVRTC, "COIL_CUDA_DRIVER": "/none"})
    assert done.returncode > 1 and "COIL-E306" in done.stderr


def test_the_first_nan_has_an_origin(tmp_path):
    class Bad(torch.nn.Module):
        def forward(self, x):
            low = torch.log(x)
            return torch.softmax(low - low.amax(-1, keepdim=True), -1)

    x = torch.rand(8, 64) + 0.5
    x[5] = 0
    torch.export.save(torch.export.export(Bad(), (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=2, max=64)},)), tmp_path / "bad.pt2")
    np.savez(tmp_path / "x.npz", in_0=x.numpy())
    code, found = Device(tmp_path / "bad.pt2", tmp_path).diff("-i", tmp_path / "x.npz")
    assert code == 0 and found["first_nan"]["index"][0] == 5 and "-inf - -inf" in found["first_nan"]["from"]


def test_bisect_names_the_edited_kernel(programs, tmp_path):
    """Kernels of other programs than the one that was compiled for the emulation have no code there: one compile answers for all."""
    program, inputs = programs["softmax"]
    (tmp_path / "plain").mkdir()
    function, options = wrong_kernel(program, tmp_path / "plain")
    device = Device(program, tmp_path, options)
    done = device.run("bisect", "-i", inputs, *options, "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["there"] and found["kernel"]["function"][:-9] == function[:-9]


def folders_of(program, inputs, folder):
    done = Device(program, folder).run("debug", "-i", inputs, "-o", folder / "dump")
    assert done.returncode == 0, done.stderr
    folders = sorted((folder / "dump/kernels").iterdir())
    assert folders and all(f"kernels/{f.name}: make run" in done.stdout and "cuda:sm_" in (f / "Makefile").read_text() for f in folders)
    return {f: {p.name for p in f.iterdir()} for f in folders}


def test_kernels_become_programs_of_their_own(programs, tmp_path):
    """Products as parts of the program; loops and sorts as CUDA programs, with what they were given and what they wrote."""
    (tmp_path / "gelu").mkdir(), (tmp_path / "sorted").mkdir()
    assert all({"program.pt2", "inputs.npz", "Makefile"} <= names for names in folders_of(*programs["gelu"], tmp_path / "gelu").values())
    made = folders_of(*programs["sorted"], tmp_path / "sorted")
    assert all({"kernel.cu", "main.cu", "call.h", "Makefile", "p0.bin"} <= names for names in made.values())
    for folder, names in made.items():
        written = [n for n in names if n.endswith("_after.bin")]
        assert written and all(f'"{n}"' in (folder / "call.h").read_text() for n in names if n.endswith(".bin"))


@pytest.mark.skipif(not NVCC, reason="there is no nvcc")
@pytest.mark.parametrize("name", ["sorted", "softmax", "columns"])
def test_kernels_programs_compile(programs, name, tmp_path):
    """nvcc takes what NVRTC took; running them needs a GPU."""
    for folder, names in folders_of(*programs[name], tmp_path).items():
        if "main.cu" not in names:
            continue
        done = subprocess.run(["make", "-C", folder, "program"], capture_output=True, text=True)
        assert done.returncode == 0 and (folder / "program").exists(), done.stderr
