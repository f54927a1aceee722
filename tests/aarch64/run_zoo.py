#!/usr/bin/env python3
"""The programs of the zoo and of the museum as aarch64 code: compiled here, run by the cross-built command under qemu-aarch64, compared with eager.

usage: COIL_BUILD=build python tests/aarch64/run_zoo.py [--level neon|i8mm] [--jobs N] [--form FORM] [--every N] [--no-museum] [PATTERN...]
patterns of names as in a shell; without any: every program. The tolerances are those of x86-64. --every N takes one program in N.
The processor that is emulated has the level and no more. `make aarch64` builds the command; the last line says how many passed and how long it took.
"""

import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python"))

import harness
import zoo

BUILD = pathlib.Path(os.environ.get("COIL_BUILD_AARCH64", str(harness.BUILD) + "-aarch64"))
MUSEUM = harness.REPO / "tests" / "museum"
PROCESSORS = {"neon": "cortex-a72", "i8mm": "max"}  # of qemu


def why_not():
    """What is missing to run aarch64 code here; empty: nothing."""
    if not shutil.which("qemu-aarch64"):
        return "qemu-aarch64 is missing: `make aarch64` installs it"
    if not (BUILD / "coil").exists():
        return f"{BUILD}/coil is missing: `make aarch64` builds it"
    return ""


def emulated(*arguments, level="i8mm", timeout=1200, **options):
    """The cross-built command under qemu."""
    command = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-cpu", PROCESSORS[level], BUILD / "coil", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, **options)


def wrong(model, sets, tolerance, level, cosine=None):
    """What is wrong with a program as aarch64 code, for inputs and results {tag: npz}; empty: nothing."""
    with tempfile.TemporaryDirectory(prefix="coil-aarch64-") as folder:
        package, out = pathlib.Path(folder) / "model.coil.pt2", pathlib.Path(folder) / "out.npz"
        done = harness.coil("compile", model, "--target", f"aarch64:{level}", "-o", package, timeout=1200)
        if done.returncode != 0:
            return done.stderr[-2000:]
        for tag, arrays in sets.items():
            done = emulated("run", package, "--input", arrays, "--output", out, level=level)
            if done.returncode != 0:
                return f"{tag}: exit code {done.returncode}\n{done.stderr[-2000:]}"
            try:
                outputs, expected = harness.load_outputs(out), harness.load_expected(arrays)
                harness.compare(outputs, expected, tolerance, tag)
                if cosine and harness.cosine(outputs[0], expected[0]) <= cosine:
                    return f"{tag}: the rows point elsewhere"
            except AssertionError as problem:
                return str(problem)
    return ""


def check_program(name, form, level):
    folder = zoo.make(name, form)
    meta = harness.zoo_meta(folder)
    sets = {tag: folder / f"{tag}.npz" for tag in meta["sets"]}
    return wrong(folder / f"{name}.{form}.pt2", sets, meta["tolerance"], level, meta["cosine"])


def check_museum(path, level):
    arrays = path.parent / re.sub(r"(_core)?\.pt2$", ".npz", path.name)
    return wrong(path, {"only": arrays}, 2e-2 if "bf16" in path.name else 1e-4, level)


def museum():
    """Those that x86-64 code is made of too: not of other devices, nor of versions before the first that coil reads."""
    for path in sorted(MUSEUM.glob("torch-*/*.pt2")):
        if "-cuda" not in path.parent.name and (path.parent / re.sub(r"(_core)?\.pt2$", ".npz", path.name)).exists():
            yield path


def chosen(arguments):
    """(label, check) of each program that is asked for."""
    def wanted(name):
        return not arguments.patterns or any(fnmatch.fnmatch(name, pattern) for pattern in arguments.patterns)

    level, work = arguments.level, []
    for name, program in zoo.programs().items():
        forms = [f for f in program.forms if arguments.form in (None, f)] if wanted(name) else []
        work += [(f"{name}-{form}", lambda name=name, form=form: check_program(name, form, level)) for form in forms]
    if not arguments.no_museum:
        for path in museum():
            label = f"{path.parent.name}/{path.name}"
            if wanted(label):
                work.append((label, lambda path=path: check_museum(path, level)))
    return work[::arguments.every]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", choices=sorted(PROCESSORS), default="i8mm")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--form", choices=["aten", "core"])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--no-museum", action="store_true")
    parser.add_argument("patterns", nargs="*")
    arguments = parser.parse_args()
    if why_not():
        sys.exit(why_not())
    start, failed, work = time.time(), [], chosen(arguments)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for (label, _), problem in zip(work, pool.map(lambda item: item[1](), work)):
            if problem:
                failed.append(label)
                print(f"{label}: {problem}", flush=True)
    print(f"aarch64:{arguments.level}: {len(work) - len(failed)} passed, {len(failed)} failed, {time.time() - start:.0f} s")
    sys.exit(1 if failed or not work else 0)


if __name__ == "__main__":
    main()
