"""What watching costs: calls of a package with and without a profile, in turns, in one process.

usage: profile_overhead.py [--packages A.coil.pt2 ...] [--rounds N] [--seconds S] [--threads N] [--build FOLDER]

Without --packages: a chain of small kernels and networks of larger ones, exported and compiled here. Slices of calls without a profile, with one,
and with one that leaves out no call take turns, so that what else the machine does meets all. Per package: a call's time without a profile, as the
median of the quarter of calls that took least; what the mean of all but the longest tenth takes more with one, how many of the calls it recorded; and
the same where all are recorded, by quarters, for each kernel too. On a machine that others use, measure several times.
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


WAYS = ("off", "on", "all")


def compare(model, inputs, rounds, seconds):
    """All calls' times by the way of watching them, in slices that take turns; how many kernels a call has; the part of the calls that "on" recorded."""
    one = min(times_of(model, inputs, 5))
    count = max(1, int(seconds / one))
    times, kernels, recorded = {way: [] for way in WAYS}, 0, 0
    for turn in range(rounds):
        for way in WAYS[turn % 3:] + WAYS[:turn % 3]:
            if way == "off":
                times[way] += times_of(model, inputs, count)
                continue
            with model.profile(all_calls=way == "all") as profile:
                times[way] += times_of(model, inputs, count)
            recorded += profile.num_calls if way == "on" else 0
            if not kernels:
                kernels = sum(k["launches"] for k in profile.kernels())
    return times, kernels, recorded / len(times["on"])


def typical(times):
    """The mean without the longest tenth: of calls of which a part is recorded, each counts."""
    return statistics.fmean(sorted(times)[: max(1, len(times) * 9 // 10)])


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
    print(f"{'program':34} {'kernels':>8} {'off':>11} {'on':>8} {'recorded':>9} {'all':>8} {'a kernel':>9}")
    for name, model, inputs in cases:
        times, kernels, recorded = compare(model, inputs or random_inputs(model), a.rounds, a.seconds)
        least, every = undisturbed(times["off"]), undisturbed(times["all"])
        on = 100 * (typical(times["on"]) / typical(times["off"]) - 1)
        rows.append({"program": name, "kernels": kernels, "calls": len(times["off"]), "off_us": least * 1e6, "on_more_percent": on, "recorded_percent": 100 * recorded, "all_us": every * 1e6, "all_more_percent": 100 * (every / least - 1)})
        print(f"{name[:34]:34} {kernels:8.0f} {least * 1e6:8.1f} us {on:6.2f} % {100 * recorded:7.1f} % {100 * (every / least - 1):6.2f} % {(every - least) * 1e9 / max(kernels, 1):6.0f} ns", flush=True)
    if a.json:
        a.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
