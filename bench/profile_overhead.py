"""What watching costs: calls of a package with and without a profile, in turns, in one process.

usage: profile_overhead.py [--packages A.coil.pt2 ...] [--rounds N] [--seconds S] [--threads N] [--build FOLDER]

Without --packages: a chain of small kernels and networks of larger ones, exported and compiled here. Slices of calls without and with a profile
take turns, so that what else the machine does meets both. Per package: a call's time without and with a profile, as the median of the quarter of
calls that took least, what the latter takes more, in percent and for each kernel, and the same of the medians of all calls. On a machine that others
use, the medians say how much they disturbed; where the two columns differ by more than some percent, measure again.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time


def programs():
    import torch

    class Chain(torch.nn.Module):
        def __init__(self, width, layers):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(layers))

        def forward(self, x):
            for layer in self.layers:
                x = torch.relu(layer(x)) + x
            return x

    for width, rows, layers in ((32, 8, 20), (256, 64, 12), (768, 128, 12)):
        x = torch.randn(rows, width)
        yield f"{layers} layers of {width}, {rows} rows", torch.export.export(Chain(width, layers).eval(), (x,)), (x,)


def random_inputs(model):
    import numpy as np

    random = np.random.default_rng(0)
    arrays = []
    for info in model.inputs:
        shape = [d.min if d.symbol is None else d.hint or max(d.min, 8) for d in info.dims]
        arrays.append(random.random(shape).astype(info.dtype) if info.dtype.startswith("float") else random.integers(0, 2, shape).astype(info.dtype))
    return arrays


def times_of(model, inputs, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        model(*inputs)
        times.append(time.perf_counter() - begin)
    return times


def compare(model, inputs, rounds, seconds):
    """All calls' times without and with a profile, in slices that take turns, and how many kernels a call has."""
    one = min(times_of(model, inputs, 5))
    count = max(1, int(seconds / one))
    off, on, kernels = [], [], 0
    for turn in range(rounds):
        for watched in ((False, True), (True, False))[turn % 2]:
            if not watched:
                off += times_of(model, inputs, count)
                continue
            with model.profile() as profile:
                on += times_of(model, inputs, count)
            if not kernels:
                kernels = sum(k["launches"] for k in profile.kernels())
    return off, on, kernels


def undisturbed(times):
    """The lower quartile's median: calls that no other program interrupted, as long as a quarter of them are such."""
    return statistics.median(sorted(times)[: max(1, len(times) // 4)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", nargs="*", type=pathlib.Path, default=[])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--seconds", type=float, default=0.1, help="of one side of a round")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(os.environ.get("COIL_BUILD", "build")))
    parser.add_argument("--json", type=pathlib.Path, help="write the numbers there")
    a = parser.parse_args()
    sys.path.insert(0, str((a.build / "python").resolve()))
    import coil

    if a.packages:
        cases = [(path.name, coil.load(path, num_threads=a.threads), None) for path in a.packages]
    else:
        cases = [(name, coil.compile(program, num_threads=a.threads), inputs) for name, program, inputs in programs()]
    rows = []
    print(f"{'program':34} {'kernels':>8} {'off':>11} {'on':>11} {'more':>8} {'a kernel':>9} {'medians':>9}")
    for name, model, inputs in cases:
        off, on, kernels = compare(model, inputs or random_inputs(model), a.rounds, a.seconds)
        least, watched, medians = undisturbed(off), undisturbed(on), statistics.median(on) / statistics.median(off)
        rows.append({"program": name, "kernels": kernels, "calls": len(off), "off_us": least * 1e6, "on_us": watched * 1e6, "more_percent": 100 * (watched / least - 1), "medians_more_percent": 100 * (medians - 1)})
        print(f"{name[:34]:34} {kernels:8.0f} {least * 1e6:8.1f} us {watched * 1e6:8.1f} us {100 * (watched / least - 1):6.2f} % {(watched - least) * 1e9 / max(kernels, 1):6.0f} ns {100 * (medians - 1):6.2f} %", flush=True)
    if a.json:
        a.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
