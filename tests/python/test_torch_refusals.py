"""Integers and booleans under torch.compile(backend="coil"), where eager has no kernel for them: refused too, whatever AOTAutograd makes of the operator."""

import os
import re

import pytest

import harness  # noqa: F401  (sets the path of coil)
import zoo

torch = pytest.importorskip("torch")
from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch.utils._pytree import tree_map  # noqa: E402

# What was answered once; the others take turns.
ALWAYS = ("nn.functional.interpolate", "nn.functional.upsample_bilinear", "nn.functional.hardshrink", "nn.functional.softshrink", "nn.functional.multi_margin_loss",
          "nn.functional.multilabel_margin_loss", "nn.functional.margin_ranking_loss", "nn.functional.nll_loss", "scatter_reduce", "histogramdd", "nn.functional.prelu", "nn.functional.grid_sample")
SHARE = int(os.environ.get("COIL_TEST_SHARE", 1 if zoo.ALL else 12))  # one of so many of the others; 1: all
# Eager's own two paths differ, or what is random.
LEFT_OUT = {"empty", "rand", "randn", "randint", "normal", "bernoulli", "multinomial", "dropout", "exponential", "cauchy", "geometric", "uniform"}


def is_left_out(name):
    """By whole words of its name: `log_normal`, `new_empty_strided` and `alpha_dropout` are, `normalize`, `__rand__` and a window's shape are not."""
    return not name.startswith(("__", "signal.")) and not LEFT_OUT.isdisjoint(re.split(r"[._0-9]+", name))


def chosen():
    for number, op in enumerate(op_db):
        if is_left_out(op.name):
            continue
        if op.name in ALWAYS or number % SHARE == 0:
            yield pytest.param(op, id=op.formatted_name)


def as_type(value, dtype):
    return tree_map(lambda x: (x.abs() * 3).to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x, value)


def raises(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
@pytest.mark.parametrize("op", chosen())
def test_refused_where_eager_refuses(op, dtype):
    try:
        samples = [s for _, s in zip(range(2), op.sample_inputs("cpu", torch.float32))]
    except Exception:
        pytest.skip("has no samples of float32")
    for sample in samples:
        first, args, kwargs = (as_type(v, dtype) for v in (sample.input, sample.args, sample.kwargs))

        def function(first, args):
            return op.op(first, *args, **kwargs)

        error = raises(function, first, args)
        if error is None or "not implemented for" not in str(error):
            continue
        torch._dynamo.reset()
        assert raises(torch.compile(function, backend="coil"), first, args), f"eager says: {error}"


def test_the_line_is_named():
    def resized(x):
        y = x + 1
        return torch.nn.functional.interpolate(y, scale_factor=2, mode="bilinear")  # this line

    with pytest.raises(Exception, match=r"(?s)upsample.*not implemented for 'Long'.*test_torch_refusals.py:\d+"):
        torch.compile(resized, backend="coil")(torch.ones(1, 1, 4, 4, dtype=torch.int64))


def test_what_eager_answers_is_compiled():
    """The trial is of types alone: zeros may be no data of the operator, and the generator of random numbers stays where it is."""
    def function(x, at):
        table = torch.nn.functional.one_hot(at, 6) // (x + 1)
        return table.cumsum(0), x.remainder(x + 2), torch.bincount(at, minlength=6) if not torch.compiler.is_compiling() else torch.zeros(6).index_add(0, at, torch.ones(4)).long()

    x, at = torch.arange(6), torch.tensor([0, 5, 5, 2])
    torch.manual_seed(3)
    before = torch.get_rng_state()
    for mine, expected in zip(torch.compile(function, backend="coil")(x, at), function(x, at)):
        assert torch.equal(mine, expected)
    assert torch.equal(torch.get_rng_state(), before)
