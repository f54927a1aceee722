"""docs/models.md from the results of architectures.py."""

import platform

HEAD = """# Whole models

Random weights, small inputs, float32. Written by `tests/models/architectures.py`; transformers' models are tiny configurations, which say that the code is right, not that it is quick.

{machine}, {versions}, {date}. Other work ran on the machine at the same time, so that times are rough:
latencies of eager above all, whose threads wait for each other.
"""


def _machine():
    import os

    with open("/proc/cpuinfo") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def _versions():
    import importlib.metadata as metadata

    found = []
    for name in ("torch", "torchvision", "transformers", "timm", "diffusers"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            pass
    return ", ".join(found)


def _number(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def _infer(results):
    right = sum(r["status"] == "right" for r in results)
    lines = ["## Inference", "", "`torch.export`, `coil.compile` of the program in memory, one call compared with eager: the largest difference is at most 2e-4 of the largest result, "
             "or coil is as near to the model in double precision as eager is. Latencies: the least of the calls in half a second.", "",
             f"**{right} of {len(results)} right.**", "", "| model | family | parameters | result | error | compile s | eager ms | coil ms |", "|---|---|--:|---|--:|--:|--:|--:|"]
    for r in sorted(results, key=lambda r: r["name"]):
        error = f"{r['error']:.0e}" if "error" in r else ""
        lines.append(f"| {r['name']} | {r.get('family', '')} | {r.get('parameters', 0):,} | {r['status']} | {error} | {_number(r.get('compile_s'))} | {_number(r.get('eager_ms'))} | {_number(r.get('coil_ms'))} |")
    return lines


def _train(results):
    right = sum(r["status"] == "right" for r in results)
    lines = ["", "## Training", "", "20 steps of SGD with momentum and clipped gradients, once by eager, once with `torch.compile(backend=\"coil\")`: at each step the losses differ by at most 1e-3 of "
             "eager's, or coil's are at most twice as far from those of training in double precision as eager's are (a step magnifies the last one's rounding). Operators: of the graphs of forward and backward; those that run in PyTorch are random numbers (dropout).", "", f"**{right} of {len(results)} follow eager.**", "",
             "| model | result | first loss | last loss, eager | last loss, coil | distance | operators | in PyTorch | eager ms | coil ms |", "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for r in sorted(results, key=lambda r: r["name"]):
        numbers = [f"{r[k]:.5f}" if k in r else "" for k in ("first", "last", "coil_last")]
        lines.append(f"| {r['name']} | {r['status']} | {' | '.join(numbers)} | {r.get('distance', float('nan')):.0e} | {r.get('operators', '')} | {r.get('in_torch', '')} | "
                     f"{_number(r.get('eager_ms'), 1)} | {_number(r.get('coil_ms'), 1)} |")
    return lines


def text(results, date=None):
    """The whole file."""
    import time

    lines = [HEAD.format(machine=_machine(), versions=_versions(), date=date or time.strftime("%Y-%m-%d"))]
    for mode, write in (("infer", _infer), ("train", _train)):
        rows = [r for r in results if r["mode"] == mode and r["status"] != "skipped"]
        if rows:
            lines += write(rows)
    bad = [r for r in results if r["status"] not in ("right", "skipped")]
    if bad:
        lines += ["", "## What is not right", ""] + [f"- {r['name']} ({r['mode']}): {r['status']}: {r.get('reason', '').splitlines()[0] if r.get('reason') else ''}" for r in bad]
    return "\n".join(lines) + "\n"
