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
