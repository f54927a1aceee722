"""Factorisations of matrices that are larger than a routine's blocks, by what they are factors of; and spectra whose vectors nobody reads."""

import numpy as np
import pytest
import torch

import harness  # noqa: F401: finds the package
import coil

SIZES = [1, 2, 17, 40, 97, 200]  # below and around the blocks of device/library/blas_*.cc and LAPACK's 32 and 64


class Factors(torch.nn.Module):
    def forward(self, a, b):
        eye = torch.eye(a.shape[-1], dtype=a.dtype)
        positive = a @ a.mT.conj().resolve_conj() / a.shape[-1] + eye
        u, s, vh = torch.linalg.svd(a)
        w, v = torch.linalg.eigh(positive)
        q, r = torch.linalg.qr(a)
        lower = torch.linalg.cholesky(positive)
        solved, triangular = torch.linalg.solve(positive, b), torch.linalg.solve_triangular(lower, b, upper=False)
        return positive, u, s, vh, w, v, q, r, lower, solved, triangular, torch.linalg.inv(positive), torch.linalg.slogdet(positive)[1]


@pytest.fixture(scope="module", params=[torch.float32, torch.float64, torch.complex64], ids=str)
def model(request):
    n = torch.export.Dim("n", min=1, max=512)
    args = (torch.randn(6, 6, dtype=request.param), torch.randn(6, 3, dtype=request.param))
    return request.param, coil.compile(Factors(), args=args, dynamic_shapes=({0: n, 1: n}, {0: n}))


@pytest.mark.parametrize("n", SIZES)
def test_factors(model, n):
    dtype, compiled = model
    torch.manual_seed(n)
    a, b = torch.randn(n, n, dtype=dtype), torch.randn(n, 3, dtype=dtype)
    wide = [t.numpy().astype(np.complex128) for t in compiled(a, b)]
    positive, u, s, vh, w, v, q, r, lower, solved, triangular, inverse, logdet = wide
    a, b, eye = a.numpy().astype(np.complex128), b.numpy().astype(np.complex128), np.eye(n)
    close = (2e-13 if dtype == torch.float64 else 5e-5) * max(1.0, n / 20)

    def same(found, wanted):
        assert np.abs(found - wanted).max() <= close * max(1.0, np.abs(wanted).max())

    same((u * s) @ vh, a)
    same(u.conj().T @ u, eye)
    same((v * w) @ v.conj().T, positive)
    same(q @ r, a)
    same(q.conj().T @ q, eye)
    same(lower @ lower.conj().T, positive)
    same(positive @ solved, b)
    same(lower @ triangular, b)
    same(positive @ inverse, eye)
    same(logdet.reshape(1), np.linalg.slogdet(positive)[1].reshape(1))
    assert np.all(np.diff(s.real) <= 0) and np.all(np.diff(w.real) >= 0) and np.abs(np.triu(lower, 1)).max(initial=0) == 0


ALONE = {
    "svdvals": lambda x: torch.linalg.svdvals(x),
    "eigvalsh": lambda x: torch.linalg.eigh(x + x.mT)[0],
    "eigvals": lambda x: torch.linalg.eig(x)[0].abs().sort()[0],
}


@pytest.mark.parametrize("name", ALONE)
def test_vectors_that_nobody_reads_are_not_computed(name, tmp_path):
    x = torch.randn(7, 7)
    module = torch.nn.Module()
    module.forward = ALONE[name]
    found = coil.compile(module, args=(x,), options={"dump": str(tmp_path)})(x)
    torch.testing.assert_close(found, ALONE[name](x), atol=1e-5, rtol=1e-4)
    last = sorted(path for path in tmp_path.rglob("*dead_code*"))[-1].read_text()
    assert f"aten.linalg_{name}.default" in last and "aten.linalg_svd." not in last and "aten.linalg_eigh." not in last
