"""Signals and time limits end a profile with what it has: `coil profile`, and any process with COIL_PROFILE."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import harness
from harness import DIGITS


def events(trace, category):
    return [e for e in trace["traceEvents"] if e.get("cat") == category]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A folder with the package and inputs of it."""
    folder = tmp_path_factory.mktemp("digits")
    harness.coil_ok("compile", DIGITS, "-o", folder / "digits.coil.pt2")
    np.savez(folder / "x.npz", x=np.zeros((8, 1, 8, 8), "float32"))
    return folder

FOREVER = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy, coil
model, x = coil.load(sys.argv[2]), numpy.load(sys.argv[3])
x = [x[k] for k in x.files]
model(*x)
print("ready", flush=True)
while True:
    model(*x)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_the_process_loses_nothing(digits, tmp_path, name):
    path = tmp_path / "trace.json"
    process = subprocess.Popen([sys.executable, "-c", FOREVER, harness.PYTHON_PATH, str(digits / "digits.coil.pt2"), str(digits / "x.npz")], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "COIL_PROFILE": str(path), "COIL_PROFILE_CALLS": "1000000"})
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(getattr(signal, name))
    assert process.wait(60) == -getattr(signal, name)
    assert len(events(json.loads(path.read_text()), "call")) > 1


def test_a_child_of_a_traced_process_ends_as_ever(digits, tmp_path):
    path = tmp_path / "trace.json"
    script = FOREVER.replace("while True:", "import os, signal\nchild = os.fork()\nif child == 0: signal.pause()\nos.kill(child, 15)\nprint(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\nfor i in range(3):")
    done = subprocess.run([sys.executable, "-c", script, harness.PYTHON_PATH, str(digits / "digits.coil.pt2"), str(digits / "x.npz")], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "COIL_PROFILE": str(path)})
    assert done.returncode == 0 and done.stdout == "ready\n-15\n", done.stderr
    assert len(events(json.loads(path.read_text()), "call")) == 4


def interrupted(digits, tmp_path, number, *options):
    """`coil profile` of more calls than anybody waits for, which a signal ends: (exit code, stdout, stderr)."""
    path = tmp_path / "trace.json"
    process = subprocess.Popen([harness.COIL, "profile", digits / "digits.coil.pt2", "--calls", "1000000", "--no-limits", "-o", path, *options],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    time.sleep(1)
    process.send_signal(number)
    said, errors = process.communicate(timeout=60)
    return process.returncode, said, errors


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_an_interrupted_command_shows_what_it_has(digits, tmp_path, name):
    code, said, errors = interrupted(digits, tmp_path, getattr(signal, name))
    assert code == -getattr(signal, name), errors
    made = int(re.search(rf"{name} after (\d+) of 1000000 calls: these are shown and written", errors)[1])
    assert made > 0 and f"mean of {made} call" in said and "kernels" in said
    assert 0 < len(events(json.loads((tmp_path / "trace.json").read_text()), "call")) <= made and os.listdir(tmp_path) == ["trace.json"]


def test_an_interrupted_command_gives_json(digits, tmp_path):
    code, said, _ = interrupted(digits, tmp_path, signal.SIGTERM, "--json")
    assert code == -signal.SIGTERM and json.loads(said)["models"][0]["calls"] > 0


def test_a_time_limit_of_the_command(digits, tmp_path):
    said = harness.coil("profile", digits / "digits.coil.pt2", "--calls", 1000000, "--no-limits", "--seconds", 0.2, "--json")
    assert said.returncode == 0 and "0.2 s are over after" in said.stderr
    assert 0 < json.loads(said.stdout)["models"][0]["calls"] < 1000000
    said = harness.coil("profile", digits / "digits.coil.pt2", "--seconds", 0)
    assert said.returncode == 2 and "--seconds" in said.stderr
    for command, option in (("profile", "--seconds"), ("bisect", "--limit"), ("bench", "--seconds")):
        said = harness.coil(command, digits / "digits.coil.pt2", option, "nan")
        assert said.returncode == 2 and option in said.stderr, said.stderr
