"""Addresses that data names, in the PTX that NVRTC makes of generated kernels: their indices of 32 bits are computed in 32 bits.

Where LLVM sees that such an index comes from a number of 64 bits, it multiplies that by the row's length times 2^32, adds the place in the row times 2^32,
and shifts the sum back. ptxas of CUDA 13.0 then reads the element of one place for two (embedding_bag's gradient on an H200; cd::low_word, device/cuda/base.h).
"""

import functools
import os
import pathlib
import re
import zipfile

import pytest
import torch

import harness

pytestmark = pytest.mark.skipif(not any(pathlib.Path(p).exists() for p in ("/usr/local/cuda/lib64/libnvrtc.so.13", os.environ.get("COIL_NVRTC", "/no"))), reason="needs NVRTC")


def rows(dtype=torch.int64):
    return torch.tensor([1, 0, 2, 1, 3], dtype=dtype)


def table(columns, dtype=torch.float32):
    return torch.randn(4, columns).to(dtype)


PROGRAMS = {  # (function, inputs)
    **{f"products of rows of {n}": (lambda t, i, w: (t[i] * w).sum(1), (table(n), rows(), torch.randn(5, n))) for n in (2, 3, 5, 7, 8)},
    "rows in bf16": (lambda t, i, w: (t[i] * w).sum(1), (table(5, torch.bfloat16), rows(), torch.randn(5, 5))),
    "rows in f64": (lambda t, i, w: (t[i] * w).sum(1), (table(5, torch.float64), rows(), torch.randn(5, 5))),
    "int32 indices": (lambda t, i, w: (t[i] * w).sum(1), (table(5), rows(torch.int32), torch.randn(5, 5))),
    "indices made int32": (lambda t, i, w: (t[i.to(torch.int32) + 1 - 1] * w).sum(1), (table(5), rows(), torch.randn(5, 5))),
    "sums of integers": (lambda i: (i.to(torch.int32)[:, None] * 5 + torch.arange(5, dtype=torch.int32)).sum(1), (rows(),)),
    "two tables": (lambda t, i, j: (t[i] - t[j]).square().sum(1), (table(5), rows(), rows().flip(0))),
    "rows of rows": (lambda t, i: t[t[i][:, :2].argmax(1)].sum(1), (table(5), rows())),
    "matrices": (lambda t, i, w: torch.einsum("rij,rj->ri", t[i], w), (torch.randn(4, 3, 3), rows(), torch.randn(5, 3))),
    "windows": (lambda t, i: torch.stack([t.flatten()[5 * i + k] for k in range(5)], 1).amax(1), (table(5), rows())),
    "gather": (lambda t, i: t.gather(0, i[:, None].expand(5, 5)).logsumexp(1), (table(5), rows())),
    "the last row of many": (lambda t, w: (t[-1] * w).sum() + (t[-2] * w).sum() / t.shape[0], (table(5), torch.randn(5))),
    "a scatter": (lambda t, i, w: t.index_add(0, i, w).sum(1), (table(5), rows(), torch.randn(5, 5))),
}


@functools.cache
def ptx(name, folder):
    function, inputs = PROGRAMS[name]

    class Module(torch.nn.Module):
        def forward(self, *values):
            return function(*values)

    path = folder / f"{name.replace(' ', '_')}.pt2"
    many = {0: torch.export.Dim("n", min=2, max=1000)} if "many" in name else None
    torch.export.save(torch.export.export(Module(), inputs, dynamic_shapes=((many, *[None] * (len(inputs) - 1)),) if many else None), path)
    package = path.with_suffix(".coil.pt2")
    harness.coil_ok("compile", path, "--target", "cuda:compute_89", "-o", package, "--threads", 1)
    with zipfile.ZipFile(package) as archive:
        return archive.read(next(n for n in archive.namelist() if n.endswith(".so"))).decode("latin1")


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_product_is_shifted_back(name, tmp_path):
    text = ptx(name, tmp_path)
    assert ".target sm_89" in text and ".entry" in text
    by_high_words = [int(n) for n in re.findall(r"(?:mul\.lo\.s64|mad\.lo\.s64)\s+%rd\d+, %rd\d+, (-?\d+)", text) if int(n) % (1 << 32) == 0]
    shifted = re.findall(r"shr\.s64\s+%rd\d+, %rd\d+, 32;", text)
    assert (by_high_words, shifted) == ([], [])
