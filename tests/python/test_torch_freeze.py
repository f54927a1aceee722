"""options={"freeze": True}: weights that inference holds, and what happens when they change."""

import logging

import pytest
import torch
from torch import nn

import coil

pytestmark = pytest.mark.usefixtures("fresh_compiles")


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.Flatten(), nn.Linear(4 * 36, 5)).eval()


def test_weights_are_constants_of_the_program(monkeypatch):
    held = []
    from coil.dynamo import _program
    original = _program._compiling
    monkeypatch.setattr(_program, "_compiling", lambda parts, *rest: held.append((len(parts.inputs), len(parts.weights))) or original(parts, *rest))
    model, x = network(), torch.randn(2, 3, 8, 8)
    compiled = torch.compile(model, backend="coil", options={"freeze": True, "fallback": "error"})
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)
    # four of the batch norm, two of each other layer; the count of batches is not read
    assert held == [(1, 10)]


@pytest.mark.parametrize("change", ["in place", "another tensor"])
def test_a_changed_weight_is_taken_anew(change, caplog):
    model, x = network(), torch.randn(2, 3, 8, 8)
    compiled = torch.compile(model, backend="coil", options={"freeze": True})
    with torch.no_grad(), caplog.at_level(logging.WARNING, logger="coil"):
        compiled(x)
        for round in range(5):
            if change == "in place":
                model[3].weight.mul_(1.5)
            else:
                model[5].bias = nn.Parameter(model[5].bias + 1)
            torch.testing.assert_close(compiled(x), model(x), atol=1e-5, rtol=1e-4)
    assert "frozen weights changed" in caplog.text
    if change == "in place":  # Dynamo itself compiles anew for another tensor
        assert "from now on they are inputs" in caplog.text


def test_training_is_not_frozen():
    model, x = network().train(), torch.randn(2, 3, 8, 8)
    compiled = torch.compile(model, backend="coil", options={"freeze": True})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        loss = compiled(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]


def test_buffers_that_the_call_writes_to_stay_inputs():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4))
            self.register_buffer("calls", torch.zeros(4))

        def forward(self, x):
            self.calls += 1
            return x * self.weight + self.calls

    model, x = Counts(), torch.randn(3, 4)
    compiled = torch.compile(model, backend="coil", options={"freeze": True})
    with torch.no_grad():
        for call in range(1, 6):
            torch.testing.assert_close(compiled(x), x * model.weight + call)
    assert coil.compile_stats().packages == 1


def test_the_setting_of_inductor_counts():
    import torch._inductor.config
    from coil.dynamo import _backend
    assert not _backend._inductor_freezes()
    with torch._inductor.config.patch(freezing=True):  # (pytest's monkeypatch would leave a setting that does not exist)
        assert _backend._inductor_freezes()
    assert not _backend._inductor_freezes()


def test_a_wrong_option():
    with pytest.raises(Exception, match="'freeze' is 'yes'"):
        torch.compile(lambda x: x + 1, backend="coil", options={"freeze": "yes"})(torch.ones(2))
