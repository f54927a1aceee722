"""What epilogues of products read before the product is there, on CUDA: the text alone (tests/gpu/test_gemm.py runs such kernels, the emulator has no wgmma)."""

import os
import re

import pytest
import torch

import harness

ROWS, COLUMNS, DEPTH = 6304, 768, 512


def halves(*shape):
    return torch.randn(*shape, dtype=torch.bfloat16)


def pieces(function, inputs, folder):
    """(bytes of a lane's columns, bytes of each copy) of the persistent kernel."""
    module = type("Function", (torch.nn.Module,), {"forward": lambda self, *args: function(*args)})()
    torch.export.save(torch.export.export(module, inputs), folder / "m.pt2")
    harness.coil_ok("compile", folder / "m.pt2", "-o", folder / "m.coil.pt2", "--target", "cuda:sm_90", env=dict(os.environ, COIL_DUMP=str(folder / "dump")))
    text = "".join(path.read_text() for path in sorted((folder / "dump").glob("*.cu")))
    assert "cd::gemm_wgmma<" in text
    whole = re.search(r"static constexpr int kAhead = (\d+);", text)
    return int(whole[1]) if whole else 0, [int(n) for n in re.findall(r"cd::copy_async<(\d+)>\(to \+", text)]


@pytest.mark.parametrize("other,expected", [(halves(ROWS, COLUMNS), (16, [16])), (torch.randn(ROWS, COLUMNS), (32, [16, 16])), (torch.rand(ROWS, COLUMNS) > 0.5, (16, [8]))],
                         ids=["half", "float", "mask"])
def test_own_elements_are_read_ahead(other, expected, tmp_path):
    assert pieces(lambda a, b, x: (a @ b) * x, (halves(ROWS, DEPTH), halves(DEPTH, COLUMNS), other), tmp_path) == expected


def test_as_many_as_there_is_room_for(tmp_path):
    """A mask and a residual fit, the second residual in float32 does not: it is read when it is wanted."""
    def several(a, b, mask, x, y):
        return ((a @ b) * mask + x + y).bfloat16()

    inputs = (halves(ROWS, DEPTH), halves(DEPTH, COLUMNS), torch.rand(ROWS, COLUMNS) > 0.5, halves(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS))
    assert pieces(several, inputs, tmp_path) == (32, [8, 16])


@pytest.mark.parametrize("columns,other", [(COLUMNS, (COLUMNS,)), (COLUMNS - 1, (ROWS, COLUMNS - 1))], ids=["bias", "odd"])
def test_what_rows_share_is_not(columns, other, tmp_path):
    """A bias comes from a cache, and rows of 767 columns are finished by another way."""
    inputs = (halves(ROWS, DEPTH), halves(columns, DEPTH), halves(*other))
    assert pieces(lambda a, w, x: a @ w.t() + x, inputs, tmp_path) == (0, [])
