#!/usr/bin/env python3
"""torch.compile(backend="coil") beside eager and Inductor on whole models: right or not, ms a call or a forward and backward pass, first calls, memory.

  python bench/dashboard.py                                            # every model of torchvision, timm and transformers; inference and training, bf16
  python bench/dashboard.py --suites torchvision --directions inference --precisions float32
  python bench/dashboard.py --peers eager coil --only resnet --mode reduce-overhead
  python bench/dashboard.py --device cpu --freeze --directions inference --precisions float32
  python bench/dashboard.py --budget 500 --json rows.json              # ends in time; a second run with the same file goes on
  python bench/dashboard.py --show rows.json                           # the table and the geometric means

A model runs in a process of its own that holds all peers, which are timed in turns, seven rounds each; processes that do not time compile meanwhile
(--jobs), and one times at a time. bf16 is autocast, for inference too. Right: the outputs' (and gradients') relative error against float64 in the
2-norm is at most twice eager's own. Loss: the mean square of the first output. No optimizer: its kernels are the same for all.
"""

import argparse
import fcntl
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time
import traceback

import dashboard_models

PEERS = ("eager", "inductor", "coil")
ROUNDS = 7


def median_ms(rows):
    return round(statistics.median(rows), 4)


class Form:
    """A model as one peer runs it."""

    def __init__(self, peer, options):
        import torch

        self.peer, self.options, self.torch = peer, options, torch
        module, arguments = dashboard_models.make(options.worker)
        import copy

        self.module = copy.deepcopy(module).to(options.device)
        self.arguments = [a.to(options.device) for a in arguments]
        self.training = options.directions[0] == "training"
        self.module.train(self.training)
        self.half = options.precisions[0] == "bf16"
        self.forward = self.module
        if peer in ("inductor", "coil"):
            more = {"mode": options.mode} if options.mode else {}
            if options.freeze and peer == "coil":
                more = {"options": {"freeze": True}}
            self.forward = torch.compile(self.module, backend=peer, **more)

    def exact(self):
        self.module.double()
        self.arguments = [a.double() if a.is_floating_point() else a for a in self.arguments]
        self.half = False
        return self

    def call(self):
        torch = self.torch
        kind = self.options.device.split(":")[0]
        if self.options.mode and kind == "cuda":
            torch.compiler.cudagraph_mark_step_begin()
        with torch.set_grad_enabled(self.training), torch.autocast(kind, torch.bfloat16, enabled=self.half):
            result = dashboard_models.first_tensor(self.forward(*self.arguments))
            if not self.training:
                return result
            loss = result.float().square().mean() if result.dtype != torch.float64 else result.square().mean()
        loss.backward()
        return loss

    def values(self):
        """The output; or the loss and all gradients. In float64, on the device."""
        self.module.zero_grad(set_to_none=True)
        result = self.call().detach().double().clone()
        return [result] + [p.grad.double() for p in self.module.parameters() if p.grad is not None] * self.training

    def run(self, calls):
        for _ in range(calls):
            if self.training:
                self.module.zero_grad(set_to_none=True)
            self.call()
        self.wait()

    def wait(self):
        if self.options.device.startswith("cuda"):
            self.torch.cuda.synchronize()


def error(found, exact):
    """The relative error of all values together: of each tensor its distance by its norm, or by a thousandth of all tensors' mean norm where it is less
    than that (gradients that are zero but for rounding)."""
    norms = [float(e.norm()) for e in exact]
    least = 1e-3 * math.sqrt(sum(n * n for n in norms) / len(norms)) or 1e-30
    parts = [float((f.to(e.device) - e).norm()) / max(n, least) for f, e, n in zip(found, exact, norms, strict=True)]
    return float("inf") if any(math.isnan(p) for p in parts) else math.sqrt(sum(p * p for p in parts) / len(parts))


def kernels_of(form, busiest):
    """(ms a call of all kernels, launches, the busiest ones as [ms, launches, name]): the quickest of three looks, since what other processes launch
    while they prepare counts as the time of whichever kernel it interrupts."""
    from kernel_times import kernel_times

    us, launches, rows = min((kernel_times(lambda: form.run(1), 2) for _ in range(3)), key=lambda found: found[0])
    return round(us / 1e3, 4), launches, [[round(us / 1e3, 4), count, name] for us, count, name in rows[:busiest]]


def prepare(form, row):
    """Compiles, checks and warms up; fills the row. Returns the values of the first call."""
    torch, peer = form.torch, form.peer
    start = time.perf_counter()
    found = form.values()
    form.wait()
    row[peer + "_first_s"] = round(time.perf_counter() - start, 2)
    if peer == "coil":
        import coil

        stats = coil.compile_stats()
        row.update(programs=stats.packages + stats.cache_hits, operators=stats.operators, in_pytorch=stats.fallback_operators,
                   reasons={reason[:160]: n for reason, n in sorted(stats.fallbacks.items(), key=lambda kv: -kv[1])[:8]})
    form.run(4)
    if form.options.device.startswith("cuda"):
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        form.run(1)
        row[peer + "_peak_MB"] = (torch.cuda.max_memory_allocated() - before) >> 20
    return found


def time_forms(forms, row, options):
    """Rounds in turns, under a lock that one process of this machine holds at a time."""
    with open(options.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        counts, times = {}, {form.peer: [] for form in forms}
        for form in forms:
            form.run(1)
            start = time.perf_counter()
            form.run(2)
            counts[form.peer] = max(1, min(50, int(0.1 / ((time.perf_counter() - start) / 2))))
        for _ in range(ROUNDS):
            for form in forms:
                start = time.perf_counter()
                form.run(counts[form.peer])
                times[form.peer].append((time.perf_counter() - start) / counts[form.peer] * 1e3)
        for form in forms:
            low, _, high = statistics.quantiles(times[form.peer], n=4)
            row[form.peer + "_ms"], row[form.peer + "_quartiles"] = median_ms(times[form.peer]), [round(low, 4), round(high, 4)]
            if options.device.startswith("cuda"):
                row[form.peer + "_kernels_ms"], row[form.peer + "_launches"], row[form.peer + "_busiest"] = kernels_of(form, options.busiest)


def work(options):
    import torch

    dashboard_models.IMAGES, dashboard_models.SEQUENCES, dashboard_models.DROPOUT = options.images, options.sequences, options.dropout
    if "coil" in options.peers:
        import coil  # noqa: F401  registers the backend
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch._inductor.config.freezing = options.freeze
    row = {}
    exact = None
    if not options.no_check:
        try:
            exact = [value.cpu() for value in Form("eager", options).exact().values()]
        except Exception as problem:
            row["exact"] = f"{type(problem).__name__}: {problem}"[:200]
    forms = []
    for peer in options.peers:
        torch._dynamo.reset()
        try:
            form = Form(peer, options)
            found = prepare(form, row)
            if exact:
                row[peer + "_error"] = error(found, exact)
            found = None
            forms.append(form)
        except Exception as problem:
            row[peer + "_failed"] = f"{type(problem).__name__}: {problem}"[:400]
            if options.trace:
                traceback.print_exc()
        if options.device.startswith("cuda"):
            torch.cuda.empty_cache()
    exact = None
    if forms:
        time_forms(forms, row, options)
    print("ROW " + json.dumps(row), flush=True)


# ---- What starts the processes

def key(row):
    return tuple(row[k] for k in ("model", "direction", "precision", "mode", "device"))


def read_rows(path):
    return json.loads(path.read_text())["rows"] if path and path.exists() else []


def write_rows(path, rows, options):
    import torch

    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else "cpu"
    path.write_text(json.dumps({"device": name, "torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "rows": rows}, indent=1))


def start(job, options):
    command = [sys.executable, "-W", "ignore", __file__, "--worker", job["model"], "--directions", job["direction"], "--precisions", job["precision"],
               "--device", options.device, "--lock", options.lock, "--busiest", str(options.busiest), "--peers", *options.peers]
    command += ["--images", str(options.images), "--sequences", str(options.sequences)]
    command += ["--mode", options.mode] if options.mode else []
    command += ["--freeze"] * options.freeze + ["--no-check"] * options.no_check + ["--dropout"] * options.dropout + ["--trace"] * options.trace
    threads = str(max(2, (os.cpu_count() or 2) // options.jobs))
    environment = dict(os.environ, TORCHINDUCTOR_COMPILE_THREADS=threads, **({} if options.device == "cpu" else {"OMP_NUM_THREADS": threads}))
    job["process"] = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    job["started"] = time.time()


def finished(job, options):
    """The job's row once its process has ended or had its time, else None."""
    process = job["process"]
    if process.poll() is None:
        if time.time() - job["started"] < options.most:
            return None
        process.kill()
    out, err = process.communicate()
    if options.trace:
        print(err[-6000:], flush=True)
    row = {k: job[k] for k in ("model", "direction", "precision", "mode", "device")}
    lines = [line for line in out.splitlines() if line.startswith("ROW ")]
    row.update(json.loads(lines[-1][4:]) if lines else {"failed": (err.strip().splitlines() or [f"exit {process.returncode}"])[-1][:400]})
    row["whole_s"] = round(time.time() - job["started"], 1)
    return row


def run_all(options):
    path = pathlib.Path(options.json) if options.json else None
    rows = read_rows(path)
    done, deadline = {key(row) for row in rows}, time.time() + options.budget
    mode = options.mode or "default"
    jobs = [{"model": m, "direction": d, "precision": p, "mode": mode, "device": options.device} for d in options.directions for p in options.precisions
            for m in dashboard_models.names(options.suites) if not options.only or any(word in m for word in options.only)]
    waiting, running = [job for job in jobs if key(job) not in done], []
    while waiting or running:
        while waiting and len(running) < options.jobs and time.time() + 60 < deadline:
            running.append(waiting.pop(0))
            start(running[-1], options)
        for job in list(running):
            row = finished(job, options)
            if row is None and time.time() > deadline:
                job["process"].kill()
                running.remove(job)  # a later run takes it
            elif row is not None:
                running.remove(job)
                rows.append(row)
                print(line_of(row), flush=True)
                if path:
                    write_rows(path, rows, options)
        if not running and time.time() + 60 >= deadline:
            break
        time.sleep(0.2)
    print(f"{len(waiting)} not begun", flush=True)
    return rows


# ---- Tables

def is_right(row):
    if "coil_error" not in row or "eager_error" not in row:
        return None
    return row["coil_error"] <= 2 * row["eager_error"] + (1e-3 if row["precision"] == "bf16" else 1e-6)


def line_of(row):
    parts = [f"{row['model']:36} {row['direction']:9} {row['precision']:8}"]
    for peer in PEERS:
        if peer + "_ms" in row:
            kernels = f", kernels {row[peer + '_kernels_ms']:.3f}" if peer + "_kernels_ms" in row else ""
            peak = f", {row[peer + '_peak_MB']} MB" if peer + "_peak_MB" in row else ""
            parts.append(f"{peer} {row[peer + '_ms']:.3f}{kernels}{peak}, first {row[peer + '_first_s']}")
        elif peer + "_failed" in row:
            parts.append(f"{peer} FAILED {row[peer + '_failed'][:160]}")
    if "failed" in row:
        parts.append("FAILED " + row["failed"][:200])
    right = is_right(row)
    if right is not None:
        parts.append("right" if right else f"WRONG {row['coil_error']:.1e} eager {row['eager_error']:.1e}")
    if row.get("in_pytorch"):
        parts.append(f"{row['in_pytorch']} of {row['operators']} in PyTorch, {row['programs']} programs {row['reasons']}")
    busiest = [f"\n      {peer:8} {ms:9.4f} ms {launches:5} launches  {name}" for peer in PEERS for ms, launches, name in row.get(peer + "_busiest", [])]
    return " | ".join(parts) + "".join(busiest)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def summary(rows):
    """A line for each direction, precision and mode: how many are right, coil beside the peers, by time, kernels, peak memory and first calls."""
    lines = []
    groups = sorted({(r["direction"], r["precision"], r["mode"]) for r in rows})
    for group in groups:
        members = [r for r in rows if (r["direction"], r["precision"], r["mode"]) == group]
        judged = [is_right(r) for r in members]
        text = f"{' '.join(group)}: {len(members)} models, {sum(j is True for j in judged)} right, {sum(j is False for j in judged)} wrong, " \
               f"{sum(j is None for j in judged)} not judged"
        for peer in ("eager", "inductor"):
            for what in ("ms", "kernels_ms", "peak_MB", "first_s"):
                ratios = [r[f"{peer}_{what}"] / r[f"coil_{what}"] for r in members if r.get(f"{peer}_{what}") and r.get(f"coil_{what}")]
                if ratios and not (peer == "eager" and what == "first_s"):
                    text += f"\n  {peer} / coil, {what}: geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}, {len(ratios)} models"
        lines.append(text)
    return "\n".join(lines)


def table(rows):
    lines = ["| model | eager | Inductor | coil | best / coil | kernels: eager | Inductor | coil |", "|---|--:|--:|--:|--:|--:|--:|--:|"]
    number = lambda row, k: f"{row[k]:.3g}" if k in row else "–"
    for row in rows:
        others = [row[p + "_ms"] for p in ("eager", "inductor") if p + "_ms" in row]
        best = f"{min(others) / row['coil_ms']:.2f}" if others and "coil_ms" in row else "–"
        cells = [number(row, p + "_ms") for p in PEERS] + [best] + [number(row, p + "_kernels_ms") for p in PEERS]
        lines.append(f"| {row['model']}, {row['direction']}, {row['precision']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", nargs="+", default=list(dashboard_models.SUITES), choices=list(dashboard_models.SUITES))
    parser.add_argument("--only", nargs="*", default=[], help="models whose names contain a word")
    parser.add_argument("--directions", nargs="+", default=["inference", "training"], choices=["inference", "training"])
    parser.add_argument("--precisions", nargs="+", default=["bf16"], choices=["bf16", "float32"])
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS)
    parser.add_argument("--mode", help="of torch.compile, for both compilers, such as reduce-overhead or max-autotune")
    parser.add_argument("--freeze", action="store_true", help="inference with packed weights: Inductor's freezing, coil's option freeze")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--jobs", type=int, default=1, help="models that are prepared at the same time")
    parser.add_argument("--most", type=float, default=300, metavar="SECONDS", help="for one model")
    parser.add_argument("--budget", type=float, default=1e9, metavar="SECONDS", help="for all")
    parser.add_argument("--no-check", action="store_true", help="do not compare with float64")
    parser.add_argument("--busiest", type=int, default=0, metavar="N", help="print the N busiest kernels of each peer")
    parser.add_argument("--trace", action="store_true", help="print where a failure comes from")
    parser.add_argument("--json", help="file of the rows; what it has is not measured again")
    parser.add_argument("--show", metavar="FILE", help="print the table of a file and nothing else")
    parser.add_argument("--lock", default="/tmp/coil_dashboard.lock", help=argparse.SUPPRESS)
    parser.add_argument("--images", type=int, default=dashboard_models.IMAGES, help="of a batch")
    parser.add_argument("--sequences", type=int, default=dashboard_models.SEQUENCES, help="of a batch")
    parser.add_argument("--dropout", action="store_true", help="models keep their dropout; use it with --no-check")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    if options.show:
        rows = read_rows(pathlib.Path(options.show))
        print(table(rows), summary(rows), sep="\n\n")
        return 0
    if options.device.startswith("cuda"):
        import needs

        needs.gpu()
    rows = run_all(options)
    print(summary(rows))
    return any("coil_failed" in row or "failed" in row or is_right(row) is False for row in rows)


if __name__ == "__main__":
    sys.exit(main())
