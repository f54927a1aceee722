"""What lanes do that a condition leaves out (src/codegen/cpu/emit_expr.cc): bisections, borders and windows of every dtype, and text that does not grow with depth."""

import pytest
import torch
import torch.nn.functional as F

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


class Borders(torch.nn.Module):
    """Shifts by less and by more than a vector, to both sides, in rows of 1 to 70 elements."""

    def forward(self, *rows):
        shifted = [F.pad(x, (n, -n)) for x in rows for n in (1, 3, 9, -1, -9) if abs(n) < x.shape[-1]]
        return *shifted, *(F.pad(x, (2, 5, 1, 0)) for x in rows)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_borders(dtype):
    generator = torch.Generator().manual_seed(1)
    rows = tuple(torch.randint(0, 2 if dtype == torch.bool else 100, (3, n), generator=generator).to(dtype) for n in (1, 7, 8, 17, 70))
    compare(Borders(), rows)


def compare(module, inputs):
    torch._dynamo.reset()
    found, wanted = torch.compile(module, backend="coil", dynamic=False)(*inputs), module(*inputs)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype and torch.equal(a, b)


@pytest.mark.parametrize("length", [1, 2, 7, 1000, 70_001])
def test_bisections(length):
    """Below, above, among equal ones, and not a number."""
    edges = torch.sort(torch.randint(0, max(length // 2, 1), (length,), generator=torch.Generator().manual_seed(length)).float()).values
    values = torch.cat([edges[:50], edges[-50:] + 0.5, torch.tensor([-1.0, 1e9, float("inf"), float("-inf"), float("nan")])])
    compare(lambda e, v: (torch.searchsorted(e, v), torch.searchsorted(e, v, right=True), torch.bucketize(v, e)), (edges, values))


def test_text_grows_with_the_steps_of_a_bisection(tmp_path):
    """Each step reads where the one before it has come to: once."""
    texts = {}
    for steps in (8, 16):
        folder = tmp_path / str(steps)
        torch._dynamo.reset()
        compiled = torch.compile(lambda e, v: torch.searchsorted(e, v), backend="coil", dynamic=False, options={"dump": str(folder)})
        edges = torch.arange(float(1 << steps))
        assert torch.equal(compiled(edges, edges[:99]), torch.arange(99))
        texts[steps] = len(next(folder.rglob("*kernels*.cc")).read_text())
    assert texts[16] < 2.5 * texts[8], texts


@pytest.mark.parametrize("stride, padding, dilation, kernel", [(1, 1, 1, 3), (2, 1, 1, 3), (2, 3, 1, 7), (1, 2, 2, 3), (3, 0, 1, 5)])
def test_gradients_of_depthwise_weights(stride, padding, dilation, kernel):
    """By images, from a copy with the padding; rows that no window reaches, and one channel."""
    for channels, size in ((5, 19), (1, 16)):
        generator = torch.Generator().manual_seed(size)
        x = torch.randint(-4, 5, (3, channels, size, size + 2), generator=generator).float().requires_grad_()
        w = torch.randint(-4, 5, (channels, 1, kernel, kernel), generator=generator).float().requires_grad_()

        def gradients(form):
            y = form(x, w)
            return torch.autograd.grad(y, (x, w), torch.ones_like(y))

        form = lambda x, w: F.conv2d(x, w, stride=stride, padding=padding, dilation=dilation, groups=channels)  # noqa: E731
        torch._dynamo.reset()
        for a, b in zip(gradients(torch.compile(form, backend="coil", dynamic=False)), gradients(form), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["max 3/2", "max 5/1", "max dilated", "average 3/2", "average uncounted", "adaptive max", "adaptive average", "fractional"])
def test_gradients_of_pools(kind, dtype):
    """With ties, whose first pixel is chosen, and more pixels than a vector has lanes."""
    pools = {"max 3/2": lambda x: F.max_pool2d(x, 3, 2, 1), "max 5/1": lambda x: F.max_pool2d(x, 5, 1, 2), "max dilated": lambda x: F.max_pool2d(x, 3, 1, 1, dilation=2),
             "average 3/2": lambda x: F.avg_pool2d(x, 3, 2, 1), "average uncounted": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False, ceil_mode=True),
             "adaptive max": lambda x: F.adaptive_max_pool2d(x, (5, 4)), "adaptive average": lambda x: F.adaptive_avg_pool2d(x, (5, 4)),
             "fractional": lambda x: F.fractional_max_pool2d(x, 2, output_size=(9, 8), _random_samples=torch.full((2, 3, 2), 0.4, dtype=x.dtype))}
    if kind == "fractional" and dtype == torch.bfloat16:
        pytest.skip("PyTorch has none")
    pool = pools[kind]
    x = torch.randint(-3, 4, (2, 3, 21, 18), generator=torch.Generator().manual_seed(2)).to(dtype).requires_grad_()
    torch._dynamo.reset()
    results = [(y, *torch.autograd.grad(y, x, (torch.arange(y.numel()) % 5).view(y.shape).to(dtype)))
               for y in (torch.compile(pool, backend="coil", dynamic=False)(x), pool(x))]
    limit = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    for found, wanted in zip(*results, strict=True):
        torch.testing.assert_close(found, wanted, **limit)
