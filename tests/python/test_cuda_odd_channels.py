"""Convolutions on CUDA over numbers of channels that are no whole vectors, emulated (tests/cuda_emulation): patches, channels with zeros behind them,
depthwise ones a few channels at a time; windows, borders, sizes of every call, numbers that are not finite. And products that read what a loop turned."""

import emulated_cuda
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from test_cuda_sorts import array, package_of

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


def check(function, sets, folder, dynamic=None):
    """The text of the kernels. Halves are compared with what float32 gives of the same numbers."""
    package, arrays = package_of(function, sets[0], folder, dynamic, level="-O1", architecture=80), folder / "inputs.npz"
    for inputs in sets:
        np.savez(arrays, **{f"in_{i}": array(t) for i, t in enumerate(inputs)})
        done, outputs = package.run(arrays)
        assert done.returncode == 0, done.stderr
        exact = function(*[t.float() for t in inputs])
        for got, want in zip(outputs, exact, strict=True):
            torch.testing.assert_close(torch.from_numpy(np.asarray(got)).float(), want, atol=TOLERANCE[inputs[0].dtype] * 4, rtol=TOLERANCE[inputs[0].dtype], equal_nan=True)
    return emulated_cuda.kernels_of(package.package)[0]


def drawn(dtype, *sizes):
    return torch.randn(sizes).to(dtype)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_patches(dtype, tmp_path):
    """Of one, two and three dimensions, with rows and columns left over, beside activations on both sides; one patch, and no image."""
    def patches(lines, images, films, one, none, wl, wi, wf, bias):
        y = F.gelu(F.conv2d(images, wi, bias, stride=(4, 3)))
        return (F.conv1d(lines * 2, wl, stride=5), y, y.flatten(2).transpose(1, 2) + bias, F.conv3d(films, wf, stride=(2, 3, 2)), F.conv2d(one, wi, stride=(4, 3)),
                F.conv2d(none, wi, stride=(4, 3)))

    inputs = (drawn(dtype, 2, 3, 52), drawn(dtype, 3, 3, 17, 20), drawn(dtype, 2, 5, 4, 7, 6), drawn(dtype, 1, 3, 4, 3), drawn(dtype, 0, 3, 8, 9),
              drawn(dtype, 7, 3, 5), drawn(dtype, 24, 3, 4, 3), drawn(dtype, 6, 5, 2, 3, 2), drawn(dtype, 24))
    assert "cd::conv_" not in check(patches, [inputs], tmp_path)


def test_patches_of_sizes_of_every_call(tmp_path):
    sizes = [torch.export.Dim(name, min=0 if name == "batch" else 32, max=200) for name in ("batch", "height", "width")]
    w = drawn(torch.bfloat16, 16, 3, 16, 16)
    sets = [(drawn(torch.bfloat16, *size), w) for size in ((2, 3, 34, 50), (0, 3, 32, 32), (1, 3, 32, 32), (3, 3, 47, 65))]
    check(lambda x, w: (F.conv2d(x, w, stride=16),), sets, tmp_path, (({0: sizes[0], 2: sizes[1], 3: sizes[2]}, None),))


def test_patches_keep_what_is_not_finite_to_themselves(tmp_path):
    x = drawn(torch.float32, 1, 3, 8, 8)
    x[0, 1, 3, 3], x[0, 2, 7, 7] = float("nan"), float("inf")
    check(lambda x, w: (F.conv2d(x, w, stride=4),), [(x, drawn(torch.float32, 5, 3, 4, 4))], tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_channels_with_zeros_behind_them(dtype, tmp_path):
    """26 of Res2Net, odd ones, an eleven by eleven window over three; strides, dilation, one dimension; a piece of a split, as its blocks read it."""
    def convolutions(x, wide, line, w, w5, w11, wl, bias):
        a, b = x.split([26, 26], 1)
        y = F.relu(F.conv2d(a, w, bias, padding=1))
        return (F.conv2d(y + b, w, bias, padding=1), F.conv2d(x[:, :9], w5, stride=2, padding=4, dilation=2), F.conv2d(wide, w11, stride=4, padding=2), F.conv1d(line, wl, padding=1))

    inputs = (drawn(dtype, 2, 52, 9, 11), drawn(dtype, 1, 3, 30, 31), drawn(dtype, 2, 13, 21), drawn(dtype, 26, 26, 3, 3) / 16, drawn(dtype, 10, 9, 5, 5) / 16, drawn(dtype, 12, 3, 11, 11) / 16,
              drawn(dtype, 8, 13, 3), drawn(dtype, 26))
    check(convolutions, [inputs], tmp_path)


def test_zeros_behind_channels_take_nothing_from_what_is_not_finite(tmp_path):
    x = drawn(torch.bfloat16, 1, 13, 6, 6)
    x[0, 12, 2, 2], x[0, 0, 5, 5] = float("inf"), float("nan")
    check(lambda x, w: (F.conv2d(x, w, padding=1),), [(x, drawn(torch.bfloat16, 4, 13, 3, 3))], tmp_path)


@pytest.mark.parametrize("dtype,channels,width", [(torch.bfloat16, 162, 2), (torch.bfloat16, 228, 4), (torch.float16, 27, 1), (torch.float32, 38, 2), (torch.float32, 75, 1), (torch.bfloat16, 64, 8)])
def test_depthwise(dtype, channels, width, tmp_path):
    """As many channels of a thread as divide their number; results of rows that take wide stores, and behind a pooling that does not ask for them."""
    def depthwise(x, w3, w5):
        y = F.relu6(F.conv2d(x * 2, w3, padding=1, groups=channels))
        return F.conv2d(y, w5, stride=2, padding=2, groups=channels), y.mean((2, 3))

    inputs = (drawn(dtype, 2, channels, 9, 14).contiguous(memory_format=torch.channels_last), drawn(dtype, channels, 1, 3, 3), drawn(dtype, channels, 1, 5, 5) / 5)
    text = check(depthwise, [inputs], tmp_path)
    assert f", {width}>(t, epilogue);" in text and "cd::conv_depthwise<" not in text


def test_products_read_what_a_norm_stored_as_rows(tmp_path):
    """Image by image: of several, of one, and where a row is no multiple of 16 bytes."""
    def over_places(x, one, odd, w, bias):
        def turned(x):
            return F.layer_norm(x.float(), x.shape[-1:]).transpose(1, 2).to(x.dtype)

        return ((turned(x) @ w + bias).transpose(1, 2), turned(one) @ w, turned(odd) @ w)

    inputs = (drawn(torch.bfloat16, 3, 49, 64), drawn(torch.bfloat16, 1, 49, 72), drawn(torch.bfloat16, 2, 49, 33), drawn(torch.bfloat16, 49, 56) / 8, drawn(torch.bfloat16, 56))
    check(over_places, [inputs], tmp_path)


def test_numbers_of_heads_that_lie_apart(tmp_path):
    """Scores and probabilities mixed between four heads, which are the last dimension of both products; and of three, with as many places as a warp has no use for."""
    def talking(q, k, v, before, after):
        scores = (q @ k.transpose(-2, -1)).permute(0, 2, 3, 1) @ before
        heads = scores.permute(0, 3, 1, 2).float().softmax(-1).to(q.dtype).permute(0, 2, 3, 1) @ after
        return heads.permute(0, 3, 1, 2) @ v, scores.sum(2)

    def both(*inputs):
        return (*talking(*inputs[:5]), *talking(*inputs[5:]))

    def problem(heads, places):
        qkv = [drawn(torch.bfloat16, 2, heads, places, 16) / 4 for _ in range(3)]
        return (*qkv, drawn(torch.bfloat16, heads, heads) / 2, drawn(torch.bfloat16, heads, heads) / 2)

    check(both, [(*problem(4, 40), *problem(3, 13))], tmp_path)
