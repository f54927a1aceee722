#!/usr/bin/env python3
"""Single operators and their gradients, torch.compile(backend="coil") beside eager (and Inductor).

On a GPU: µs of all kernels of a call; on a CPU: µs of a call, with one thread unless --threads says otherwise. What takes many times as
long as eager has a wrong algorithm: the last lines list these. Processes compile side by side, and measure one at a time.

  python bench/compiled_operators.py                 # --check --device cpu --peers eager inductor coil --json FILE --only WORD --dtype bfloat16 --channels-last
"""

import argparse
import fcntl
import json
import multiprocessing
import pathlib
import statistics
import sys
import tempfile
import time

import needs
import torch
from compiled_operators_table import GRADIENTS
from kernel_times import kernel_times
from operators import OPERATORS

ROUNDS = 3
SLOW = 1.2  # times eager
WRONG = 2e-3  # with --check; what draws random numbers, and numbers of equal elements, are not compared
NOT_COMPARED = ("dropout", "rrelu", "gumbel", "fractional", "sort", "take_along_dim", "index_put2")
CALLS = 5  # a round, on a GPU
LEAST = 0.05  # seconds of calls a round, on a CPU


def cases():
    """(name, function, makes inputs, with gradients) of all cases; gradients' names end in '."""
    for name, (function, make) in OPERATORS.items():
        yield name, function, make, False
    for name, (function, make) in GRADIENTS.items():
        yield name + " '", function, make, True


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for v in value for t in tensors(v)] if isinstance(value, (tuple, list)) else []


def step(form, inputs, differentiated, weights=torch.ones_like):
    """A call; with gradients, of the sum of what it gives (or by other weights)."""
    given = form(*inputs)
    if not differentiated:
        return given
    results = [t for t in tensors(given) if t.requires_grad]
    return torch.autograd.grad(results, [x for x in inputs if x.requires_grad], [weights(t) for t in results], allow_unused=True)


def waves(t):
    """Weights that differ, so that what adds up to nothing (softmax's gradient by equal ones) is no noise."""
    return torch.cos(torch.arange(t.numel(), device=t.device, dtype=torch.float64)).view(t.shape).to(t.dtype)


def difference(found, wanted):
    """The largest of the results' relative errors in the 2-norm, where eager's are finite; infinite where shapes or types differ."""
    worst = 0.0
    for a, b in zip(tensors(found), tensors(wanted), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        a, b = (t.detach().to(torch.complex128 if t.is_complex() else torch.float64) for t in (a, b))
        known = torch.isfinite(torch.view_as_real(b)).all(-1) if b.is_complex() else torch.isfinite(b)
        a, b = torch.where(known, a, 0), torch.where(known, b, 0)
        worst = max(worst, float((a - b).norm() / b.norm().clamp_min(1e-20)))
    return worst


def call_times(call):
    """(µs of a call, 0, []) on a CPU: the quickest of the calls of at least LEAST seconds; as kernel_times gives them on a GPU."""
    times, end = [], time.perf_counter() + LEAST
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6, 0, []


MEMORY_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def on_device(make, device, dtype, differentiated, last=False):
    """`last`: images and volumes have their channels last."""
    torch.manual_seed(0)
    inputs = [x.to(device) for x in make()]
    inputs = [x.to(dtype) if x.dtype == torch.float32 else x for x in inputs]
    if last:
        inputs = [x.contiguous(memory_format=MEMORY_FORMATS.get(x.dim(), torch.contiguous_format)) for x in inputs]
    return [x.requires_grad_() if differentiated and x.is_floating_point() else x for x in inputs]


def measure(case, options, lock):
    name, function, make, differentiated = case
    row = {"case": name, "us": {}, "launches": {}, "failed": {}}
    torch._dynamo.reset()
    try:
        inputs = on_device(make, options.device, getattr(torch, options.dtype), differentiated, options.channels_last)
    except Exception as problem:
        return dict(row, failed={"inputs": str(problem)[:200]})
    calls = {}
    for peer in options.peers:
        form = function if peer == "eager" else torch.compile(function, backend=peer, dynamic=False)
        try:
            for _ in range(2):
                step(form, inputs, differentiated)
            if options.check and peer == "coil" and not any(word in name for word in NOT_COMPARED):
                row["difference"] = difference(step(form, inputs, differentiated, waves), step(function, inputs, differentiated, waves))
            calls[peer] = lambda form=form: step(form, inputs, differentiated)
        except Exception as problem:
            row["failed"][peer] = f"{type(problem).__name__}: {problem}"[:300]
    if options.check:
        return row
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        found = {peer: [] for peer in calls}
        for _ in range(ROUNDS):
            for peer, call in calls.items():
                found[peer].append(call_times(call) if options.device == "cpu" else kernel_times(call, CALLS))
        for peer, times in found.items():
            row["us"][peer] = round(statistics.median(us for us, _, _ in times), 1)
            row["launches"][peer] = times[-1][1]
        slow = "coil" in found and row["us"]["coil"] > SLOW * row["us"].get("eager", 1e9)
        row["busiest"] = {peer: times[-1][2][:6] for peer, times in found.items() if options.kernels or (slow and peer == "coil")}
    finally:
        if options.device != "cpu":
            torch.cuda.synchronize()
        fcntl.flock(lock, fcntl.LOCK_UN)
    return row


def is_wanted(case, options):
    name, _, make, _ = case
    return any(word in name for word in options.only) and (not options.channels_last or any(x.dim() in MEMORY_FORMATS for x in make()))


def work(part, options, path):
    """One process's share; rows go to its file as they come."""
    import coil  # noqa: F401: the backend

    torch.set_num_threads(options.threads)
    end = time.time() + options.seconds
    with open(path, "w") as out, open(options.lock, "w") as lock:
        for i, case in enumerate(c for c in cases() if is_wanted(c, options)):
            if i % options.workers != part or time.time() > end:
                continue
            row = measure(case, options, lock)
            json.dump(row, out)
            out.write("\n")
            out.flush()
            print(line(row), *busiest(row), sep="\n", flush=True)


def line(row):
    us = row["us"]
    if "difference" in row:
        return f"{row['case']:34} {'WRONG' if row['difference'] > WRONG else 'right':6} {row['difference']:.1e}"
    ratio = f"{us['coil'] / us['eager']:6.2f}" if us.get("eager") and "coil" in us else "      "
    return f"{row['case']:34} {ratio} " + " | ".join(f"{p} {us[p]:9.1f} ({row['launches'][p]})" for p in us) + (f" {row['failed']}" if row["failed"] else "")


def busiest(row):
    """Lines of the kernels that are kept of a row."""
    return [f"      {peer:8} {us:9.1f} us in {count}: {kernel}" for peer, kernels in row.get("busiest", {}).items() for us, count, kernel in kernels]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--peers", nargs="+", default=["eager", "coil"])
    parser.add_argument("--only", nargs="+", default=[""], help="cases whose names hold one of these words")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--channels-last", action="store_true", help="images and volumes lie so; of the cases only those with some")
    parser.add_argument("--workers", type=int, help="processes (6 beside a GPU, 2 on a CPU)")
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--check", action="store_true", help="compare results and gradients with eager's, and time nothing")
    parser.add_argument("--kernels", action="store_true", help="the busiest kernels of every peer, on a GPU")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.workers = options.workers or (2 if options.device == "cpu" else 6)
    needs.gpu(options.device)
    with tempfile.TemporaryDirectory() as folder:
        options.lock = str(pathlib.Path(folder) / "lock")
        paths = [pathlib.Path(folder) / f"{i}.jsonl" for i in range(options.workers)]
        spawned = multiprocessing.get_context("spawn")
        children = [spawned.Process(target=work, args=(i, options, path)) for i, path in enumerate(paths)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        rows = [json.loads(text) for path in paths for text in path.read_text().splitlines()]
    if options.check:
        wrong = [row for row in rows if row["failed"].get("coil") or row.get("difference", 0) > WRONG]
        print(f"\n{sum('difference' in row for row in rows)} compared, wrong or refused: {len(wrong)}", *map(line, wrong), sep="\n")
        return bool(wrong)
    rows.sort(key=lambda row: -(row["us"].get("coil", 0) / max(row["us"].get("eager", 1e9), 0.1)))
    print(f"\nmore than {SLOW} times eager, or refused:")
    for row in rows:
        if row["failed"] or row["us"].get("coil", 0) > SLOW * row["us"].get("eager", 1e9):
            print(line(row), *busiest(row), sep="\n")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    sys.exit(main())
