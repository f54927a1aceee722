"""A number of 16 bits is the same for all who read it. What a kernel stores is rounded; where the same kernel goes on with it, it goes on with
what it has stored, as another kernel would: differences of equal numbers are nothing, and gradients of what is constant are none."""

import pytest
import torch
import torch.nn.functional as F

import coil  # noqa: F401  (the backend)

TYPES = [pytest.param(t, id=str(t)[6:]) for t in (torch.bfloat16, torch.float16)]
# Of images whose pixels are all the same: each gives nothing, if both sides see the same numbers.
NOTHING = {
    "pool": lambda m: F.avg_pool2d(m, 3, 1, 1, count_include_pad=False) - m,
    "largest": lambda m: F.max_pool2d(m, 3, 1, 1) - m,
    "mean": lambda m: m - m.mean((2, 3), keepdim=True),
    "shifted": lambda m: m - m.roll((1, 1), (2, 3)),
    "sorted": lambda m: m - m.sort(-1)[0],
    "resized": lambda m: m - F.interpolate(m[:, :, ::2, ::2], scale_factor=2),
    "product": lambda m: m - torch.matmul(m, torch.eye(m.shape[-1], dtype=m.dtype)),
    "kept": lambda m: (m - m.mean(-1, keepdim=True), m)[0],
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", NOTHING)
def test_differences_of_the_same(name, dtype):
    def run(x, w):
        m = x * w
        return NOTHING[name](m), m, torch.cos(m) * 2

    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(4, 16, 1, 1).expand(4, 16, 4, 4).contiguous().to(dtype)
    w = torch.randn(16, 1, 1).to(dtype)
    for kept in (slice(0, 1), slice(0, 3)):
        torch._dynamo.reset()
        with torch.no_grad():
            found = torch.compile(lambda x, w: run(x, w)[kept], backend="coil")(x, w)
        assert float(found[0].abs().max()) == 0, (name, kept)


@pytest.mark.parametrize("dtype", TYPES)
def test_gradients_that_are_nothing(dtype):
    """A norm's bias before pooling minus identity (PoolFormer's mixer) has none where the gradient behind is the same for all pixels."""
    class Mixer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.GroupNorm(1, 32)
            self.scale = torch.nn.Parameter(torch.rand(32, 1, 1))

        def forward(self, x):
            y = self.norm(x)
            return (x + (F.avg_pool2d(y, 3, 1, 1, count_include_pad=False) - y) * self.scale).mean((2, 3))

    torch._dynamo.reset()
    torch.manual_seed(0)
    module = Mixer().to(dtype)
    x = torch.randn(4, 32, 2, 2).to(dtype)
    out = torch.compile(module, backend="coil")(x)
    out.backward(torch.randn(4, 32).to(dtype))
    assert float(module.norm.bias.grad.abs().max()) == 0
