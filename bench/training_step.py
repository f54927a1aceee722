#!/usr/bin/env python3
"""A training step of a torchvision model on a GPU under autocast: first call, ms a step, of these on the host, and in kernels; eager, Inductor and coil.

  python bench/training_step.py resnet50                                       # eager, Inductor and coil, both modes
  python bench/training_step.py efficientnet_b0 --backends eager,coil --images 64 --kernels 20 --host

Every form runs in a process of its own, one after the other, so that a first call is one. Fused AdamW, cross entropy, images of 224 x 224.
"host": a step as the host submits it, without waiting for the GPU: where it is as long as the step, the GPU waits for the host. "kernels": the sum of
their times, by torch.profiler. --kernels N lists the busiest, --host where the host's time goes (cProfile)."""

import argparse
import cProfile
import pstats
import statistics
import subprocess
import sys
import time

FORMS = {"eager": None, "inductor": ("inductor", None), "inductor-ro": ("inductor", "reduce-overhead"), "coil": ("coil", None), "coil-ro": ("coil", "reduce-overhead")}


def make_step(model_name, form, images):
    import torch
    import torchvision

    if FORMS[form] and FORMS[form][0] == "coil":
        import coil  # noqa: F401  registers the backend
    torch.manual_seed(0)
    model = getattr(torchvision.models, model_name)().cuda().train()
    x, y = torch.randn(images, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (images,), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    forward = model if FORMS[form] is None else torch.compile(model, backend=FORMS[form][0], mode=FORMS[form][1])

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def measure(step, rounds=7, steps=8):
    """(ms a step, of these the host's), medians."""
    import torch

    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        host = time.perf_counter() - start
        torch.cuda.synchronize()
        times.append(((time.perf_counter() - start) / steps * 1e3, host / steps * 1e3))
    return [statistics.median(column) for column in zip(*times)]


def kernels_of(step, steps=3):
    """[(ms a step, launches a step, name)], the busiest first."""
    from kernel_times import kernel_times

    return [(us / 1e3, count, name) for us, count, name in kernel_times(step, steps)[2]]


def run(options):
    import torch

    step = make_step(options.model, options.form, options.images)
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    for _ in range(8):
        step()
    whole, host = measure(step)
    rows = kernels_of(step)
    print(f"{options.model}, {options.images} images, {options.form:12s} first call {first:6.1f} s   step {whole:7.2f} ms   host {host:7.2f}   "
          f"kernels {sum(r[0] for r in rows):7.2f} in {sum(r[1] for r in rows):.0f}", flush=True)
    for ms, count, name in rows[:options.kernels]:
        print(f"    {ms:7.3f} ms {count:5.0f} x {name[:110]}")
    if options.host:
        profiler = cProfile.Profile()
        profiler.runcall(lambda: [step() for _ in range(10)])
        torch.cuda.synchronize()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main():
    import needs

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="resnet50")
    parser.add_argument("--backends", default=",".join(FORMS), help="of " + ", ".join(FORMS))
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--kernels", type=int, default=0, metavar="N")
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--form", choices=FORMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    needs.gpu()
    if options.form:
        return run(options)
    for form in options.backends.split(","):
        subprocess.run([sys.executable, *sys.argv, "--form", form], check=False)


if __name__ == "__main__":
    main()
