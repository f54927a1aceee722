"""Some of the whole models of tests/models/architectures.py: exported, compiled, compared with eager; or trained beside eager."""

import sys

import pytest

import harness
import architectures

CASES = [(name, "infer") for name in ("torchvision/squeezenet1_1", "torchvision/vit", "transformers/bert", "transformers/llama", "transformers/t5", "transformers/whisper")]
CASES += [(name, "train") for name in ("transformers/gpt2", "torchvision/squeezenet1_1")]


def job(name, mode):
    return architectures.in_process(name, mode, sys.stderr)


@pytest.mark.parametrize("name,mode", CASES, ids=[f"{name.split('/')[1]}-{mode}" for name, mode in CASES])
def test_equals_eager(name, mode, result):
    assert result["status"] == "right", result
    if mode == "train":
        assert all("random numbers" in reason for reason in result["fallbacks"]), result["fallbacks"]


def test_a_wrong_result_is_seen():
    torch = pytest.importorskip("torch")
    right = torch.tensor([1.0, -2.0, float("inf")])
    assert architectures.error_of(right.clone(), right) == 0
    assert architectures.error_of(right + torch.tensor([0.1, 0, 0]), right) == pytest.approx(0.05)
    assert architectures.error_of(torch.tensor([1.0, -2.0, 3.0]), right) == float("inf")
    assert architectures.error_of(right.double(), right) == float("inf")
    assert harness.BUILD.exists()


def test_neighbours_are_counted():
    """A process that computes beside a timing is seen; an idle one is not held to be busy by the timing's own work."""
    import subprocess
    import time

    if architectures.busy_seconds() is None:
        pytest.skip("no /proc/stat")
    spin = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.3)  # it has started
        with architectures.Neighbours() as beside:
            end = time.perf_counter() + 0.5
            while time.perf_counter() < end:
                sum(range(1000))
    finally:
        spin.kill()
        spin.wait()
    assert beside.cores is not None and beside.cores > 0.2


def test_only_times_of_a_quiet_machine_are_published():
    import architecture_report

    row = {"name": "family/net", "mode": "infer", "family": "CNN", "parameters": 10, "status": "right", "error": 1e-6, "compile_s": 1.25, "eager_ms": 4947.11, "coil_ms": 283.24}
    for busy in ({}, {"others": None}, {"others": 1.5}):
        text = architecture_report.text([{**row, **busy}], "2026-01-01")
        assert "family/net" in text and "4947" not in text and "283" not in text and "eager ms" not in text
    text = architecture_report.text([{**row, "others": 0.02}, {**row, "name": "family/other", "eager_ms": 77.77, "others": 1.5}], "2026-01-01")
    assert "| 1.25 | 4947.11 | 283.24 |" in text and "77.77" not in text
    assert all(len(line) <= 120 for line in text.splitlines())
