"""Results that are larger than the caches are stored past them, to any address; smaller ones and those made in place are not."""

import numpy as np
import pytest
import torch

import harness
from case import Function

MB = 1 << 18  # floats


def compiled(function, args, folder, monkeypatch):
    """The package, and the text of its kernels."""
    monkeypatch.setenv("COIL_CACHE", "off")
    monkeypatch.setenv("COIL_DUMP", str(folder / "dump"))
    torch.export.save(torch.export.export(Function(function), args), folder / "p.pt2")
    harness.coil_ok("compile", folder / "p.pt2", "-o", folder / "q.pt2")
    return folder / "q.pt2", "".join(p.read_text() for p in sorted((folder / "dump").glob("*kernels*.cc")))


PROGRAMS = {
    "pairs": (lambda x, y: x * y, lambda: (torch.randn(16 * MB + 37), torch.randn(16 * MB + 37))),
    "rows": (lambda x, y: torch.softmax(x + y, -1), lambda: (torch.randn(1029, 4101), torch.randn(1029, 4101))),
    "halves": (lambda x, y: (x * y).bfloat16(), lambda: (torch.randn(32 * MB + 5), torch.randn(32 * MB + 5))),
    "two": (lambda x: (x + 1, x.sqrt()), lambda: (torch.rand(20 * MB + 3),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("isa", ("v3", "v4"))
def test_large_results_are_stored_past_the_caches(name, isa, tmp_path, monkeypatch):
    if isa == "v4" and "avx512vl" not in open("/proc/cpuinfo").read():
        pytest.skip("no AVX-512")
    function, make = PROGRAMS[name]
    args = make()
    package, text = compiled(function, args, tmp_path, monkeypatch)
    assert "cd::stream(" in text and "cd::end_streams()" in text
    monkeypatch.setenv("COIL_ISA", isa)
    np.savez(tmp_path / "in.npz", **{f"in_{i}": a.numpy() for i, a in enumerate(args)})
    harness.coil_ok("run", package, "--input", tmp_path / "in.npz", "--output", tmp_path / "out.npz")
    wanted = function(*args)
    for got, want in zip(harness.load_outputs(tmp_path / "out.npz"), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert harness.max_error(np.asarray(got, dtype=np.float32), want.float().numpy()) < (1e-2 if want.dtype == torch.bfloat16 else 1e-6)


@pytest.mark.parametrize("function,args", [
    (lambda x, y: x * y, (torch.zeros(8 * MB), torch.zeros(8 * MB))),                      # the next reader finds it in a third-level cache
    (lambda x: x.expand(20, MB) + 1, (torch.zeros(MB),)),                                  # so does this one's: nearly nothing is read
    (lambda x: torch.relu(x @ x), (torch.zeros(2100, 2100),)),                             # a product's own stores
], ids=("small", "written only", "product"))
def test_others_are_not(function, args, tmp_path, monkeypatch):
    assert "cd::stream(" not in compiled(function, args, tmp_path, monkeypatch)[1]
