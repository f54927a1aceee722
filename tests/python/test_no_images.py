"""Packages whose dynamic sizes are 0 in a call: products, convolutions, pools and attention of nothing, and their gradients. Sums of nothing are 0; a size that
is a divisor somewhere ends no process."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim, export

import coil
import emulated_cuda
import harness

A = torch.ops.aten


def conv_gradient(dims, transposed=False, groups=1, **sizes):
    def function(x, g, w):
        return A.convolution_backward(g, x, w, [w.shape[1] * groups if transposed else w.shape[0]], [1] * dims, [1] * dims, [1] * dims, transposed, [0] * dims, groups,
                                      [True, True, True])

    channels, outputs = sizes.get("channels", 4), sizes.get("outputs", 6)
    space = (6,) * dims
    weight = (channels, outputs // groups) if transposed else (outputs, channels // groups)
    return function, [("n", channels, *space), ("n", outputs, *space), (*weight, *(3,) * dims)]


# Name -> (function, sizes of its inputs, "n" one that a call decides).
PROGRAMS = {
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1).relu() + 1, [("n", 4, 6, 6), (6, 4, 3, 3)]),
    "convolution of strips": (lambda x, w: F.conv1d(x, w, stride=2), [("n", 4, 9), (6, 4, 3)]),
    "gradients 1d": conv_gradient(1),
    "gradients 2d": conv_gradient(2),
    "gradients 3d": conv_gradient(3),
    "gradients, grouped": conv_gradient(2, groups=2),
    "gradients, depthwise": conv_gradient(2, groups=6, channels=6),
    "gradients, transposed": conv_gradient(2, transposed=True),
    "gradients, one channel": conv_gradient(2, channels=1),
    "gradients, many channels": conv_gradient(2, channels=64, outputs=64),
    "product": (lambda a, b: a @ b + 1, [("n", 5), (5, 7)]),
    "sum of nothing": (lambda a, b: (a.mT @ b).relu() + 1, [("n", 5), ("n", 7)]),
    "gradient of a linear layer": (lambda x, g: (g.mT @ x, g.sum(0)), [("n", 32), ("n", 48)]),
    "batches": (lambda a, b: torch.bmm(a, b), [("n", 3, 4), ("n", 4, 5)]),
    "batches of sums of nothing": (lambda a, b: torch.bmm(a, b) - 2, [(3, 4, "n"), (3, "n", 5)]),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [("n", 2, 5, 8)] * 3),
    "attention of no queries": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [(2, 2, "n", 8), (2, 2, 5, 8), (2, 2, 5, 8)]),
    "largest of windows": (lambda x: F.max_pool2d(x, 2), [("n", 4, 6, 6)]),
    "means of windows": (lambda x: F.avg_pool2d(x, 3, 1, 1), [("n", 4, 6, 6)]),
    "group norm": (lambda x: F.group_norm(x, 2), [("n", 4, 6, 6)]),
    "layer norm": (lambda x: F.layer_norm(x, (6,)), [("n", 4, 6)]),
    "resized": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), [("n", 4, 6, 6)]),
    "sums, products, running sums": (lambda x: (x.sum(0), x.prod(0), x.cumsum(0), x.logsumexp(1), x.softmax(0)), [("n", 7)]),
    "sorted": (lambda x: (x.sort(0)[0], x.argsort(1)), [("n", 7)]),
    "rows of a table": (lambda w, x: F.embedding((x[:, 0] * 0).long(), w), [(5, 7), ("n", 3)]),
    "rows added": (lambda w, x: w.index_add(0, (x[:, 0] * 0).long(), x), [(5, 7), ("n", 7)]),
}


class Program(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def inputs_of(sizes, count, dtype):
    return tuple(torch.randn([count if d == "n" else d for d in size]).to(dtype) for size in sizes)


def exported(name, dtype, path):
    """Saves the program at `path`; its function and the sizes of its inputs."""
    function, sizes = PROGRAMS[name]
    n = Dim("n", min=0, max=4096)
    shapes = (tuple({d: n for d, v in enumerate(size) if v == "n"} for size in sizes),)
    torch.export.save(export(Program(function), inputs_of(sizes, 3, dtype), dynamic_shapes=shapes, strict=False), path)
    return function, sizes


@pytest.mark.parametrize("name,dtype", [(name, torch.float32) for name in PROGRAMS] +
                         [(name, dtype) for name in PROGRAMS if name.startswith("gradients 2d") or name in ("sum of nothing", "convolution", "attention")
                          for dtype in (torch.float64, torch.bfloat16)])
def test_as_eager(name, dtype, tmp_path):
    function, sizes = exported(name, dtype, tmp_path / "p.pt2")
    package = coil.compile(tmp_path / "p.pt2")
    for count in (0, 3, 1, 0, 17):
        given = inputs_of(sizes, count, dtype)
        expected, got = function(*given), package(*given)
        for e, g in zip(expected if isinstance(expected, tuple) else [expected], got if isinstance(got, (tuple, list)) else [got], strict=True):
            g = torch.as_tensor(np.asarray(g.cpu().float() if isinstance(g, torch.Tensor) and g.dtype == torch.bfloat16 else g))
            assert tuple(g.shape) == tuple(e.shape)
            torch.testing.assert_close(g.double(), e.double(), atol=0.3 if dtype == torch.bfloat16 else 2e-4, rtol=0.05 if dtype == torch.bfloat16 else 1e-3, equal_nan=True)


EMULATED = ["convolution", "gradients 2d", "gradients, grouped", "gradients, one channel", "gradients, many channels", "sum of nothing", "attention of no queries"]


@pytest.mark.parametrize("name,dtype", [*((name, torch.float32) for name in EMULATED), ("gradients 2d", torch.float16), ("gradients, many channels", torch.float16)])
def test_on_a_gpu(name, dtype, tmp_path):
    """Emulated, where a division by 0 is an error; on a GPU it may be a loop without end."""
    function, sizes = exported(name, dtype, tmp_path / "p.pt2")
    package = emulated_cuda.Emulated(tmp_path / "p.pt2", tmp_path, 90, level="-O0")
    assert package.compiled.returncode == 0, package.compiled.stderr
    for count in (0, 3):
        given = inputs_of(sizes, count, dtype)
        expected = function(*given)
        np.savez(tmp_path / "in.npz", **{f"in_{i}": x.numpy() for i, x in enumerate(given)})
        done, outputs = package.run(tmp_path / "in.npz")
        assert done.returncode == 0, done.stderr
        harness.compare(outputs, [e.numpy() for e in (expected if isinstance(expected, tuple) else (expected,))], 2e-2 if dtype == torch.float16 else 1e-3, name)
