"""What busy neighbours do to calls: each peer's 200 calls of a model alone, and beside processes that never stop computing.

usage: python bench/disturbed.py [--models resnet18_b1] [--peers eager ort openvino coil] [--busy 1 2] [--rounds 3] [--json OUT.json]

Two threads on a machine of two cores (--threads). A round gives every peer, in turn, its calls alone and then beside each number of neighbours.
Shown, of the same round's undisturbed median: the median of all rounds' median calls, and the worst call of all rounds. Processes of peers that wait are stopped.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

from peers import PEERS, machine, started

CALLS = 200


class Neighbours:
    """So many processes that compute."""

    def __init__(self, count):
        self.count, self.processes = count, []

    def __enter__(self):
        self.processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(self.count)]
        time.sleep(0.3)  # until they run

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def measure(name, options):
    """{"model", "peers": {peer: {"alone_ms", "busy": {neighbours: {"median", "worst"}}}}}; the last two as parts of the undisturbed median."""
    row, alive = started(name, options.peers, options.threads)
    times = {p.name: {n: [] for n in (0, *options.busy)} for p in alive}
    try:
        for i in range(options.rounds):
            for k in range(len(alive)):
                peer = alive[(i + k) % len(alive)]
                for n, rounds in times[peer.name].items():
                    with Neighbours(n):
                        rounds.append(peer.ask(f"x{CALLS}", 600)["times"])
    finally:
        for peer in alive:
            peer.stop()
    for peer, of in times.items():
        alone = [statistics.median(t) for t in of[0]]
        row["peers"][peer]["alone_ms"] = statistics.median(alone) * 1e3
        row["peers"][peer]["busy"] = {n: {"median": statistics.median(statistics.median(t) / a for t, a in zip(of[n], alone)),
                                          "worst": max(max(t) / a for t, a in zip(of[n], alone))} for n in of}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=["resnet18_b1"])
    parser.add_argument("--peers", nargs="*", default=["eager", "ort", "openvino", "coil"], choices=PEERS)
    parser.add_argument("--busy", nargs="*", type=int, default=[1, 2], help="neighbours")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    rows = []
    print("| model | peer | alone | alone, worst | " + " | ".join(f"beside {n}: median, worst" for n in options.busy) + " |\n" + "|---" * (4 + len(options.busy)) + "|")
    for name in options.models:
        rows.append(measure(name, options))
        for peer, p in rows[-1]["peers"].items():
            cells = [f"{p['busy'][n]['median']:.2f}, {p['busy'][n]['worst']:.1f}" for n in options.busy] if "busy" in p else [p["failed"]]
            print(f"| {name} | {peer} | {p.get('alone_ms', 0):.2f} ms | {p['busy'][0]['worst'] if 'busy' in p else 0:.1f} | " + " | ".join(cells) + " |", flush=True)
        if options.json:
            options.json.write_text(json.dumps({"machine": machine(options.threads), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
