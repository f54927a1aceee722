"""docs/models.md from the results of architectures.py."""

import platform
import textwrap

QUIET = 0.1  # cores that other processes may use while a published time is taken
HEAD = """# Whole models

Random weights, small inputs, float32. The models of transformers are tiny configurations: they show that the code is
right, not that it is fast. [performance.md](performance.md) has the measurements of speed.

{origin}
{times}
"""

# What `tests/hunt/zoo_sweep.py transformers --door gradients` has judged, by the model types of transformers; 2026-11-29.
SWEPT = """
aimv2 albert cpmant dac deepseek_v4 encodec focalnet funnel groupvit hiera hrm_text jamba led longt5 minimax mra
olmo_hybrid owlv2 patchtsmixer patchtst prophetnet qwen3_next seamless_m4t_v2 speech_to_text swiftformer swin tapas
vit_mae vjepa2 xclip xlm xlnet xlstm xmod yoso
""".split()


def _swept():
    return ["", "## A sweep beside these", "", wrapped(
        f"`python tests/hunt/zoo_sweep.py transformers` shrinks the configuration of any model type by the names of its attributes and compares it with eager. By the "
        f"results and all gradients of `torch.compile`, float32, these {len(SWEPT)} are right (the "
        f"noise of vit_mae is PyTorch's): " + ", ".join(SWEPT) + ".")]


def wrapped(text):
    """A paragraph or an item of a list in lines of at most 120 characters, as all documents have them."""
    return textwrap.fill(text, 120, subsequent_indent="  " if text.startswith("- ") else "", break_on_hyphens=False)


def quiet(result):
    """Whether a result's times may be published: it is known that nearly nothing else ran while they were taken."""
    return result.get("others") is not None and result["others"] <= QUIET


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


def _table(titles, rows, times, results):
    """Lines of a table. `times` are its last columns, {title: (field, digits)}: empty where the machine was busy, absent where it always was."""
    shown = times if any(quiet(r) for r in results) else {}
    titles = [*titles, *shown]
    lines = ["| " + " | ".join(titles) + " |", "|---|" + "".join("---|" if t in ("family", "result") else "--:|" for t in titles[1:])]
    for row, r in zip(rows, results):
        cells = [_number(r.get(field), digits) if quiet(r) else "" for field, digits in shown.values()]
        lines.append("| " + " | ".join([*row, *cells]) + " |")
    return lines


def _infer(results):
    results = sorted(results, key=lambda r: r["name"])
    right = sum(r["status"] == "right" for r in results)
    method = ("`torch.export`, then `coil.compile` of the program in memory, then one call compared with eager. Right means: the largest difference is at most 2e-4 of the largest "
              "result, or coil is as near to the model in double precision as eager is.")
    rows = [[r["name"], r.get("family", ""), f"{r.get('parameters', 0):,}", r["status"], f"{r['error']:.0e}" if "error" in r else ""] for r in results]
    times = {"compile s": ("compile_s", 2), "eager ms": ("eager_ms", 2), "coil ms": ("coil_ms", 2)}
    return ["## Inference", "", wrapped(method), "", f"**{right} of {len(results)} right.**", "", *_table(["model", "family", "parameters", "result", "error"], rows, times, results)]


def _train(results):
    results = sorted(results, key=lambda r: r["name"])
    right = sum(r["status"] == "right" for r in results)
    method = ("20 steps of SGD with momentum and clipped gradients, once by eager, once with `torch.compile(backend=\"coil\")`. Right means: at each step the losses differ by at most "
              "1e-3 of eager's, or coil's are at most twice as far from those of training in double precision as eager's are (a step magnifies the last one's rounding). Operators are "
              "those of the graphs of forward and backward; those that run in PyTorch are random numbers (dropout).")
    rows = []
    for r in results:
        losses = [f"{r[k]:.5f}" if k in r else "" for k in ("first", "last", "coil_last")]
        rows.append([r["name"], r["status"], *losses, f"{r.get('distance', float('nan')):.0e}", str(r.get("operators", "")), str(r.get("in_torch", ""))])
    titles = ["model", "result", "first loss", "last, eager", "last, coil", "distance", "operators", "in PyTorch"]
    times = {"eager ms": ("eager_ms", 1), "coil ms": ("coil_ms", 1)}
    return ["", "## Training", "", wrapped(method), "", f"**{right} of {len(results)} follow eager.**", "", *_table(titles, rows, times, results)]


def text(results, date=None, machine=None, versions=None):
    """The whole file."""
    import time

    origin = (f"This page is written by `tests/models/architectures.py --report docs/models.md`: {machine or _machine()}; {versions or _versions()}; "
              f"{date or time.strftime('%Y-%m-%d')}.")
    if any(quiet(r) for r in results):
        times = f"Times are the least of a call in half a second; they are shown where other processes used at most {QUIET} cores at the time."
    else:
        times = "Times are left out: other work ran on the machine, so they would say nothing."
    lines = [HEAD.format(origin=wrapped(origin), times=wrapped(times))]
    for mode, write in (("infer", _infer), ("train", _train)):
        rows = [r for r in results if r["mode"] == mode and r["status"] != "skipped"]
        if rows:
            lines += write(rows)
    lines += _swept()
    bad = [r for r in results if r["status"] not in ("right", "skipped")]
    if bad:
        first = lambda r: r["reason"].splitlines()[0] if r.get("reason") else ""
        lines += ["", "## What is not right", ""] + [wrapped(f"- {r['name']} ({r['mode']}): {r['status']}: {first(r)}") for r in bad]
    return "\n".join(lines) + "\n"
