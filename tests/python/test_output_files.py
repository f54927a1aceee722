"""Outputs appear whole or not at all: unwritable places, full disks, a process that is killed."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import pytest

import harness
import zoo
from harness import COIL, DIGITS, DIGITS_TEST, assert_refused, coil, coil_ok


def zoo_names(**parameters):
    return ["resnet18_b1", "size_70001"]


def large_model():
    return zoo.make("resnet18_b1") / "resnet18_b1.aten.pt2"


def slow_model(folder):
    """One that takes long to compile however fast the machine is: many kernels, none like another."""
    import torch

    class Steps(torch.nn.Module):
        def forward(self, x):
            for i in range(1, 600):
                x = torch.softmax(x.reshape(-1)[: 7 * 64 * 64 - i].sin() * i, 0).sum() + x
            return x

    torch.export.save(torch.export.export(Steps(), (torch.randn(7, 64, 64),)), folder / "slow.pt2")
    return folder / "slow.pt2"


@pytest.mark.parametrize("command", ["compile", "run"])
def test_unwritable(command, tmp_path):
    arguments = (command, DIGITS, *(("--input", DIGITS_TEST) if command == "run" else ()))
    flag = "-o" if command == "compile" else "--output"
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "none" / "o.npz", tmp_path / "file" / "o.npz", "/proc/o.npz"):
        done = coil(*arguments, flag, place)
        assert_refused(done, code=3)
        assert done.returncode == 3
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"] and (tmp_path / "file").read_text() == "x"


def limit_file_size(size):
    def apply():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that write() fails instead of killing the process
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return apply


@pytest.mark.parametrize("command", ["compile", "run"])
def test_write_fails_half_way(command, tmp_path):
    """A limit on file sizes stands in for a disk that fills up: the first bytes are written, then write() fails."""
    out = tmp_path / "o"
    if command == "compile":
        done = coil("compile", large_model(), "-o", out, preexec_fn=limit_file_size(4_000_000))  # of 75 MB; the linker's files are smaller
    else:
        folder = zoo.make("size_70001")  # an output of 280 KB; the limit leaves room for the generated code, which is smaller
        done = coil("run", folder / "size_70001.aten.pt2", "--input", folder / "example.npz", "--output", out, preexec_fn=limit_file_size(200_000))
    assert_refused(done, code=3)
    assert list(tmp_path.iterdir()) == []


def test_full_disk(tmp_path):
    """A file system of 64 KB, in a mount namespace of its own."""
    if not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here (unshare -rm): test_write_fails_half_way covers the error path")
    script = f'mount -t tmpfs -o size=64k none {tmp_path} || exit 99; "{COIL}" compile "{DIGITS}" -o {tmp_path}/o.pt2; code=$?; ls -A {tmp_path}; exit $code'
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True, timeout=60)
    if done.returncode == 99:
        pytest.skip("tmpfs cannot be mounted here: test_write_fails_half_way covers the error path")
    assert_refused(done, code=3)
    assert done.stdout.strip() == "", "left on the full disk: " + done.stdout


@pytest.mark.parametrize("name", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_killed_half_way(name, tmp_path):
    model, stopped = large_model(), 0
    (tmp_path / "whole").mkdir()
    coil_ok("compile", model, "-o", tmp_path / "whole" / "o.coil.pt2")
    whole = (tmp_path / "whole" / "o.coil.pt2").read_bytes()
    for delay in (0.02, 0.1, 0.3, 0.6, 1.0):
        folder = tmp_path / str(delay)
        folder.mkdir()
        out = folder / "o.coil.pt2"
        # A child inherits what its parent ignores, as a shell in the background does SIGINT.
        own = None if name is signal.SIGKILL else lambda: signal.signal(name, signal.SIG_DFL)
        process = subprocess.Popen([COIL, "compile", model, "-o", out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=own)
        time.sleep(delay)
        process.send_signal(name)
        code = process.wait(60)
        if code == 0:
            coil_ok("inspect", out)
            continue
        stopped += 1
        assert code in (-name, 130, 128 + name), code
        # The signal may come between the last step and the end: then all of it is there.
        assert not out.exists() or out.read_bytes() == whole, f"a partial package after {delay} s"
        if name is not signal.SIGKILL:
            assert list(folder.iterdir()) in ([], [out]), "left behind: " + str(list(folder.iterdir()))
    assert stopped, "every compile ended before it was stopped: raise the delays"
    coil_ok("compile", DIGITS, "-o", tmp_path / "o.pt2")


def test_existing_output_survives_a_failure(tmp_path):
    out = tmp_path / "o.coil.pt2"
    coil_ok("compile", DIGITS, "-o", out)
    before = out.read_bytes()
    (tmp_path / "bad.pt2").write_bytes(DIGITS.read_bytes()[:50_000])
    assert_refused(coil("compile", tmp_path / "bad.pt2", "-o", out))
    assert out.read_bytes() == before


# ---- Ctrl-C
INTERRUPTED = """
import sys, threading, time, coil
print("ready", flush=True)
try:
    coil.compile(sys.argv[1], sys.argv[2] or None, options={"threads": 1} | eval(sys.argv[3]))
except KeyboardInterrupt:
    print("interrupted", flush=True)
coil.compile(sys.argv[4])
print("again", flush=True)
"""


@pytest.mark.parametrize("options", ["{}", '{"tune": "fast", "tune_budget": "60s"}'], ids=["plain", "tuned"])
@pytest.mark.parametrize("to_file", [True, False])
def test_interrupted_in_python(options, to_file, tmp_path):
    """KeyboardInterrupt soon, nothing written, nothing left, and the next compile is right."""
    (tmp_path / "model").mkdir()
    model = slow_model(tmp_path / "model")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "out").mkdir()
    out = str(tmp_path / "out" / "o.pt2") if to_file else ""
    env = dict(os.environ, PYTHONPATH=str(harness.PYTHON_PATH), TMPDIR=str(tmp_path / "tmp"), COIL_CACHE="off")
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, model, out, options, DIGITS], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    assert process.stdout.readline() == "ready\n"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    said = process.stdout.readline()
    took = time.monotonic() - start
    rest, errors = process.communicate(timeout=300)
    assert said == "interrupted\n" and rest == "again\n", said + rest + errors
    assert took < 15, f"{took:.1f} s until it stopped"
    assert list((tmp_path / "out").iterdir()) == [] and list((tmp_path / "tmp").iterdir()) == []
