"""A few elements of long rows are written or added up, as gradients of topk and sparse attention's do: by the routine that goes to these alone."""

import pytest
import torch

pytestmark = pytest.mark.usefixtures("fresh_compiles")

ROWS, LENGTH, WRITES = 64, 1024, 8
CASES = {
    "scatter": lambda x, i, v: x.scatter(1, i, v),
    "scatter_number": lambda x, i, v: x.scatter(1, i, -2.0),
    "scatter_columns": lambda x, i, v: x.t().contiguous().scatter(0, i.t(), v.t()),
    "scatter_add": lambda x, i, v: x.scatter_add(1, i, v) * 2,
    "scatter_reduce": lambda x, i, v: x.scatter_reduce(1, i, v, "amax", include_self=False),
    "three": lambda x, i, v: torch.zeros_like(x).scatter(1, i[:, :3], v) + x,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_writes(name, dtype):
    x, v = torch.randn(ROWS, LENGTH).to(dtype), torch.randn(ROWS, WRITES).to(dtype)
    i = (torch.arange(ROWS)[:, None] * 7 + torch.arange(WRITES) * 101) % LENGTH  # from the first to the last place, each once in a row
    i[1, 2] = LENGTH - 1
    if name.endswith(("add", "reduce")):
        i[:, 5] = i[:, 4]
    close = dict(atol=2e-2, rtol=2e-2) if dtype == torch.bfloat16 else dict(atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(torch.compile(CASES[name], backend="coil", fullgraph=True)(x, i, v), CASES[name](x, i, v), **close)


def test_the_gradient_of_the_largest():
    def run(call):
        x = torch.arange(ROWS * LENGTH).mul(7919).remainder(65537).float().view(ROWS, LENGTH).requires_grad_()
        return torch.autograd.grad((call(x) * torch.arange(WRITES)).sum(), x)

    function = lambda x: x.topk(WRITES, -1)[0].square()
    torch.testing.assert_close(run(torch.compile(function, backend="coil", fullgraph=True)), run(function))


def test_a_place_outside_is_an_error():
    call = torch.compile(CASES["scatter"], backend="coil", fullgraph=True)
    x, i, v = torch.randn(ROWS, LENGTH), torch.arange(WRITES).repeat(ROWS, 1), torch.randn(ROWS, WRITES)
    torch.testing.assert_close(call(x, i, v), CASES["scatter"](x, i, v))
    i[5, 5] = LENGTH
    with pytest.raises((RuntimeError, IndexError, ValueError), match="out of"):
        call(x, i, v)
