#!/usr/bin/env python3
"""The same models in float32, bfloat16 and float16, and linear layers with int8 and int4 weights and bfloat16 activations.

Each in coil and in eager PyTorch of the same dtype, in turns in one process; with one thread times are its processor time. Every result is compared
with eager's before it is timed: the error is relative to the largest output, beside the error that eager of the dtype has against eager in float32.
Exported programs are kept in --exported, packages in --packages; --before names a folder of packages that an older coil made, to be timed in the same turns.

    ~/.cache/coil/venv/bin/python bench/low_precision.py --build /tmp/build --threads 1 --json low_precision.json
"""
import argparse
import copy
import json
import os
import pathlib
import statistics
import sys
import time

REPO = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPO / "tests/models"), str(REPO / "bench")]

MODELS = ("mlp_3x1024_r256", "resnet18_b1", "resnet50_b1", "mobilenet_v3_b1", "convnext_tiny_b1", "vit_b_16_b1", "minilm_b1_s128", "minilm_b32_s32", "gpt2_b1_s128",
          "gpt2_decode_c512", "whisper_tiny_encoder", "llama_2_layers_b1_s128")
DTYPES = {"float32": "float32", "bf16": "bfloat16", "f16": "float16"}
ROWS = (1, 16, 64, 256)
WIDTH = 2048


def linears(width):
    import torch

    torch.manual_seed(0)
    layer = lambda: torch.nn.Linear(width, width)
    return torch.nn.Sequential(layer(), torch.nn.ReLU(), layer(), torch.nn.ReLU(), layer()).eval()


def cast(module, args, dtype):
    """Of its own, as the last thing before it is exported: a model of billions of numbers is there twice at most."""
    import torch

    to = getattr(torch, DTYPES[dtype])
    return copy.deepcopy(module).to(to).eval(), tuple(a.to(to) if torch.is_tensor(a) and a.is_floating_point() else a for a in args)


def models(names):
    """(row, {variant: maker of (module, args)}) for each; the first variant is the base of the ratios."""
    import workloads

    for name in names:
        module, args = (linears(1024), (seeded_rows(256, 1024),)) if name == "mlp_3x1024_r256" else workloads.build(name)
        yield name, {dtype: (lambda d: lambda: cast(module, args, d))(dtype) for dtype in DTYPES}


def seeded_rows(rows, width):
    import torch

    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rows))


def weight_only(rows_list):
    import torch
    from quantised_models import torchao

    int8 = lambda q: q.Int8WeightOnlyConfig()
    int4 = lambda q: q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=q.PerGroup(32))
    for rows in rows_list:
        x, net = seeded_rows(rows, WIDTH), linears(WIDTH)
        made = {dtype: (lambda d: lambda: cast(net, (x,), d))(dtype) for dtype in ("float32", "bf16")}
        for name, config in (("int8 weights", int8), ("int4 weights", int4)):
            for dtype in ("bf16", "float32"):
                made[f"{name}, {dtype}"] = (lambda c, d: lambda: (torchao(cast(net, (x,), d)[0], c), cast(net, (x,), d)[1]))(config, dtype)
        yield f"linears_3x{WIDTH}_r{rows}", made


def exported(folder, row, variant, make, core):
    """The exported program's file, and the module with its arguments."""
    import torch

    module, args = make()
    file = folder / f"{row}{'.core' if core else ''}.{variant.replace(', ', '_').replace(' ', '_')}.pt2"
    if not file.exists():
        program = torch.export.export(module, args)
        torch.export.save(program.run_decompositions() if core else program, file)
    return file, module, args


def leaves(outputs):
    return [o.float() for o in (outputs if isinstance(outputs, (tuple, list)) else [outputs])]


def distance(got, want):
    """The largest over all outputs of the largest error, relative to the largest number."""
    return max(((g - w).abs().max() / w.abs().max().clamp(min=1e-30)).item() for g, w in zip(leaves(got), leaves(want)))


def burst(call, seconds, clock, fewest):
    times, end = [], clock() + seconds
    while clock() < end or len(times) < fewest:
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times)


def measure(row, variants, options):
    import coil

    calls, errors, reference = {}, {}, None
    for variant, make in variants.items():
        file, module, args = exported(options.exported, row, variant, make, options.core or "weights" in "".join(variants))
        want = module(*args)
        reference = want if reference is None else reference
        package = options.packages / file.name.replace(".pt2", ".coil.pt2")
        model = coil.load(package) if options.reuse and package.exists() else coil.compile(file, package)
        errors[variant] = (distance(model(*args), want), distance(want, reference))
        assert errors[variant][0] < (1e-3 if variant == "float32" else 6e-2), (row, variant, errors[variant])
        calls[variant] = (lambda m, a: lambda: m(*a))(model, args)
        if options.before and (old := options.before / package.name).exists():
            calls[variant + ": before"] = (lambda m, a: lambda: m(*a))(coil.load(old), args)
        if not options.no_eager:
            calls[variant + ": eager"] = (lambda m, a: lambda: m(*a))(module, args)
    times, clock = {name: [] for name in calls}, time.thread_time if options.threads == 1 else time.perf_counter
    for turn in range(options.rounds):
        for name, call in calls.items():
            eager = name.endswith("eager")  # (float16 takes it seconds)
            if not eager or turn < 3:
                times[name].append(burst(call, options.burst, clock, 1 if eager else 3))
    return {"row": row, "errors": errors, "times": times}


def line(result):
    middle = {name: statistics.median(t) for name, t in result["times"].items()}
    text = []
    for variant, (error, eager_error) in result["errors"].items():
        times, eager, before = result["times"][variant], middle.get(variant + ": eager"), middle.get(variant + ": before")
        spread = f"{middle[variant] * 1e3:.3f} ms ({min(times) * 1e3:.3f}-{max(times) * 1e3:.3f})"
        old = f" {before * 1e3:.3f} ms ->" if before else ""
        peer = f"{eager * 1e3:.3f} ms" if eager else ""
        text.append(f"| {result['row']} | {variant} |{old} {spread} | {middle['float32'] / middle[variant]:.2f} | {peer} | {error:.1e} ({eager_error:.1e}) |")
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--rows", type=int, nargs="*", default=list(ROWS), help="of the layers with quantised weights")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--burst", type=float, default=0.2)
    parser.add_argument("--exported", type=pathlib.Path, default=pathlib.Path("~/.cache/coil/bench/low_precision").expanduser())
    parser.add_argument("--packages", type=pathlib.Path, default=pathlib.Path("/tmp/low_precision_packages"))
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--reuse", action="store_true", help="packages that are there are not compiled again")
    parser.add_argument("--core", action="store_true", help="models after run_decompositions(), as those with quantised weights are in any case")
    parser.add_argument("--no-eager", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    os.environ["COIL_THREADS"] = str(options.threads)
    sys.path.insert(0, str(pathlib.Path(options.build) / "python"))
    options.exported.mkdir(parents=True, exist_ok=True)
    options.packages.mkdir(parents=True, exist_ok=True)
    import machine
    import needs
    import torch

    needs.modules("torchao", "torchvision", "transformers")
    torch.set_num_threads(options.threads)
    report = {"machine": machine.describe(), "threads": options.threads, "command": sys.argv, "rows": []}
    print("| model | in | coil, median (least-most) | float32 / it | eager | error to eager (eager's to float32) |\n|---|---|---|---|---|---|", flush=True)
    with torch.no_grad():
        for rows in (models(options.models), weight_only(options.rows)):
            for row, variants in rows:
                report["rows"].append(measure(row, variants, options))
                print(line(report["rows"][-1]), flush=True)
                if options.json:
                    options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
