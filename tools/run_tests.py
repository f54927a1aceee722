#!/usr/bin/env python3
"""Runs every test and prints "N passed, M failed" as the last line; exit code 1 if anything failed.

The layer check counts as one test, the fuzz targets as one, each GoogleTest case and each pytest case as one. A test binary that crashes, fails to start
or leaves no report counts as one failure more. What tests leave in the folder for temporary files is removed at the end.
Test files that pytest cannot read (a name that is gone, a bad parameter) end the run before anything else has started.

The time is bounded, on slow machines too: first comes what is small (C++, fuzz targets), then a sample of every pytest function's cases, then, until
MINUTES after the start, the other cases (tests/conftest.py). How many were not tried is said; COIL_TEST_ALL=1 tries all, however long it takes.
"""
import argparse
import contextlib
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_PROCESSES = 8  # of tests, each with PyTorch in its memory
MINUTES = {"sample": 70, "rest": 45}  # from the start on; no test of a part begins later
SHORTEST_PART = 60  # seconds: starting all processes and reading all test files for less is not worth it
FAILURES_SHOWN, LINES_SHOWN = 40, 12  # at the end
NEEDED_GIB = 8  # of temporary files, those of the linker and of torch.compile among them


def count_report(path):
    """(passed, failed) of a JUnit-style report as GoogleTest and pytest write it; skipped cases count as neither."""
    passed = failed = 0
    try:
        cases = ElementTree.parse(path).getroot().iter("testcase")
    except ElementTree.ParseError as error:
        print(f"{path}: no whole report ({error})")
        return 0, 1
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is None and case.get("status") != "notrun":
            passed += 1
    return passed, failed


def failures(reports):
    """Of each failed case that a report in the folder has: its name and the end of what it says. They are printed at the end of the run, where who reads the
    log looks first."""
    for path in sorted(reports.glob("*.xml")):
        try:
            cases = list(ElementTree.parse(path).getroot().iter("testcase"))
        except ElementTree.ParseError:
            continue
        for case in cases:
            said = [one for kind in ("failure", "error") for one in case.iter(kind)]
            name, text = case.get("name"), "".join((one.text or one.get("message") or "") + "\n" for one in said)
            if said and path.name == "ctest-summary.xml":  # a binary: its cases have a report of their own, unless it crashed
                if (reports / f"{name}.xml").exists():
                    continue
                text = case.findtext("system-out") or text
            if said:
                yield f"{case.get('classname')}.{name}", text.strip().splitlines()[-LINES_SHOWN:]


def run_source_checks():
    passed = [subprocess.run([sys.executable, ROOT / "tools" / check]).returncode == 0 for check in ("check_layers.py", "check_names.py")]
    return sum(passed), len(passed) - sum(passed)


def make_programs(reports):
    """Exports the small test programs that are not in the cache yet; returns the file that lists their folders."""
    folders = reports / "programs.txt"
    command = [sys.executable, "-W", "ignore", ROOT / "tests/models/zoo.py", "make", "--jobs", str(os.cpu_count()), "--folders", folders]
    subprocess.run(command, stderr=subprocess.DEVNULL)
    return folders


def run_ctest(build, reports, folders):
    env = dict(os.environ, GTEST_OUTPUT=f"xml:{reports}/")
    if folders:
        env["COIL_ZOO_FOLDERS"] = str(folders)
    junit = reports / "ctest-summary.xml"
    subprocess.run(["ctest", "--test-dir", build, "--output-on-failure", "-j", str(os.cpu_count()), "--output-junit", junit], env=env)
    passed = failed = 0
    if not junit.exists():
        return 0, 1
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        name, report = case.get("name"), reports / (case.get("name") + ".xml")
        if case.find("skipped") is not None:
            continue
        if not report.exists():  # crashed, timed out or not built
            print(f"{name}: no report (crashed, timed out, or not built)")
            failed += 1
            continue
        p, f = count_report(report)
        passed, failed = passed + p, failed + f
        if case.find("failure") is not None and f == 0:
            print(f"{name}: failed outside its test cases")
            failed += 1
    return passed, failed


def pytest_command(tests, *args):
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests, *args]


def pytest_environment(build):
    return dict(os.environ, COIL_BUILD=str(pathlib.Path(build).resolve()))


def collect(build, args, tests=ROOT / "tests"):
    """(what pytest says where a test file cannot be read, else None; how many cases there are). Seconds, where the whole run would find it after half an
    hour."""
    command = [*pytest_command(tests, *args), "--collect-only", "--no-header"]
    done = subprocess.run(command, cwd=ROOT, env=pytest_environment(build), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode in (0, 5):  # 5: no tests
        return None, sum(1 for line in done.stdout.splitlines() if "::" in line)
    start = done.stdout.find("= ERRORS =")  # a list of all the tests is before it
    return (done.stdout[done.stdout.rfind("\n", 0, start) + 1:] if start >= 0 else done.stdout), 0


def cases_of(report):
    """(cases that a report has, how many of them no time was left for)."""
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    skipped = [case.find("skipped") for case in cases]
    return len(cases), sum(1 for s in skipped if s is not None and "the time was up" in s.get("message", ""))


def run_part(build, reports, args, part, until):
    """(passed, failed, tried) of a part of the pytest cases ("sample", "rest"); of all with None."""
    report = reports / f"pytest-{part or 'all'}.xml"
    processes = min(os.cpu_count(), MOST_PROCESSES)
    command = pytest_command(ROOT / "tests", "-n", str(processes), "--dist", "worksteal", "--junitxml", report, "-o", "junit_family=xunit1",
                             "-o", "tmp_path_retention_policy=none", *(["--part", part, "--until", str(until)] if part else []), *args)
    code = subprocess.run(command, cwd=ROOT, env=pytest_environment(build)).returncode
    if not report.exists():
        return 0, 1, 0
    passed, failed = count_report(report)
    cases, left = cases_of(report)
    return passed, max(failed, 1 if code not in (0, 5) else 0), cases - left


def run_pytest(build, reports, args, started, cases):
    """`cases`: how many there are."""
    if not cases:
        return 0, 0
    if os.environ.get("COIL_TEST_ALL", "0") != "0":
        return run_part(build, reports, args, None, None)[:2]
    counts = []
    for part, minutes in MINUTES.items():
        until = started + 60 * minutes
        if not counts or time.time() + SHORTEST_PART < until:
            counts.append(run_part(build, reports, args, part, until))
    passed, failed, tried = (sum(column) for column in zip(*counts))
    if tried < cases:
        print(f"{cases - tried} of {cases} pytest cases were not tried: the time was up (`make test-all` tries all)", flush=True)
    return passed, failed


def run_fuzz(build, seconds):
    """Each fuzz target for at most so many seconds, 20000 inputs that are always the same; all together count as one test."""
    if not list((ROOT / "tests/fuzz").glob("*.cc")):
        return 0, 0
    ok = subprocess.run([ROOT / "tools/fuzz.sh", str(seconds), "20000", build], cwd=ROOT).returncode == 0
    return (1, 0) if ok else (0, 1)


@contextlib.contextmanager
def temporary_folder():
    """A folder that this process and those that it starts put their temporary files into."""
    free = shutil.disk_usage(tempfile.gettempdir()).free / 2**30
    if free < NEEDED_GIB:
        print(f"{tempfile.gettempdir()}: {free:.1f} GiB are free, the tests need some {NEEDED_GIB} (TMPDIR names another folder)", flush=True)
    with tempfile.TemporaryDirectory(prefix="coil-tests-", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = folder
        yield


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build")
    parser.add_argument("--no-pytest", action="store_true")
    parser.add_argument("--fuzz", type=int, default=0, metavar="SECONDS", help="also build the fuzz targets and give them inputs, so long each")
    parser.add_argument("--started", type=float, default=time.time(), metavar="SECONDS", help="when the build began (since 1970)")
    options, pytest_args = parser.parse_known_args()
    reports = pathlib.Path(options.build).resolve() / "test-reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    failure, cases = (None, 0) if options.no_pytest else collect(options.build, pytest_args)
    if failure:
        print(failure.rstrip(), "Nothing was run: pytest cannot read the files above.", "0 passed, 1 failed", sep="\n", flush=True)
        return 1
    with temporary_folder():
        folders = None if options.no_pytest else make_programs(reports)
        counts = [run_source_checks(), run_ctest(options.build, reports, folders)]
        if options.fuzz:
            counts.append(run_fuzz(pathlib.Path(options.build).resolve(), options.fuzz))
        if not options.no_pytest:
            counts.append(run_pytest(options.build, reports, pytest_args, options.started, cases))
    passed, failed = (sum(column) for column in zip(*counts))
    for name, text in itertools.islice(failures(reports), FAILURES_SHOWN):
        print(f"FAILED {name}", *(f"    {line}" for line in text), sep="\n")
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
