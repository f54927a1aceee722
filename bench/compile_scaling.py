"""How the time and memory of compiling grow with the program.

usage: python bench/compile_scaling.py [--shapes NAME...] [--sizes 1000,4000,16000] [--target cpu:x86-64-v3] [--seconds 300] [--gigabytes 12]

Writes programs of n nodes of each shape (bench/scaling_programs.py and the other scaling_*.py), compiles them with one thread and prints a line for each: processor seconds, the peak of
memory, kernels, and `ratio`, the time for a node beside that at the size before. `linear` is a ratio of at most 1.3. Memory is compared with 256 MB + 64 times the file.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

import scaling_crowds  # noqa: F401
import scaling_networks  # noqa: F401
import scaling_names  # noqa: F401
import scaling_oddities  # noqa: F401
import scaling_sizes  # noqa: F401
from scaling_programs import SHAPES

COIL = os.environ.get("COIL_BIN", pathlib.Path(os.environ.get("COIL_BUILD", pathlib.Path(__file__).resolve().parents[1] / "build")) / "coil")


def measured(program, target, seconds, most):
    """Processor seconds, peak bytes and the summary; a text where there is none."""
    bound = lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most))  # noqa: E731
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([COIL, "compile", program, "-o", program.with_suffix(".coil"), "--target", target, "--threads", "1", "--json"],
                                   stdout=out, stderr=err, env=dict(os.environ, COIL_CACHE="off"), preexec_fn=lambda: (bound(), resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))))
        _, status, used = os.wait4(process.pid, 0)
        out.seek(0)
        err.seek(0)
        if status != 0:
            return None, None, err.read().decode(errors="replace").strip().splitlines()[:1] or f"ended with status {status}"
        return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, json.load(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=list(SHAPES), metavar="NAME")
    parser.add_argument("--sizes", default="1000,4000,16000")
    parser.add_argument("--target", default="cpu:x86-64-v3")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--gigabytes", type=float, default=12)
    parser.add_argument("--stages", action="store_true", help="the seconds of each stage as well")
    options = parser.parse_args()
    print(f"{'shape':22} {'n':>7} {'seconds':>8} {'ratio':>6} {'MB':>6} {'file MB':>8} {'kernels':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.shapes:
            before = None
            for n in map(int, options.sizes.split(",")):
                program = SHAPES[name](n).save(pathlib.Path(folder) / f"{name}-{n}.pt2")
                size = program.stat().st_size
                seconds, peak, report = measured(program, options.target, options.seconds, int(options.gigabytes * 2**30))
                if seconds is None:
                    print(f"{name:22} {n:7} {report}", flush=True)
                    break
                ratio = seconds / n / before if before else 1.0
                before = seconds / n
                notes = ("  more than linear" if ratio > 1.3 else "") + ("  too much memory" if peak > 256 * 2**20 + 64 * size else "")
                print(f"{name:22} {n:7} {seconds:8.2f} {ratio:6.2f} {peak / 2**20:6.0f} {size / 2**20:8.1f} {report['kernels']:8}{notes}", flush=True)
                if options.stages:
                    print("    " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in report["stages"].items() if seconds > 0.05), flush=True)
                program.unlink()


if __name__ == "__main__":
    sys.exit(main())
