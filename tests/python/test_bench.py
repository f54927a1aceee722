"""Every program of bench/ runs, in its quickest form: it measures something, or says in a sentence what it cannot do without and ends well."""

import os
import subprocess
import sys

import pytest

import harness

BENCH = harness.REPO / "bench"
# What they are called with. OUT is a folder of the test's own.
PROGRAMS = {
    "disturbed.py": ["--models", "multiply_10", "--peers", "eager", "coil", "--busy", "1", "--rounds", "1", "--threads", "1"],
    "gpu_peers.py": ["--models", "multiply_10", "--peers", "eager,coil", "--rounds", "1", "--burst", "0.01", "--no-startup", "--out", "OUT", "--work", "OUT/work"],
    "gpu_peers.py cpu": ["--device", "cpu", "--models", "multiply_10", "--peers", "eager,coil", "--rounds", "1", "--burst", "0.01", "--no-startup", "--out", "OUT", "--work", "OUT/work"],
    "gpu_profile.py": ["multiply_10", "--calls", "2"],
    "gpu_profile.py cpu": ["multiply_10", "--device", "cpu", "--peers", "eager,coil", "--calls", "2"],
    "gpu_door.py": ["--only", "attention f32 train"],
    "compiled_operators.py": ["--device", "cpu", "--only", "glu", "--workers", "1"],
    "gpu_rows.py": ["--only", "pool", "--repeats", "1"],
    "gpu_tuning.py": ["--programs", "mlp", "--budget", "2s", "--rounds", "1", "--burst", "0.01", "--out", "OUT"],
    "llm.py": ["--shapes", "tiny", "--dtypes", "f32", "--threads", "1", "--prompt", "8", "--tokens", "4", "--rounds", "1"],
    "loops.py": [harness.COIL, "--rounds", "1", "--seconds", "0.02", "--programs", "sum of rows"],
    "low_precision.py": ["--models", "mlp_3x1024_r256", "--rows", "1", "--rounds", "1", "--burst", "0.01", "--exported", "OUT/exported", "--packages", "OUT/packages"],
    "operators.py": ["cumsum_rows", "nonzero"],
    "optimizers.py": ["--parameters", "small", "--only", "sgd", "--rounds", "3", "--no-inductor"],
    "peers.py": ["run", "--models", "multiply_10", "--peers", "eager", "coil", "--rounds", "1", "--burst", "0.01", "--threads", "1"],
    "planted_faults.py": ["--programs", "softmax", "--faults", "wrong"],
    "profile_overhead.py": ["--rounds", "1", "--seconds", "0.01"],
    "startup.py": ["--runs", "1", "--models", "multiply", "digits"],
    "torch_compile_latency.py": ["--rounds", "1"],
    "tuning.py": [harness.DIGITS, "--budget", "1s", "--rounds", "1", "--burst", "0.01"],
    "tuning_sweep.py": ["--sizes", "2", "--most", "4", "--budget", "1s", "--rounds", "1", "--burst", "0.01"],
}
GPU = {name for name in PROGRAMS if name.startswith("gpu_") and not name.endswith(" cpu")}


def has_gpu():
    import torch

    return torch.cuda.is_available()


def programs():
    """Those above, and any other: its --help."""
    others = {p.name for p in BENCH.glob("*.py") if "__main__" in p.read_text()} - {name.split()[0] for name in PROGRAMS} - {"peer_worker.py"}  # (peers.py runs that one)
    return {**PROGRAMS, **{name: ["--help"] for name in sorted(others)}}


@pytest.mark.parametrize("name", programs())
def test_it_runs(name, tmp_path):
    arguments = [str(a).replace("OUT", str(tmp_path)) for a in programs()[name]]
    program = BENCH / name.split()[0]
    where = ["--build", str(harness.BUILD)] if '"--build"' in program.read_text() else []
    environment = dict(os.environ, COIL_BUILD=str(harness.BUILD), PYTHONPATH=str(harness.PYTHON_PATH), TMPDIR=str(tmp_path), COIL_BENCH=str(tmp_path / "bench"))
    done = subprocess.run([sys.executable, "-W", "ignore", program, *arguments, *where], capture_output=True, text=True, errors="replace", timeout=200, env=environment, cwd=harness.REPO)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    assert "Traceback" not in done.stderr and "failed" not in done.stdout, done.stdout[-1500:] + done.stderr[-3000:]
    if name in GPU and not has_gpu():
        assert done.stdout.startswith("nothing was measured: ") and "GPU" in done.stdout, done.stdout
    elif name in PROGRAMS:
        assert any(c.isdigit() for c in done.stdout) and "nothing was measured" not in done.stdout, done.stdout


@pytest.mark.parametrize("arguments", [["gpu()"], ['modules("a_peer_that_nobody_has")']], ids=["gpu", "module"])
def test_what_is_missing_is_said(arguments):
    code = f"import sys; sys.path.insert(0, {str(BENCH)!r}); import needs; needs.{arguments[0]}; print('measured')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ, CUDA_VISIBLE_DEVICES=""))
    assert done.returncode == 0 and done.stdout.startswith("nothing was measured: ") and "measured\n" not in done.stdout[10:], done.stdout + done.stderr
