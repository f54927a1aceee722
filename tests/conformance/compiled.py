"""One pair through torch.compile(backend="coil", fullgraph=True): its samples as one function, called with eager's inputs, compared with eager.

Besides evaluate.py's words a verdict says how much of the graph coil computed: "operators" and "in_pytorch", the operators that it left to PyTorch
and why. What Dynamo or AOTAutograd cannot take whole is "export": no fault of coil's.
"""

import sys

import torch
from torch.utils._pytree import tree_flatten

import evaluate
import harness
import samples

sys.path.insert(0, str(harness.BUILD / "python"))
import coil


class Compiled:
    """Looks like evaluate's Model."""

    def __init__(self, calls, backend="coil"):
        self.sizes = [len(call.slots) for call in calls]

        def program(*tensors):
            results, at = [], 0
            for call in calls:
                results.append(call(tensors[at : at + len(call.slots)]))
                at += len(call.slots)
            return tuple(results)

        torch._dynamo.reset()
        self.function = torch.compile(program, backend=backend, fullgraph=True, dynamic=False)

    def call_tensors(self, tensors):
        fresh = [t.clone() if t.is_contiguous() and not t._is_view() else samples.same_layout(t) for t in tensors]
        samples.spoil_free_memory()
        with torch.no_grad():
            results = self.function(*fresh)
        return [v.detach().resolve_conj().resolve_neg().cpu() if isinstance(v, torch.Tensor) else torch.tensor(v) for v in tree_flatten(results)[0] if v is not None]


def said(error):
    text = f"{type(error).__name__}: {str(error).strip()}"
    lines = [line for line in text.splitlines() if "COIL-E" in line] or text.splitlines()[:1]
    return evaluate.re.sub(r"\x1b\[[0-9;]*m", "", lines[0])[:200]


def is_coil(error):
    while error is not None:
        if isinstance(error, coil.Error) or "COIL-E" in str(error):
            return True
        error = error.__cause__
    return False


def fails_without_coil(calls, inputs):
    """Whether PyTorch's own graph ends in an error as well (the wrong bound that it asserts for masked_select with broadcasting)."""
    try:
        Compiled(calls, "aot_eager").call_tensors(inputs)
    except Exception:
        return True
    return False


def tried(name, dtype, case, calls, rows, report):
    """The result of these samples in one graph."""
    coil.reset_compile_stats()
    inputs = [t for call in calls for t in call.tensors]
    report("tracing")
    model = Compiled(calls)
    try:
        outputs = model.call_tensors(inputs)
    except Exception as error:
        if not is_coil(error) and type(error).__module__.startswith("torch") or isinstance(error, (NotImplementedError, AttributeError)):
            return {"status": "export", "reason": said(error)}
        return {"status": "export" if fails_without_coil(calls, inputs) else "refused", "reason": said(error)}
    report("comparing")
    stats = coil.compile_stats()
    result = {"operators": stats.operators, "in_pytorch": stats.fallback_operators, "fallbacks": stats.fallbacks, "status": "right", "reason": ""}
    if len(outputs) != sum(len(row["values"]) for row in rows):
        return {**result, "status": "wrong", "reason": f"{len(outputs)} results"}
    again, first = {**case, "rows": rows, "inputs": inputs}, 0
    for number, row in enumerate(rows):
        problem = evaluate.check_sample(name, dtype, again, number, model, outputs, first)
        if problem:
            return {**result, "status": "wrong", "reason": f"sample {row['sample']}: {problem}"}
        first += len(row["values"])
    return result


def on_device(op, dtype, chosen):
    """A case of samples that eager runs on the device, with its results there, whether torch.export can take them or not."""
    rows, failures = [], []
    for number, sample in enumerate(chosen):
        try:
            rows.append({**samples.expectation(op, samples.Call(op, sample)), "sample": number})
        except Exception as error:
            failures.append(samples.short(error))
    return {"rows": rows, "eager": failures, "export": [], "tolerance": samples.tolerance(op, dtype)}


def verdict(name, dtype, report=lambda phase: None):
    """{"status", "reason", "operators", "in_pytorch", "fallbacks"} of a pair."""
    report("exporting")
    op = samples.entries()[name]
    with torch.no_grad():
        chosen = samples.chosen(op, getattr(torch, dtype))
        case = samples.load_case(name, dtype)[0] if samples.DEVICE == "cpu" else on_device(op, getattr(torch, dtype), chosen)
    rows = case["rows"]
    if not rows:
        return {"status": "export" if case["export"] else "eager", "reason": (case["export"] or case["eager"] or ["no usable sample"])[0]}
    # Some entries choose other samples in each process: eager's results are those of this one.
    calls = [samples.Call(op, chosen[row["sample"]]) for row in rows]
    if samples.DEVICE == "cpu":
        with torch.no_grad():
            rows = [{**samples.expectation(op, call), "sample": row["sample"]} for call, row in zip(calls, rows)]
    whole = tried(name, dtype, case, calls, rows, report)
    return narrowed(whole, [lambda c=c, r=r: tried(name, dtype, case, [c], [r], report) for c, r in zip(calls, rows)])


def narrowed(whole, singles):
    """The verdict of all samples in one graph, or, where that was not possible, of each alone."""
    if whole["status"] in ("right", "wrong") or len(singles) == 1:
        return whole
    each = [single() for single in singles]
    usable = [r for r in each if r["status"] != "export"]
    if not usable:
        return whole
    bad = [r for r in usable if r["status"] != "right"]
    total = {key: sum(r.get(key, 0) for r in usable) for key in ("operators", "in_pytorch")}
    fallbacks = {reason: count for r in usable for reason, count in r.get("fallbacks", {}).items()}
    return {**(bad[0] if bad else usable[0]), **total, "fallbacks": fallbacks}
