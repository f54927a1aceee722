#!/usr/bin/env python3
"""What the tuner costs and brings on a GPU: programs compiled untuned and tuned, called in turns with PyTorch's own kernels.

    python3 bench/gpu_tuning.py [--programs linear,mlp,resnet18] [--tune max] [--budget 30s] [--peers] [--rounds 7] [--burst 0.05] [--out FOLDER]

linear   Linear 3420 -> 1280 in bf16, one package for rows 1..4096 (neighbouring rows are not 16 bytes apart modulo 16), beside F.linear, F.linear
         padded to 3424 columns, and the same with the padding of the activations counted
mlp      256 x 1024 x 1024 x 1024 in float32; resnet18: batch 2 in float32. --peers: beside torch.compile(mode="max-autotune")
NAME     a workload of gpu_workloads.py, or a shell pattern of such
A cell is the median over rounds of CUDA events around a burst of calls, with the least and the greatest. TF32 is off without --tf32. Nothing comes from a cache.
FOLDER ($OUT or /tmp/coil-gpu) gets gpu_tuning.json.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/gpu"))
os.environ["COIL_CACHE"] = "off"

import coil_torch  # noqa: E402
import gpu_workloads  # noqa: E402
import machine  # noqa: E402
import needs  # noqa: E402
from gpu_peers import Clock  # noqa: E402
from gpu_peers_parts import leaves  # noqa: E402
from paths import COIL, RUNTIME  # noqa: E402


def compiled(source, target, package, *more):
    start = time.perf_counter()
    done = subprocess.run([COIL, "compile", source, "--target", target, "-o", package, *more], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"coil compile: {done.stderr[-2000:]}")
    print(done.stdout[-1500:], flush=True)
    return time.perf_counter() - start


def caller(package, tensors):
    """(function that enqueues a call, its results of now)"""
    model = coil_torch.Model(coil_torch.library(RUNTIME), package, "cuda:0")
    bound = model.bind(tensors)
    model.call(bound)
    model.synchronize()
    results = [t.clone() for t in model.results(bound)]
    run, stream = model.lib.coil_run_on, model.stream()

    def call():
        for i in range(bound.num_outputs):
            bound.outputs[i].data = None
        if run(model.context, stream, bound.inputs, bound.count, bound.outputs, bound.num_outputs):
            raise RuntimeError(model.lib.coil_last_error().decode())

    return call, results


def in_turns(torch, calls, options):
    clock = Clock(torch, True)
    about = {}
    for name, call in calls.items():
        for _ in range(8):
            call()
        clock.sync()
        about[name] = min(clock.around(call, 5) for _ in range(3))
    times = {name: [] for name in calls}
    names = list(calls)
    order = random.Random(0)
    for _ in range(options.rounds):
        order.shuffle(names)  # not round and round: what comes after a peer that keeps the chip busy is slower (power)
        for name in names:
            clock.around(calls[name], 3)
            times[name].append(clock.around(calls[name], max(5, min(5000, int(options.burst / about[name])))) * 1e6)
    return {name: [statistics.median(t), min(t), max(t)] for name, t in times.items()}


def error_of(got, want):
    return max(float((g.double() - w.double()).abs().max() / w.double().abs().max().clamp(min=1e-30)) for g, w in zip(got, want))


def tuned(torch, module, args, shapes, name, options, warm=None):
    """Untuned and tuned packages, and what tuning said."""
    source = options.work / f"{name}.pt2"
    torch.export.save(torch.export.export(module, args, dynamic_shapes=shapes), source)
    target = "cuda:sm_%d%d" % torch.cuda.get_device_capability()
    packages = {m: options.work / f"{name}.{m}.pt2" for m in ("untuned", "tuned")}
    record = options.out / f"{name}.tuning.json"
    record.unlink(missing_ok=True)
    tf32 = ["--tf32"] if options.tf32 else []
    row = {"compile_untuned_s": compiled(source, target, packages["untuned"], *tf32)}
    more = tf32 + (["--tune-budget", options.budget] if options.budget else [])
    if warm:
        dims = json.loads(subprocess.run([COIL, "inspect", packages["untuned"], "--json"], capture_output=True, text=True).stdout)["symbols"]
        more += ["--warm", f"{dims[0]['name']}={warm}"]
    row["compile_tuned_s"] = compiled(source, target, packages["tuned"], "--tune", options.tune, "--record", record, *more, "--tune-log", options.out / f"{name}.log")
    tuning = json.loads(record.read_text())
    row |= {k: tuning[k] for k in ("hardware", "seconds", "runs", "whole_program")}
    row["problems"] = [{"problem": p["problem"], "rows": [(r["up_to"], r["text"]) for r in p["rows"]]} for p in tuning["problems"]]
    replayed = options.work / f"{name}.replayed.pt2"
    compiled(source, target, replayed, "--replay", record, *tf32)
    row["replay_same_bytes"] = replayed.read_bytes() == packages["tuned"].read_bytes()
    return packages, row


def linear(torch, options):
    module = torch.nn.Linear(3420, 1280, dtype=torch.bfloat16, device="cuda")
    rows = torch.export.Dim("rows", min=1, max=4096)
    packages, row = tuned(torch, module, (torch.randn(560, 3420, dtype=torch.bfloat16, device="cuda"),), ({0: rows},), "linear", options, "560,1024,2048")
    weight = torch.nn.functional.pad(module.weight, (0, 4)).contiguous()
    row["sizes"] = {}
    for m in options.rows:
        x = torch.randn(m, 3420, dtype=torch.bfloat16, device="cuda")
        padded, want = torch.nn.functional.pad(x, (0, 4)), [module(x)]
        F = torch.nn.functional
        calls = {"cublas": lambda: F.linear(x, module.weight, module.bias), "cublas padded": lambda: F.linear(padded, weight, module.bias),
                 "pad + cublas": lambda: F.linear(F.pad(x, (0, 4)), weight, module.bias)}
        errors = {}
        for mode, package in packages.items():
            calls[mode], got = caller(package, [x])
            errors[mode] = error_of(got, want)
        row["sizes"][m] = {"us": in_turns(torch, calls, options), "error": errors}
        print(m, json.dumps(row["sizes"][m]), flush=True)
    return row


def whole(torch, name, module, args, options):
    packages, row = tuned(torch, module, args, None, name, options)
    want = leaves(module(*args))
    calls, row["error"] = {"eager": lambda: module(*args)}, {}
    if options.peers:
        start = time.perf_counter()
        best = torch.compile(module, mode="max-autotune")
        best(*args), best(*args)
        row["max_autotune_s"] = time.perf_counter() - start
        calls["max-autotune"] = lambda: best(*args)
    for mode, package in packages.items():
        calls[mode], got = caller(package, list(args))
        row["error"][mode] = error_of(got, want)
    row["us"] = in_turns(torch, calls, options)
    print(name, json.dumps({k: row[k] for k in ("us", "error")}), flush=True)
    return row


def programs(torch, options):
    nn = torch.nn

    def mlp():
        module = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
        return whole(torch, "mlp", module, (torch.randn(256, 1024, device="cuda"),), options)

    def resnet18():
        import torchvision

        return whole(torch, "resnet18", torchvision.models.resnet18().eval().cuda(), (torch.randn(2, 3, 224, 224, device="cuda"),), options)

    own = {"linear": lambda: linear(torch, options), "mlp": mlp, "resnet18": resnet18}
    shared = {name: lambda name=name: whole(torch, name, *gpu_workloads.build(name, "cuda"), options) for name in gpu_workloads.workloads()}
    table = own | shared
    return {name: table[name] for pattern in options.programs for name in table if fnmatch.fnmatch(name, pattern)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=lambda s: s.split(","), default=["linear", "mlp", "resnet18"])
    parser.add_argument("--rows", type=lambda s: [int(v) for v in s.split(",")], default=[1, 16, 64, 128, 300, 560, 1024, 2048, 3000, 4096])
    parser.add_argument("--tune", default="max")
    parser.add_argument("--budget", default="")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--tf32", action="store_true", help="float32 products and convolutions on tensor cores, PyTorch's too")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--burst", type=float, default=0.05, help="seconds")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT", "/tmp/coil-gpu")))
    options = parser.parse_args()
    needs.gpu()
    options.out.mkdir(parents=True, exist_ok=True)
    options.work = pathlib.Path("/tmp/coil-gpu-tuning")
    options.work.mkdir(exist_ok=True)
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.tf32
    torch.manual_seed(0)
    report = {"machine": machine.describe(), "tune": options.tune, "budget": options.budget, "programs": {}}
    with torch.no_grad():
        for name, program in programs(torch, options).items():
            report["programs"][name] = program()
            (options.out / "gpu_tuning.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
