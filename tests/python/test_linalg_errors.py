"""Matrices that have no such factorisation fail the call with PyTorch's words, through coil's runtime and in stock PyTorch; CUDA is refused."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import harness
from case import Function

SINGULAR = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
INDEFINITE = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
BATCH = torch.stack([torch.eye(2), SINGULAR, SINGULAR])
NAN = torch.full((2, 2), float("nan"))

# name: (function, bad input, part of the message)
CASES = {
    "inv": (torch.linalg.inv, SINGULAR, "linalg.inv: The diagonal element 2 is zero, the inversion could not be completed because the input matrix is singular."),
    "inv_batch": (torch.linalg.inv, BATCH, "linalg.inv: (Batch element 1): The diagonal element 2 is zero"),
    "solve": (lambda a: torch.linalg.solve(a, a), SINGULAR, "The solver failed because the input matrix is singular."),
    "cholesky": (torch.linalg.cholesky, INDEFINITE, "linalg.cholesky: The factorization could not be completed because the input is not positive-definite (the leading minor of order 2"),
    "cholesky_ex": (lambda a: torch.linalg.cholesky_ex(a, check_errors=True)[0], INDEFINITE, "the leading minor of order 2 is not positive-definite"),
    "svd": (torch.linalg.svdvals, NAN, "The algorithm failed to converge because the input matrix contained non-finite values."),
    "lu_factor": (lambda a: torch.linalg.lu_factor(a)[0], SINGULAR, "U[2,2] is zero and using it on lu_solve would result in a division by zero."),
}
CHILD = """
import json, sys, torch
answer = {}
for name, package, data in json.loads(sys.argv[1]):
    loaded = torch._inductor.aoti_load_package(package)
    try:
        loaded(torch.load(data))
        answer[name] = None
    except RuntimeError as error:
        answer[name] = str(error)
    good = loaded(torch.eye(2).expand(torch.load(data).shape).contiguous() * 2)
    answer[name + " good"] = bool(torch.isfinite(good[0] if isinstance(good, (tuple, list)) else good).all())
print(json.dumps(answer))
"""


def export(name, folder, form="aten"):
    function, bad, _ = CASES[name]
    program = torch.export.export(Function(function), (torch.eye(2).expand(bad.shape).contiguous(),))
    path = folder / f"{name}.{form}.pt2"
    torch.export.save(program if form == "aten" else program.run_decompositions(), path)
    return path


@pytest.mark.parametrize("form", ["aten", "core"])
@pytest.mark.parametrize("name", CASES)
def test_message(name, form, tmp_path):
    function, bad, text = CASES[name]
    with pytest.raises(RuntimeError) as eager:
        function(bad)
    assert text in str(eager.value), "the test's own text is not PyTorch's"
    program = export(name, tmp_path, form)
    np.savez(tmp_path / "bad.npz", in_0=bad.numpy())
    harness.assert_refused(harness.coil("run", program, "--input", tmp_path / "bad.npz"), text, code=212)
    np.savez(tmp_path / "good.npz", in_0=torch.eye(2).expand(bad.shape).numpy())
    harness.coil_ok("run", program, "--input", tmp_path / "good.npz")


def test_stock_pytorch(tmp_path):
    rows = []
    for name, (_, bad, _) in CASES.items():
        package = tmp_path / f"{name}.coil.pt2"
        harness.coil_ok("compile", export(name, tmp_path), "-o", package)
        torch.save(bad, tmp_path / f"{name}.pt")
        rows.append([name, str(package), str(tmp_path / f"{name}.pt")])
    done = subprocess.run([sys.executable, "-c", CHILD, json.dumps(rows)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    for name, (_, _, text) in CASES.items():
        assert answer[name] and text in answer[name], (name, answer[name])
        assert answer[name + " good"]


# Pivots are data, and LAPACK follows them: name: (function of factors and pivots, what the pivots are of a good call, bad ones)
LU, LDL = [1, 2, 3], [1, 2, 3]
BAD = {
    "lu_solve": (lambda a, p: torch.linalg.lu_solve(a, p, a), LU, [[0, 2, 3], [1, 2, 4], [-1, 2, 3], [1, 2, 2**31 - 1], [1, 2, -(2**31)]]),
    "lu_solve_right": (lambda a, p: torch.linalg.lu_solve(a, p, a, left=False, adjoint=True), LU, [[4, 2, 3]]),
    "lu_unpack": (lambda a, p: torch.lu_unpack(a, p)[0], LU, [[0, 2, 3], [1, 2, 4]]),
    "ldl_solve": (lambda a, p: torch.linalg.ldl_solve(a, p, a), LDL, [[0, 2, 3], [1, 2, 4], [-1, 2, 3], [1, 2, -3], [-1, -9, 3], [-9, -1, 3], [1, 2, -(2**31)]]),
}


@pytest.mark.parametrize("name", BAD)
def test_pivots_from_data(name, tmp_path):
    function, good, bad = BAD[name]
    for batch in ((), (2,)):
        a, pivots = torch.eye(3).expand(*batch, 3, 3).contiguous(), torch.tensor(good, dtype=torch.int32).expand(*batch, 3).contiguous()
        program, package = tmp_path / "p.pt2", tmp_path / "p.coil.pt2"
        torch.export.save(torch.export.export(Function(function), (a, pivots)), program)
        harness.coil_ok("compile", program, "-o", package)
        np.savez(tmp_path / "good.npz", in_0=a.numpy(), in_1=pivots.numpy())
        harness.coil_ok("run", package, "--input", tmp_path / "good.npz", "--output", tmp_path / "out.npz")
        torch.testing.assert_close(torch.from_numpy(harness.load_outputs(tmp_path / "out.npz")[0]), function(a, pivots))
        for wrong in bad:
            given = pivots.clone()
            given[(-1,) if batch else ()] = torch.tensor(wrong, dtype=torch.int32)
            np.savez(tmp_path / "bad.npz", in_0=a.numpy(), in_1=given.numpy())
            harness.assert_refused(harness.coil("run", package, "--input", tmp_path / "bad.npz"), name.removesuffix("_right"), "pivot", ".py:", code=210)


def test_no_code_for_cuda(tmp_path):
    """What the host computes there can be refused."""
    program = export("inv", tmp_path)
    done = harness.coil("compile", program, "--target", "cuda:sm_90", "--no-host-routines", "-o", tmp_path / "p.pt2")
    harness.assert_refused(done, "no CUDA code for", "linalg_inv", code=102)


def test_imports_libc_only(tmp_path):
    """A package with library routines needs libc and libm, nothing of C++ or Fortran."""
    import zipfile

    package = tmp_path / "p.coil.pt2"
    harness.coil_ok("compile", export("svd", tmp_path), "-o", package)
    with zipfile.ZipFile(package) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".so"))
        (tmp_path / "code.so").write_bytes(archive.read(name))
    dynamic = subprocess.run(["readelf", "--wide", "--dynamic", "--dyn-syms", tmp_path / "code.so"], capture_output=True, text=True, check=True).stdout
    assert {line.split("[")[1].rstrip("]\n ") for line in dynamic.splitlines() if "(NEEDED)" in line} == {"libm.so.6", "libc.so.6"}
    undefined = [line.split()[-1] for line in dynamic.splitlines() if " UND " in line and len(line.split()) > 7]
    assert undefined and not any(s.startswith(("_Z", "_gfortran", "__cxa", "_Unwind")) for s in undefined), undefined
