"""Images of bytes are resized as eager's processors do it, bit by bit: by whole numbers, rounded to bytes after each dimension."""

import pytest
import torch
import torch.nn.functional as F

import coil

LAST = torch.channels_last
# (channels, lines, columns, how they lie, arguments of F.interpolate)
CASES = [
    (3, 31, 17, LAST, dict(size=(14, 40))), (3, 31, 17, torch.contiguous_format, dict(size=(50, 5))), (5, 9, 9, LAST, dict(size=(18, 18))), (1, 13, 8, torch.contiguous_format, dict(size=(13, 3))),
    (4, 12, 20, LAST, dict(size=(1, 1))), (2, 1, 1, LAST, dict(size=(3, 4))), (3, 2, 3, torch.contiguous_format, dict(size=(11, 9))), (3, 21, 23, LAST, dict(scale_factor=(0.43, 1.9))),
    (3, 21, 23, torch.contiguous_format, dict(scale_factor=1.3, recompute_scale_factor=True)), (3, 40, 33, LAST, dict(size=(7, 6))),
]
KINDS = [(mode, antialias, align) for mode in ("bilinear", "bicubic") for antialias in (False, True) for align in (False, True)]


def images():
    generator = torch.Generator().manual_seed(0)
    made = [torch.randint(0, 256, (2, c, h, w), generator=generator, dtype=torch.uint8).contiguous(memory_format=lies) for c, h, w, lies, _ in CASES]
    made[2][:, :, ::2] = 255  # edges, where cubic weights leave the range of bytes
    made[2][:, :, 1::2] = 0
    return made


def resize(x, case, mode, antialias, align):
    return F.interpolate(x, mode=mode, antialias=antialias, align_corners=align, **case[-1])


class Program(torch.nn.Module):
    """Each case in two of the kinds."""

    def forward(self, *xs):
        return [resize(x, case, *kind) for i, (x, case) in enumerate(zip(xs, CASES, strict=True)) for k, kind in enumerate(KINDS) if (i + k) % 4 == 0]


def without_filter(*xs):
    """What AOTAutograd would take apart into arithmetic of floats."""
    return [resize(x, case, mode, False, align) for x, case in zip(xs, CASES, strict=True) for mode, align in (("bilinear", False), ("bicubic", False), ("bicubic", True))]


def same(found, wanted):
    for ours, eagers in zip(found, wanted, strict=True):
        assert all(a == b for a, b, n in zip(ours.stride(), eagers.stride(), ours.shape) if n > 1)
        assert torch.equal(ours, eagers)


def test_package():
    package = coil.compile(torch.export.export(Program(), tuple(images())), options={"opt_level": 0})
    same(package(*images()), Program()(*images()))


@pytest.mark.usefixtures("fresh_compiles")
def test_torch_compile():
    same(torch.compile(without_filter, backend="coil", options={"opt_level": 0})(*images()), without_filter(*images()))
    assert coil.compile_stats().fallbacks == {}


def test_a_dynamic_size_is_refused_by_name():
    module = torch.nn.Upsample(size=(8, 8), mode="bilinear")
    program = torch.export.export(module, (images()[0],), dynamic_shapes=({3: torch.export.Dim("width", min=2, max=99)},))
    with pytest.raises(coil.UnsupportedError, match="of bytes, of an image of dynamic size"):
        coil.compile(program)
    batch = torch.export.export(module, (images()[0],), dynamic_shapes=({0: torch.export.Dim("batch", max=99)},))
    many = torch.cat([images()[0]] * 3)
    assert torch.equal(coil.compile(batch, options={"opt_level": 0})(many), module(many))
