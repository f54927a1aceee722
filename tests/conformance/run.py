"""The conformance run: every entry of PyTorch's op_db in seven dtypes, exported, compiled without libtorch, and compared with eager.

usage: python tests/conformance/run.py [--jobs 2] [--results FILE.jsonl] [--fresh] [--retry] [--report docs/coverage.md] [PATTERN...]

Results are appended to a JSONL file, one line for a pair of entry and dtype; a second run goes on where the first stopped (--fresh:
starts over; --retry: does again what was not right). A pair that takes its worker process down, or more than its time, is recorded as such.
PATTERN: names of entries as in a shell (`linalg.*`), or name:dtype. Without any: all. The whole takes about half an hour of two cores,
half of it for exports, which are kept. `--results FILE --report docs/coverage.md` with nothing left to do writes the report again.
--compiled asks torch.compile(backend="coil", fullgraph=True) for the same; its results (another FILE) go into the report by --compiled-results.
--gradients asks it for the gradients of the differentiable entries; these results go into the report by --gradient-results.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import queue
import select
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
SECONDS = 240  # a pair's time


class Worker:
    """A worker process, started again when it died."""

    def __init__(self, log, way="evaluate"):
        self.log, self.way, self.process = log, way, None

    def start(self):
        self.process = subprocess.Popen([sys.executable, HERE / "worker.py", self.way], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, bufsize=0)
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


def judge_all(pairs, jobs, results, seconds=float("inf"), way="evaluate"):
    """Judges the pairs on some workers, appending to the file, in any order; begins none after so many seconds."""
    todo, lock, done = queue.SimpleQueue(), threading.Lock(), 0
    for pair in pairs:
        todo.put(pair)
    start = time.time()

    def work(number):
        nonlocal done
        with open(results.with_suffix(f".log{number}"), "a") as log:
            worker = Worker(log, way)
            while time.time() < start + seconds:
                try:
                    name, dtype = todo.get_nowait()
                except queue.Empty:
                    break
                result = worker.judge(name, dtype)
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
    lines = path.read_text().splitlines() if path.exists() else []
    return {(r["name"], r["dtype"]): r for r in map(json.loads, lines)}


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
    parser.add_argument("--compiled", action="store_true", help="through torch.compile(backend=\"coil\", fullgraph=True) instead")
    parser.add_argument("--compiled-results", type=pathlib.Path, help="results of --compiled, for the report")
    parser.add_argument("--gradients", action="store_true", help="gradients of the differentiable entries through torch.compile(backend=\"coil\", fullgraph=True) instead")
    parser.add_argument("--gradient-results", type=pathlib.Path, help="results of --gradients, for the report")
    parser.add_argument("--show", action="store_true", help="print what is not right")
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_intermixed_args()
    if options.fresh:
        options.results.unlink(missing_ok=True)
    import report
    import samples

    way = "gradients" if options.gradients else "compiled" if options.compiled else "evaluate"
    pairs = matching(samples.gradient_pairs() if options.gradients else samples.pairs(), options.patterns)
    known = read_results(options.results)
    todo = [p for p in pairs if p not in known or (options.retry and known[p]["status"] not in ("right", "eager", "export"))]
    judge_all(todo, options.jobs, options.results, way=way)
    results = [r for p in pairs if (r := read_results(options.results).get(p))]
    if options.show:
        for r in results:
            if r["status"] != "right":
                print(f"{r['name']}:{r['dtype']} {r['status']}: {r['reason']}")
    print(report.summary(results) if way == "evaluate" else report.compiled_summary(results))
    if options.report:
        sys.path.insert(0, str(HERE.parents[0] / "python"))
        import core_aten

        others = [list(read_results(path).values()) if path else [] for path in (options.compiled_results, options.gradient_results)]
        options.report.write_text(report.text(results, core_aten.section(), *others))
    bad = [r for r in results if r["status"] in ("wrong", "crash", "hang", "error")]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
