"""Profiles of a process by its environment, by the commands, and from C."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

import capi
import harness
from harness import DIGITS, DIGITS_TEST
from profiled import compiled, events
from quantised_linear import QuantisedLinear

# --- the environment

RUN = """
import sys, numpy as np, os, signal, time
sys.path.insert(0, sys.argv[1])
import coil
model = coil.load(sys.argv[2])
x = np.load(sys.argv[3])["x"]
for i in range(int(sys.argv[4])):
    if i in (5, 40) and len(sys.argv) > 5:
        os.kill(os.getpid(), int(sys.argv[5]))
    model(x)
print("done")
"""


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    harness.coil_ok("compile", DIGITS, "-o", folder / "digits.coil.pt2")
    arrays = np.load(DIGITS_TEST)
    key = next(k for k in arrays.files if arrays[k].ndim > 1)
    np.savez(folder / "x.npz", x=arrays[key][:8])
    return folder


def process(digits, calls, *more, **environment):
    command = [sys.executable, "-c", RUN, harness.PYTHON_PATH, digits / "digits.coil.pt2", digits / "x.npz", calls, *more]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, env={**os.environ, **{k: str(v) for k, v in environment.items()}})


def test_a_process_by_its_environment(digits, tmp_path):
    path = tmp_path / "trace.json"
    done = process(digits, 20, COIL_PROFILE=path, COIL_PROFILE_CALLS=7)
    assert done.returncode == 0, done.stderr
    trace = json.loads(path.read_text())
    assert len(events(trace, "call")) == 7 and os.listdir(tmp_path) == ["trace.json"]
    done = process(digits, 3, COIL_PROFILE=path)  # fewer calls than it waits for: written at the end
    assert done.returncode == 0 and len(events(json.loads(path.read_text()), "call")) == 3


def test_a_signal_asks_for_calls(digits, tmp_path):
    path = tmp_path / "trace.json"
    done = process(digits, 60, int(signal.SIGUSR2), COIL_PROFILE=path, COIL_PROFILE_CALLS=4, COIL_PROFILE_SIGNAL="USR2")
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path)) == ["trace.2.json", "trace.json"]
    assert all(len(events(json.loads((tmp_path / name).read_text()), "call")) == 4 for name in os.listdir(tmp_path))


def test_no_signal_no_trace(digits, tmp_path):
    done = process(digits, 5, COIL_PROFILE=tmp_path / "t.json", COIL_PROFILE_SIGNAL="USR1")
    assert done.returncode == 0 and os.listdir(tmp_path) == []


@pytest.mark.parametrize("environment, words", [
    ({"COIL_PROFILE_CALLS": "many"}, ["COIL_PROFILE_CALLS", "many"]),
    ({"COIL_PROFILE_CALLS": "0"}, ["COIL_PROFILE_CALLS"]),
    ({"COIL_PROFILE_SIGNAL": "USR9"}, ["COIL_PROFILE_SIGNAL", "USR9", "USR1"]),
    ({"COIL_PROFILE_SIGNAL": "KILL"}, ["COIL_PROFILE_SIGNAL"]),
    ({"COIL_PROFILE_SIGNAL": "9"}, ["COIL_PROFILE_SIGNAL"]),
    ({"COIL_PROFILE": "/nowhere/at/all/t.json"}, ["COIL_PROFILE", "/nowhere/at/all"]),
    ({"COIL_PROFILE": "/tmp"}, ["COIL_PROFILE", "folder"]),
    ({"COIL_PROFILE": "", "COIL_PROFILE_SIGNAL": "USR2"}, ["COIL_PROFILE_SIGNAL"]),
], ids=str)
def test_wrong_variables_are_named(digits, tmp_path, environment, words):
    environment = {"COIL_PROFILE": str(tmp_path / "t.json"), **environment}
    done = process(digits, 1, **environment)
    assert done.returncode != 0 and "COIL-E402" in done.stderr and all(w in done.stderr for w in words), done.stderr


# --- the command

def test_the_command_prints_a_table(digits, tmp_path):
    done = harness.coil_ok("profile", digits / "digits.coil.pt2", "--calls", 5, "-o", tmp_path / "t.json", "--top", 2)
    assert "of the roof" in done.stdout and "GFLOP/s" in done.stdout and "--top" in done.stdout and "ui.perfetto.dev" in done.stderr
    assert len(events(json.loads((tmp_path / "t.json").read_text()), "call")) == 5


def test_the_command_gives_json(digits):
    numbers = harness.coil_json("profile", digits / "digits.coil.pt2", "--calls", 3, "--threads", 1)
    assert numbers["models"][0]["calls"] == 3 and numbers["models"][0]["threads"] == 1
    limits = numbers["limits"]
    assert 0.5 < limits["memory_gb_s"] < 10000 and limits["cache_gb_s"] > 0 and 1 < limits["gflop_s"] < 1e6
    assert "limits" not in harness.coil_json("profile", digits / "digits.coil.pt2", "--calls", 1, "--no-limits")


def test_bench_has_the_table_too(digits):
    package = digits / "digits.coil.pt2"
    text = harness.coil_ok("bench", package, "--seconds", 0.05, "--kernels", "--top", 1).stdout
    assert "of the roof" in text and " GFLOP/s" in text and "--top" in text.splitlines()[-1]
    assert "of the roof" not in harness.coil_ok("bench", package, "--seconds", 0.05).stdout
    found = harness.coil_json("bench", package, "--seconds", 0.05, "--kernels")
    rows = found["kernels"]
    assert rows == sorted(rows, key=lambda row: -row["us"]) and rows[0]["us"] > 0 and found["limits"]["memory_gb_s"] > 0
    assert found["host_us"] + sum(row["us"] for row in rows) < 100 * found["call_us"]["median"]
    assert "kernels" not in harness.coil_json("bench", package, "--seconds", 0.05)


def test_the_roof_is_not_beaten_by_much(tmp_path):
    """A product that the processor computes well comes near the limit and does not leave it behind."""
    x = torch.randn(512, 512)
    compiled(torch.nn.Linear(512, 512), x).save(tmp_path / "m.pt2")
    numbers = harness.coil_json("profile", tmp_path / "m.pt2", "--threads", 1, "--calls", 40)
    [product] = [k for k in numbers["models"][0]["kernels"] if k["kind"] == "gemm"]
    assert 0.2 * numbers["limits"]["gflop_s"] < product["gflop_s"] < 1.25 * numbers["limits"]["gflop_s"]


def test_numbers_of_4_bits_have_half_a_byte(tmp_path):
    k, n, rows = 256, 512, 4
    for bits in (4, 8):
        compiled(QuantisedLinear(k, n, bits, group=32, scale_dtype=torch.float16), torch.randn(rows, k)).save(tmp_path / "m.pt2")
        numbers = harness.coil_json("profile", tmp_path / "m.pt2", "--calls", 1, "--no-limits")
        [product] = [kernel for kernel in numbers["models"][0]["kernels"] if kernel["kind"] == "gemm"]
        assert product["bytes"] == k * n * bits // 8 + k * n // 32 * 2 + 4 * rows * (k + n), bits


def test_the_command_refuses(digits, tmp_path):
    package = digits / "digits.coil.pt2"
    harness.assert_refused(harness.coil("profile", package, "--calls", 0), "--calls", code=402)
    harness.assert_refused(harness.coil("profile", package, "-o", tmp_path / "no" / "t.json"))
    harness.assert_refused(harness.coil("profile", package, "--shape", "nothing=3"), "nothing", code=106)
    harness.assert_refused(harness.coil("profile", tmp_path / "absent.pt2"))


# --- C

def test_the_c_api(digits, tmp_path):
    from ctypes import byref, c_char_p, c_int64, c_int32, c_uint32, c_void_p, Structure, sizeof

    class ProfileOptions(Structure):
        _fields_ = [("struct_bytes", c_uint32), ("counters", c_int32), ("calls", c_int64)]

    model = capi.Model(harness.BUILD / "libcoil_runtime.so", digits / "digits.coil.pt2")
    lib = model.lib
    lib.coil_profile_table.restype, lib.coil_profile_calls.restype = c_char_p, c_int64
    x = np.load(digits / "x.npz")["x"]
    inputs, outputs = model.bind(x)
    profile = c_void_p()
    model.check(lib.coil_profile_begin(None, None, byref(profile)))
    model.call(inputs, outputs, 1)
    model.check(lib.coil_profile_end(profile))
    model.call(inputs, outputs, 1)
    assert lib.coil_profile_calls(profile) == 1
    table = json.loads(lib.coil_profile_table(profile))
    assert table["models"][0]["calls"] == 1 and table["models"][0]["kernels"]
    model.check(lib.coil_profile_write(profile, str(tmp_path / "t.json").encode()))
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    lib.coil_profile_free(profile)
    lib.coil_profile_free(None)
    for options, text in ((ProfileOptions(0, 0, 0), "struct_bytes"), (ProfileOptions(sizeof(ProfileOptions), 0, -3), "-3")):
        assert lib.coil_profile_begin(model.model, byref(options), byref(profile)) == 402 and text in lib.coil_last_error().decode()
    assert lib.coil_profile_begin(model.model, None, None) == 402 and lib.coil_profile_end(None) == 402 and lib.coil_profile_write(None, b"x") == 402
    assert lib.coil_profile_calls(None) == 0 and lib.coil_profile_table(None) == b""
