"""Measures everything around the kernels: compile, load, first output, per-call cost, sizes, memory beside the formula.

usage: python bench/startup.py [--runs 7] [--models multiply digits ...] [--json OUT.json] [--markdown OUT.md]

Every time is of a fresh process, median of the runs with the least and largest in brackets. Needs build/coil, build/libcoil_runtime.so, gcc.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from workloads import REPO

import zoo

BUILD = pathlib.Path(os.environ.get("COIL_BUILD", REPO / "build"))
COIL = pathlib.Path(os.environ.get("COIL_BIN", BUILD / "coil"))
COMPILED = ["multiply", "digits", "resnet18", "minilm", "encoder_1", "encoder_12"]


def timed(*command):
    """(seconds, peak resident MB) of a process. The peak is polled: rusage's would include this interpreter, which it forks from."""
    start, peak = time.perf_counter(), 0
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
        except OSError:  # it has just ended
            pass
        time.sleep(0.001)
    seconds = time.perf_counter() - start
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {process.returncode}")
    return seconds, peak / 1024


def quick(*command):
    """Seconds of a short process: it is waited for, not polled."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    start = time.perf_counter()
    _, status = os.waitpid(os.posix_spawn(command[0], list(map(str, command)), os.environ, file_actions=quiet), 0)
    seconds = time.perf_counter() - start
    if status:
        sys.exit(f"{' '.join(map(str, command))}: exit code {os.waitstatus_to_exitcode(status)}")
    return seconds


def spread(values, unit, scale=1.0):
    values = [v * scale for v in values]
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "unit": unit}


def text(value):
    if isinstance(value, dict):
        return f"{value['median']:.4g} {value['unit']} ({value['low']:.4g}-{value['high']:.4g})"
    return str(value)


def built(*command):
    """Seconds that a compile spends generating and building code, by its own report."""
    report = json.loads(subprocess.run([*map(str, command), "--json"], capture_output=True, text=True, check=True).stdout)
    return sum(report["stages"][stage] for stage in ("generate", "build"))


def small_program(folder, name, function, *args):
    import torch
    from case import Function

    path = folder / f"{name}.pt2"
    torch.export.save(torch.export.export(Function(function), args), path)
    return path


def call_cost(program, package, calls, *sizes):
    env = dict(os.environ, LD_LIBRARY_PATH=str(BUILD))
    done = subprocess.run([program, package, str(calls), *map(str, sizes)], capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


class Rows:
    """What was measured, printed as it comes."""

    def __init__(self):
        self.rows = []

    def add(self, what, value, goal=""):
        self.rows.append({"what": what, "value": value, "goal": goal})
        print(f"{what:60} {text(value):40} {goal}", flush=True)

    def markdown(self):
        lines = ["| what | measured | goal |", "|---|---|---|", *(f"| {r['what']} | {text(r['value'])} | {r['goal']} |" for r in self.rows)]
        return "\n".join(lines) + "\n"


def compile_all(rows, models, runs, folder):
    """Compiles each program `runs` times; its package."""
    packages, compile_times = {}, {}
    goals = {"multiply": "under 0.1 s", "resnet18": "under 3 s", "minilm": "under 3 s"}
    for model, path in models.items():
        packages[model] = folder / f"{model}.coil.pt2"
        command = (COIL, "compile", path, "-o", packages[model])
        seen = [(quick(*command), timed(*command)[1]) for _ in range(runs)]
        compile_times[model] = statistics.median(built(*command) for _ in range(runs)) if "encoder" in model else 0
        if model != "plus_one":
            rows.add(f"compile {model}, whole process", spread([t for t, _ in seen], "s"), goals.get(model, ""))
            rows.add(f"compile {model}, peak memory", spread([m for _, m in seen], "MB"))
    if {"encoder_1", "encoder_12"} <= models.keys():
        rows.add("encoder of 12 layers / of 1 layer, generating and compiling code", f"{compile_times['encoder_12'] / compile_times['encoder_1']:.2f}", "at most 2")
    return packages


def loads_and_calls(rows, packages, program, runs, folder):
    import numpy as np

    loads = [call_cost(program, packages["multiply"], 1000) for _ in range(runs)]
    rows.add("load the multiply's package, C API", spread([r["load_ms"] for r in loads], "ms"), "under 1 ms")
    np.savez(folder / "in.npz", in_0=np.ones(10, np.float32), in_1=np.ones(10, np.float32))
    times = [quick(COIL, "run", packages["multiply"], "--input", folder / "in.npz", "--output", folder / "out.npz") for _ in range(runs)]
    rows.add("load and run the multiply's package, command line", spread(times, "ms", 1e3), "under 5 ms")
    ids = np.ones((1, 128), np.int64)
    np.savez(folder / "in.npz", in_0=ids, in_1=ids)
    if "minilm" in packages:
        times = [quick(COIL, "run", packages["minilm"], "--input", folder / "in.npz", "--output", folder / "out.npz") for _ in range(runs)]
        rows.add("MiniLM, process start to first output [1, 128]", spread(times, "s"), "under 0.3 s")
    costs = [call_cost(program, packages["plus_one"], 200_000) for _ in range(runs)]
    rows.add("x + 1 on 10 floats, a call with all checks", spread([r["call_us"] for r in costs], "us"), "under 1 us")
    rows.add("heap allocations in 200,000 such calls", max(r["allocations"] for r in costs), "0")


def memory(rows, packages, program):
    sizes = {"digits": (64,), "resnet18": (4,), "minilm": (8, 128), "encoder_12": (2, 128)}
    for model, shape in sizes.items():
        if model not in packages:
            continue
        cost = call_cost(program, packages[model], 3, *shape)
        formula = cost["arena_bytes"] + cost["output_bytes"]
        rows.add(f"{model} {list(shape)}: arena + outputs by the formula", f"{formula / 2**20:.3f} MB")
        for what, key, goal in (("taken from the heap", "heap_bytes", "within 2 %"), ("resident memory gained, threads included", "anonymous_bytes", "")):
            rows.add(f"{model} {list(shape)}: {what}", f"{cost[key] / 2**20:.3f} MB ({cost[key] / max(formula, 1):.3f} of the formula)", goal)
        rows.add(f"{model} {list(shape)}: heap allocations in 3 steady calls", cost["allocations"], "0")


def file_sizes(rows, packages, models):
    for model, package in packages.items():
        rows.add(f"package of {model}", f"{package.stat().st_size / 1000:.1f} KB (exported program {models[model].stat().st_size / 1000:.1f} KB)",
                 "under 40 KB" if model == "multiply" else "")
    rows.add("libcoil_runtime.so", f"{(BUILD / 'libcoil_runtime.so').stat().st_size / 1e6:.2f} MB", "under 4 MB")
    rows.add("coil", f"{COIL.stat().st_size / 1e6:.1f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--models", nargs="*", default=COMPILED, choices=COMPILED)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    options = parser.parse_args()
    import torch

    rows = Rows()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        multiply = small_program(folder, "multiply", lambda x, y: x * y, torch.rand(10), torch.rand(10))
        plus_one = small_program(folder, "plus_one", lambda x: x + 1, torch.rand(10))
        models = {n: multiply if n == "multiply" else zoo.make(n) / f"{n}.aten.pt2" for n in options.models} | {"multiply": multiply, "plus_one": plus_one}
        packages = compile_all(rows, models, options.runs, folder)
        program = folder / "call_cost"
        subprocess.run(["gcc", "-std=gnu11", "-O2", f"-I{REPO / 'include'}", REPO / "bench/call_cost.c", f"-L{BUILD}", "-lcoil_runtime", "-o", program], check=True)
        loads_and_calls(rows, packages, program, options.runs, folder)
        memory(rows, packages, program)
        file_sizes(rows, packages, models)
    if options.json:
        options.json.write_text(json.dumps(rows.rows, indent=1))
    if options.markdown:
        options.markdown.write_text(rows.markdown())


if __name__ == "__main__":
    main()
