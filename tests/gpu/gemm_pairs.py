"""Two choices of tiles for the same products, timed in turns: python3 tests/gpu/gemm_pairs.py PAIRS.json.

The file lists [product, first, second]; a choice is [kind, rows, columns, parts of k, blocks that share: down, across] (gemm_problems.HELD_OUT).
"""
import json
import math
import sys

import gemm_times
from gemm_problems import FIRST, HELD_OUT, SECOND
from gemm_kernels import usable

KINDS = {"wgmma": "wgmma", "wgmma_split": "split", "wgmma_copy": "copy", "mma": "tiles"}


def instance_of(p, choice):
    kind, rows, columns, split, down, across = choice
    found = [i for i in gemm_times.candidates(p) if usable(i) and (i.kind, i.bm, i.bn) == (KINDS[kind], rows, columns)
             and (i.cluster // (i.down * i.across), i.down, i.across) == (split, down, across)]
    assert len(found) == 1, (p, choice, found)
    return found[0]


def main(path):
    problems = {str(p): p for p in FIRST + SECOND + HELD_OUT}
    pairs = [(problems[name], first, second) for name, first, second in json.load(open(path))]
    wanted = [(p, instance_of(p, first), instance_of(p, second)) for p, first, second in pairs]
    compiling = gemm_times.Compiling([i for _, a, b in wanted for i in (a, b)])
    logs = []
    for p, first, second in wanted:
        for i in (first, second):
            compiling.wait_for(i)
        times = dict.fromkeys((first, second))
        theirs, ours = gemm_times.bench(p, list(times), keep=2, rounds=21)
        by_name = {name: us for us, name in ours}
        a, b = by_name[first.name], by_name[second.name]
        logs.append(math.log(b / a))
        print(f"{str(p):38} torch {theirs:8.2f}  first {a:8.2f} {first.name:40} second {b:8.2f} {second.name:40} x{b / a:.3f}", flush=True)
    compiling.stop()
    print(f"second over first: x{math.exp(sum(logs) / len(logs)):.4f} in the mean of {len(logs)}, x{math.exp(max(logs)):.3f} at worst", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
