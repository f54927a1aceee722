#!/usr/bin/env python3
"""Sorts and what is made of them on a GPU, torch.compile(backend="coil") beside eager (and Inductor): µs of all kernels of a call, and µs between calls.

  python bench/sorts.py                     # --peers eager inductor coil --json FILE --only WORD
"""

import argparse
import json
import statistics

import torch
from kernel_times import kernel_times

ROUNDS, CALLS = 5, 10


def cases():
    yield "sort f32 [1000000]", lambda x: torch.sort(x), lambda: (torch.randn(1_000_000),)
    yield "sort f32 [38416]", lambda x: torch.sort(x), lambda: (torch.randn(38_416),)
    yield "sort f32 [64, 16384]", lambda x: torch.sort(x), lambda: (torch.randn(64, 16_384),)
    yield "sort f32 [4096, 1000]", lambda x: torch.sort(x), lambda: (torch.randn(4096, 1000),)
    yield "sort f32 [1000000, 16]", lambda x: torch.sort(x), lambda: (torch.randn(1_000_000, 16),)
    yield "sort f32 [1000, 4096] along 0", lambda x: torch.sort(x, dim=0), lambda: (torch.randn(1000, 4096),)
    yield "sort i64 [1000000]", lambda x: torch.sort(x), lambda: (torch.randint(0, 1 << 40, (1_000_000,)),)
    yield "sort bf16 [128, 32000]", lambda x: torch.sort(x), lambda: (torch.randn(128, 32_000).bfloat16(),)
    yield "topk 50 of [1, 128256]", lambda x: torch.topk(x, 50), lambda: (torch.randn(1, 128_256),)
    yield "topk 50 of [64, 128256]", lambda x: torch.topk(x, 50), lambda: (torch.randn(64, 128_256),)
    yield "topk 2 of [65536, 64]", lambda x: torch.topk(x, 2), lambda: (torch.randn(65_536, 64),)
    yield "quantile of [100000]", lambda x: torch.quantile(x, 0.3), lambda: (torch.randn(100_000),)
    yield "median of [4096, 1000]", lambda x: torch.median(x, 1)[0], lambda: (torch.randn(4096, 1000),)
    back = lambda rows: lambda g, i: torch.ops.aten.embedding_dense_backward(g, i, rows, -1, False)
    yield "embedding gradient 4096 of [30522, 768]", back(30_522), lambda: (torch.randn(4096, 768), torch.randint(0, 30_522, (4096,)))
    yield "embedding gradient 65536 of [32000, 256]", back(32_000), lambda: (torch.randn(65_536, 256), torch.randint(0, 32_000, (65_536,)))
    yield "table gradient 38809 of [732, 12]", back(732), lambda: (torch.randn(38_809, 12), torch.randint(0, 732, (38_809,)))
    yield "table gradient 2401 of [169, 3]", back(169), lambda: (torch.randn(2401, 3), torch.randint(0, 169, (2401,)))
    yield "table gradient 38416 of [169, 24]", back(169), lambda: (torch.randn(38_416, 24), torch.randint(0, 169, (38_416,)))
    yield "table gradient 1000000 of [100, 8]", back(100), lambda: (torch.randn(1_000_000, 8), torch.randint(0, 100, (1_000_000,)))
    yield "scatter_add 100000 to [50000]", lambda x, i, v: x.scatter_add(0, i, v), lambda: (torch.zeros(50_000), torch.randint(0, 50_000, (100_000,)), torch.randn(100_000))
    yield "index_add 1000000 to [256]", lambda x, i, v: x.index_add(0, i, v), lambda: (torch.zeros(256), torch.randint(0, 256, (1_000_000,)), torch.randn(1_000_000))
    yield "cumsum [1000000]", lambda x: x.cumsum(0), lambda: (torch.randn(1_000_000),)
    yield "cumsum [64, 100000]", lambda x: x.cumsum(1), lambda: (torch.randn(64, 100_000),)
    yield "cumsum [65536, 64]", lambda x: x.cumsum(1), lambda: (torch.randn(65_536, 64),)
    yield "positions of a mask [1000000]", lambda x: (x > 0).long().cumsum(0), lambda: (torch.randn(1_000_000),)


def wall_us(call):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(CALLS):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / CALLS * 1e3


def measure(name, function, make, peers):
    torch.manual_seed(0)
    torch._dynamo.reset()
    inputs = [x.cuda() for x in make()]
    forms = {p: function if p == "eager" else torch.compile(function, backend=p, dynamic=False) for p in peers}
    row = {"case": name, "kernels_us": {}, "us": {}, "failed": {}}
    calls = {}
    with torch.no_grad():
        for peer, form in forms.items():
            try:
                for _ in range(3):
                    form(*inputs)
                calls[peer] = lambda form=form: form(*inputs)
            except Exception as problem:
                row["failed"][peer] = str(problem)[:200]
        rounds = {p: ([], []) for p in calls}
        for _ in range(ROUNDS):
            for peer, call in calls.items():
                rounds[peer][0].append(kernel_times(call, CALLS)[0])
                rounds[peer][1].append(wall_us(call))
    for peer, (kernels, wall) in rounds.items():
        row["kernels_us"][peer], row["us"][peer] = round(statistics.median(kernels), 1), round(statistics.median(wall), 1)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", default=["eager", "inductor", "coil"])
    parser.add_argument("--only", default="")
    parser.add_argument("--json")
    options = parser.parse_args()
    import coil  # noqa: F401: the backend

    rows = []
    for name, function, make in cases():
        if options.only not in name:
            continue
        rows.append(measure(name, function, make, options.peers))
        row = rows[-1]
        print(f"{name:45}", " | ".join(f"{p} {row['kernels_us'][p]:9.1f} ({row['us'][p]:.0f})" for p in row["kernels_us"]), row["failed"] or "", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
