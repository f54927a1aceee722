"""Several NaNs in a pool's window: the values, and that the index is the one that eager names, which is the last NaN's; of equal elements the first."""

import random

import pytest
import torch
import torch.nn.functional as F

import coil

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


class Pools(torch.nn.Module):
    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def forward(self, *tensors):
        return [r for call, x in zip(self.calls, tensors, strict=True) for r in call(x)]


def image_of(r, rank, dtype):
    """Few different numbers, so that windows hold equal ones, many NaNs, and infinities."""
    x = torch.randint(-2, 3, (2, 3, *(r.randint(6, 9) for _ in range(rank)))).to(dtype)
    flat = x.view(-1)
    for value, share in ((float("nan"), r.choice([0.05, 0.3, 0.9])), (float("-inf"), 0.2), (float("inf"), 0.05)):
        flat[torch.rand(flat.shape) < share] = value
    return x.contiguous(memory_format=[torch.channels_last, torch.channels_last_3d][rank - 2]) if rank > 1 and r.random() < 0.4 else x


def pool_of(r, rank):
    kind = r.choice(["plain", "plain", "plain", "adaptive", "fractional" if rank > 1 else "adaptive"])
    if kind == "adaptive":
        out = [r.randint(1, 5) for _ in range(rank)]
        return lambda x: getattr(F, f"adaptive_max_pool{rank}d")(x, out, return_indices=True)
    if kind == "fractional":
        samples = torch.rand(2, 3, rank, dtype=torch.float32)
        return lambda x: getattr(F, f"fractional_max_pool{rank}d")(x, 2, output_size=[3] * rank, return_indices=True, _random_samples=samples.to(x.dtype))
    k = [r.randint(1, 3) for _ in range(rank)]
    options = {"kernel_size": k, "stride": [r.randint(1, 3) for _ in k], "padding": [r.randint(0, n // 2) for n in k], "dilation": [r.randint(1, 2) for _ in k],
               "ceil_mode": r.random() < 0.5}
    return lambda x: getattr(F, f"max_pool{rank}d")(x, return_indices=True, **options)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_index_is_the_last_nans(rank):
    r = random.Random(rank)
    torch.manual_seed(rank)
    calls, images = [], []
    while len(calls) < 12:
        call, x = pool_of(r, rank), image_of(r, rank, DTYPES[len(calls) % 4])
        try:
            call(x)
        except RuntimeError:  # a window that does not fit, or a type that eager has no pool for
            continue
        calls.append(call)
        images.append(x)
    model = Pools(calls)
    for ours, theirs in zip(coil.compile(torch.export.export(model, tuple(images)))(*images), model(*images), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
