"""NVTX ranges and CUPTI's times of CUDA packages, emulated: against a library that does what nsys and CUPTI do (tests/runtime/fake_tools.cpp)."""

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


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    library = tmp_path_factory.mktemp("tools") / "fake_tools.so"
    emulated_cuda.command(emulated_cuda.CLANG, "-std=c++20", "-shared", "-fPIC", "-Wall", "-Werror", harness.REPO / "tests/runtime/fake_tools.cpp", "-o", library, "-ldl")
    return library


def call(made, output, **environment):
    arguments = [pathlib.Path(__file__).with_name("emulated_call.py"), harness.BUILD / "libcoil_runtime.so", made.package, test_museum.arrays_of(PROGRAM), output, 0]
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, env={**made.environment(), **environment}, timeout=200)
    assert done.returncode == 0, done.stderr[-3000:]
    return np.load(output)


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def same(a, b):
    return sorted(a.files) == sorted(b.files) and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a.files)


def nested(log):
    """The ranges of a log, each with those inside it; every one that begins ends."""
    stack = [[]]
    for line in log:
        word, domain, *name = line.split(" ", 2)
        assert domain == "coil", line
        if word == "push":
            stack[-1].append((name[0], []))
            stack.append(stack[-1][-1][1])
        else:
            stack.pop()
    assert len(stack) == 1, "a range has no end"
    return stack[0]


def test_calls_have_ranges(emulated, tools, tmp_path):
    plain = call(emulated, tmp_path / "a.npz")
    seen = call(emulated, tmp_path / "b.npz", NVTX_INJECTION64_PATH=str(tools), FAKE_TOOLS_LOG=str(tmp_path / "log"))
    assert same(plain, seen)
    ranges = nested(lines(tmp_path / "log"))
    assert ranges and all(name == "attn_dynamic" and not inside for name, inside in ranges), ranges


def test_kernels_have_ranges_with_their_places(emulated, tools, tmp_path):
    plain = call(emulated, tmp_path / "a.npz")
    seen = call(emulated, tmp_path / "b.npz", NVTX_INJECTION64_PATH=str(tools), COIL_NVTX="kernels", FAKE_TOOLS_LOG=str(tmp_path / "log"))
    assert same(plain, seen)
    ranges = nested(lines(tmp_path / "log"))
    told = harness.coil_json("inspect", emulated.package)["kernels"]
    names = [name for name, _ in ranges[0][1]]
    assert len(names) == len(told)
    for name, kernel in zip(names, told):
        assert name.startswith(kernel["name"]) and kernel["origins"][0]["source"] in name and kernel["origins"][0]["module"] in name


def test_ranges_beside_a_profile_and_without(emulated, tools, tmp_path):
    call(emulated, tmp_path / "a.npz", NVTX_INJECTION64_PATH=str(tools), COIL_NVTX="kernels", FAKE_TOOLS_LOG=str(tmp_path / "log"), COIL_PROFILE=str(tmp_path / "trace.json"))
    inside = nested(lines(tmp_path / "log"))[0][1]
    kernels = [e["name"] for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e.get("cat") == "kernel"]
    assert [name.split(":")[0].split(" ")[0] for name, _ in inside] == kernels[: len(inside)]
    call(emulated, tmp_path / "a.npz", NVTX_INJECTION64_PATH=str(tools), COIL_NVTX="0", FAKE_TOOLS_LOG=str(tmp_path / "none"))
    assert not lines(tmp_path / "none")
    call(emulated, tmp_path / "a.npz", NVTX_INJECTION64_PATH="/no/such/tool.so", COIL_NVTX="kernels")


def test_a_call_that_fails_leaves_no_range_open(emulated, tools, tmp_path):
    done = harness.coil("profile", emulated.package, "--device", "cuda:0", "--calls", 2, env={**emulated.environment(), "NVTX_INJECTION64_PATH": str(tools), "COIL_NVTX": "sometimes"})
    assert done.returncode != 0 and "COIL_NVTX='sometimes'" in done.stderr


def profile(made, tmp_path, **environment):
    done = harness.coil("profile", made.package, "--device", "cuda:0", "--calls", 3, "--json", "--no-limits", "-o", tmp_path / "trace.json",
                        env={**made.environment(), "FAKE_TOOLS_LOG": str(tmp_path / "log"), **environment})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["models"][0]


def test_cupti_has_the_times(emulated, tools, tmp_path):
    found = profile(emulated, tmp_path, COIL_CUPTI=str(tools))
    assert found["clock"] == "CUPTI"
    busy = [k for k in found["kernels"] if k["us"] > 0]
    # Each launch lasts a microsecond; a kernel of several lasts from the first one's begin to the last one's end.
    assert busy and all(abs(k["us"] - round((k["us"] + 0.5) / 1.5) * 1.5 + 0.5) < 0.02 for k in busy), [k["us"] for k in busy]
    log = lines(tmp_path / "log")
    assert log.count("subscribe") == log.count("unsubscribe") == 1
    assert {line for line in log if line.startswith("enable")} == {"enable 10", "enable 1", "enable 2", "enable 39", "enable 4", "enable 5"}
    assert {line.replace("disable", "enable") for line in log if line.startswith("disable")} == {line for line in log if line.startswith("enable")}


@pytest.mark.parametrize("why", ["none", "busy"])
def test_events_where_cupti_cannot_be_had(emulated, tools, tmp_path, why):
    environment = {"COIL_CUPTI": "/none"} if why == "none" else {"COIL_CUPTI": str(tools), "FAKE_TOOLS_BUSY": "1"}
    found = profile(emulated, tmp_path, **environment)
    assert found["clock"] == "CUDA events" and any(k["us"] > 0 for k in found["kernels"])
    assert ("names no library" if why == "none" else "another tool") in found["clock_note"]
