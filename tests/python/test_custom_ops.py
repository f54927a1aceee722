"""Operators that users define: named with their source line where coil cannot take them, PyTorch's work under torch.compile."""

import pytest
import torch

import coil
from harness import assert_refused
from harness import coil as command

library = torch.library


@library.custom_op("coiltest::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


@scaled.register_fake
def _(x, factor):
    return torch.empty_like(x)


@library.custom_op("coiltest::bump", mutates_args=("x",))
def bump(x: torch.Tensor) -> None:
    x.add_(1)


@bump.register_fake
def _(x):
    return None


class Pure(torch.nn.Module):
    def forward(self, x):
        y = torch.ops.coiltest.scaled(x, 2.0)
        return y + 1


class Writing(torch.nn.Module):
    def forward(self, x):
        y = x.clone()
        torch.ops.coiltest.bump(y)
        return y * 2


@pytest.mark.parametrize("module,name", [(Pure, "coiltest.scaled"), (Writing, "coiltest.bump")])
@pytest.mark.parametrize("decomposed", [False, True])
def test_named_in_an_export(module, name, decomposed, tmp_path):
    program = torch.export.export(module(), (torch.rand(3),))
    torch.export.save(program.run_decompositions() if decomposed else program, tmp_path / "p.pt2")
    assert_refused(command("compile", tmp_path / "p.pt2", "-o", tmp_path / "p.coil.pt2"), name, "test_custom_ops.py:")
    done = command("check", tmp_path / "p.pt2")
    assert done.returncode != 0 and name in done.stdout + done.stderr and "test_custom_ops.py:" in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("module", [Pure, Writing])
def test_pytorchs_work_under_torch_compile(module):
    x = torch.rand(5)
    assert torch.equal(torch.compile(module(), backend="coil")(x), module()(x))


def test_may_be_an_error_under_torch_compile():
    with pytest.raises(Exception, match="coiltest.scaled"):
        torch.compile(Pure(), backend="coil", options={"fallback": "error"})(torch.rand(5))


def test_tokens_of_effects(tmp_path):
    """An operator whose effect is ordered by tokens, which are among the program's inputs and outputs."""
    class Asserting(torch.nn.Module):
        def forward(self, x):
            torch.ops.aten._assert_async.msg((x > 0).all(), "positive, please")
            return x * 2

    program = torch.export.export(Asserting(), (torch.rand(3) + 1,)).run_decompositions()
    model = coil.compile(program)
    assert torch.equal(model(torch.ones(3)), torch.full((3,), 2.0))
    with pytest.raises(Exception, match="positive, please"):
        model(-torch.ones(3))
