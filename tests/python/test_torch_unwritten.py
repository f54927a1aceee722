"""Memory that nobody has written, where algorithms are to be deterministic: eager fills it, and so do compiled programs (they had zeros)."""

import pytest
import torch

import coil

DTYPES = (torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64)


def every_operator(x):
    return (torch.empty_like(x) * 1, x.new_empty(2) + x.sum(), torch.empty(2, x.shape[0]) + 1, torch.empty_strided((2, 3), (1, 2)) * 2,
            torch.empty_permuted((2, 2), (1, 0)) + 1, x.new_empty_strided((2,), (1,)), torch.empty_like(x))


def every_type(x):
    return [t for dtype in DTYPES for t in (torch.empty_like(x, dtype=dtype), torch.stack([x.new_empty(2, dtype=dtype)] * 2))]


def written_in_part(x):
    y = x.new_empty(4)
    y[1:3] = x
    return (y, y.nan_to_num() * x.sum())


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("fresh_compiles", "deterministic")
@pytest.mark.parametrize("function", [every_operator, every_type, written_in_part])
def test_equals_eager(function):
    x = torch.ones(2)
    for found, wanted in zip(torch.compile(function, backend="coil")(x), function(x), strict=True):
        assert found.stride() == wanted.stride()
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    assert coil.compile_stats().fallbacks == {}


@pytest.mark.usefixtures("fresh_compiles", "deterministic")
def test_only_where_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    assert not torch.compile(lambda x: torch.empty_like(x) * 0, backend="coil")(torch.ones(2)).isnan().any()
