#!/usr/bin/env python3
"""fuzz_long.py HOURS [--only reader,arrays] [--keep]: every fuzz target under ASan and UBSan for so long in all, as many at once as there are processors,
over a corpus that stays in build-fuzz/corpus from run to run. Prints a row for each target: inputs tried in this run, and in all runs so far, size of the corpus, what was found
(the inputs are build-fuzz/fuzz_NAME-*). --keep adds to tests/fuzz/seeds what reaches code that no seed reaches, smallest first, as long as all seeds stay below 3 MB.
Exit status 1 when anything was found."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

REPO = pathlib.Path(__file__).resolve().parent.parent
BUILD = REPO / "build-fuzz"
SEEDS = REPO / "tests/fuzz/seeds"
COUNTS = BUILD / "counts.json"  # of all runs
MOST_SEEDS = 3_000_000          # bytes, in git
MOST_SEED = 8_000               # bytes of one that --keep adds


def build():
    environment = dict(os.environ, CC="clang-19", CXX="clang++-19")
    options = ["-DCMAKE_BUILD_TYPE=Quick", "-DCOIL_FUZZ=ON", "-DCOIL_SANITIZE=address,undefined", "-DCOIL_BUILD_TESTS=OFF", "-DCOIL_BUILD_BENCH=OFF"]
    subprocess.run(["tools/configure.sh", "build-fuzz", *options], cwd=REPO, env=environment, check=True)
    subprocess.run(["ninja", "-C", "build-fuzz", "all_fuzz"], cwd=REPO, check=True)


def corpus_of(name):
    return BUILD / "corpus" / f"fuzz_{name}"


def fuzz(name, seconds):
    """The inputs that were tried, and the artifacts that this run left."""
    corpus, seeds = corpus_of(name), SEEDS / name
    corpus.mkdir(parents=True, exist_ok=True)
    before = set(BUILD.glob(f"fuzz_{name}-*"))
    tried, left = 0, seconds
    # A find ends libFuzzer: the next one goes on with the time that is left, at most a few times.
    for attempt in range(5):
        command = [BUILD / "fuzz" / f"fuzz_{name}", f"-max_total_time={max(1, int(left))}", "-timeout=25", "-rss_limit_mb=2048", "-print_final_stats=1", "-reload=0",
                   f"-artifact_prefix={BUILD}/fuzz_{name}-", corpus, *([seeds] if seeds.is_dir() else [])]
        log = BUILD / f"fuzz_{name}.{attempt}.log"
        start = os.times().elapsed
        with open(log, "wb") as out:
            code = subprocess.run(list(map(str, command)), stdout=out, stderr=subprocess.STDOUT).returncode
        counts = re.findall(rb"stat::number_of_executed_units:\s*(\d+)|^#(\d+)\s", log.read_bytes(), re.MULTILINE)
        tried += max((int(a or b) for a, b in counts), default=0)
        left -= os.times().elapsed - start
        if code == 0 or left < 10:
            break
    return name, tried, sorted(set(BUILD.glob(f"fuzz_{name}-*")) - before)


def keep(name, room):
    """Adds what is new to the seeds, and says how many bytes that took."""
    target, seeds = BUILD / "fuzz" / f"fuzz_{name}", SEEDS / name
    with tempfile.TemporaryDirectory() as folder:
        merged = pathlib.Path(folder)
        for seed in seeds.glob("*"):
            shutil.copy(seed, merged)
        known = {p.name for p in merged.iterdir()}
        subprocess.run([target, "-merge=1", f"-max_len={MOST_SEED}", "-timeout=25", merged, corpus_of(name)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        spent = 0
        for path in sorted((p for p in merged.iterdir() if p.name not in known), key=lambda p: (p.stat().st_size, p.name)):
            if spent + path.stat().st_size > room:
                break
            seeds.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, seeds / path.name)
            spent += path.stat().st_size
    return spent


def size_of(folder):
    files = [p for p in folder.rglob("*") if p.is_file()]
    return len(files), sum(p.stat().st_size for p in files)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hours", type=float)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    build()
    names = sorted(p.name.removeprefix("fuzz_") for p in (BUILD / "fuzz").glob("fuzz_*") if os.access(p, os.X_OK))
    if arguments.only:
        names = [n for n in names if n in arguments.only.split(",")]
    jobs = os.cpu_count() or 1
    seconds = arguments.hours * 3600 * min(jobs, len(names)) / len(names)
    totals = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    found = []
    print("| target | inputs | in all runs | corpus | found |\n|---|---|---|---|---|", flush=True)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for name, tried, artifacts in pool.map(lambda n: fuzz(n, seconds), names):
            totals[name] = totals.get(name, 0) + tried
            files, size = size_of(corpus_of(name))
            found += artifacts
            print(f"| {name} | {tried:,} | {totals[name]:,} | {files:,} files, {size / 1e6:.1f} MB | {', '.join(p.name for p in artifacts) or 'nothing'} |", flush=True)
            COUNTS.write_text(json.dumps(totals, indent=1))
    print(f"| all | | {sum(totals.values()):,} | | {len(found)} |")
    if arguments.keep:
        for name in names:
            room = (MOST_SEEDS - size_of(SEEDS)[1]) // 2
            print(f"{name}: {keep(name, min(room, MOST_SEEDS // 10))} bytes of new seeds")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
