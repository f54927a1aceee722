"""Tensors of the float8 types as inputs, constants and results: bits are compared."""

import pytest
import torch

import harness  # noqa: F401 (makes `coil` importable)
import coil

TYPES = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
NAMES = [str(t).removeprefix("torch.") for t in TYPES]


def codes(kind):
    return torch.arange(256, dtype=torch.uint8).view(kind).reshape(16, 16)


class Moves(torch.nn.Module):
    """Floats and float8 numbers in and out, one of them a constant."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.register_buffer("weight", codes(kind).flatten()[40:56].clone())

    def forward(self, x, y):
        rows = torch.cat([x, self.weight[None]])
        return rows, x.t(), y.to(self.kind), x.to(torch.float32) * y, torch.where(y > 0, x, self.weight), x[:, 3:5].clone()


class Plus(torch.nn.Module):
    def forward(self, x):
        return (x.to(torch.float32) + 1).to(x.dtype)


def assert_same_bits(ours, theirs):
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        if a.element_size() == 1:
            assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))
        else:
            torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("kind", TYPES, ids=NAMES)
def test_package(kind, tmp_path):
    torch.manual_seed(0)
    module, inputs = Moves(kind), (codes(kind), torch.randn(16, 16))
    model = coil.compile(torch.export.export(module, inputs), tmp_path / "m.pt2")
    expected = module(*inputs)
    assert_same_bits(model(*inputs), expected)
    assert_same_bits(coil.load(str(tmp_path / "m.pt2"))(*inputs), expected)
    assert [i.dtype for i in model.inputs] == [str(kind).removeprefix("torch."), "float32"]
    with pytest.raises(coil.Error, match="uint8"):
        model(torch.zeros(16, 16, dtype=torch.uint8), inputs[1])


@pytest.mark.parametrize("kind", TYPES, ids=NAMES)
def test_torch_compile(kind):
    torch._dynamo.reset()
    coil.reset_compile_stats()
    torch.manual_seed(0)
    module = Moves(kind)
    compiled = torch.compile(module, backend="coil", fullgraph=True, dynamic=False)
    for x, y in [(codes(kind), torch.randn(16, 16)), (codes(kind).t(), torch.randn(16, 16).exp().t())]:
        assert_same_bits(compiled(x, y), module(x, y))
    assert coil.compile_stats().fallback_operators == 0


def test_dynamic_sizes_and_dtype_check():
    kind = torch.float8_e4m3fn
    model = coil.compile(torch.export.export(Plus(), (codes(kind),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)))
    for rows in (2, 5, 16):
        x = codes(kind)[:rows]
        assert_same_bits([model(x)], [Plus()(x)])
    with pytest.raises(coil.Error, match="float8_e4m3fn"):
        model(codes(torch.float8_e5m2))


def test_what_does_not_exist_is_refused():
    class Sum(torch.nn.Module):
        def forward(self, x):
            return x + x

    with pytest.raises(coil.Error, match="COIL-E102.*float8"):
        coil.compile(torch.export.export(Sum(), (codes(torch.float8_e4m3fn),)))


def compiled_alike(function, *inputs):
    """Through torch.compile, all of it computed by coil, as eager has it."""
    torch._dynamo.reset()
    coil.reset_compile_stats()
    ours = torch.compile(function, backend="coil", fullgraph=True)(*[x.clone() for x in inputs])
    stats = coil.compile_stats()
    assert stats.operators and not stats.fallback_operators, stats.fallbacks
    theirs = function(*[x.clone() for x in inputs])
    return (ours, theirs) if isinstance(ours, tuple) else ((ours,), (theirs,))


@pytest.mark.parametrize("rows", [False, True], ids=["tensors", "rows"])
def test_scaled_products_in_torch_compile(rows):
    torch.manual_seed(0)
    weight = torch.randn(48, 32).to(torch.float8_e4m3fn)
    scales = (torch.rand(16, 1) + 0.5, torch.rand(1, 48) + 0.5) if rows else (torch.tensor(0.5), torch.tensor(2.0))

    def function(x, a, b, bias):
        return torch._scaled_mm(x.to(torch.float8_e4m3fn), weight.t(), a, b, bias=bias, out_dtype=torch.float32)

    for ours, theirs in zip(*compiled_alike(function, torch.randn(16, 32), *scales, torch.randn(48))):
        torch.testing.assert_close(ours, theirs)


def test_bits_in_torch_compile():
    """view(dtype) to other sizes, and what is written through such a view."""
    torch.manual_seed(0)

    def function(x, h):
        y = x * 2
        y.view(torch.uint8)[..., 3].bitwise_and_(0x7F)
        return x.view(torch.uint8), x.view(torch.int64) + 1, x.view(torch.bfloat16).view(torch.int16), h.view(torch.int32), h.t().view(torch.int16), y

    ours, theirs = compiled_alike(function, torch.randn(3, 4), torch.randn(5, 6, dtype=torch.float16))
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype and a.stride() == b.stride()
        assert torch.equal(a, b)


def test_bits_that_pytorch_refuses():
    for bad in (lambda x: x[:, :3].view(torch.float64), lambda x: x.t().view(torch.int64), lambda x: x.sum().view(torch.uint8)):
        torch._dynamo.reset()
        with pytest.raises(Exception, match="(?s)must be|cannot be|stride|size|fake tensor"):
            torch.compile(bad, backend="coil", fullgraph=True)(torch.randn(3, 4))
