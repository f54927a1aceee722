"""Grouped products through torch.compile(backend="coil") beside eager: gradients of all four forms, ends of groups that are wrong, mixtures of experts."""

import pytest
import torch
import torch.nn.functional as F

import coil
from test_py_gradients import check
from test_py_torch_compile import fresh, nothing_in_torch  # noqa: F401 (fresh is a fixture)

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
TOLERANCE = {F32: 1e-5, BF16: 1e-2, F16: 2e-3}


def ends(*values):
    return torch.tensor(values, dtype=torch.int32)


def turned(*shape, dtype):
    return torch.randn(*shape[:-2], shape[-1], shape[-2], dtype=dtype).transpose(-2, -1)


FORMS = {
    "rows": lambda d: (torch.randn(37, 48, dtype=d), torch.randn(4, 48, 64, dtype=d), ends(3, 3, 20, 37)),
    "rows_turned": lambda d: (torch.randn(37, 48, dtype=d), turned(4, 48, 64, dtype=d), ends(0, 11, 37, 37)),
    "columns": lambda d: (torch.randn(4, 24, 48, dtype=d), turned(48, 40, dtype=d), ends(8, 8, 24, 40)),
    "depth": lambda d: (turned(24, 43, dtype=d), torch.randn(43, 64, dtype=d), ends(8, 8, 24, 43)),
    "batches": lambda d: (torch.randn(4, 24, 48, dtype=d), turned(4, 48, 64, dtype=d)),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("form", FORMS)
def test_gradients(form, dtype):
    torch.manual_seed(0)
    a, b, *offs = FORMS[form](dtype)
    check(lambda a, b: F.grouped_mm(a * 1.5, b, offs=offs[0] if offs else None), a, b, tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
def test_rows_that_change(dtype):
    """One program for all numbers of rows; the sizes of the groups are data."""
    torch.manual_seed(0)
    weight = torch.randn(3, 32, 40, dtype=dtype)
    compiled = torch.compile(lambda x, offs: F.grouped_mm(x, weight, offs=offs), backend="coil", dynamic=True)
    for last in (ends(4, 9, 20), ends(0, 0, 7), ends(50, 51, 130), ends(1, 2, 3)):
        x = torch.randn(int(last[-1]), 32, dtype=dtype)
        torch.testing.assert_close(compiled(x, last), F.grouped_mm(x, weight, offs=last), atol=TOLERANCE[dtype] * 40, rtol=TOLERANCE[dtype])
    nothing_in_torch()


@pytest.mark.parametrize("wrong", [(3, 2, 20, 37), (-1, 3, 20, 37), (3, 5, 20, 38), (3, 5, 1 << 30, -(1 << 30))], ids=["decreasing", "negative", "too_far", "far"])
@pytest.mark.parametrize("form", ["rows", "columns", "depth"])
def test_wrong_ends_are_named(form, wrong):
    a, b, _ = FORMS[form](F32)
    size = {"rows": a.shape[0], "columns": b.shape[-1], "depth": b.shape[0]}[form]
    last = ends(*[size + 1 if e == 38 else min(e, size) if e < 1 << 20 else e for e in wrong])
    compiled = torch.compile(lambda a, b, offs: F.grouped_mm(a, b, offs=offs), backend="coil")
    with pytest.raises(coil.Error, match="an index is out of range in"):
        compiled(a, b, last)


def test_rows_of_no_group_are_zeros():
    a, b, _ = FORMS["rows"](BF16)
    got = torch.compile(lambda a, b, offs: F.grouped_mm(a, b, offs=offs), backend="coil")(a, b, ends(3, 3, 20, 30))
    assert torch.equal(got[30:], torch.zeros(7, 64, dtype=BF16)) and got[:30].abs().sum() > 0


def test_experts_of_transformers_have_gradients():
    """The operators that transformers has for float32 under torch.compile."""
    pytest.importorskip("transformers.integrations.moe")
    torch.manual_seed(0)
    last = ends(3, 3, 20, 37)
    check(lambda x, w: torch.ops.transformers.grouped_mm_fallback(x * 2, w, last).sin(), torch.randn(37, 48), torch.randn(4, 48, 64))
