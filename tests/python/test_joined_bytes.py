"""The kernels of products of bytes with a single row (device/cuda/joined_bytes.h), emulated and by themselves, beside numbers in float64: the forms of
tests/gpu/test_byte_rows.py."""

import ctypes
import re

import numpy as np
import pytest

import emulated_cuda
import emulated_tiles as tiles  # which puts tests/gpu into the path
from test_byte_tiles import Problem
from test_byte_rows import Args, Form, Joined, Kind, Product, up

SETS = [((24, 200, 67), 1), ((75,), 2)]
SHAPES = [(1, 4), (2, 4), (8, 8)]  # warps that share k, warps of a block
KINDS = {
    "8 bits": (Kind(8), [7, 1541]),
    "8 bits, zero points": (Kind(8, zero="f32"), [513]),
    "8 bits by 16, zero points": (Kind(8, 16, "f16", "f16"), [1552]),
    "8 bits by 48": (Kind(8, 48, "f32"), [1536]),
    "8 bits by 128": (Kind(8, 128, "f16"), [1152]),
    "4 bits": (Kind(4), [2100]),
    "4 bits, zero points": (Kind(4, zero="f16"), [1300]),
    "4 bits by 16": (Kind(4, 16, "f16"), [16, 1040]),
    "4 bits by 32, zero points": (Kind(4, 32, "f16", "f16"), [1376]),
    "4 bits by 48, zero points": (Kind(4, 48, "f32", "f32"), [1104]),
    "4 bits by 128": (Kind(4, 128, "f16"), [4224]),
}


def build(forms, library):
    """The kernels of all forms, k0, k1, ..."""
    text = '#include "cuda/joined_bytes.h"\n'
    for i, form in enumerate(forms):
        source = re.sub(r"#include .*\n|extern \"C\" ", "", form.source())
        text += f"namespace f{i} {{\n{source.replace(') k(', f') k{i}(')}}}\nusing f{i}::k{i};\n"
    emulated_cuda.build_kernels(emulated_cuda.rewrite(text), [f"k{i}" for i in range(len(forms))], library, "-O1")
    loaded = ctypes.CDLL(str(library))
    loaded.emulated_kernel.restype = ctypes.POINTER(tiles.Kernel)
    return [loaded.emulated_kernel(f"k{i}".encode()).contents for i in range(len(forms))]


def run(kernel, form, problems, blocks):
    t, end, out = Joined(m=1), 0, [np.full(up(p.n, 8) * 8, np.nan, np.float32) for p in problems]
    for i, p in enumerate(problems):
        p.rows = problems[0].rows
        product = Product(m=1, n=p.n, k=p.k, a=p.rows.ctypes.data, a_row=p.rows.shape[1], a_col=1, b=p.lines.ctypes.data, b_line=p.lines.shape[1], scale=p.scale.ctypes.data,
                          scale_group=1, scale_col=p.scale.shape[1])
        if p.zero is not None:
            product.zero, product.zero_group, product.zero_col = p.zero.ctypes.data, 1, p.zero.shape[1]
        t.product[i] = product
    for i, n in enumerate(form.sets):
        t.end[i] = end = end + up(n, 8)
    args = Args((ctypes.c_void_p * 6)(*[o.ctypes.data for o in out]), None)
    pointers = (ctypes.c_void_p * 2)(ctypes.addressof(t), ctypes.addressof(args))
    launch = tiles.Launch(b"rows", (blocks, 1, 1), (form.warps * 32, 1, 1), form.shared, 1, pointers, None, True)
    assert kernel.run(ctypes.byref(launch)) == 0
    return [o[: p.n] for o, p in zip(out, problems)]


@pytest.mark.parametrize("kind", KINDS)
def test_forms(kind, tmp_path):
    """One block, one for each group of tiles, and numbers between that leave some groups without a last tile; several products, or pairs of two."""
    what, depths = KINDS[kind]
    forms = [Form(what, k, sets, halves, split=split, warps=warps, resident=1) for k in depths for sets, halves in SETS for split, warps in SHAPES]
    for form, kernel in zip(forms, build(forms, tmp_path / "rows.so"), strict=True):
        problems = [Problem(what, 1, n, form.k) for n in form.sets for _ in range(form.halves)]
        for p in problems[1:]:
            p.lines = p.lines.copy()
        whole = up(form.tiles, form.warps // form.split)
        for blocks in sorted({1, min(3, whole), whole}):
            for found, problem in zip(run(kernel, form, problems, blocks), problems):
                wanted = problem.wanted()[0]
                error = np.abs(found.astype(np.float64) - wanted).max() / np.abs(wanted).max()
                assert error <= 3e-6, (str(form), form.k, blocks, problem.n, error)
