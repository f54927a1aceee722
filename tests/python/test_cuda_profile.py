"""Profiles of CUDA packages, emulated: each kernel of a real package has its time and its place, and the results are the same."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import emulated_cuda
import harness
import test_museum

PROGRAM = "torch-2.15.0/attn_dynamic.pt2"


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    made = emulated_cuda.Emulated(test_museum.MUSEUM / PROGRAM, tmp_path_factory.mktemp("emulated"), level="-O1")
    assert made.compiled.returncode == 0, made.compiled.stderr
    return made


def call(made, output, **environment):
    arguments = [pathlib.Path(__file__).with_name("emulated_call.py"), harness.BUILD / "libcoil_runtime.so", made.package, test_museum.arrays_of(PROGRAM), output, 0]
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, env={**made.environment(), **environment}, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(output)


def test_kernels_of_a_package_on_a_device(emulated, tmp_path):
    plain = call(emulated, tmp_path / "a.npz")
    watched = call(emulated, tmp_path / "b.npz", COIL_PROFILE=str(tmp_path / "trace.json"))
    assert sorted(plain.files) == sorted(watched.files) and all(np.array_equal(plain[k], watched[k], equal_nan=True) for k in plain.files)
    trace = json.loads((tmp_path / "trace.json").read_text())
    events = trace["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel"]
    calls = [e for e in events if e.get("cat") == "call"]
    assert calls and calls[0]["args"]["device"] == "cuda:0" and kernels
    streams = {e["tid"] for e in events if e["name"] == "thread_name" and "stream" in e["args"]["name"]}
    assert {e["tid"] for e in kernels} == streams and len(streams) == 1
    assert all(e["args"]["source"] and e["args"]["bytes"] > 0 for e in kernels)
    told = harness.coil_json("inspect", emulated.package)["kernels"]
    assert all(told[e["args"]["kernel"]]["name"] == e["name"] for e in kernels)
    assert sum(e["dur"] for e in kernels) > 0, "the device's clock stood still"


def test_the_commands_on_a_device(emulated, tmp_path):
    package = emulated.package
    for command in (("profile", package, "--device", "cuda:0", "--calls", 2, "--json"), ("report", package, "--device", "cuda:0", "--calls", 2, "--json")):
        done = harness.coil(*command, env=emulated.environment())
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        kernels = found["kernels"] if command[0] == "report" else found["models"][0]["kernels"]
        assert any(k.get("us", 0) > 0 for k in kernels)
        assert found["limits"]["how"].startswith("memory measured by copies")
