"""Choices of tiles for the same products, timed in turns: python3 tests/gpu/gemm_pairs.py PAIRS.json.

The file lists [product, first, second, ...]: a product as gemm_problems.py prints it, and choices as [kind, rows, columns, parts of k, blocks that share:
down, across]. Medians, and each over the first.
"""
import json
import math
import sys

import gemm_times
from gemm_kernels import usable
from gemm_problems import problem_of

KINDS = {"wgmma": "wgmma", "wgmma_split": "split", "wgmma_copy": "copy", "mma": "tiles"}  # of gemm_kernels.Instance


def instance_of(p, choice):
    kind, rows, columns, split, down, across = choice
    found = [i for i in gemm_times.candidates(p) if usable(i) and (i.kind, i.bm, i.bn) == (KINDS[kind], rows, columns)
             and (i.cluster // (i.down * i.across), i.down, i.across) == (split, down, across)]
    assert len(found) == 1, (p, choice, found)
    return found[0]


def main(path):
    wanted = []
    for name, *choices in json.load(open(path)):
        p = problem_of(name)
        wanted.append((p, [instance_of(p, c) for c in choices]))
    compiling = gemm_times.Compiling([i for _, instances in wanted for i in instances])
    logs = []
    for p, instances in wanted:
        for i in instances:
            compiling.wait_for(i)
        theirs, ours = gemm_times.bench(p, list(dict.fromkeys(instances)), keep=len(instances), rounds=21)
        by_name = {name: us for us, name in ours}
        times = [by_name[i.name] for i in instances]
        logs.append(math.log(times[1] / times[0]))
        text = "  ".join(f"{us:8.2f} x{us / times[0]:.3f} {i.name:36}" for us, i in zip(times, instances))
        print(f"{str(p):38} torch {theirs:8.2f}  {text}", flush=True)
    compiling.stop()
    print(f"second over first: x{math.exp(sum(logs) / len(logs)):.4f} in the mean of {len(logs)}, x{math.exp(max(logs)):.3f} at worst", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
