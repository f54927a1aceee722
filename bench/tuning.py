#!/usr/bin/env python3
"""What tuning costs and brings: programs compiled untuned, with --tune fast and with --tune max, then called in turns in one process.

    ~/.cache/coil/venv/bin/python bench/tuning.py --build build MODEL.pt2[:dim=size,...] ... [--rounds 7] [--burst 0.4] [--json out.json]

A round gives each package one burst of calls; a cell is the median over the rounds of a burst's median, with the least and the greatest. Nothing
is taken from a cache.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

os.environ["COIL_CACHE"] = "off"
MODES = {"untuned": {}, "fast": {"tune": "fast"}, "max": {"tune": "max"}}


def inputs_of(model, sizes):
    import numpy as np

    rng = np.random.default_rng(0)
    arrays = []
    for x in model.inputs:
        shape = [d.min if d.symbol is None else sizes.get(d.symbol, max(8, d.min)) for d in x.dims]
        kind = str(x.dtype)
        arrays.append(rng.integers(0, 2, shape).astype(kind) if "int" in kind or "bool" in kind else rng.standard_normal(shape).astype("float32"))
    return arrays


def burst(model, arrays, seconds):
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        model(*arrays)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(path, sizes, options, folder):
    import coil

    row, models = {"program": path.stem}, {}
    for mode, tune in MODES.items():
        start = time.perf_counter()
        models[mode] = coil.compile(path, folder / f"{path.stem}.{mode}.pt2", options=tune | ({"tune_budget": options.budget} if options.budget and tune else {}))
        row[f"compile_{mode}_s"] = time.perf_counter() - start
        tuning = models[mode].report.get("tuning")
        if tuning:
            row[f"tune_{mode}_s"], row[f"runs_{mode}"] = tuning["seconds"], tuning["runs"]
            row[f"changed_{mode}"] = sum(any(r["choice"] for r in p["rows"]) for p in tuning["problems"])
            row["problems"] = len(tuning["problems"])
    arrays = inputs_of(models["untuned"], sizes)
    bursts = {mode: [] for mode in MODES}
    for mode in MODES:
        burst(models[mode], arrays, 0)
    for round in range(options.rounds):
        order = list(MODES) if round % 2 == 0 else list(MODES)[::-1]
        for mode in order:
            bursts[mode].append(burst(models[mode], arrays, options.burst))
    for mode, values in bursts.items():
        row[mode] = {"median_us": statistics.median(values) * 1e6, "least_us": min(values) * 1e6, "most_us": max(values) * 1e6}
    return row


def cell(t):
    scale, unit = (1e3, "ms") if t["median_us"] >= 1000 else (1, "us")
    return f"{t['median_us'] / scale:.3g} ({t['least_us'] / scale:.3g}-{t['most_us'] / scale:.3g}) {unit}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--build", default="build")
    parser.add_argument("--budget", default="", help="of each tuning: 2s")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--burst", type=float, default=0.4)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    sys.path.insert(0, str(pathlib.Path(options.build).resolve() / "python"))
    rows = []
    print("| program | problems | tune fast | tune max | untuned | fast | max | fast / untuned | max / untuned |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for program in options.programs:
            path, _, dims = program.partition(":")
            sizes = {k: int(v) for k, v in (d.split("=") for d in dims.split(",") if d)}
            r = measure(pathlib.Path(path), sizes, options, pathlib.Path(folder))
            rows.append(r)
            ratio = {m: r[m]["median_us"] / r["untuned"]["median_us"] for m in ("fast", "max")}
            print(f"| {r['program']}{' ' + dims if dims else ''} | {r['problems']} | {r['tune_fast_s']:.1f} s, {r['runs_fast']} runs | {r['tune_max_s']:.1f} s, {r['runs_max']} runs | "
                  f"{cell(r['untuned'])} | {cell(r['fast'])} | {cell(r['max'])} | {ratio['fast']:.2f} | {ratio['max']:.2f} |", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
