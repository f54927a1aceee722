"""Which device coil.compile compiles for when nobody says: that of the program's tensors. Fake tensors of a GPU, so that no GPU is needed."""

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from coil import _compile


@pytest.fixture(autouse=True)
def gpus(monkeypatch):
    monkeypatch.setattr(_compile._runtime, "cuda_devices", lambda: [("a GPU", 90), ("another", 90)])


def linear(device):
    with FakeTensorMode():
        return nn.Linear(4, 3, device=device), torch.empty(2, 4, device=device)


def test_of_a_module_and_its_arguments():
    module, x = linear("cuda:1")
    assert _compile._own_gpu(module, (x,), None) == "cuda:1"
    assert _compile._own_gpu(lambda a: a + 1, None, {"a": x}) == "cuda:1"
    assert _compile._own_gpu(module, (x, torch.tensor(2.0), 3), None) == "cuda:1"


def test_of_exported_programs():
    with FakeTensorMode(allow_non_fake_inputs=True):
        module, x = nn.Linear(4, 3, device="cuda:1"), torch.empty(2, 4, device="cuda:1")
        program = torch.export.export(module, (x,))
    assert _compile._own_gpu(program, None, None) == "cuda:1"
    assert _compile._own_gpu({"a": program, "b": program}, None, None) == "cuda:1"


def test_several_devices_and_none():
    module, x = linear("cuda:1")
    other, y = linear("cpu")
    assert _compile._own_gpu(other, (y,), None) is None
    assert _compile._own_gpu(module, (y,), None) is None
    assert _compile._own_gpu("model.pt2", None, None) is None
    assert _compile._own_gpu(b"", None, None) is None
    assert _compile._own_gpu(lambda: 1, (), {}) is None


def test_without_a_gpu(monkeypatch):
    monkeypatch.setattr(_compile._runtime, "cuda_devices", lambda: [])
    module, x = linear("cuda:0")
    assert _compile._own_gpu(module, (x,), None) is None
