#!/usr/bin/env python3
"""Convolutions whose weights come with the call, forward and both gradients, one by one: what a training graph takes by default, PyTorch's convolutions and
coil's own. µs of all kernels of a step, its activations included; results of the two are compared.

  python bench/training_convolutions.py                       # all, bf16 and float32 without TF32, on a GPU
  python bench/training_convolutions.py --dtypes bf16 --only patch depthwise --seconds 60
"""

import argparse
import sys
import time

import needs
import torch
import torch.nn.functional as F
from kernel_times import kernel_times

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
N = 32
CASES = {  # name: image, weight, step, padding, groups; a name that begins with "transposed" is one
    "depthwise 3 of 144": ((N, 144, 56, 56), (144, 1, 3, 3), 1, 1, 144),
    "depthwise 3 by 2 of 144": ((N, 144, 56, 56), (144, 1, 3, 3), 2, 1, 144),
    "depthwise 5 of 240": ((N, 240, 28, 28), (240, 1, 5, 5), 1, 2, 240),
    "depthwise 7 of 96": ((N, 96, 56, 56), (96, 1, 7, 7), 1, 3, 96),
    "depthwise 7 of 384": ((N, 384, 14, 14), (384, 1, 7, 7), 1, 3, 384),
    "depthwise 3 of 960": ((N, 960, 7, 7), (960, 1, 3, 3), 1, 1, 960),
    "depthwise 1d of 1536": ((8, 1536, 2048), (1536, 1, 4), 1, 3, 1536),
    "depthwise 3d of 64": ((4, 64, 8, 28, 28), (64, 1, 3, 3, 3), 1, 1, 64),
    "two of each of 144": ((N, 144, 27, 27), (288, 1, 3, 3), 2, 1, 144),
    "32 groups of 4": ((N, 128, 56, 56), (128, 4, 3, 3), 1, 1, 32),
    "32 groups of 8": ((N, 256, 28, 28), (256, 8, 3, 3), 1, 1, 32),
    "32 groups of 32": ((N, 1024, 14, 14), (1024, 32, 3, 3), 1, 1, 32),
    "10 groups of 16 by 2": ((N, 160, 28, 28), (160, 16, 3, 3), 2, 1, 10),
    "3x3 of 64": ((N, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
    "3x3 of 256": ((N, 256, 14, 14), (256, 256, 3, 3), 1, 1, 1),
    "3x3 by 2 of 128": ((N, 128, 56, 56), (256, 128, 3, 3), 2, 1, 1),
    "7x7 by 2 of 3": ((N, 3, 224, 224), (64, 3, 7, 7), 2, 3, 1),
    "patches of 16": ((N, 3, 224, 224), (768, 3, 16, 16), 16, 0, 1),
    "patches of 4": ((N, 3, 224, 224), (96, 3, 4, 4), 4, 0, 1),
    "patches of 2 of 96": ((N, 96, 56, 56), (192, 96, 2, 2), 2, 0, 1),
    "transposed patches of 2": ((N, 64, 56, 56), (64, 32, 2, 2), 2, 0, 1),
    "1d of 64": ((N, 64, 4096), (64, 64, 3), 1, 1, 1),
    "3d of 16": ((4, 16, 16, 56, 56), (16, 16, 3, 3, 3), 1, 1, 1),
}


def step_of(name, dtype, convolutions):
    """A call that gives the gradients of image and weight, by kernels as the option `convolutions` says."""
    image, weight, step, padding, groups = CASES[name]
    torch._dynamo.reset()
    torch.manual_seed(0)
    x = torch.randn(image, device="cuda", dtype=dtype, requires_grad=True)
    w = (torch.randn(weight, device="cuda", dtype=dtype) * 0.1).requires_grad_()
    function = getattr(F, f"conv{'_transpose' if name.startswith('transposed') else ''}{len(image) - 2}d")
    compiled = torch.compile(lambda a, b: function(a.relu(), b, None, step, padding, groups=groups).relu(), backend="coil", dynamic=False,
                             options={"convolutions": convolutions})

    def call():
        y = compiled(x, w)
        return torch.autograd.grad(y, [x, w], torch.ones_like(y))

    return call


def measure(name, dtype):
    found, cells = {}, []
    for convolutions in ("torch", "coil"):
        call = step_of(name, DTYPES[dtype], convolutions)
        call()
        found[convolutions] = call()
        us, launches, busiest = kernel_times(call, 5)
        cells.append(f"{convolutions} {us:8.1f} ({launches}) " + "; ".join(f"{t:.0f}/{n} {kernel[:30]}" for t, n, kernel in busiest[:4]))
    error = max(float((a.double() - b.double()).norm() / b.double().norm()) for a, b in zip(found["coil"], found["torch"]))
    return f"{dtype:4} {name:24} differ {error:.0e} | " + " | ".join(cells)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", nargs="+", default=["bf16", "f32"], choices=list(DTYPES))
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose names hold one of these words")
    parser.add_argument("--seconds", type=float, default=500, help="no case is begun later")
    options = parser.parse_args()
    needs.gpu()
    import coil  # noqa: F401: the backend

    torch.backends.cudnn.allow_tf32 = False
    end = time.time() + options.seconds
    for dtype in options.dtypes:
        for name in (name for name in CASES if any(word in name for word in options.only)):
            if time.time() > end:
                print("the time is up")
                return 1
            print(measure(name, dtype), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
