#!/usr/bin/env python3
"""Coil's calls between PyTorch's operators, on the CPU: what each costs alone, and what both cost in turns. PyTorch's OpenMP threads spin for
some milliseconds after each operator; nothing of that may be seen in coil's time, through any door.

  python bench/beside_torch.py [--seconds 2] [--json out.json]

ms a call: the best of several rounds' medians (an idle machine is needed for less than 10 % of noise). `in turns` should be at most 1.1
times the sum of both alone.
"""

import argparse
import json
import os
import statistics
import tempfile
import threading
import time

import torch
import torch.nn.functional as F
from torch import nn

import coil


class GatedMlp(nn.Module):
    def __init__(self, width=512, hidden=1536):
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(width, hidden), nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def median_ms(calls, seconds, rounds=7):
    """Of one round through `calls`: the smallest of some rounds' medians, after what is before has gone to sleep."""
    best = float("inf")
    for _ in range(rounds):
        time.sleep(0.05)
        for call in calls * 3:
            call()
        times, end = [], time.perf_counter() + seconds / rounds
        while time.perf_counter() < end:
            start = time.perf_counter()
            for call in calls:
                call()
            times.append(time.perf_counter() - start)
        best = min(best, statistics.median(times) * 1e3)
    return best


def doors(model, x):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.pt2")
        coil.compile(model, path, args=(x,))
        loaded = coil.load(path)
        stock = torch._inductor.aoti_load_package(path)
    return {"coil.load": lambda: loaded(x), "aoti_load_package": lambda: stock(x), "torch.compile": lambda f=torch.compile(model, backend="coil"): f(x)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    model, x = GatedMlp().eval(), torch.randn(64, 512)
    y = torch.randn(512, 4096)
    operators = {"layer_norm": lambda: F.layer_norm(y, (4096,)), "add": lambda: y + 1.0, "linear": lambda: F.linear(x, model.up.weight)}
    rows = []
    with torch.no_grad():
        calls = doors(model, x)
        alone = {name: median_ms([call], arguments.seconds) for name, call in calls.items()}
        eager = median_ms([lambda: model(x)], arguments.seconds)
        print(f"eager {eager:.3f} ms; alone: " + ", ".join(f"{name} {ms:.3f}" for name, ms in alone.items()), flush=True)
        for operator_name, operator in operators.items():
            own = median_ms([operator], arguments.seconds)
            for name, call in calls.items():
                both = median_ms([operator, call], arguments.seconds)
                rows.append({"door": name, "operator": operator_name, "operator_ms": own, "alone_ms": alone[name], "in_turns_ms": both,
                             "ratio": both / (own + alone[name])})
                print(f"{name:18} after {operator_name:10}: {own:.3f} + {alone[name]:.3f} alone, {both:.3f} in turns: {rows[-1]['ratio']:.2f}", flush=True)
        worst = max(rows, key=lambda r: r["ratio"])
        print(f"worst: {worst['ratio']:.2f} ({worst['door']} after {worst['operator']}), {threading.active_count()} Python threads, {torch.get_num_threads()} of PyTorch")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"torch": torch.__version__, "threads": torch.get_num_threads(), "eager_ms": eager, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
