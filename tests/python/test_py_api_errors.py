"""Errors of `import coil`: what is raised, and what it says."""

import pytest
import torch

import harness
import coil
from harness import DIGITS
from test_py_api import compiled, linear, linear_program  # noqa: F401 (fixtures)


@pytest.mark.parametrize("call, number, kind, text", [
    (lambda m: m(torch.zeros(65, 16)), 204, ValueError, "1..64"),
    (lambda m: m(torch.zeros(3, 16, dtype=torch.float64)), 202, ValueError, "float64"),
    (lambda m: m(torch.zeros(3)), 203, ValueError, "'x'"),
    (lambda m: m(), 201, ValueError, ""),
    (lambda m: m(torch.zeros(3, 16), torch.zeros(3)), 201, ValueError, ""),
    (lambda m: m(y=torch.zeros(3, 16)), 201, ValueError, ""),
    (lambda m: m("text"), 202, ValueError, "is a str, not a tensor"),
    (lambda m: m(torch.zeros(3, 16, device="meta")), 206, ValueError, "on the device 'meta'"),
    (lambda m: m(torch.zeros(3, 16).to_sparse()), 206, ValueError, "has the layout torch.sparse_coo"),
    (lambda m: m(torch.quantize_per_tensor(torch.zeros(3, 16), 0.1, 0, torch.qint8)), 206, ValueError, "is quantised"),
    (lambda m: m(torch.nested.nested_tensor([torch.zeros(3, 16)])), 206, ValueError, "is a nested tensor"),
    (lambda m: torch.vmap(m)(torch.zeros(2, 3, 16)), 206, ValueError, "a transform of torch.func"),
    (lambda m: torch.func.grad(lambda x: m(x).sum())(torch.zeros(3, 16)), 206, ValueError, "a transform of torch.func"),
    (lambda m: coil.load("/nowhere/model.coil.pt2"), 1, FileNotFoundError, "/nowhere"),
    (lambda m: coil.load(DIGITS), 301, RuntimeError, "coil compile"),
    (lambda m: coil.load(__file__), 10, ValueError, "zip"),
    (lambda m: coil.load(DIGITS, device="tpu"), 402, ValueError, "cuda:1"),
    (lambda m: coil.compile(__file__), 10, ValueError, "zip"),
    (lambda m: coil.compile("/nowhere/model.pt2"), 1, FileNotFoundError, "/nowhere"),
    (lambda m: coil.compile(DIGITS, "/nowhere/model.coil.pt2"), 3, OSError, "/nowhere"),
    (lambda m: m.save("/nowhere/model.coil.pt2"), 3, OSError, "/nowhere"),
], ids=range(21))
def test_errors(compiled, call, number, kind, text):
    with pytest.raises(kind) as raised:
        call(compiled)
    if number is not None:
        error = raised.value
        assert isinstance(error, coil.Error) and error.number == number and error.code == f"COIL-E{number:03}", error
        assert str(error).startswith(error.code) and text in str(error), error


def test_an_error_has_the_words_of_the_command(tmp_path):
    bad = tmp_path / "bad.pt2"
    bad.write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(coil.ArchiveError) as raised:
        coil.compile(bad)
    for line in str(raised.value).splitlines():
        assert line.strip() in harness.coil("compile", bad).stderr


@torch.library.custom_op("coil_tests::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@unknown.register_fake
def _(x):
    return torch.empty_like(x)


def test_a_refused_operator_is_named():
    with pytest.raises(coil.UnsupportedError) as raised:
        coil.compile(lambda x: unknown(x) + 1, args=(torch.randn(3, 3),))
    error = raised.value
    assert isinstance(error, NotImplementedError) and error.number in (102, 103, 105)
    assert error.node == "unknown" and "coil_tests.unknown" in error.reason


def test_errors_carry_fields():
    """What a program reads of an error stands in fields; the text has it too, with the code, the place and the hint."""
    class Lists(torch.nn.Module):
        def forward(self, x):
            return torch.ops.aten.relu(x), "a word"

    with pytest.raises(coil.Error) as raised:
        coil.compile(Lists(), args=(torch.randn(3),))
    error = raised.value
    assert error.reason == "output '' is a string"
    assert str(error).startswith(f"{error.code}: {error.reason}") and "hint" not in error.reason


def test_a_failed_call_changes_nothing(compiled, linear):
    x = torch.randn(2, 16)
    with pytest.raises(coil.InputError):
        compiled(x.double())
    torch.testing.assert_close(compiled(x), linear(x), atol=1e-5, rtol=1e-5)
