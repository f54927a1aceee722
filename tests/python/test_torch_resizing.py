"""Resizing under torch.compile stays one operator, and its gradient is a sum over neighbours (python/coil/dynamo/_resizing.py): eager's numbers, no writes by data."""

import pytest
import torch
import torch.nn.functional as F

import coil

LIMIT = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
MODES = {1: ("nearest", "nearest-exact", "linear"), 2: ("nearest", "nearest-exact", "bilinear", "bicubic"), 3: ("nearest", "nearest-exact", "trilinear")}
SIZES = [dict(size=1), dict(size=2), dict(size=7), dict(size=16), dict(scale_factor=2), dict(scale_factor=3.1), dict(scale_factor=0.5), dict(scale_factor=1 / 3),
         dict(scale_factor=1.7, recompute_scale_factor=True)]


def image(dims, size, dtype=torch.float32):
    shape = [2, 3] + [size, size + 2, max(1, size - 1)][:dims]
    return torch.randn(shape, generator=torch.Generator().manual_seed(size), dtype=torch.float64).to(dtype)


def check(function, *images, dynamic=False):
    torch._dynamo.reset()
    coil.reset_compile_stats()
    compiled = torch.compile(function, backend="coil", dynamic=dynamic)
    for x in images:
        found, wanted = ([*pair] for pair in (both(compiled, x), both(function, x)))
        for a, b in zip(found, wanted, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
            assert (a.double() - b.double()).abs().max() <= LIMIT[x.dtype] * max(1.0, float(b.abs().max()))
    assert coil.compile_stats().fallbacks == {}


def both(function, x):
    """The result, and the gradient by weights that differ."""
    x = x.detach().requires_grad_()
    y = function(x)
    return y.detach(), *torch.autograd.grad(y, x, torch.cos(torch.arange(y.numel(), dtype=torch.float64)).view(y.shape).to(y.dtype))


@pytest.mark.parametrize("given", SIZES, ids=str)
@pytest.mark.parametrize("dims, mode", [(d, m) for d, modes in MODES.items() for m in modes])
def test_modes(dims, mode, given):
    for size in (3, 8):
        if min(image(dims, size).shape[2:]) * given.get("scale_factor", 1) < 1:
            continue  # no pixel
        for align in (None,) if mode.startswith("nearest") else (None, True):
            check(lambda x: F.interpolate(x, mode=mode, align_corners=align, **given), image(dims, size))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", MODES[2])
def test_types(mode, dtype):
    check(lambda x: F.interpolate(x, scale_factor=2, mode=mode), image(2, 5, dtype))


@pytest.mark.parametrize("mode", MODES[2])
def test_one_pixel(mode):
    """As the pooled branch of a segmentation network has it."""
    check(lambda x: F.interpolate(x, size=(9, 7), mode=mode), torch.randn(2, 3, 1, 1))


def test_channels_last():
    check(lambda x: F.interpolate(x * 2, scale_factor=2, mode="bilinear"), image(2, 6).contiguous(memory_format=torch.channels_last))


def test_no_images():
    check(lambda x: F.interpolate(x, scale_factor=2).sum() + x.sum() * 0 + 1, torch.randn(1, 3, 4, 4))
    assert torch.compile(lambda x: F.interpolate(x, scale_factor=2), backend="coil")(torch.zeros(0, 3, 4, 4)).shape == (0, 3, 8, 8)


def test_number_of_images_is_dynamic():
    check(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), image(2, 5), image(2, 5)[:1], image(2, 5).repeat(3, 1, 1, 1), dynamic=None)


def test_sizes_are_dynamic():
    check(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), image(2, 5), image(2, 7), image(2, 9), dynamic=None)


@pytest.mark.parametrize("size", [4, 5])
def test_factors_that_nearly_say_the_sizes(size):
    """2.1 makes twice the pixels, and 3.1 three times: what lies where is by the factor, but for images of two dimensions by two."""
    for dims, factor in ((1, 2.1), (1, 3.1), (2, 3.1), (3, 3.1), (2, 2.1)):
        function = lambda x: F.interpolate(x, scale_factor=(*[1.0] * (dims - 1), factor))  # noqa: E731
        x = image(dims, size)
        torch._dynamo.reset()
        assert torch.equal(torch.compile(function, backend="coil")(x), function(x))


def test_under_autocast():
    x = image(2, 5, torch.bfloat16)

    def resized(x):
        with torch.autocast("cpu"):
            return F.interpolate(x, scale_factor=2, mode="bilinear")

    check(resized, x)


def test_numbers_of_other_types_are_eagers_business():
    for dtype in (torch.uint8, torch.int64):
        x = torch.arange(16, dtype=dtype).view(1, 1, 4, 4)
        function = lambda x: F.interpolate(x, scale_factor=2)  # noqa: E731
        try:
            wanted = function(x)
        except (RuntimeError, NotImplementedError):
            with pytest.raises(Exception, match="COIL-E103|not implemented"):
                torch.compile(function, backend="coil")(x)
        else:
            assert torch.equal(torch.compile(function, backend="coil")(x), wanted)


@pytest.mark.parametrize("mode", MODES[2])
def test_the_gradient_writes_nothing_by_data(mode, tmp_path):
    """Sums of what is read alone: a write by positions from data would be a routine or a sort. (The folder has the last program, the backward one.)"""
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: F.interpolate(x, scale_factor=1.5, mode=mode), backend="coil", options={"dump": str(tmp_path)})
    both(compiled, image(2, 8))
    text = "".join(p.read_text() for p in tmp_path.rglob("*") if p.is_file() and p.suffix in (".txt", ".cc", ".cpp"))
    assert "index_select" in text and "aten.sum" in text and "join_rows" not in text and "index_put" not in text and "sort" not in text
