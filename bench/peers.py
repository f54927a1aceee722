"""Times coil beside PyTorch eager, torch.compile, AOTInductor, ONNX Runtime and OpenVINO, in one interleaved run.

usage: python bench/peers.py run [--models PATTERN...] [--peers P...] [--rounds 9] [--burst 0.4] [--json OUT.json] [--markdown OUT.md]
       python bench/peers.py memory [--models PATTERN...] [--peers P...] [--json OUT.json]
       python bench/peers.py prepare [--models PATTERN...]      makes and caches AOTInductor packages and ONNX files (minutes)

Each peer lives in a warm process of its own with two threads; with --threads 1 times are the computing thread's processor time, which
other work on the machine does not stretch. A round gives every peer one burst of calls, in turn, starting with
another peer each round; processes that wait are stopped, so that no spinning thread of one disturbs another. What is shown: the
median over rounds of each burst's median, and the smallest and largest burst median. "ratio" is coil against the best peer.

`memory`: MB of a process at most while it is called, mapped files that it read among them, and in brackets what it has above the same process before
it had the model. The peer "stream" is what memory allows: a loop that only reads as many bytes as the model's inputs have and writes its outputs'.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import platform
import select
import signal
import statistics
import subprocess
import sys
import tempfile

from workloads import MADE_BY, folder, prepare, wide_workloads, workloads

PEERS = ["stream", "eager", "compile", "compile:freeze", "aoti", "aoti:freeze", "ort", "openvino", "coil"]
START_SECONDS = 600  # torch.compile of a large model on a busy machine


class Peer:
    def __init__(self, peer, name, threads):
        self.name, self.bursts = peer, []
        env = dict(os.environ, COIL_BENCH_THREADS=str(threads), OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), TORCHINDUCTOR_FREEZING="0")
        self.log = tempfile.TemporaryFile("w+")
        command = [sys.executable, pathlib.Path(__file__).with_name("peer_worker.py"), peer, name, folder(name)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=env)

    def answer(self, seconds):
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise TimeoutError(f"no answer in {seconds:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            self.log.seek(0)
            raise RuntimeError((self.log.read().strip().splitlines() or ["the worker ended"])[-1][:300])
        return json.loads(line)

    def ask(self, wish, seconds):
        """The answer to a line on its stdin, within so many seconds; it is stopped before and after."""
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(f"{wish}\n")
        self.process.stdin.flush()
        answer = self.answer(seconds)
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def burst(self, seconds):
        self.bursts.append(self.ask(seconds, seconds + 120))

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def started(name, peers, threads):
    """(row, processes that are ready and stopped); row: {"model", "peers": {peer: what it said of itself, or why it failed}}."""
    record, row, alive = prepare(name, peers), {"model": name, "peers": {}}, []
    for peer in peers:  # one after the other: torch.compile uses both cores
        made = record.get(MADE_BY.get(peer, peer), {})
        if "error" in made:
            row["peers"][peer] = {"failed": made["error"]}
            continue
        process = Peer(peer, name, threads)
        try:
            row["peers"][peer] = process.answer(START_SECONDS)
            process.process.send_signal(signal.SIGSTOP)
            alive.append(process)
        except (RuntimeError, TimeoutError, ValueError) as error:
            row["peers"][peer] = {"failed": str(error)}
            process.stop()
    return row, alive


def measure(name, peers, rounds, seconds, threads):
    row, alive = started(name, peers, threads)
    try:
        for i in range(rounds):
            for k in range(len(alive)):
                alive[(i + k) % len(alive)].burst(seconds)
    finally:
        for process in alive:
            process.stop()
    for process in alive:
        medians = [b["median"] for b in process.bursts]
        row["peers"][process.name] |= {"us": statistics.median(medians) * 1e6, "us_low": min(medians) * 1e6, "us_high": max(medians) * 1e6,
                                       "calls": sum(b["calls"] for b in process.bursts)}
    others = [p["us"] for n, p in row["peers"].items() if n not in ("coil", "stream") and "us" in p]
    if others and "us" in row["peers"].get("coil", {}):
        row["ratio"] = row["peers"]["coil"]["us"] / min(others)
    return row


def human(us):
    return f"{us:.2f} us" if us < 100 else f"{us:.0f} us" if us < 1000 else f"{us / 1e3:.2f} ms" if us < 1e5 else f"{us / 1e3:.0f} ms"


def markdown(rows, peers):
    lines = ["| model | " + " | ".join(peers) + " | coil / best |", "|---" * (len(peers) + 2) + "|"]
    for row in rows:
        cells = []
        for peer in peers:
            p = row["peers"].get(peer, {})
            cells.append(f"{human(p['us'])} ({human(p['us_low'])}-{human(p['us_high'])})" if "us" in p else "failed" if "failed" in p else "-")
        lines.append(f"| {row['model']} | " + " | ".join(cells) + f" | {row['ratio']:.2f} |" if "ratio" in row else f"| {row['model']} | " + " | ".join(cells) + " | - |")
    return "\n".join(lines) + "\n"


def memory(name, peers, threads):
    """A row as of measure, without times; one process after the other."""
    row = {"model": name, "peers": {}}
    for peer in peers:
        one, alive = started(name, [peer], threads)
        row["peers"] |= one["peers"]
        for process in alive:
            process.stop()
    return row


def memory_markdown(rows, peers):
    lines = ["| model, MB | " + " | ".join(peers) + " |", "|---" * (len(peers) + 1) + "|"]
    cell = lambda p: f"{p['resident_mb']:.0f} ({p['model_mb']:.1f})" if "resident_mb" in p else "failed"
    lines += [f"| {row['model']} | " + " | ".join(cell(row["peers"][p]) for p in peers) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def machine(threads):
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    return {"cpu": model, "cores": len(os.sched_getaffinity(0)), "threads": threads, "load": os.getloadavg()[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["run", "memory", "prepare"])
    parser.add_argument("--models", nargs="*", default=["*"])
    parser.add_argument("--peers", nargs="*", default=PEERS[1:], choices=PEERS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--burst", type=float, default=0.4, help="seconds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--markdown", type=pathlib.Path)
    options = parser.parse_args()
    known = [*workloads(), *(wide_workloads() if any(p.startswith("wide_") for p in options.models) else [])]
    names = [n for n in known if any(fnmatch.fnmatch(n, p) for p in options.models)]
    rows, timed = [], options.command == "run"
    table = markdown if timed else memory_markdown
    for name in names:
        if options.command == "prepare":
            prepare(name, options.peers)
            continue
        rows.append(measure(name, options.peers, options.rounds, options.burst, options.threads) if timed else memory(name, options.peers, options.threads))
        print(table(rows[-1:], options.peers).splitlines()[-1], flush=True)
        for peer, p in rows[-1]["peers"].items():
            if "failed" in p or p.get("error", 0) > 1e-2:
                print(f"    {peer}: {p.get('failed') or 'wrong: relative error %.1e' % p['error']}", flush=True)
        if options.json:
            options.json.write_text(json.dumps({"machine": machine(options.threads), "rows": rows}, indent=1))
    if rows and options.markdown:
        options.markdown.write_text(table(rows, options.peers))


if __name__ == "__main__":
    main()
