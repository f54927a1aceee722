#!/usr/bin/env python3
"""What a call from Python costs, and what torch.compile's first call costs, beside eager and PyTorch's own compiler.

    PYTHONPATH=build/python python bench/python_calls.py [--peers] [--json FILE]

--peers also times Inductor (it needs g++, and half a minute). Times are minima over repetitions. "beyond" is the first call of a
function after Dynamo and AOTAutograd have done the same for a backend that compiles nothing.
"""

import argparse
import json
import os
import tempfile
import time
import timeit

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

import coil


def microseconds(function, runs, number=10000):
    return min(timeit.repeat(function, number=number, repeat=runs)) / number * 1e6


class Multiply(torch.nn.Module):
    def forward(self, a, b):
        return a * b


def call_costs(peers, runs):
    a, b = torch.randn(10), torch.randn(10)
    program = torch.export.export(Multiply(), (a, b))
    model = coil.compile(program)
    compiled = torch.compile(Multiply(), backend="coil")
    x, y = a.numpy(), b.numpy()
    rows = {"eager": lambda: a * b, "coil.compile, torch tensors": lambda: model(a, b), "coil.compile, NumPy arrays": lambda: model(x, y),
            "NumPy itself": lambda: x * y, 'torch.compile(backend="coil")': lambda: compiled(a, b)}
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/coil.pt2")
        stock = torch._inductor.aoti_load_package(f"{folder}/coil.pt2")
        rows["the same package, torch's aoti_load_package"] = lambda: stock(a, b)
        if peers:
            inductor = torch.compile(Multiply())
            rows["torch.compile (Inductor)"] = lambda: inductor(a, b)
            path = torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/stock.pt2")
            theirs = torch._inductor.aoti_load_package(path)
            rows["AOTInductor's package, torch's aoti_load_package"] = lambda: theirs(a, b)
        with torch.no_grad():
            return {name: microseconds(row, runs) for name, row in rows.items()}


def first_call(backend, i, training):
    """Seconds of the first call of a function that no cache knows; wall clock and CPU time of all threads."""
    torch._dynamo.reset()
    a, b = torch.randn(8, 16, requires_grad=training), torch.randn(8, 16)
    function = torch.compile(eval(f"lambda a, b: torch.relu(a * b + {i}).sum(-1)"), backend=backend)
    wall, cpu = time.perf_counter(), time.process_time()
    result = function(a, b)
    if training:
        result.sum().backward()
    return time.perf_counter() - wall, time.process_time() - cpu


def first_call_costs(peers, training, runs):
    nothing = aot_autograd(fw_compiler=lambda gm, _: make_boxed_func(gm.forward))
    backends = {"nothing": nothing, "coil": "coil"} | ({"inductor": "inductor"} if peers else {})
    best = {}
    for name, backend in backends.items():
        calls = [first_call(backend, i, training) for i in range(2 if name == "inductor" else runs)][1:]
        best[name] = (min(wall for wall, _ in calls), min(cpu for _, cpu in calls))
    rows = {f"{name}: first call": wall for name, (wall, _) in best.items()}
    for name in list(best)[1:]:
        rows[f"{name}: beyond Dynamo and AOTAutograd"] = best[name][0] - best["nothing"][0]
        rows[f"{name}: beyond, CPU time of all threads"] = best[name][1] - best["nothing"][1]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--runs", type=int, default=9, help="repetitions, at least 2: the first of a first call loads the compiler")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.peers:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp())
    results = {"call, us": call_costs(options.peers, options.runs), "first call of inference, s": first_call_costs(options.peers, False, options.runs),
               "first call of training, s": first_call_costs(options.peers, True, options.runs)}
    for title, rows in results.items():
        print(title)
        for name, value in rows.items():
            print(f"  {name:<52} {value:8.3f}")
    print("machine load:", os.getloadavg()[0])
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
