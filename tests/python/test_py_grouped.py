"""Grouped products through torch.compile(backend="coil") beside eager: gradients of all four forms, ends of groups that are wrong, mixtures of experts."""

import pytest
import torch
import torch.nn.functional as F

import coil
import harness
from test_py_gradients import check
from compiled_beside_eager import nothing_in_torch

pytestmark = pytest.mark.usefixtures("fresh_compiles")

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


F8 = torch.float8_e4m3fn
SCALED = {
    "rows": lambda: (torch.randn(37, 48).to(F8), torch.randn(4, 64, 48).to(F8).transpose(1, 2), torch.rand(37), torch.rand(4, 64), ends(3, 3, 20, 37)),
    "columns": lambda: (torch.randn(4, 24, 48).to(F8), torch.randn(64, 48).to(F8).t(), torch.rand(4, 24), torch.rand(64), ends(16, 16, 40, 64)),
    "depth": lambda: (torch.randn(24, 64).to(F8), torch.randn(32, 64).to(F8).t(), torch.rand(4 * 24), torch.rand(4 * 32), ends(16, 16, 40, 64)),
    "batches": lambda: (torch.randn(4, 24, 48).to(F8), torch.randn(4, 64, 48).to(F8).transpose(1, 2), torch.rand(4, 24), torch.rand(4, 64), None),
}


def scaled_one_by_one(form, a, b, scale_a, scale_b, offs):
    """What the operator is said to compute, group by group: PyTorch has no kernel for the CPU."""
    a, b = a.double(), b.double()
    bounds = [(0 if g == 0 else int(offs[g - 1]), int(offs[g])) for g in range(4)] if offs is not None else [None] * 4
    def part(g):
        rows = slice(*bounds[g]) if bounds[g] else slice(None)
        if form == "rows":
            return a[rows] @ b[g] * scale_a[rows, None] * scale_b[g]
        if form == "columns":
            return a[g] @ b[:, rows] * scale_a[g, :, None] * scale_b[rows]
        if form == "depth":
            return a[:, rows] @ b[rows] * scale_a.view(4, -1)[g, :, None] * scale_b.view(4, -1)[g]
        return a[g] @ b[g] * scale_a[g, :, None] * scale_b[g]
    parts = [part(g) for g in range(4)]
    return torch.cat(parts, {"rows": 0, "columns": 1}[form]) if form in ("rows", "columns") else torch.stack(parts)


@pytest.mark.parametrize("form", SCALED)
def test_scaled(form):
    torch.manual_seed(0)
    arguments = SCALED[form]()

    class Scaled(torch.nn.Module):
        def forward(self, a, b, scale_a, scale_b, offs):
            return torch._scaled_grouped_mm(a, b, scale_a, scale_b, offs=offs, out_dtype=BF16)

    got = coil.compile(torch.export.export(Scaled(), arguments))(*arguments)
    want = scaled_one_by_one(form, *arguments)
    assert got.dtype == BF16 and got.shape == want.shape
    torch.testing.assert_close(got.double(), want, atol=1e-3, rtol=1e-2)


def test_experts_of_transformers_have_gradients():
    """The operators that transformers has for float32 under torch.compile."""
    pytest.importorskip("transformers.integrations.moe")
    torch.manual_seed(0)
    last = ends(3, 3, 20, 37)
    check(lambda x, w: torch.ops.transformers.grouped_mm_fallback(x * 2, w, last).sin(), torch.randn(37, 48), torch.randn(4, 48, 64))


@pytest.mark.parametrize("implementation", ["grouped_mm", "batched_mm"])
@pytest.mark.parametrize("dtype", [F32, BF16], ids=["f32", "bf16"])
def test_mixture_of_experts(dtype, implementation, tmp_path):
    """However transformers exports the experts of a model, each of their products is a grouped one."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.MixtralConfig(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, num_local_experts=4,
                                        num_experts_per_tok=2, use_cache=False)
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype).eval()
    model.set_experts_implementation(implementation)
    ids = torch.randint(0, 64, (2, 9))
    with torch.no_grad():
        want = model(ids).logits
        package = tmp_path / "experts.coil.pt2"
        compiled = coil.compile(torch.export.export(model, (ids,), strict=False), package)
    got = compiled(ids)
    got = got.logits if hasattr(got, "logits") else got[0] if isinstance(got, (list, tuple)) else got
    torch.testing.assert_close(got, want, atol=TOLERANCE[dtype] * 10, rtol=TOLERANCE[dtype])
    kernels = harness.coil("inspect", package, "--kernels").stdout
    assert kernels.count(" grouped_gemm ") == 4, kernels  # two products a layer
