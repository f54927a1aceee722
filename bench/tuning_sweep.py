#!/usr/bin/env python3
"""How good one tuned package of a dynamic program is at many sizes: beside packages that were exported and tuned for one size each, and one untuned.

    ~/.cache/coil/venv/bin/python bench/tuning_sweep.py --build build [--sizes 50] [--most 512] [--tune fast] [--threads 1] [--rounds 7] [--json out.json]

The program is a perceptron of three layers (512 -> 1024 -> 1024 -> 10) whose number of rows is dynamic, 1 to --most; sizes are spread evenly by their logarithm. At each
size the packages take turns, a burst of calls each; a package's time there is the median over the rounds of a burst's median. With one thread it is that thread's
processor time, which other work on the machine does not stretch. The last line is the geometric mean over the sizes of dynamic / own. Nothing is taken from a cache.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ["COIL_CACHE"] = "off"
REPO = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "bench"), str(REPO / "tests/models"), str(REPO / "tests/python")]
WIDTH = 512


def sizes_between(most, count):
    """`count` different sizes from 1 to `most`, as evenly spread by their logarithm as whole numbers can be."""
    sizes, steps = [], count
    while len(sizes) < min(count, most):
        sizes = sorted({round(most ** (i / (steps - 1))) for i in range(steps)})
        steps += 1
    return sizes[:count - 1] + [most]


def program(rows, dynamic):
    import torch
    from big import Mlp

    torch.manual_seed(0)
    module = Mlp(WIDTH).eval()
    shapes = {"x": {0: torch.export.Dim("rows", min=1, max=dynamic)}} if dynamic else None
    return torch.export.export(module, (torch.zeros(rows, WIDTH),), dynamic_shapes=shapes)


def burst(model, x, seconds, clock):
    times, end = [], clock() + seconds
    while clock() < end or len(times) < 3:
        start = clock()
        model(x)
        times.append(clock() - start)
    return statistics.median(times)


def compare(models, x, options, clock):
    """{name: seconds}"""
    bursts = {name: [] for name in models}
    for model in models.values():
        burst(model, x, 0, clock)
    for i in range(options.rounds):
        for name in list(models) if i % 2 == 0 else list(models)[::-1]:
            bursts[name].append(burst(models[name], x, options.burst, clock))
    return {name: statistics.median(values) for name, values in bursts.items()}


def geometric(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--sizes", type=int, default=50)
    parser.add_argument("--most", type=int, default=512)
    parser.add_argument("--tune", default="fast", choices=["fast", "max"])
    parser.add_argument("--budget", default="", help="of each tuning: 2s")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--burst", type=float, default=0.03, help="seconds")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    sys.path.insert(0, str(pathlib.Path(options.build).resolve() / "python"))
    import coil
    import numpy as np

    clock = time.thread_time if options.threads == 1 else time.perf_counter
    tuned = {"tune": options.tune, "tune_threads": options.threads} | ({"tune_budget": options.budget} if options.budget else {})
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        make = lambda name, program, settings: coil.compile(program, pathlib.Path(folder) / f"{name}.pt2", options=settings, num_threads=options.threads)
        dynamic = program(min(8, options.most), options.most)
        whole = {"untuned": make("untuned", dynamic, {}), "dynamic": make("dynamic", dynamic, tuned)}
        print(f"one package tuned in {whole['dynamic'].report['tuning']['seconds']:.1f} s")
        print("| rows | untuned, us | tuned as one | tuned alone | as one / alone |\n|--:|--:|--:|--:|--:|")
        for size in sizes_between(options.most, options.sizes):
            models = whole | {"own": make(f"own_{size}", program(size, None), tuned)}
            x = np.random.default_rng(0).standard_normal((size, WIDTH), dtype=np.float32)
            row = {"rows": size} | compare(models, x, options, clock)
            rows.append(row)
            print(f"| {size} | {row['untuned'] * 1e6:.1f} | {row['dynamic'] * 1e6:.1f} | {row['own'] * 1e6:.1f} | {row['dynamic'] / row['own']:.3f} |", flush=True)
    ratios = [r["dynamic"] / r["own"] for r in rows]
    summary = {"dynamic_over_own": geometric(ratios), "least": min(ratios), "most": max(ratios), "untuned_over_own": geometric([r["untuned"] / r["own"] for r in rows])}
    print(f"geometric means over {len(rows)} sizes: dynamic / own {summary['dynamic_over_own']:.3f} ({summary['least']:.3f}-{summary['most']:.3f}), untuned / own {summary['untuned_over_own']:.3f}")
    if options.json:
        options.json.write_text(json.dumps({"options": {k: str(v) for k, v in vars(options).items()}, "summary": summary, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
