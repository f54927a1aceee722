"""Convolutions whose values leave the caches run image by image: right for any number of images and threads, the same bits for any threads,
and only where an image needs nothing of the others."""

import numpy as np
import pytest

import capi
import harness


def block(channels=16, inner=32):
    import torch

    class Block(torch.nn.Module):
        """A first convolution, depthwise and 1x1 ones with a residual, a pooling, and a value from the middle as a result."""

        def __init__(self):
            super().__init__()
            conv = torch.nn.Conv2d
            self.first = conv(3, channels, 3, 2, 1)
            self.deep, self.narrow = conv(channels, channels, 3, padding=1, groups=channels), conv(channels, channels, 1)
            self.wide, self.down = conv(channels, inner, 1), conv(inner, inner, 5, 2, 2, groups=inner)
            self.last = conv(inner, 8, 3)

        def forward(self, x):
            x = torch.nn.functional.hardswish(self.first(x))
            middle = x + self.narrow(self.deep(x).relu())
            wide = self.wide(torch.nn.functional.avg_pool2d(middle, 2)).relu()
            return self.last(self.down(wide).relu()), middle

    return Block()


def mixed():
    import torch

    class Mixed(torch.nn.Module):
        """Between the convolutions each image meets another one, and all of them."""

        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = (torch.nn.Conv2d(i, 16, 3, padding=1) for i in (3, 16, 16))

        def forward(self, x):
            a = self.a(x).relu()
            b = self.b(a + a.flip(0))
            return self.c(b - b.mean(0, keepdim=True))

    return Mixed()


def twice():
    import torch

    class Twice(torch.nn.Module):
        """Two chains, whose memory is a matter of the images and of the threads, and values between them that outlive the first."""

        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Conv2d(16, 16, 1)
            self.c, self.d = torch.nn.Conv2d(16, 16, 3, padding=1, groups=16), torch.nn.Conv2d(16, 16, 1)

        def forward(self, x):
            a = self.b(self.a(x).relu())
            other = a - a.mean(0, keepdim=True)
            turned = other.flip(0).softmax(1)
            return self.d(self.c(turned).relu()) + a

    return Twice()


def branches():
    import torch

    class Branches(torch.nn.Module):
        """The chain is a part of a branch, whose memory is a part of the call's."""

        def __init__(self):
            super().__init__()
            self.yes, self.no, self.first = block(), torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(3, 3, 1)

        def forward(self, x):
            x = self.first(x)
            return torch.cond(x.mean() > 0, lambda x: self.yes(x)[0].clone(), lambda x: self.no(x)[:, :, :28, :27].clone(), (x,))

    return Branches()


def made(folder, module, shape, dynamic):
    import torch

    torch.manual_seed(5)
    module = module.eval()
    shapes = ({0: torch.export.Dim("batch", min=1, max=64)},) if dynamic else None
    program = torch.export.export(module, (torch.randn(shape),), dynamic_shapes=shapes)
    torch.export.save(program, folder / "model.pt2")
    harness.coil_ok("compile", folder / "model.pt2", "-o", folder / "model.coil.pt2", *(["--dim", "batch=x:0"] if dynamic else []))
    return module, folder / "model.coil.pt2"


def by_image(package):
    source = harness.coil_ok("inspect", package, "--source").stdout
    return source.count("static void images_")


def outputs(package, x, threads):
    model = capi.Model(harness.BUILD / "libcoil_runtime.so", package, threads=threads)
    inputs, out = model.bind(x)
    model.call(inputs, out, 1)
    return [model.array(out[i]).copy() for i in range(model.num_outputs)]


def check(module, package, x):
    import torch

    with torch.no_grad():
        expected = module(torch.from_numpy(x))
    expected = [e.numpy() for e in (expected if isinstance(expected, tuple) else (expected,))]
    first = None
    for threads in (1, 2, 3, 8):
        got = outputs(package, x, threads)
        for g, e in zip(got, expected, strict=True):
            assert g.shape == e.shape and harness.max_error(g, e) < 1e-5, (x.shape, threads)
        first = first or got
        assert all(np.array_equal(g, f) for g, f in zip(got, first)), (x.shape, threads)


def images(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dynamic", [False, True])
def test_any_images_and_threads(tmp_path, dynamic):
    module, package = made(tmp_path, block(), (5, 3, 242, 230), dynamic)
    assert by_image(package) >= 1
    for n in (1, 2, 3, 5, 9) if dynamic else (5,):
        check(module, package, images(n, 3, 242, 230))


def test_small_maps_run_together(tmp_path):
    _, package = made(tmp_path, block(), (5, 3, 62, 50), True)
    assert by_image(package) == 0


def test_images_that_meet(tmp_path):
    module, package = made(tmp_path, mixed(), (3, 3, 160, 150), True)
    for n in (1, 3, 4):
        check(module, package, images(n, 3, 160, 150))


def test_two_chains(tmp_path):
    module, package = made(tmp_path, twice(), (3, 3, 130, 120), True)
    assert by_image(package) == 2
    for n in (1, 2, 4, 5):
        check(module, package, images(n, 3, 130, 120))


def test_in_a_branch(tmp_path):
    module, package = made(tmp_path, branches(), (6, 3, 242, 230), False)
    assert by_image(package) >= 1
    with_bias = module.first.bias.detach().numpy().mean()
    for offset in (-with_bias - 9, with_bias + 9):
        check(module, package, images(6, 3, 242, 230) + np.float32(offset))


def test_an_image_that_is_not_a_number(tmp_path):
    _, package = made(tmp_path, block(), (4, 3, 242, 230), True)
    x = images(4, 3, 242, 230)
    plain = outputs(package, x, 2)
    x[2] = np.nan
    for got, before in zip(outputs(package, x, 2), plain):
        assert np.isnan(got[2]).all()
        assert np.array_equal(np.delete(got, 2, 0), np.delete(before, 2, 0))


def test_memory_is_not_that_of_all_images(tmp_path):
    """A worker has the values of one image, and no more workers have than there are images."""
    _, package = made(tmp_path, block(), (5, 3, 242, 230), True)

    def arena(images, threads):
        return harness.coil_json("bench", package, "--shape", f"batch={images}", "--threads", threads, "--repeat", 1, "--warmup", 1)["memory"]["arena_bytes"]

    together = 2 * 64 * 16 * 121 * 115 * 4  # a convolution's input and its result
    assert arena(64, 1) < together / 2
    assert arena(2, 1) < arena(2, 2) == arena(2, 8)


def test_tuned(tmp_path):
    module, _ = made(tmp_path, block(), (3, 3, 242, 230), False)
    package = tmp_path / "tuned.coil.pt2"
    harness.coil_ok("compile", tmp_path / "model.pt2", "-o", package, "--tune", "fast", "--tune-budget", "2s", "--tune-threads", 2)
    check(module, package, images(3, 3, 242, 230))
