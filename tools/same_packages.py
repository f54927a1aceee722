#!/usr/bin/env python3
"""Whether two builds of coil make the same packages: compiles exported programs with both and compares every part's bytes.

    tools/same_packages.py OLD_COIL NEW_COIL [--targets cpu,cuda:sm_90] [--flags="-O 2"] [--count 24] [PROGRAM.pt2 ...]

For refactorings, which may not change what coil makes. Without programs it takes `--count` of those that the tests keep in
~/.cache/coil/zoo, evenly spread over their names. The compilers' own caches are off. A target's precompiled device code is part of
a package: a change in device/ shows as a difference of the shared object alone, so the generated texts are compared apart from it.
Prints a line for each difference, then the times of both builds; exit code 1 if there is a difference.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import zipfile


def zoo_programs(count):
    by_name = {p.name: p for p in sorted((pathlib.Path.home() / ".cache/coil/zoo").glob("*/*/*.core.pt2"))}
    names = sorted(by_name)
    step = max(1, len(names) / count)
    return [by_name[names[int(k * step)]] for k in range(min(count, len(names)))]


def compile_with(coil, program, target, flags, folder):
    """The package's parts by name, or the message of the refusal, and the seconds that it took."""
    package = folder / "made.coil.pt2"
    package.unlink(missing_ok=True)
    start = time.monotonic()
    done = subprocess.run([coil, "compile", program, "--target", target, "-o", package, "-q", *flags.split()], capture_output=True, text=True,
                          env={**os.environ, "COIL_CACHE": "off"})
    seconds = time.monotonic() - start
    if done.returncode != 0:
        return {"refusal": done.stderr.encode()}, seconds
    with zipfile.ZipFile(package) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}, seconds


def differences(old, new):
    return [f"{name}: only in {'old' if name in old else 'new'}" if (name in old) != (name in new) else f"{name}: other bytes"
            for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("programs", nargs="*", type=pathlib.Path)
    parser.add_argument("--targets", default="cpu,cuda:sm_90")
    parser.add_argument("--flags", default="", help="more of `coil compile`")
    parser.add_argument("--count", type=int, default=24)
    args = parser.parse_intermixed_args()
    total, found, compared, refused = [0.0, 0.0], 0, 0, 0
    with tempfile.TemporaryDirectory() as made:
        for program in args.programs or zoo_programs(args.count):
            for target in args.targets.split(","):
                results = []
                for k, coil in enumerate((args.old, args.new)):
                    parts, seconds = compile_with(coil, program, target, args.flags, pathlib.Path(made))
                    results.append(parts)
                    total[k] += seconds
                compared += 1
                refused += "refusal" in results[0]
                for text in differences(*results):
                    found += 1
                    print(f"{program.name}, {target}: {text}", flush=True)
    print(f"{compared} packages, {refused} of them refused by the old build, {found} parts differ; {total[0]:.1f} s old, {total[1]:.1f} s new")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
