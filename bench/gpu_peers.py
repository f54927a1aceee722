"""Times coil on a GPU beside PyTorch eager, torch.compile and AOTInductor, interleaved; and what happens before the first result.

usage: python3 bench/gpu_peers.py [--models PATTERN,...] [--peers eager,compile,aoti,coil,coil:torch] [--rounds 5] [--burst 0.12]
                                  [--budget 340] [--out FOLDER] [--resume] [--no-startup]

Default models: the group "models" (gpu_workloads.py; also "memory" and "gemm"; a pattern names a workload or group:GROUP). All
peers of a wave of models get ready at once, each in a process of its own; then nothing but one peer runs: a round gives every
peer one burst of calls, another first each round, while the others are stopped. Numbers, median over rounds (least, most):
  us      CUDA events around a burst, divided by the calls in it: what a busy loop of calls costs (host or device, the slower)
  single  median of event pairs around one call, each waited for
  host    wall time of enqueuing a call into an idle queue
"floor" is the least that the work can cost in the same run: a copy of as many bytes, cuBLAS's product. TF32 is off without --tf32; coil is called
through ctypes, AOTInductor through its runner (aoti_load_package(...).loader.run). FOLDER ($OUT or /tmp/coil-gpu) gets
gpu_peers.json and gpu_peers.md after every row.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from gpu_workloads import workloads

import jobs
import machine
import needs
from gpu_peers_parts import ALL_PEERS, PEERS, markdown, prepare, source_of, spread
from paths import COIL, RUNTIME

SLOW_TO_PREPARE = ("aoti", "compile:max", "compile", "compile:graphs", "coil", "coil:torch", "eager", "floor")
STARTUP = ["multiply_10", "resnet18_b2", "bert_base_8x128_bf16"]


# ---- In a peer's process ----------------------------------------------------------------------------------------------------


class Clock:
    """CUDA events, or wall time on the CPU."""

    def __init__(self, torch, cuda):
        self.torch, self.cuda = torch, cuda
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if cuda else None

    def sync(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def around(self, function, calls):
        """Seconds a call."""
        if not self.cuda:
            start = time.perf_counter()
            for _ in range(calls):
                function()
            return (time.perf_counter() - start) / calls
        self.events[0].record()
        for _ in range(calls):
            function()
        self.events[1].record()
        self.events[1].synchronize()
        return self.events[0].elapsed_time(self.events[1]) * 1e-3 / calls

    def enqueue(self, function, calls):
        self.sync()
        start = time.perf_counter()
        for _ in range(calls):
            function()
        seconds = (time.perf_counter() - start) / calls
        self.sync()
        return seconds


def error_of(got, want):
    if got is None:
        return None
    if len(got) != len(want) or any(g.shape != w.shape for g, w in zip(got, want)):
        return float("inf")
    return max(float((g.double() - w.double()).abs().max() / w.double().abs().max().clamp(min=1e-30)) for g, w in zip(got, want) if g.numel())


def serve(options, peer, name):
    """Gets ready, then answers each request for a burst."""
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch

    start = time.perf_counter()
    guard = torch.inference_mode() if peer == "eager" else torch.no_grad()
    guard.__enter__()  # for the life of the process
    try:
        call, got, want = prepare(options, peer, name)
        clock = Clock(torch, options.device.startswith("cuda"))
        for _ in range(5):
            call()
        clock.sync()
        about = min(clock.around(call, 5) for _ in range(3))
        jobs.answer({"done": {"ready_s": round(time.perf_counter() - start, 2), "error": error_of(got, want), "about_us": about * 1e6}})
    except Exception as error:
        import traceback

        traceback.print_exc()
        jobs.answer({"done": {"failed": f"{type(error).__name__}: {str(error)[:600]}"}})
        return
    got = want = None
    for line in sys.stdin:
        seconds = json.loads(line)["burst"]
        clock.around(call, max(3, min(2000, int(0.15 * seconds / about))))  # clocks and caches warm again
        calls = max(5, min(20000, int(seconds / about)))
        burst = clock.around(call, calls)
        singles = [clock.around(call, 1) for _ in range(max(5, min(60, int(0.3 * seconds / about))))]
        # Few calls: the queue holds about a thousand launches, and a full one waits for the device
        host = statistics.median(clock.enqueue(call, 20 if about < 60e-6 else 2) for _ in range(5))
        jobs.answer({"done": {"us": burst * 1e6, "calls": calls, "single": statistics.median(singles) * 1e6, "host": host * 1e6}})


def startup_child(package, threads=0):
    """In a fresh process without torch: seconds of the driver's own start, of opening the package, of a context."""
    import ctypes

    report, driver = {}, ctypes.CDLL("libcuda.so.1")
    start = time.perf_counter()
    assert driver.cuInit(0) == 0
    context = ctypes.c_void_p()
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    report["driver_ms"] = (time.perf_counter() - start) * 1e3

    class Options(ctypes.Structure):
        _fields_ = [("struct_bytes", ctypes.c_uint32), ("num_threads", ctypes.c_int32), ("parallel_for", ctypes.c_void_p), ("pool", ctypes.c_void_p), ("device", ctypes.c_char_p)]

    lib, model, call = ctypes.CDLL(str(RUNTIME)), ctypes.c_void_p(), ctypes.c_void_p()
    options = Options(ctypes.sizeof(Options), 0, None, None, b"cuda:0")
    start = time.perf_counter()
    assert lib.coil_open(package.encode(), ctypes.byref(options), ctypes.byref(model)) == 0
    report["open_ms"] = (time.perf_counter() - start) * 1e3
    start = time.perf_counter()
    assert lib.coil_context_create(model, ctypes.byref(call)) == 0
    report["context_ms"] = (time.perf_counter() - start) * 1e3
    print(json.dumps(report))


# ---- In the parent ----------------------------------------------------------------------------------------------------------


def environment(peer):
    env = {"TORCHINDUCTOR_COMPILE_THREADS": "4", "TORCHINDUCTOR_VEC_ISA_OK": "1", "OMP_NUM_THREADS": "4", "TORCHINDUCTOR_CACHE_DIR": "/tmp/coil-gpu-inductor"}
    system = pathlib.Path("/usr/lib/x86_64-linux-gnu/libstdc++.so.6")
    if peer in ("aoti", "coil:torch") and system.exists():
        env["LD_PRELOAD"] = str(system)  # AOTInductor's libraries want a newer one than some Python distributions bring
    return env


def start_peer(options, peer, name, deadline):
    """(worker or None, its report)."""
    if time.monotonic() > deadline:
        return None, {"failed": "the time budget was used up before it could get ready"}
    command = [sys.executable, __file__, "--serve", f"{peer},{name}", "--device", options.device, "--work", str(options.work)] + ["--tf32"] * options.tf32
    worker = jobs.Worker(command, environment(peer))
    try:
        report = worker.answer(max(10, min(options.prepare_seconds, deadline - time.monotonic())))["done"]
        if "failed" not in report:
            worker.pause(True)
            return worker, report
    except TimeoutError as problem:
        report = {"failed": f"not ready: {problem}"}
    except EOFError:
        report = {"failed": f"the process ended: {worker.how_it_ended()}: {worker.tail()[-300:]}"}
    worker.stop()
    return None, report


def measure(options, name, ready):
    """One row: rounds of bursts, interleaved. ready: {peer: (worker or None, report)}."""
    workload = workloads()[name]
    row = {"model": name, "group": workload.group, "peers": {peer: dict(report) for peer, (_, report) in ready.items()}}
    alive = [(peer, worker) for peer, (worker, _) in ready.items() if worker]
    bursts = {peer: [] for peer, _ in alive}
    for i in range(options.rounds):
        for peer, worker in [alive[(i + k) % len(alive)] for k in range(len(alive))]:
            if peer not in bursts:
                continue
            try:
                worker.pause(False)
                worker.send({"burst": options.burst})
                bursts[peer].append(worker.answer(60)["done"])
                worker.pause(True)
            except (TimeoutError, EOFError, BrokenPipeError) as problem:
                row["peers"][peer]["failed"] = f"in a burst: {type(problem).__name__}: {worker.tail()[-300:]}"
                bursts.pop(peer)
                worker.pause(True) if worker.process.poll() is None else None
    for peer, values in bursts.items():
        for key in ("us", "single", "host"):
            numbers = [v[key] for v in values]
            row["peers"][peer] |= {key: round(statistics.median(numbers), 3), f"{key}_low": round(min(numbers), 3), f"{key}_high": round(max(numbers), 3)}
        row["peers"][peer]["calls"] = sum(v["calls"] for v in values)
        error = row["peers"][peer].get("error")
        if error is not None and not error <= workload.tolerance * (20 if options.tf32 else 1):
            row["peers"][peer]["wrong"] = f"relative error {error:.1e}"
    coil, floor = row["peers"].get("coil", {}), row["peers"].get("floor", {})
    others = {p: v["us"] for p, v in row["peers"].items() if not p.startswith("coil") and p != "floor" and "us" in v}
    if others and "us" in coil:
        best = min(others, key=others.get)
        row |= {"best_peer": best, "coil_by_best": round(coil["us"] / others[best], 3), "coil_by_best_single": round(coil["single"] / min(row["peers"][p]["single"] for p in others), 3)}
    if "us" in floor and "us" in coil:
        row |= {"floor": workload.floor[0], "floor_by_coil": round(floor["us"] / coil["us"], 3)}
    if "us" in coil:
        if workload.bytes:
            row["coil_gb_s"] = round(workload.bytes / coil["us"] / 1e3, 1)
        if workload.flops:
            row["coil_tflop_s"] = round(workload.flops / coil["us"] / 1e6, 1)
    return row


def quick(command, **more):
    """Seconds of a process; raises when it fails."""
    start = time.perf_counter()
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, **more)
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"{command[0].name if hasattr(command[0], 'name') else command[0]} {command[1]}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    return seconds, done.stdout


def startup(options, name):
    """Compile, load, first result, host time, each in fresh processes with nothing beside them."""
    import numpy as np

    source, package = source_of(options.work, name)
    if not source.exists():
        return {"model": name, "failed": "not exported (is the peer coil among --peers?)"}
    row, fresh, cuda = {"model": name}, options.work / "startup.coil.pt2", options.device.startswith("cuda")
    target = options.target if cuda else "cpu"
    try:
        runs = [quick([COIL, "compile", source, "--target", target, "-o", fresh, "--json"]) for _ in range(3)]
        summary = json.loads(runs[-1][1])
        row |= {"compile_s": spread([s for s, _ in runs]), "kernels": summary.get("kernels"), "stages": summary.get("stages"), "package_bytes": fresh.stat().st_size}
        arrays = options.work / "startup.npz"
        if not name.endswith("bf16"):
            shapes = {"multiply_10": [(10,), (10,)], "resnet18_b2": [(2, 3, 224, 224)]}[name]
            np.savez(arrays, **{f"in_{i}": np.ones(s, np.float32) for i, s in enumerate(shapes)})
            runs = [quick([COIL, "run", fresh, "--device", options.device, "--input", arrays, "--output", options.work / "startup_out.npz"])[0] for _ in range(5)]
            row["first_result_s"] = spread(runs)
        report = json.loads(quick([COIL, "bench", fresh, "--device", options.device, "--seconds", "0.5", "--json"])[1])
        row["bench"] = {k: report[k] for k in ("load_ms", "first_call_us", "call_us", "enqueue_us", "device_us", "latency_us", "memory") if k in report}
        launches = summary.get("kernels")
        if "enqueue_us" in report and isinstance(launches, int) and launches:
            row["host_us_per_launch"] = round(report["enqueue_us"]["median"] / launches, 3)
        if cuda:
            runs = [json.loads(quick([sys.executable, __file__, "--startup-child", fresh])[1]) for _ in range(3)]
            row |= {key: spread([r[key] for r in runs]) for key in runs[0]}
    except (RuntimeError, subprocess.TimeoutExpired, ValueError, KeyError) as problem:
        row["failed"] = f"{type(problem).__name__}: {str(problem)[:500]}"
    return row


def chosen(options):
    names = []
    for pattern in options.models.split(","):
        for name, workload in workloads().items():
            if name not in names and (fnmatch.fnmatch(name, pattern) or pattern == f"group:{workload.group}"):
                names.append(name)
    return names


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--startup-child", help=argparse.SUPPRESS)
    parser.add_argument("--models", default="group:models")
    parser.add_argument("--peers", type=lambda s: s.split(","), default=PEERS, help="of " + ",".join(ALL_PEERS))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--burst", type=float, default=0.12, help="seconds")
    parser.add_argument("--wave", type=int, default=8, help="models whose peers are ready at the same time")
    parser.add_argument("--parallel", type=int, default=max(1, (os.cpu_count() or 2) - 2), help="peers that get ready at the same time")
    parser.add_argument("--prepare-seconds", type=float, default=200)
    parser.add_argument("--budget", type=float, default=340, help="seconds")
    parser.add_argument("--no-startup", action="store_true")
    parser.add_argument("--tf32", action="store_true", help="float32 products and convolutions of all peers on tensor cores")
    parser.add_argument("--resume", action="store_true", help="keep the rows of an earlier run in which coil did not fail")
    parser.add_argument("--work", type=pathlib.Path, default=None)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT", "/tmp/coil-gpu")))
    return parser.parse_args()


def main():
    options = parse()
    if options.serve:
        return serve(options, *options.serve.split(","))
    if options.startup_child:
        return startup_child(options.startup_child)
    needs.gpu(options.device)
    start = time.monotonic()
    deadline = start + options.budget
    options.work = options.work or pathlib.Path(f"/tmp/coil-gpu-bench-{os.getpid()}")
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / "gpu_peers.json"
    names = chosen(options)
    peers = [p for p in options.peers if p != "floor"] + (["floor"] if any(workloads()[n].floor for n in names) else [])
    report = {"machine": machine.describe(), "device": options.device, "peers": peers, "rounds": options.rounds, "burst": options.burst, "rows": [], "startup": []}
    if options.device.startswith("cuda"):
        import torch

        options.target = "cuda:sm_%d%d" % torch.cuda.get_device_capability(options.device)
    if options.resume and target.exists():
        earlier = json.loads(target.read_text())
        report["rows"] = [row for row in earlier["rows"] if "us" in row["peers"].get("coil", {})]
    names = [n for n in names if n not in {row["model"] for row in report["rows"]}]

    def save():
        report["seconds"] = round(time.monotonic() - start, 1)
        target.write_text(json.dumps(report, indent=1))
        target.with_suffix(".md").write_text(markdown(report))

    reserve = 0 if options.no_startup else 25
    for first in range(0, len(names), options.wave):
        wave = names[first:first + options.wave]
        left = deadline - reserve - time.monotonic() - len(wave) * len(peers) * options.rounds * options.burst * 2.5
        ready_by = time.monotonic() + max(20, min(options.prepare_seconds, left))
        wanted = [(peer, name) for peer in sorted(peers, key=SLOW_TO_PREPARE.index) for name in wave if peer != "floor" or workloads()[name].floor]
        ready = {name: {} for name in wave}
        try:
            with concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
                for (peer, name), result in zip(wanted, pool.map(lambda pair: start_peer(options, *pair, ready_by), wanted)):
                    ready[name][peer] = result
            print(f"ready after {time.monotonic() - start:.0f} s: " + ", ".join(f"{n} {sum(w is not None for w, _ in r.values())}/{len(r)}" for n, r in ready.items()), flush=True)
            for name in wave:
                row = measure(options, name, {peer: ready[name][peer] for peer in peers if peer in ready[name]})
                report["rows"].append(row)
                save()
                print(markdown(report | {"rows": [row], "startup": []}).splitlines()[6], flush=True)
                for peer, p in row["peers"].items():
                    if "failed" in p or "wrong" in p:
                        print(f"    {peer}: {p.get('failed') or p['wrong']}"[:400], flush=True)
        finally:
            for peers_of in ready.values():
                for worker, _ in peers_of.values():
                    if worker:
                        worker.stop()
    for name in STARTUP if not options.no_startup else []:
        if time.monotonic() < deadline and source_of(options.work, name)[0].exists():
            report["startup"].append(startup(options, name))
            print(json.dumps(report["startup"][-1])[:600], flush=True)
            save()
    save()
    print(f"{len(report['rows'])} rows in {report['seconds']:.0f} s: {target}")
    return 0 if all("us" in row["peers"].get("coil", {"us": 0}) for row in report["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())
