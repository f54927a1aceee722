"""Small programs of linear algebra. Where a result is defined up to a sign or phase only, the program compares what is defined."""

import torch

from case import F32, F64, rand, registry

PROGRAMS, add = registry(__file__)
C64, C128 = torch.complex64, torch.complex128
L = torch.linalg
TOLERANCES = {F32: 2e-4, C64: 2e-4, F64: 1e-10, C128: 1e-10}


def matrix(*shape, dtype=F32):
    if dtype.is_complex:
        part = F32 if dtype is C64 else F64
        return torch.complex(rand(*shape, dtype=part), rand(*shape, dtype=part))
    return rand(*shape, dtype=dtype)


def positive(*shape, dtype=F32):
    a = matrix(*shape, dtype=dtype)
    return a @ a.mT.conj().resolve_conj() + 2 * torch.eye(shape[-1], dtype=dtype)


def op(name, function, inputs, dtypes=(F32, F64, C64, C128)):
    for dtype in dtypes:
        add(f"linalg_{name}_{str(dtype).removeprefix('torch.')}", function, lambda dtype=dtype: inputs(dtype), tolerance=TOLERANCES[dtype])


SOME = (F32, C128)
op("cholesky", lambda a: (L.cholesky(a), L.cholesky(a, upper=True), *L.cholesky_ex(a)), lambda t: (positive(2, 5, 5, dtype=t),))
op("cholesky_solve", lambda a, b: (torch.cholesky_solve(b, L.cholesky(a)), torch.cholesky_inverse(L.cholesky(a)), torch.cholesky_inverse(L.cholesky(a, upper=True), upper=True)),
   lambda t: (positive(4, 4, dtype=t), matrix(4, 3, dtype=t)))
op("inverse", lambda a: (L.inv(a), *L.inv_ex(a), torch.inverse(a), L.matrix_power(a, -2), L.matrix_power(a, 3), L.matrix_power(a, 0)), lambda t: (positive(3, 4, 4, dtype=t),))
op("solve", lambda a, b: (L.solve(a, b), L.solve(a, b[..., 0]), L.solve(a, b.mT, left=False), *L.solve_ex(a, b)), lambda t: (positive(2, 5, 5, dtype=t), matrix(2, 5, 3, dtype=t)))
op("solve_broadcast", lambda a, b, v: (L.solve(a, b), L.solve(a[0], v)), lambda t: (positive(3, 1, 4, 4, dtype=t), matrix(2, 4, 2, dtype=t), matrix(4, dtype=t)), SOME)
op("lu", lambda a: (*L.lu(a), *L.lu_factor(a), *L.lu_factor_ex(a), *torch.lu_unpack(*L.lu_factor(a))), lambda t: (matrix(2, 5, 4, dtype=t),))
op("lu_wide", lambda a: (*L.lu(a), *L.lu_factor(a)), lambda t: (matrix(3, 6, dtype=t),), SOME)
op("lu_solve", lambda a, b: (L.lu_solve(*L.lu_factor(a), b), L.lu_solve(*L.lu_factor(a), b, adjoint=True), L.lu_solve(*L.lu_factor(a), b.mT, left=False),
                             L.lu_solve(*L.lu_factor(a), b.mT, left=False, adjoint=True), torch.lu_solve(b, *L.lu_factor(a))),
   lambda t: (positive(2, 4, 4, dtype=t), matrix(2, 4, 3, dtype=t)))
op("ldl", lambda a, b: (*L.ldl_factor(a, hermitian=True), L.ldl_solve(*L.ldl_factor(a, hermitian=True), b, hermitian=True)), lambda t: (positive(4, 4, dtype=t), matrix(4, 2, dtype=t)))
op("determinant", lambda a: (L.det(a), *L.slogdet(a), torch.logdet(a), torch.det(a)), lambda t: (matrix(4, 5, 5, dtype=t),))
op("triangular", lambda a, b: (L.solve_triangular(a, b, upper=True), L.solve_triangular(a, b, upper=False), L.solve_triangular(a, b.mT, upper=True, left=False),
                               L.solve_triangular(a, b, upper=True, unitriangular=True), torch.triangular_solve(b, a)[0], torch.triangular_solve(b, a, upper=False, transpose=True)[0]),
   lambda t: (positive(2, 4, 4, dtype=t), matrix(2, 4, 3, dtype=t)))
op("qr", lambda a: (*L.qr(a), *L.qr(a, mode="complete"), L.qr(a, mode="r")[1], *L.qr(a.mT)), lambda t: (matrix(2, 6, 4, dtype=t),))
op("householder", lambda a, c: (*torch.geqrf(a), L.householder_product(*torch.geqrf(a)), torch.ormqr(*torch.geqrf(a), c), torch.ormqr(*torch.geqrf(a), c, transpose=True),
                                torch.ormqr(*torch.geqrf(a), c.mT, left=False)), lambda t: (matrix(5, 3, dtype=t), matrix(5, 4, dtype=t)))


def svd_invariants(a):
    u, s, vh = L.svd(a, full_matrices=False)
    fu, fs, fvh = L.svd(a)
    return s, fs, L.svdvals(a), (u * s.unsqueeze(-2)) @ vh, (fu.mT.conj() @ fu), fvh @ fvh.mT.conj(), u.abs()


op("svd", svd_invariants, lambda t: (matrix(2, 5, 4, dtype=t),))
op("svd_wide", svd_invariants, lambda t: (matrix(3, 7, dtype=t),), SOME)


def eigh_invariants(a):
    w, v = L.eigh(a)
    return w, L.eigvalsh(a), L.eigvalsh(a, UPLO="U"), (v * w.unsqueeze(-2)) @ v.mT.conj(), v.abs()


op("eigh", eigh_invariants, lambda t: (positive(2, 5, 5, dtype=t),))


def eig_invariants(a):
    w, v = L.eig(a)
    order = lambda x: (x.real.sum(-1), x.imag.sum(-1), x.abs().sum(-1), (x * x).real.sum(-1))
    return *order(w), *order(L.eigvals(a)), (v * w.unsqueeze(-2) - a.to(v.dtype) @ v).abs() < 1e-3, L.vector_norm(v, dim=-2)


op("eig", eig_invariants, lambda t: (matrix(2, 5, 5, dtype=t),))
op("pinv", lambda a: (L.pinv(a), L.pinv(a, rtol=0.1), L.pinv(a, atol=0.5), L.matrix_rank(a), L.matrix_rank(a, atol=1.0), torch.pinverse(a)), lambda t: (matrix(2, 5, 3, dtype=t),))
op("pinv_hermitian", lambda a: (L.pinv(a, hermitian=True), L.matrix_rank(a, hermitian=True)), lambda t: (positive(2, 4, 4, dtype=t),), SOME)
op("matrix_exp", lambda a: (L.matrix_exp(a), L.matrix_exp(a * 5), L.matrix_exp(a * 0.01)), lambda t: (matrix(3, 4, 4, dtype=t),))
op("norms", lambda a: (L.norm(a), L.norm(a, 2), L.norm(a, -2), L.norm(a, 1), L.norm(a, -1), L.norm(a, float("inf")), L.norm(a, "fro"), L.norm(a, "nuc"), L.norm(a, dim=0), L.norm(a, 3, dim=1),
                       L.matrix_norm(a), L.matrix_norm(a, keepdim=True), L.vector_norm(a, 0), L.matrix_norm(a, 2, keepdim=True)), lambda t: (matrix(5, 4, dtype=t),))
op("norms_batch", lambda a: (L.matrix_norm(a), L.matrix_norm(a, 1, dim=(0, 2)), L.matrix_norm(a, 2, dim=(2, 0), keepdim=True), L.norm(a, dim=(0, 1)), L.matrix_norm(a, "nuc")),
   lambda t: (matrix(3, 5, 4, dtype=t),), SOME)
op("cond", lambda a: (L.cond(a), L.cond(a, 1), L.cond(a, "fro"), L.cond(a, -2), L.cond(a, float("inf"))), lambda t: (positive(2, 4, 4, dtype=t),))
op("products", lambda a, b: (L.cross(a, b), torch.cross(a, b, dim=1), L.vecdot(a, b), L.multi_dot([a, b.mT, a, b.mT]), L.vander(a[0]), L.vander(a[0], N=5)), lambda t: (matrix(4, 3, dtype=t), matrix(4, 3, dtype=t)))
op("tensors", lambda a, b: (L.tensorinv(a, 2), L.tensorsolve(a, b)), lambda t: (matrix(2, 3, 6, dtype=t), matrix(2, 3, dtype=t)))
op("empty", lambda a, b: (L.inv(a), L.solve(a, b), L.det(a), L.cholesky(a), L.eigvalsh(a), L.svdvals(b), L.qr(b)[1]), lambda t: (matrix(2, 0, 0, dtype=t), matrix(2, 0, 3, dtype=t)), SOME)
op("empty_batch", lambda a: (L.inv(a), L.det(a), L.cholesky(a), L.svdvals(a), L.qr(a)[0]), lambda t: (matrix(0, 3, 3, dtype=t),), SOME)
op("size_1", lambda a: (L.inv(a), L.det(a), L.svdvals(a), L.qr(a)[0], L.matrix_exp(a), L.pinv(a)), lambda t: (matrix(3, 1, 1, dtype=t),), SOME)
op("strided", lambda a: (L.inv(a.mT), L.det(a[:, ::2, 1:4]), L.qr(a.mT[:, 1:])[1].abs()), lambda t: (positive(2, 5, 5, dtype=t),), SOME)
op("large", lambda a, b: (L.solve(a, b), L.cholesky(a), L.svdvals(b), L.slogdet(a)[1], L.qr(b)[1].abs()), lambda t: (positive(130, 130, dtype=t) / 130, matrix(130, 70, dtype=t)), SOME)


def batch(a, b, s):
    """A batch of one size through every routine that takes small matrices by lanes."""
    w, v = L.eigh(s, UPLO="U")
    u, sigma, vh = L.svd(b, full_matrices=False)
    c = L.cholesky(s)
    return (L.inv(a), L.solve(a, b), L.solve(a, b.mT, left=False), L.det(a), L.slogdet(a)[1], *L.lu_factor(b), c, L.cholesky(s, upper=True), torch.cholesky_solve(b, c),
            torch.cholesky_inverse(c), L.solve_triangular(a.tril(), b, upper=False), L.solve_triangular(a.triu().mT, b, upper=False), L.eigvalsh(s), (v * w.unsqueeze(-2)) @ v.mT,
            L.svdvals(b), (u * sigma.unsqueeze(-2)) @ vh, u.mT @ u)


for n, count in ((1, 9), (2, 1), (2, 17), (3, 11), (4, 8), (5, 3), (7, 9), (8, 2), (9, 3), (12, 5), (16, 9), (24, 4), (25, 4)):
    op(f"batch_{n}_{count}", batch, lambda t, n=n, count=count: (positive(count, n, n, dtype=t).flip(-1), matrix(count, n, n, dtype=t), positive(count, n, n, dtype=t)), (F32, F64))
op("batch_wide", lambda a: (*L.lu_factor(a), L.svdvals(a), L.pinv(a), L.matrix_rank(a)), lambda t: (matrix(9, 3, 5, dtype=t),), (F32, F64))
op("batch_high", lambda a: (*L.lu_factor(a), L.svdvals(a), L.pinv(a), L.matrix_rank(a), L.svd(a)[0].abs().sum((-1, -2)) > 0), lambda t: (matrix(9, 6, 3, dtype=t),), (F32, F64))


def odd_matrices(dtype):
    """Of rank 1, zeros, equal eigenvalues, far apart in size, very large and very small ones, and what is no number beside others.
    Powers of two: what elimination leaves of a matrix of rank 1 is then exactly zero, so that pivots are not chosen among rounding errors."""
    one = torch.tensor([[1.0], [2], [-4], [0.5]], dtype=dtype)
    kinds = [one @ one.mT, torch.zeros(4, 4), torch.eye(4) * 3, torch.diag(torch.tensor([1e6, 1, 1e-6, 1])), torch.eye(4) * 1e30, torch.ones(4, 4) * 2.0**-100, torch.diag(torch.tensor([2.0, 2, 5, 5])),
             torch.eye(4), torch.full((4, 4), 0.25)]
    return torch.stack([k.to(dtype) for k in kinds])


op("batch_odd", lambda a: (L.eigvalsh(a), L.svdvals(a), L.det(a), *L.lu_factor_ex(a), L.cholesky_ex(a)[1], *L.inv_ex(a + 5 * torch.eye(4, dtype=a.dtype)), L.matrix_rank(a)),
   lambda t: (odd_matrices(t),), (F32, F64))
op("nan", lambda a: (*L.inv_ex(a), L.det(a), *L.cholesky_ex(a)[1:]), lambda t: (torch.stack([torch.eye(3, dtype=t), torch.full((3, 3), float("nan"), dtype=t)]),), (F32,))

op("polar", lambda a: L.polar(a), lambda t: (matrix(2, 5, 3, dtype=t),), SOME)
op("sqrth", lambda a: L.matrix_sqrth(a), lambda t: (positive(2, 4, 4, dtype=t),), SOME)
op("vander_of_number", lambda a: L.vander(a, N=4), lambda t: (matrix(1, dtype=t)[0],), SOME)
