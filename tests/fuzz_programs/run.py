"""Random programs against eager PyTorch.

usage: python tests/fuzz_programs/run.py [--seconds 60] [--programs N] [--seed 0] [--jobs 1] [--keep FILE.jsonl] [--program JSON] [--shrink 1]

Each seed is one program: inputs of odd, empty and strided shapes, a few operators, perhaps dynamic sizes. It is exported (every second one decomposed
as well), compiled, run, and compared; what is wrong or ends the process is made smaller and printed. Exit code 1 if there was any.
"""

import argparse
import collections
import json
import os
import pathlib
import select
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
SECONDS = 240  # a program's time
BAD = ("wrong", "crash", "hang")


class Worker:
    def __init__(self, log):
        self.log, self.process = log, None

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def ask(self, question):
        """The answer; a process that ends or does not is one as well."""
        if not self.process or self.process.poll() is not None:
            self.process = subprocess.Popen([sys.executable, "-W", "ignore", HERE / "worker.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, bufsize=0)
            self.unread = b""
        answer, start = {"program": question.get("program")}, time.time()
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            while "status" not in answer:
                while b"\n" not in self.unread:
                    if not select.select([self.process.stdout], [], [], max(0, start + SECONDS - time.time()))[0]:
                        return self.ended(answer, "hang", f"more than {SECONDS} s")
                    more = os.read(self.process.stdout.fileno(), 1 << 20)
                    if not more:
                        return self.ended(answer, "crash", f"exit code {self.process.wait()}")
                    self.unread += more
                line, self.unread = self.unread.split(b"\n", 1)
                answer = json.loads(line)
            return answer
        except BrokenPipeError:
            return self.ended(answer, "crash", f"exit code {self.process.wait()}")

    def ended(self, answer, status, reason):
        self.stop()
        return {**answer, "status": status, "reason": reason, "shapes": []}


def shrunk(worker, found, decompose, seconds=60):
    """The smallest program found that fails in the same way."""
    import programs

    end = time.time() + seconds
    again = True
    while again and time.time() < end:
        again = False
        shapes = found["shapes"] or [None] * 99
        candidates = programs.smaller(found["program"], shapes) if found["shapes"] else (programs.cut(found["program"], [i]) for i in found["program"]["outputs"] if len(found["program"]["outputs"]) > 1)
        for candidate in candidates:
            answer = worker.ask({"program": candidate, "decompose": decompose})
            if answer["status"] == found["status"]:
                found, again = answer, True
                break
            if time.time() > end:
                break
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--programs", type=int, default=sys.maxsize, help="at most so many: the same ones on every machine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", type=pathlib.Path, help="append what failed to this file, a JSON line each")
    parser.add_argument("--program", help="try this one (JSON) instead")
    parser.add_argument("--decompose", action="store_true", help="with --program")
    parser.add_argument("--shrink", type=int, default=1)
    options = parser.parse_args()
    import programs

    log = open(os.devnull, "w")
    if options.program:
        answer = Worker(log).ask({"program": json.loads(options.program), "decompose": options.decompose})
        print(programs.source(answer["program"]), answer["status"], answer["reason"], sep="\n")
        return 1 if answer["status"] in BAD else 0
    start, lock, counts, reasons = time.time(), threading.Lock(), collections.Counter(), collections.Counter()
    seeds = iter(range(options.seed, min(options.seed + options.programs, sys.maxsize)))

    def work():
        worker = Worker(log)
        while time.time() < start + options.seconds:
            with lock:
                seed = next(seeds, None)
            if seed is None:
                break
            decompose = bool(seed % 2)
            found = worker.ask({"seed": seed, "decompose": decompose})
            counts[found["status"]] += 1
            if found["status"] == "refused":
                reasons[found["reason"]] += 1
            if found["status"] in BAD:
                if options.shrink and found["program"]:
                    found = shrunk(worker, found, decompose)
                with lock:
                    print(f"\nseed {seed}{' decomposed' if decompose else ''}: {found['status']}: {found['reason']}\n{programs.source(found['program']) if found['program'] else ''}", flush=True)
                    if options.keep:
                        with open(options.keep, "a") as file:
                            file.write(json.dumps({"seed": seed, "decompose": decompose, **found}) + "\n")
        worker.stop()

    threads = [threading.Thread(target=work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{sum(counts.values())} programs from seed {options.seed}: " + ", ".join(f"{n} {status}" for status, n in counts.most_common()))
    for reason, n in reasons.most_common(15):
        print(f"  {n} refused: {reason}")
    return 1 if any(counts[status] for status in BAD) else 0


if __name__ == "__main__":
    sys.exit(main())
