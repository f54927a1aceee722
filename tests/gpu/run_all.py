#!/usr/bin/env python3
"""Runs all tests and benches that need a GPU, and writes one JSON report that names the machine.

usage: python3 tests/gpu/run_all.py [--only templates,models,peers] [--models PATTERN,...] [--bench-models PATTERN,...]
                                    [--budget 560] [--out FOLDER] [--resume] [--museum DIR] [--no-stock] [--check-in]

templates: pytest over tests/gpu/test_*.py. models: tests/gpu/models.py. peers: bench/gpu_peers.py. Each is a process with a time
limit of its own; one that fails or is stopped leaves what it had. FOLDER ($OUT or /tmp/coil-gpu) gets gpu_report.json and .md
after each part, beside the parts' own files and gpu_log.txt (7 files in all). --check-in also writes bench/results/gpu_NAME_DATE.json.
The last line is "N passed, M failed"; exit code 1 when anything failed.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path.insert(0, str(REPO / "bench"))

import machine

PARTS = ["templates", "models", "peers"]
SHARES = 4     # processes for a file's tests
NO_TESTS = 5   # pytest's exit code
ALONE = {"test_host.py", "test_libraries.py", "test_several_devices.py"}  # they look at times and at the device's free memory


def own_interrupt():
    """What a process ignores its children ignore as well (a shell's background jobs: SIGINT): run() stops them with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(command, log, seconds, threads=None):
    """The exit code, or "timeout"; output goes to the log and to our own stdout. All that the process started ends with it."""
    print(f"$ {' '.join(map(str, command))}", flush=True)
    with open(log, "a") as file:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", cwd=REPO, start_new_session=True, preexec_fn=own_interrupt,
                                   env=dict(os.environ, PYTHONUNBUFFERED="1") | ({"OMP_NUM_THREADS": str(threads)} if threads else {}))

        def copy():
            for line in process.stdout:
                file.write(line)
                print("  " + line, end="", flush=True)

        reader = threading.Thread(target=copy, daemon=True)
        reader.start()
        try:
            code = process.wait(max(1, seconds))
        except subprocess.TimeoutExpired:
            code = "timeout"
            process.send_signal(signal.SIGINT)  # pytest writes its report on the way out
            try:
                process.wait(8)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        reader.join(5)
    return code


def read(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def results_of(report, code):
    counts, failures = collections.Counter(), []
    try:
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            bad = case.find("failure") if case.find("failure") is not None else case.find("error")
            kind = "failed" if bad is not None else "skipped" if case.find("skipped") is not None else "passed"
            counts[kind] += 1
            if bad is not None:
                failures.append(f"{case.get('name')}: {(bad.get('message') or '')[:200]}")
    except (OSError, ElementTree.ParseError):
        counts["failed"] += 1
        failures.append("no report: " + ("stopped at its time limit" if code == "timeout" else f"exit code {code}"))
    if code == "timeout" and not counts["failed"]:
        counts["failed"] += 1
        failures.append("stopped at its time limit")
    return counts, failures


def templates(options, left):
    """The tests of tests/gpu/test_*.py in processes of their own, several for a file, most of whose time is NVRTC's: a lost CUDA context
    does not fail the others."""
    files, reports = {}, pathlib.Path(tempfile.mkdtemp(prefix="coil-gpu-"))
    pool = max(1, min(12, (os.cpu_count() or 2) - 3))

    def part(test, share, shares):
        report = reports / f"{test.stem}_{share}.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-x" if options.first else "--maxfail=40", "--tb=line", "--share", f"{share}/{shares}", f"--junitxml={report}", "-p", "no:cacheprovider", test]
        # References are computed on the processor too: threads that wait for each other's would take the most time.
        code = run(command, options.log, min(options.template_seconds, left()), threads=2 if shares > 1 else None)
        return test.name, code if code != NO_TESTS else 0, *results_of(report, code)

    tests = sorted(HERE.glob("test_*.py"))
    together = [(t, i, SHARES) for i in range(SHARES) for t in tests if t.name not in ALONE]
    with concurrent.futures.ThreadPoolExecutor(pool) as executor:
        parts = list(executor.map(lambda p: part(*p), together))
    parts += [part(t, 0, 1) for t in tests if t.name in ALONE]
    for name, code, counts, failures in parts:
        row = files.setdefault(name, {"exit": 0, "failures": []})
        row["exit"] = row["exit"] or code
        row["failures"] += failures
        for kind, n in counts.items():
            row[kind] = row.get(kind, 0) + n
    return {"files": files, "passed": sum(f.get("passed", 0) for f in files.values()), "failed": sum(f.get("failed", 0) for f in files.values())}


def models(options, left):
    budget = min(options.models_seconds, left() - 15)
    command = [sys.executable, HERE / "models.py", "--out", options.out, "--budget", budget, "--device", options.device]
    command += (["--models", options.models] if options.models else []) + (["--resume"] if options.resume else []) + (["--museum", options.museum] if options.museum else [])
    command += ["--no-stock"] if options.no_stock else []
    code = run(command, options.log, budget + 30)
    report = read(options.out / "gpu_models.json") or {"rows": {}}
    counts = collections.Counter(row["status"] for row in report["rows"].values())
    good = counts["ok"]
    return {"exit": code, "passed": good, "failed": sum(counts.values()) - good - counts["skipped"] or (0 if report["rows"] else 1), "counts": counts, "seconds": report.get("seconds"), "rows": report["rows"]}


def peers(options, left):
    budget = min(options.peers_seconds, left() - 10)
    command = [sys.executable, REPO / "bench/gpu_peers.py", "--out", options.out, "--budget", budget, "--device", options.device] + (["--resume"] if options.resume else [])
    command += ["--models", options.bench_models] if options.bench_models else []
    code = run(command, options.log, budget + 40)
    report = read(options.out / "gpu_peers.json") or {"rows": []}
    failed = [row["model"] for row in report["rows"] if "us" not in row["peers"].get("coil", {}) or "wrong" in row["peers"]["coil"]]
    return {"exit": code, "passed": len(report["rows"]) - len(failed), "failed": len(failed) or (0 if report["rows"] else 1)} | {k: report.get(k) for k in ("peers", "rounds", "burst", "rows", "startup", "seconds")}


def compact(report):
    """The report without what only a search for faults needs: small enough to check in."""
    short = json.loads(json.dumps(report))
    rows = short["parts"].get("models", {}).get("rows", {})
    for name, row in rows.items():
        keep = ("status", "group", "form", "dtype", "error", "stock_error", "tolerance", "sets", "kernels", "compile_s", "load_ms", "package_bytes", "note", "notes", "message") if row["status"] == "ok" else row.keys()
        rows[name] = {k: (v[:400] if isinstance(v, str) else v) for k, v in row.items() if k in keep}
    return short


def one_row_a_line(report):
    """JSON whose rows are a line each: readable, and differences show."""
    text = json.dumps(report, indent=1)
    return re.sub(r"\n {4}([}\]])", r"\1", re.sub(r"\n {5,}", " ", text))


def markdown(options, report):
    lines = [f"# GPU report: {report['machine'].get('gpu', options.device)}", "", ", ".join(f"{k} {v}" for k, v in report["machine"].items()), ""]
    for name, part in report["parts"].items():
        lines.append(f"- {name}: {part['passed']} passed, {part['failed']} failed" + (f" (exit {part['exit']})" if part.get("exit") else ""))
        for file, row in part.get("files", {}).items():
            lines.append(f"  - {file}: {row.get('passed', 0)} passed, {row.get('failed', 0)} failed, exit {row['exit']}")
            lines += [f"    - {f}" for f in row["failures"][:10]]
    for name in ("gpu_peers.md", "gpu_models.md"):
        if (options.out / name).exists():
            lines += ["", (options.out / name).read_text()]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=lambda s: s.split(","), default=PARTS)
    parser.add_argument("--models", help="patterns for models.py")
    parser.add_argument("--bench-models", help="patterns for gpu_peers.py")
    parser.add_argument("--museum")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--budget", type=float, default=560, help="seconds for everything")
    parser.add_argument("--template-seconds", type=float, default=330, help="for each test file")
    parser.add_argument("--models-seconds", type=float, default=230)
    parser.add_argument("--peers-seconds", type=float, default=340)
    parser.add_argument("--first", action="store_true", help="a test file stops at its first failure")
    parser.add_argument("--resume", action="store_true", help="keep what is good in FOLDER")
    parser.add_argument("--no-stock", action="store_true", help="models.py leaves out PyTorch's loader, which takes most of its time")
    parser.add_argument("--check-in", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT", "/tmp/coil-gpu")))
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    options.log = options.out / "gpu_log.txt"
    options.log.unlink(missing_ok=True)
    end = time.monotonic() + options.budget
    left = lambda: end - time.monotonic()
    target = options.out / "gpu_report.json"
    report = (read(target) if options.resume else None) or {"machine": machine.describe(), "parts": {}}
    report["machine"] = machine.describe()
    for name in PARTS:
        if name not in options.only:
            continue
        if left() < 25:
            print(f"{name}: not run, the time budget was used up")
            continue
        start = time.monotonic()
        report["parts"][name] = {"templates": templates, "models": models, "peers": peers}[name](options, left)
        report["parts"][name]["wall_seconds"] = round(time.monotonic() - start, 1)
        target.write_text(one_row_a_line(compact(report)))
        target.with_suffix(".md").write_text(markdown(options, report))
    if options.check_in:
        gpu = re.sub(r"[^a-z0-9]+", "_", report["machine"].get("gpu", "cpu").lower()).strip("_")
        place = REPO / "bench/results" / f"gpu_{gpu}_{report['machine']['date'][:10]}.json"
        place.write_text(one_row_a_line(compact(report)))
        print(f"wrote {place}")
    passed, failed = (sum(part[key] for part in report["parts"].values()) for key in ("passed", "failed"))
    print(f"{target}\n{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
