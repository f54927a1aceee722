"""A process that tries programs: reads a JSON line {"seed": N} or {"program": ...}, writes a JSON line {"program", "status", "reason", "shapes"}.

status: right; wrong; refused (an error of coil's that says so); crash (a bug that coil noticed); export (PyTorch cannot); trivial (no steps).
"""

import json
import os
import pathlib
import sys

channel = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(pathlib.Path(os.environ.get("COIL_BUILD", HERE.parents[1] / "build")) / "python")]
torch.set_num_threads(1)

import coil
import programs

SHAKEN = 8  # times, where a result is not eager's
UNSURE = 0.1
# Of the largest magnitude of a result; eager's own error, eight times, comes on top.
RELATIVE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def difference(ours, eager, wide, relative):
    """None, or how a result differs, `relative` to the largest magnitude."""
    if ours.dtype != eager.dtype or ours.shape != eager.shape:
        return f"{ours.dtype} {tuple(ours.shape)} instead of {eager.dtype} {tuple(eager.shape)}"
    if programs.is_exact(eager, wide):
        same = torch.equal(ours, eager) if not eager.is_floating_point() else torch.equal(ours.nan_to_num(9e9), eager.nan_to_num(9e9))
        # An exact result may come out of inexact steps in another order: the tolerance below decides for floats.
        if same or not eager.is_floating_point():
            return None if same else values_of(ours, eager, ours != eager)
    o, e, w = ours.double(), eager.double(), wide.double()
    sure = e.isfinite() & w.isfinite()
    special = (e.isnan() & w.isnan()) | (e.isinf() & w.isinf() & (e == w))
    bad = special & ~((o == e) | (o.isnan() & e.isnan()))
    if bad.any():
        return values_of(ours, eager, bad)
    if sure.any():
        size = w[sure].abs().max()
        allowed = max(relative, RELATIVE[eager.dtype]) * size + 8 * (e - w)[sure].abs().max() + torch.finfo(eager.dtype).tiny
        bad = sure & ~((o - w).abs() <= allowed)
        if bad.any():
            return values_of(ours, eager, bad)
    return None


def values_of(ours, eager, bad):
    i = int(bad.flatten().nonzero()[0])
    return f"{int(bad.sum())} of {bad.numel()} elements; element {i}: {ours.flatten()[i].item()} instead of {eager.flatten()[i].item()}"


def is_chance(model, program, inputs, eager, wide):
    """Whether results differ only where values that lie as near to the true ones as rounding allows give others, too."""
    results = model(*[t.clone() if t.is_contiguous() else t for t in inputs])
    results = results if isinstance(results, tuple) else (results,)
    others = [programs.shaken(program, inputs, eager, seed) for seed in range(SHAKEN)]
    for ours, i in zip(results, program["outputs"], strict=True):
        if ours.dtype != eager[i].dtype or ours.shape != eager[i].shape:
            return False
        relative = max([RELATIVE[v.dtype] for v in eager[: i + 1] if v.dtype in RELATIVE], default=0.0)
        if not difference(ours, eager[i], wide[i], relative):
            continue
        w = wide[i].double()
        size = w[w.isfinite()].abs().max() if w.isfinite().any() else 0.0
        allowed = max(relative, RELATIVE.get(eager[i].dtype, 0.0)) * size
        o, e = ours.double(), eager[i].double()
        near = ((o - w).abs() <= allowed) | (o == e) | (o.isnan() & e.isnan())
        for other in others:
            v = other[i].double()
            off = (v - w).abs()
            near |= (v.isfinite() & w.isfinite() & ((o - w).abs() <= 8 * off)) | (v.isnan() != w.isnan()) | (v.isinf() != w.isinf())
            near |= off > UNSURE * torch.maximum(v.abs(), w.abs())  # no digit is sure
        if not near.all():
            return False
    return True


def exported(program, inputs):
    module = programs.Module(program)
    dynamic = [{d: torch.export.Dim.DYNAMIC for d in x["dynamic"]} for x in program["inputs"]]
    with torch.no_grad():
        if any(dynamic):
            try:
                return torch.export.export(module, tuple(inputs), dynamic_shapes=(tuple(dynamic),))
            except Exception:  # sizes that are not free after all
                pass
        return torch.export.export(module, tuple(inputs))


def compared(model, program, inputs, eager, wide):
    """None, or what is wrong."""
    results = model(*[t.clone() if t.is_contiguous() else t for t in inputs])
    results = results if isinstance(results, tuple) else (results,)
    for number, (ours, i) in enumerate(zip(results, program["outputs"], strict=True)):
        # What was rounded in a less precise type on the way stays so.
        relative = max([RELATIVE[v.dtype] for v in eager[: i + 1] if v.dtype in RELATIVE], default=0.0)
        problem = difference(ours, eager[i], wide[i], relative)
        if problem:
            return f"output {number}: {problem}"
    return None


def values_of_program(program):
    """Inputs, all values, all values in double precision."""
    inputs = [programs.make_input(x) for x in program["inputs"]]
    return inputs, programs.run(program, inputs), programs.run(program, programs.widened(inputs), wide=True)


def other_sizes(model, program):
    """None, or what is wrong with other dynamic sizes, where PyTorch and the exported program take them."""
    try:
        inputs, eager, wide = values_of_program(program)
    except Exception:
        return None
    if not programs.are_sure(program, eager, wide):
        return None
    try:
        problem = compared(model, program, inputs, eager, wide)
        if problem and (programs.transforms_infinities(program, eager) or is_chance(model, program, inputs, eager, wide)):
            return None
        return problem and "other sizes: " + problem
    except coil.Error as error:
        if "COIL-E9" in str(error):
            raise
        return None


def judged(program, decompose):
    if not program["steps"]:
        return "trivial", "", []
    if programs.tells_zeros(program):
        return "trivial", "rounding decides what is false", []
    inputs, eager, wide = values_of_program(program)
    shapes = [(list(v.shape), str(v.dtype).removeprefix("torch.")) for v in eager]
    try:
        exported_program = exported(program, inputs)
        if decompose:
            exported_program = exported_program.run_decompositions()
    except Exception as error:
        return "export", f"{type(error).__name__}: {error}".splitlines()[0][:200], shapes
    try:
        by_pytorch = exported_program.module()
        model = coil.compile(exported_program, options={"opt_level": 1})
        problem = compared(model, program, inputs, eager, wide)
        if problem and compared(by_pytorch, program, inputs, eager, wide):
            return "export", "PyTorch's own exported program gives other results", shapes
        if problem and programs.transforms_infinities(program, eager):
            return "trivial", "a Fourier transform of infinities", shapes
        if problem and is_chance(model, program, inputs, eager, wide):
            return "trivial", "rounding decides", shapes
        if problem and not compared(model, program, inputs, programs.run(program, inputs, dense=True), programs.run(program, programs.widened(inputs), True, True)):
            return "trivial", "eager's result depends on where its arguments lie in memory", shapes
        if not problem and (other := programs.resized(program)):
            problem = other_sizes(model, other)
    except coil.Error as error:
        text = str(error).splitlines()[0][:200]
        return ("crash" if "COIL-E9" in text or "COIL-E5" in text else "refused"), text, shapes
    return ("wrong" if problem else "right"), problem or "", shapes


def main():
    for line in sys.stdin:
        asked = json.loads(line)
        program = asked.get("program") or programs.generate(asked["seed"])
        print(json.dumps({"program": program}), file=channel)  # so that it is known should the process end
        try:
            status, reason, shapes = judged(program, asked.get("decompose", False))
        except Exception as error:  # a shrunk program that PyTorch does not take
            status, reason, shapes = "export", f"{type(error).__name__}: {error}"[:200], []
        print(json.dumps({"program": program, "status": status, "reason": reason, "shapes": shapes}), file=channel)


main()
