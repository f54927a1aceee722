"""torch.compile of linear algebra: what checks a factorisation runs inside coil's programs, and what it finds is the error that eager raises."""

import pytest
import torch

import coil

pytestmark = pytest.mark.usefixtures("fresh_compiles")

PROGRAMS = {
    "solve": lambda a, b: torch.linalg.solve(a, b).sin(),
    "inverse": lambda a, b: torch.linalg.inv(a) @ b,
    "cholesky": lambda a, b: torch.cholesky_solve(b, torch.linalg.cholesky(a @ a.mT + torch.eye(3))),
    "lu": lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b),
    "filter": lambda a, b: torch.linalg.solve(torch.linalg.inv(a.cos()) + torch.eye(3), torch.linalg.solve(a, b)),
}
FAILING = {
    "solve": (torch.linalg.solve, (torch.zeros(3, 3), torch.ones(3, 1))),
    "inverse": (torch.linalg.inv, (torch.zeros(2, 3, 3),)),
    "cholesky": (torch.linalg.cholesky, (torch.stack([torch.eye(3), -torch.eye(3)]),)),
    "cholesky of NaN": (torch.linalg.cholesky, (torch.full((3, 3), float("nan")),)),
    "nothing by Cholesky": (lambda a: torch.linalg.cholesky(a, upper=True), (torch.zeros(3, 3),)),
}


def matrices(gradients):
    a, b = torch.randn(4, 3, 3) + 3 * torch.eye(3), torch.randn(4, 3, 2)
    return [t.requires_grad_(gradients) for t in (a, b)]


@pytest.mark.parametrize("gradients", (False, True))
@pytest.mark.parametrize("name", PROGRAMS)
def test_checks_divide_no_program(name, gradients):
    function, inputs = PROGRAMS[name], matrices(gradients)
    found, wanted = torch.compile(function, backend="coil", fullgraph=True)(*inputs), function(*inputs)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    if gradients:
        torch.testing.assert_close(torch.autograd.grad(found.sum(), inputs), torch.autograd.grad(wanted.sum(), inputs), atol=1e-4, rtol=1e-3)
    stats = coil.compile_stats()
    assert not stats.fallback_operators, str(stats)
    assert stats.packages + stats.cache_hits == (2 if gradients else 1)


@pytest.mark.parametrize("name", FAILING)
def test_what_fails_is_eagers_error(name):
    function, inputs = FAILING[name]
    with pytest.raises(torch.linalg.LinAlgError) as eager:
        function(*inputs)
    compiled = torch.compile(function, backend="coil", fullgraph=True)
    with pytest.raises(torch.linalg.LinAlgError) as found:
        compiled(*inputs)
    assert str(found.value).startswith(str(eager.value).rstrip(".").partition(". If you")[0])
    assert isinstance(found.value, coil.InputError) and found.value.code == "COIL-E212"
    good = [torch.eye(3).expand_as(x) if x.shape[-1] == 3 else x for x in inputs]
    torch.testing.assert_close(compiled(*good), function(*good))  # and the next call works
