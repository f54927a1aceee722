#!/usr/bin/env python3
"""Grouped products (torch._grouped_mm) against PyTorch's products of the groups one by one, in turns, in one process.

  python bench/grouped_products.py [--device cuda] [--threads 1] [--seconds 4] [--only bf16] [--json out.json]

Medians of a call in ms, and half of the middle half of the calls as the spread. `loop`: torch.mm of each group into its part of the result, the sizes known to
the host beforehand (on CUDA: cuBLAS on a stream, without a read). `eager`: torch._grouped_mm. `coil`: torch.compile of it, weights being arguments;
`packed`: weights are constants of the program. `gain`: loop / coil.
"""

import argparse
import json
import os
import statistics
import time

import torch

import coil

# name: (form, groups, least and most rows of a group, k, n)
CASES = {
    "64 groups of 16-64": ("rows", 64, 16, 64, 1024, 1024),
    "64 of 16-64, [n, k] weights": ("turned", 64, 16, 64, 1024, 1024),
    "64 of 16-64, wide": ("turned", 64, 16, 64, 768, 2048),
    "64 of 1-4": ("turned", 64, 1, 4, 1024, 1024),
    "8 of 100-400": ("turned", 8, 100, 400, 1024, 1024),
    "gradients of 64 weights": ("depth", 64, 16, 64, 512, 1024),
}
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


class Constant(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)

    def forward(self, x, offs):
        return torch._grouped_mm(x, self.weight, offs)


def problem(form, groups, low, high, k, n, dtype, device):
    """(first operand, second, ends, the products of the groups one by one)"""
    torch.manual_seed(0)
    sizes = torch.randint(low, high + 1, (groups,))
    ends = sizes.cumsum(0)
    bounds = [(int(e - s), int(e)) for s, e in zip(sizes, ends)]
    offs, rows = ends.to(torch.int32).to(device), int(ends[-1])
    x = torch.randn(rows, k, dtype=dtype, device=device)
    if form == "depth":
        a, b = x.t(), torch.randn(rows, n, dtype=dtype, device=device)
        def loop():
            out = torch.empty(groups, k, n, dtype=dtype, device=device)
            for g, (begin, end) in enumerate(bounds):
                torch.mm(a[:, begin:end], b[begin:end], out=out[g])
            return out

        return a, b, offs, loop
    shape = (groups, n, k) if form == "turned" else (groups, k, n)
    w = (torch.randn(*shape, dtype=dtype, device=device) / k**0.5)
    w = w.transpose(1, 2) if form == "turned" else w

    def loop():
        out = torch.empty(rows, n, dtype=dtype, device=device)
        for g, (begin, end) in enumerate(bounds):
            torch.mm(x[begin:end], w[g], out=out[begin:end])
        return out

    return x, w, offs, loop


def ways(case, dtype, device):
    a, b, offs, loop = problem(*case, dtype, device)
    torch._dynamo.reset()
    compiled = torch.compile(torch._grouped_mm, backend="coil", dynamic=False)
    calls = {"loop": loop, "eager": lambda: torch._grouped_mm(a, b, offs), "coil": lambda: compiled(a, b, offs)}
    if case[0] != "depth" and device == "cpu":
        packed = coil.compile(torch.export.export(Constant(b), (a, offs)))
        calls["packed"] = lambda: packed(a, offs)
    expected = loop().float()
    for name, call in calls.items():
        got = call()
        got = got[0] if isinstance(got, (list, tuple)) else got
        error = ((got.float() - expected).abs().max() / expected.abs().max()).item()
        assert error < (2e-2 if dtype == torch.bfloat16 else 1e-5), f"{name}: error {error:.1e}"
    return calls


def in_turns(calls, seconds, device):
    times = {name: [] for name in calls}
    synchronize = torch.cuda.synchronize if device != "cpu" else lambda: None
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["loop"]) < 7:
        for name, call in calls.items():
            synchronize()
            start = time.perf_counter()
            call()
            synchronize()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: (statistics.median(t), (statistics.quantiles(t)[2] - statistics.quantiles(t)[0]) / 2) for name, t in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0, help="of both; with others on the machine, PyTorch's team waits for its slowest thread, so one says more")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
        os.environ["COIL_THREADS"] = str(options.threads)
    table = {}
    print(f"{'':38}" + "".join(f"{name:>16}" for name in ("loop", "eager", "coil", "packed", "gain")))
    with torch.no_grad():
        for dtype in DTYPES:
            for name, case in CASES.items():
                label = f"{dtype} {name}"
                if options.only not in label:
                    continue
                if options.device != "cpu" and dtype != "bf16":  # PyTorch 2.11 has no others there
                    continue
                result = in_turns(ways(case, DTYPES[dtype], options.device), options.seconds, options.device)
                table[label] = {way: {"median": m, "spread": s} for way, (m, s) in result.items()}
                cells = [f"{result[w][0]:.2f} ±{result[w][1]:.2f}" if w in result else "" for w in ("loop", "eager", "coil", "packed")]
                print(f"{label:38}" + "".join(f"{c:>16}" for c in cells) + f"{result['loop'][0] / result['coil'][0]:>16.2f}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
