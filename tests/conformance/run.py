"""The conformance run: every entry of PyTorch's op_db in eleven dtypes, exported, compiled without libtorch, and compared with eager.

usage: python tests/conformance/run.py [--jobs 2] [--results FILE.jsonl] [--fresh] [--retry] [--compiled | --gradients] [PATTERN...]

Results are appended to a JSONL file, one line for a pair of entry and dtype; a second run goes on where the first stopped (--fresh:
starts over; --retry: does again what was not right). A pair that takes its worker process down, or more than its time, is recorded as such.
PATTERN: names of entries as in a shell (`linalg.*`), or name:dtype. Without any: all. The whole takes about half an hour of two cores,
half of it for exports, which are kept.
--compiled asks torch.compile(backend="coil", fullgraph=True) for the same, --gradients for the gradients of the differentiable entries, both with
--device cuda on a GPU. --budget: begins no pair after so many seconds, of an order in which any number of them is a sample.

tests/conformance/results holds the last result of every pair in each of the three ways, and those of errors.py (`--keep errors=FILE`). --keep puts what these FILEs say in their place; `--report
docs/coverage.md` writes the report of all that is kept: `run.py --keep standalone=S.jsonl --keep compiled=C.jsonl --report docs/coverage.md`.
"""

import argparse
import fnmatch
import json
import lzma
import os
import pathlib
import queue
import random
import select
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
SECONDS = 240  # a pair's time
WAYS = ("standalone", "compiled", "gradients", "compiled_cuda", "gradients_cuda")
JUDGED = (*WAYS, "errors")  # what is kept: also what errors.py says
KEPT = HERE / "results"  # WAY.jsonl.xz


class Worker:
    """A worker process, started again when it died."""

    def __init__(self, log, way="evaluate", device="cpu"):
        self.log, self.way, self.device, self.process = log, way, device, None

    def start(self):
        self.process = subprocess.Popen([sys.executable, HERE / "worker.py", self.way, self.device], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, bufsize=0)
        self.unread = b""

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def judge(self, name, dtype):
        if not self.process or self.process.poll() is not None:
            self.start()
        phase, start = "starting", time.time()
        try:
            self.process.stdin.write(f"{name} {dtype}\n".encode())
            while True:
                while b"\n" not in self.unread:
                    if not select.select([self.process.stdout], [], [], max(0, start + SECONDS - time.time()))[0]:
                        return self.ended(name, dtype, "hang", f"{phase}: more than {SECONDS} s")
                    more = os.read(self.process.stdout.fileno(), 1 << 20)
                    if not more:
                        return self.ended(name, dtype, "crash", f"{phase}: exit code {self.process.wait()}")
                    self.unread += more
                line, self.unread = self.unread.split(b"\n", 1)
                answer = json.loads(line)
                if "phase" not in answer:
                    return answer
                phase = answer["phase"]
        except BrokenPipeError:
            return self.ended(name, dtype, "crash", f"{phase}: exit code {self.process.wait()}")

    def ended(self, name, dtype, status, reason):
        """PyTorch's own end while it exports is no fault of coil's."""
        self.stop()
        return {"name": name, "dtype": dtype, "status": "export" if reason.startswith("exporting") else status, "reason": reason}


def judge_all(pairs, jobs, results, seconds=float("inf"), way="evaluate", device="cpu"):
    """Judges the pairs on some workers, appending to the file, in any order; begins none after so many seconds."""
    todo, lock, done = queue.SimpleQueue(), threading.Lock(), 0
    for pair in pairs:
        todo.put(pair)
    start = time.time()

    def work(number):
        nonlocal done
        with open(results.with_suffix(f".log{number}"), "a") as log:
            worker = Worker(log, way, device)
            while time.time() < start + seconds:
                try:
                    name, dtype = todo.get_nowait()
                except queue.Empty:
                    break
                result = {**worker.judge(name, dtype), "day": time.strftime("%Y-%m-%d")}
                with lock, open(results, "a") as file:
                    file.write(json.dumps(result) + "\n")
                    done += 1
                    if done % 50 == 0 or done == len(pairs):
                        print(f"{done}/{len(pairs)} {time.time() - start:.0f} s", flush=True)
            worker.stop()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def read_results(path):
    """{(name, dtype): result}, the last one of each."""
    if not path.exists():
        return {}
    text = lzma.decompress(path.read_bytes()).decode() if path.suffix == ".xz" else path.read_text()
    return {(r["name"], r["dtype"]): r for r in map(json.loads, text.splitlines())}


def keep(way, path):
    """Puts a file's results in the place of those that are kept of the same pairs. The same results give the same bytes."""
    kept = KEPT / f"{way}.jsonl.xz"
    rows = {**read_results(kept), **read_results(path)}
    lines = [json.dumps({k: v for k, v in rows[pair].items() if k != "seconds"}, sort_keys=True) + "\n" for pair in sorted(rows)]
    KEPT.mkdir(exist_ok=True)
    kept.write_bytes(lzma.compress("".join(lines).encode(), preset=9))


def write_report(path):
    """From what is kept, in op_db's order."""
    sys.path.insert(0, str(HERE.parents[0] / "python"))
    import core_aten
    import report
    import samples

    numbers = {name: i for i, name in enumerate(samples.entries())}
    dtypes = {samples.dtype_name(d): i for i, d in enumerate([*samples.DTYPES, *samples.GRADIENT_DTYPES])}
    found = [read_results(KEPT / f"{way}.jsonl.xz") for way in WAYS]
    rows = [[of[pair] for pair in sorted(of, key=lambda p: (numbers.get(p[0], len(numbers)), dtypes[p[1]])) if pair[0] in numbers] for of in found]
    path.write_text(report.text(rows[0], core_aten.section(), *rows[1:]))


def matching(pairs, patterns):
    if not patterns:
        return pairs
    return [(n, d) for n, d in pairs if any(fnmatch.fnmatchcase(n, p) or fnmatch.fnmatchcase(f"{n}:{d}", p) for p in patterns)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("conformance.jsonl"))
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--retry", action="store_true")
    parser.add_argument("--report", type=pathlib.Path)
    parser.add_argument("--keep", action="append", default=[], metavar="WAY=FILE", help="WAY: " + ", ".join(JUDGED))
    parser.add_argument("--compiled", action="store_true", help="through torch.compile(backend=\"coil\", fullgraph=True) instead")
    parser.add_argument("--gradients", action="store_true", help="gradients of the differentiable entries through torch.compile(backend=\"coil\", fullgraph=True) instead")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("--show", action="store_true", help="print what is not right")
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_intermixed_args()
    for way, _, path in (given.partition("=") for given in options.keep):
        if way not in JUDGED or not pathlib.Path(path).exists():
            parser.error(f"--keep {way}={path}: ways are {', '.join(JUDGED)}, and the file must exist")
        keep(way, pathlib.Path(path))
    if options.report:
        write_report(options.report)
    if options.keep or options.report:
        return 0
    if options.fresh:
        options.results.unlink(missing_ok=True)
    import report
    import samples

    samples.DEVICE = options.device
    if options.device != "cpu" and not (options.compiled or options.gradients):
        parser.error("--device is for --compiled and --gradients")
    way = "gradients" if options.gradients else "compiled" if options.compiled else "evaluate"
    pairs = matching(samples.gradient_pairs() if options.gradients else samples.pairs(), options.patterns)
    known = read_results(options.results)
    todo = [p for p in pairs if p not in known or (options.retry and known[p]["status"] not in ("right", "eager", "export"))]
    if options.budget != float("inf"):
        random.Random(0).shuffle(todo)
    judge_all(todo, options.jobs, options.results, options.budget, way, options.device)
    found = read_results(options.results)
    results = [found[p] for p in pairs if p in found]
    if options.show:
        for r in results:
            if r["status"] != "right":
                print(f"{r['name']}:{r['dtype']} {r['status']}: {r['reason']}")
    print(report.summary(results) if way == "evaluate" else report.compiled_summary(results))
    bad = [r for r in results if r["status"] in ("wrong", "crash", "hang", "error")]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
