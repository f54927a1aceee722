"""Loops alone on one thread of the CPU: transposes, sums and extremes of rows and columns, pointwise. Builds of coil and PyTorch eager take turns; medians over the rounds.

    python bench/loops.py build/coil [other/coil ...] --rounds 5
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/models"))
from case import Function

PROGRAMS = {
    "transpose 2048x2048, plus 1": (lambda x: (x.t() + 1.0).contiguous(), [(2048, 2048)]),
    "8x256x196 to 8x196x256, times 2": (lambda x: (x.transpose(1, 2) * 2.0).contiguous(), [(8, 256, 196)]),
    "2x56x56x64 to NCHW": (lambda x: (x.permute(0, 3, 1, 2) + 1.0).contiguous(), [(2, 56, 56, 64)]),
    "sum of columns, 4096x4096": (lambda x: x.sum(0), [(4096, 4096)]),
    "sum of columns, 512x768": (lambda x: x.sum(0), [(512, 768)]),
    "sum of rows, 512x768": (lambda x: x.sum(1), [(512, 768)]),
    "largest of rows, 512x768": (lambda x: x.amax(-1), [(512, 768)]),
    "softmax, 512x512": (lambda x: torch.softmax(x, -1), [(512, 512)]),
    "layer norm, 128x768": (lambda x: torch.nn.functional.layer_norm(x, (768,)), [(128, 768)]),
    "sum of 2x16M": (lambda x, y: x + y, [(16 << 20,)] * 2),
}


def call_seconds(coil, package, seconds):
    text = subprocess.run([coil, "bench", package, "--threads", "1", "--seconds", str(seconds)], check=True, capture_output=True, text=True).stdout
    number, unit = re.search(r"^\s*call\s+([\d.]+) (ns|us|ms|s)\b", text, re.M).groups()
    return float(number) * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[unit]


def eager_seconds(module, args, seconds):
    times, end = [], time.perf_counter() + seconds
    with torch.no_grad():
        while time.perf_counter() < end:
            begin = time.perf_counter()
            module(*args)
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("coil", nargs="+", help="programs to compare")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn")
    parser.add_argument("--programs", default="", help="a part of their names; default: all")
    parser.add_argument("--options", default="", help="of `coil compile`: \"--tune max --tune-threads 1\"")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| program |", " | ".join([*options.coil, "PyTorch"]), "|")
    with tempfile.TemporaryDirectory() as folder:
        for name, (function, shapes) in PROGRAMS.items():
            if options.programs not in name:
                continue
            torch.manual_seed(0)
            module, args = Function(function).eval(), tuple(torch.randn(s) for s in shapes)
            source = pathlib.Path(folder, "program.pt2")
            torch.export.save(torch.export.export(module, args), source)
            turns = []
            for i, coil in enumerate(options.coil):
                package = pathlib.Path(folder, f"{i}.pt2")
                subprocess.run([coil, "compile", source, "-o", package, *options.options.split()], check=True, capture_output=True)
                turns.append(lambda coil=coil, package=package: call_seconds(coil, package, options.seconds))
            turns.append(lambda: eager_seconds(module, args, options.seconds))
            rounds = [[turn() for turn in turns] for _ in range(options.rounds)]
            print(f"| {name} |", " | ".join(f"{statistics.median(r[i] for r in rounds) * 1e6:.1f} us" for i in range(len(turns))), "|", flush=True)


if __name__ == "__main__":
    main()
