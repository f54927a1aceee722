"""What torch.compile(backend="coil") takes for small functions beyond Dynamo's and AOTAutograd's own time. About half a minute.

usage: PYTHONPATH=build/python python bench/torch_compile_latency.py [--rounds N] [--json FILE]

Each round compiles each function with a backend that compiles nothing ("aot_eager") and with coil, each round with another
number in it, and without the cache on disk, so that nothing is found. "own" is what coil's statistics add up (writing the programs down, compiling and
opening them); "beyond" the first call's time less that of aot_eager in the same round. Medians, and the middle half of the rounds, in seconds
of processor time, which other work on the machine stretches less than wall time; the wall time of "own" beside it.
"""

import argparse
import json
import os
import statistics
import time

os.environ["COIL_CACHE"] = "off"  # before the first compilation: objects of an earlier run would be found

import torch
import torch.nn.functional as F

import coil

FUNCTIONS = {
    "pointwise": lambda a, b, n: (a * b + n).relu(),
    "softmax": lambda a, b, n: (a + b * n).softmax(-1),
    "layer norm and product": lambda a, b, n: F.gelu(F.layer_norm(a @ b.t() * n, (64,))),
}


def first_call(function, backend, number, grad):
    """Processor seconds of the first call (and of backward), and coil's share of them in processor and wall time."""
    torch._dynamo.reset()
    coil.reset_compile_stats()
    a, b = torch.randn(64, 64, requires_grad=grad), torch.randn(64, 64)
    start = time.process_time()
    y = torch.compile(lambda a, b: function(a, b, number), backend=backend)(a, b)
    if grad:
        y.sum().backward()
    seconds = time.process_time() - start
    stats = coil.compile_stats()
    return seconds, stats.serialize_seconds + stats.compile_seconds, stats.packages


def row(values):
    quarters = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return {"median": statistics.median(values), "from": quarters[0], "to": quarters[2]}


def measure(function, grad, rounds):
    for backend in ("coil", "aot_eager"):  # the first use loads the compiler
        first_call(function, backend, 0.5, grad)
    totals, own, beyond, packages = [], [], [], 0
    for i in range(rounds):
        base = first_call(function, "aot_eager", 1.0 + i, grad)[0]
        seconds, share, packages = first_call(function, "coil", 1.0 + i, grad)
        totals.append(seconds)
        own.append(share)
        beyond.append(seconds - base)
    return {"programs": packages, "first call": row(totals), "beyond": row(beyond), "own wall": row(own)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json")
    options = parser.parse_args()
    results = {}
    print(f"torch {torch.__version__}; processor seconds, median (middle half)\n{'':38}{'programs':>9}{'first call':>24}{'beyond aot_eager':>24}{'own (wall)':>24}")
    for name, function in FUNCTIONS.items():
        for grad in (False, True):
            result = results[name + (" and gradient" if grad else "")] = measure(function, grad, options.rounds)
            cells = [f"{r['median']:.3f} ({r['from']:.3f}-{r['to']:.3f})" for r in (result["first call"], result["beyond"], result["own wall"])]
            print(f"{name + (' and gradient' if grad else ''):38}{result['programs']:9}" + "".join(f"{c:>24}" for c in cells), flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
