#!/usr/bin/env python3
"""Programs that another machine exported, on a GPU beside eager's results there: what this machine's PyTorch cannot export itself.

usage: python3 tests/gpu/exported.py FOLDER... [--out FOLDER] [--device cuda:0]

FOLDER is one of tests/models/zoo.py: NAME.aten.pt2, NAME.core.pt2, arrays in SET.npz (in_0, ..., out_0, ...) and meta.json. Each program is compiled
for the device and run with each set. OUT ($OUT or /tmp/coil-gpu) gets gpu_exported.json. The last line is "N passed, M failed".
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python"), str(HERE.parents[1] / "bench")]

import harness
import machine
from paths import COIL


def check(program, sets, tolerance, device, work):
    """For each set the error, or what went wrong."""
    package = work / "package.pt2"
    done = subprocess.run([COIL, "compile", program, "--target", "cuda:sm_90", "-o", package], capture_output=True, text=True)
    if done.returncode:
        return {tag: done.stderr[-400:] for tag in sets}
    found = {}
    for tag, arrays in sets.items():
        result = work / "out.npz"
        done = subprocess.run([COIL, "run", package, "--input", arrays, "--output", result, "--device", device], capture_output=True, text=True)
        try:
            if done.returncode:
                raise AssertionError(done.stderr[-400:])
            found[tag] = harness.compare(harness.load_expected(result), harness.load_expected(arrays), tolerance, tag)
        except AssertionError as e:
            found[tag] = str(e)[:400]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT", "/tmp/coil-gpu")))
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine.describe(), "programs": {}}
    for folder in options.folders:
        meta = json.loads((folder / "meta.json").read_text())
        sets = {tag: folder / f"{tag}.npz" for tag in meta["sets"]}
        for program in sorted(folder.glob("*.pt2")):
            with tempfile.TemporaryDirectory() as work:
                report["programs"][program.name] = check(program, sets, meta["tolerance"], options.device, pathlib.Path(work))
            print(program.name, {tag: x if isinstance(x, str) else f"{x:.1e}" for tag, x in report["programs"][program.name].items()}, flush=True)
    (options.out / "gpu_exported.json").write_text(json.dumps(report, indent=1))
    results = [x for rows in report["programs"].values() for x in rows.values()]
    failed = sum(isinstance(x, str) for x in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
