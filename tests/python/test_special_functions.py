"""Special functions to the last digits, where formulas change and where results are tiny, beside eager's in float64 (whose error is far below these bounds)."""
import pytest
import torch

import coil

F32, F64 = torch.float32, torch.float64
ENDS = torch.tensor([0.0, -0.0, 1.0, -1.0, 1.5, -2.0, float("nan"), float("inf")], dtype=F64)


def compiled(function, *inputs):
    class Program(torch.nn.Module):
        def forward(self, *x):
            return function(*x)

    return coil.compile(torch.export.export(Program(), inputs))(*inputs)


def near_one():
    gaps = torch.logspace(-16, -0.2, 700, dtype=F64)
    return torch.cat([torch.linspace(-1, 1, 2001, dtype=F64), 1 - gaps, gaps - 1, torch.logspace(-300, -1, 500, dtype=F64), ENDS])


def assert_digits(found, want, digits):
    """Infinities, NaN and signs of zeros alike; else a relative error of at most `digits`, or what denormal numbers of the type lose."""
    assert torch.equal(found.isnan(), want.isnan()) and torch.equal(found.isinf(), want.isinf())
    number = want.isfinite()
    assert torch.equal(found[~number & ~want.isnan()].double(), want[~number & ~want.isnan()])
    tiny = torch.finfo(found.dtype).smallest_normal
    error = ((found.double() - want).abs() / want.abs().clamp(min=tiny))[number]
    assert float(error.max()) <= digits, float(error.max())


@pytest.mark.parametrize("dtype, digits", [(F32, 6.1e-8), (F64, 2e-15)])
def test_erfinv(dtype, digits):
    x = near_one().to(dtype)
    y = compiled(torch.erfinv, x)
    assert_digits(y, torch.erfinv(x.double()), digits)
    assert torch.equal(y.signbit()[x == 0], x.signbit()[x == 0])


@pytest.mark.parametrize("dtype, digits", [(F32, 6.1e-8), (F64, 2e-15)])
def test_ndtri(dtype, digits):
    p = torch.cat([near_one() * 0.5 + 0.5, torch.logspace(-300, -1, 700, dtype=F64), torch.logspace(-37, -1, 300, dtype=F64)]).to(dtype)
    p = p[(p == 0) | ~(p.abs() < torch.finfo(dtype).smallest_normal)]
    p = p[(p - 0.5).abs() != 0]  # eager gives a few 1e-17
    y = compiled(torch.special.ndtri, p)
    assert_digits(y, torch.special.ndtri(p.double()), digits if dtype == F64 else 1.2e-7)
    half = torch.full((3,), 0.5, dtype=dtype)
    assert torch.equal(compiled(torch.special.ndtri, half), torch.zeros(3, dtype=dtype))


@pytest.mark.parametrize("dtype, digits", [(F32, 7e-7), (F64, 1e-14)])
@pytest.mark.parametrize("function", [torch.special.i0e, torch.special.i1e])
def test_scaled_bessel(function, dtype, digits):
    """Where the series change (8) and lose most (eager in float32: 1e-6), far out and near 0."""
    x = torch.cat([torch.linspace(-10, 10, 20001, dtype=F64), 8 + torch.linspace(-1e-5, 1e-5, 101, dtype=F64), torch.logspace(-30, 30, 601, dtype=F64), ENDS]).to(dtype)
    assert_digits(compiled(function, x), function(x.double()), digits)


@pytest.mark.parametrize("dtype, bound", [(F32, 1e-7), (F64, 2e-9)])
def test_incomplete_gamma(dtype, bound):
    """Small and large, beside each other and far apart; eager's own error in float64 is up to 4e-10, relative to Q up to 2e-8."""
    near = torch.logspace(-1, 5, 60, dtype=F64)
    a, x = torch.meshgrid(torch.logspace(-8, 5, 66, dtype=F64), torch.logspace(-8, 5, 66, dtype=F64), indexing="ij")
    a, x = torch.cat([a.flatten(), near, near, near]).to(dtype), torch.cat([x.flatten(), near * 1.001, near * 0.999, near + near.sqrt()]).to(dtype)
    p, q = compiled(lambda a, x: (torch.special.gammainc(a, x), torch.special.gammaincc(a, x)), a, x)
    wanted_p, wanted_q = torch.special.gammainc(a.double(), x.double()), torch.special.gammaincc(a.double(), x.double())
    assert float((p.double() - wanted_p).abs().max()) <= bound and float((q.double() - wanted_q).abs().max()) <= bound
    tail = wanted_q > 1e-30
    assert float(((q.double() - wanted_q).abs() / wanted_q)[tail].max()) <= 3e-6


@pytest.mark.parametrize("name", ["i0e", "i1e", "modified_bessel_k0", "modified_bessel_k1"])
def test_bessel(name):
    x = torch.cat([torch.linspace(-20, 20, 4001, dtype=F64), torch.logspace(-300, 2.5, 500, dtype=F64)])
    x = x.abs() if "_k" in name else x
    assert_digits(compiled(getattr(torch.special, name), x), getattr(torch.special, name)(x), 2e-14)
