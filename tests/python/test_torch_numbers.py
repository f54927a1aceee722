"""Floating numbers that follow from dynamic sizes (x.shape[-1] ** -0.5), wherever operators take numbers: one program of coil's for all sizes."""

import pytest
import torch

import coil

pytestmark = pytest.mark.usefixtures("fresh_compiles")


def scale(x):
    return x.shape[-1] ** -0.5


TAKEN = {
    "mul": lambda x: x * scale(x),
    "rsub": lambda x: scale(x) - x,
    "rdiv": lambda x: scale(x) / (x.abs() + 1),
    "pow": lambda x: (x.abs() + 0.1) ** scale(x),
    "rpow": lambda x: scale(x) ** x,
    "remainder": lambda x: x % scale(x),
    "fmod": lambda x: torch.fmod(x, scale(x)),
    "compare": lambda x: torch.where(x <= scale(x), x, 2 * x),
    "clamp": lambda x: x.clamp(-scale(x), 0.7),
    "clamp_min": lambda x: x.clamp(min=scale(x)),
    "clamp_max": lambda x: x.clamp_max(scale(x)),
    "lerp": lambda x: torch.lerp(x, x.sin(), scale(x)),
    "add": lambda x: torch.add(x, x.sin(), alpha=scale(x)),
    "sub": lambda x: torch.sub(x, x.sin(), alpha=scale(x)),
    "addcmul": lambda x: torch.addcmul(x, x, x.cos(), value=scale(x)),
    "addcdiv": lambda x: torch.addcdiv(x, x, x.cos() + 2, value=scale(x)),
    "addmm": lambda x: torch.addmm(x @ x.T, x, x.T, beta=scale(x), alpha=2),
    "baddbmm": lambda x: torch.baddbmm(x[:, :, None], x[:, :, None], x[:, None, :1], alpha=scale(x), beta=0),
    "addmv": lambda x: torch.addmv(x[:, 0], x, x[0], alpha=scale(x), beta=0.5),
    "addr": lambda x: torch.addr(x @ x.T, x[:, 0], x[:, 1], alpha=scale(x)),
    "full": lambda x: x * torch.full((3,), scale(x))[:1],
    "full_like": lambda x: torch.full_like(x, scale(x)) * x,
    "fill": lambda x: x.clone().fill_(scale(x)) + x,
    "masked_fill": lambda x: x.masked_fill(x > 0, scale(x)),
    "where": lambda x: torch.where(x > 0, scale(x), x),
    "tensor": lambda x: torch.tensor(scale(x)).sqrt() * x,
    "index_fill": lambda x: x.index_fill(1, torch.tensor([0]), scale(x)),
    "scatter": lambda x: x.scatter(1, torch.zeros(len(x), 1, dtype=torch.long), scale(x)),
    "xlogy": lambda x: torch.special.xlogy(x, scale(x)),
    "copysign": lambda x: torch.copysign(x, -scale(x)),
    "list": lambda x: sum(torch._foreach_mul([x, x + 1], scale(x))),
    "linspace": lambda x: x[:, :3] * torch.linspace(0, scale(x), 3),
    "of integers": lambda x: (x.long() * scale(x)) + torch.where((x * 3).long() > scale(x), x, -x),
    "complex": lambda x: torch.view_as_real(torch.complex(x, x.sin()) * scale(x)),
    "of data's type": lambda x: x.double() * scale(x) + x,
}


ASKED = ("rpow", "lerp", "xlogy")  # PyTorch asks whether the number is 0, or below a half, and guards the answer


@pytest.mark.parametrize("name", TAKEN)
def test_one_program_for_all(name):
    function = TAKEN[name]
    compiled = torch.compile(function, backend="coil", dynamic=True, options={"fallback": "error"})
    for rows, width in ((4, 6), (3, 9)):
        torch.manual_seed(width)
        x = torch.randn(rows, width, requires_grad=True)
        wanted, found = function(x), compiled(x)
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(*(torch.autograd.grad(y.sin().sum(), x) for y in (found, wanted)), rtol=1e-4, atol=1e-4)
    assert coil.compile_stats().graphs == (4 if name in ASKED else 2)  # forward and backward, of all sizes


@pytest.mark.parametrize("name", ["mul", "rsub", "pow", "clamp", "add", "addcmul", "addmm", "full_like", "masked_fill", "scatter"])
def test_bfloat16(name):
    """In half precision a formula may round once more than eager, so some of them stay in PyTorch."""
    function = TAKEN[name]
    compiled = torch.compile(function, backend="coil", dynamic=True)
    for width in (6, 9):
        x = torch.randn(4, width).bfloat16()
        found, wanted = compiled(x), function(x)
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dim", [-1, -2, 1])
@pytest.mark.parametrize("wanted", [{}, {"return_inverse": True}, {"return_inverse": True, "return_counts": True}], ids=["values", "inverse", "counts"])
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_slices_by_negative_dimensions(dim, wanted):
    """Tracing tells unique_consecutive other sizes for -1 than eager gives."""

    def function(x):
        found = torch.unique_consecutive(x, dim=dim, **wanted)
        return [t + 1 for t in (found if isinstance(found, tuple) else (found,))]

    compiled = torch.compile(function, backend="coil", options={"fallback": "error"})
    for _ in range(2):
        x = torch.randint(0, 2, (5, 3, 4))
        assert all(torch.equal(a, b) for a, b in zip(compiled(x), function(x), strict=True))
