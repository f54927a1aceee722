"""One pair through coil: compile the case's program in a process of its own, run it here, compare with eager.

A result is right when torch.testing.assert_close says so (the OpInfo's tolerance where it has one), or when it is as near to the
result in double precision as eager's own is, three times its error allowed. Random operators: many calls of both are compared as
distributions. NaN equals NaN.
"""

import ctypes
import json
import re
import subprocess
import sys

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import samples

sys.path.insert(0, str(samples.pathlib.Path(__file__).resolve().parents[1] / "python"))
import capi
import harness

COMPILE_SECONDS = 60
DTYPES = {0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32, 7: torch.float64,
          8: torch.complex32, 9: torch.complex64, 10: torch.complex128, 11: torch.bool, 15: torch.bfloat16, 23: torch.float8_e5m2, 24: torch.float8_e4m3fn,
          27: torch.uint16, 28: torch.uint32, 29: torch.uint64}
NUMBERS = {v: k for k, v in DTYPES.items()}


class Verdict(Exception):
    """status: refused, wrong, crash or hang"""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status, self.reason = status, reason


def tidy(message):
    """An error without what differs between programs: the place and names of values."""
    lines = [line for line in message.strip().splitlines() if "COIL-E" in line] or message.strip().splitlines()[-1:] or [""]
    text = re.sub(r"^error: ", "", re.sub(r"\x1b\[[0-9;]*m", "", lines[0]))
    return re.sub(r"'[a-z_]+_\d+'", "'...'", text)[:200]


def problems(path):
    """All that coil check finds missing."""
    done = subprocess.run([harness.COIL, "check", path, "--json"], capture_output=True, text=True, timeout=COMPILE_SECONDS)
    try:
        rows = json.loads(done.stdout)["ops"]
    except (ValueError, KeyError):
        return []
    found = []
    for row in rows:
        if row["status"] == "missing":
            text = row.get("problem") or "no code"
            found.append(text if row["op"] in text else f"{row['op']}: {text}")
    return list(dict.fromkeys(tidy(text) for text in found))


def compile_program(program, package):
    """Compiles, or raises what it says."""
    package.unlink(missing_ok=True)
    try:
        done = subprocess.run([harness.COIL, "compile", program, "-o", package, "--target", "cpu:x86-64-v3", "--threads", "1", "-q"], capture_output=True,
                              text=True, errors="replace", timeout=COMPILE_SECONDS)
    except subprocess.TimeoutExpired:
        raise Verdict("hang", f"coil compile: more than {COMPILE_SECONDS} s") from None
    if done.returncode == 0:
        return
    if done.returncode < 0 or done.returncode == harness.EXIT_INTERNAL or "COIL-E" not in done.stderr:
        raise Verdict("crash", f"coil compile: exit code {done.returncode}: {tidy(done.stderr)}")
    raise Verdict("refused", " | ".join(problems(program) or [tidy(done.stderr)]))


class Model(capi.Model):
    """capi's with torch's tensors."""

    def call_tensors(self, tensors):
        inputs = (capi.Tensor * max(1, len(tensors)))()
        keep = []
        tensors = [t.resolve_conj().resolve_neg() for t in tensors]
        for i, t in enumerate(tensors):
            sizes, strides = (ctypes.c_int64 * max(1, t.dim()))(*t.shape), (ctypes.c_int64 * max(1, t.dim()))(*t.stride())
            keep.append((sizes, strides))
            inputs[i] = capi.Tensor(t.data_ptr(), sizes, strides, t.dim(), NUMBERS[t.dtype], 0, 0)
        outputs = (capi.Tensor * max(1, self.num_outputs))()
        self.call(inputs, outputs, len(tensors))
        return [self.tensor(outputs[i]) for i in range(self.num_outputs)]

    @staticmethod
    def tensor(given):
        dtype, sizes = DTYPES[given.dtype], tuple(given.sizes[: given.rank])
        if 0 in sizes:
            return torch.empty(sizes, dtype=dtype)
        strides = tuple(given.strides[: given.rank]) if given.strides else torch.empty(sizes, device="meta").stride()
        elements = 1 + sum((n - 1) * s for n, s in zip(sizes, strides))
        bytes_ = np.frombuffer((ctypes.c_char * (elements * dtype.itemsize)).from_address(given.data), np.uint8).copy()
        return torch.frombuffer(bytes_, dtype=dtype).as_strided(sizes, strides)


def close(actual, expected, wide, tolerance):
    """None, or how they differ."""
    if not isinstance(expected, torch.Tensor):
        expected = torch.tensor(expected, dtype=actual.dtype if isinstance(expected, (bool, int)) else torch.float64)
        actual = actual if actual.dtype == expected.dtype else actual.to(expected.dtype)
    if actual.dtype != expected.dtype:
        return f"dtype {samples.dtype_name(actual.dtype)} instead of {samples.dtype_name(expected.dtype)}"
    if actual.shape != expected.shape:
        return f"shape {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    rtol, atol = tolerance or (None, None)
    try:
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
        return None
    except AssertionError as error:
        message = " ".join(str(error).split())
    if not (expected.is_floating_point() or expected.is_complex()):
        return message[:160]
    if isinstance(wide, torch.Tensor) and wide.shape == expected.shape and near(actual, expected, wide):
        return None
    where = (actual - expected).abs().nan_to_num(float("inf")).flatten()
    i = int(where.argmax())
    return f"{actual.flatten()[i].item()} instead of {expected.flatten()[i].item()}; {message[:120]}"


def near(actual, expected, wide):
    """Whether each element is as near to the exact result as eager's: its own, or the least exact one relative to its magnitude.

    Where eager overflowed on its way to a finite result, a result within a hundredth is right as well.
    """
    a, e, w = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (actual, expected, wide))
    if expected.is_floating_point():  # beyond the type's range
        w = torch.where(w.abs() > torch.finfo(expected.dtype).max, w.sign() * float("inf"), w)
    if a.is_complex():
        a, e, w = (torch.view_as_real(t.resolve_conj()) for t in (a, e, w))
    finite, overflowed = e.isfinite() & w.isfinite(), ~e.isfinite() & w.isfinite()
    if not ((a - w)[overflowed].abs() <= 1e-2 * w[overflowed].abs()).all():
        return False
    a, e, w = (t[~overflowed] for t in (a, e, w))
    finite = finite[~overflowed]
    lost = ~e.isfinite() & w.isinf() & (a == w)  # eager's way to infinity went by NaN
    a, e, w, finite = a[~lost], e[~lost], w[~lost], finite[~lost]
    if not torch.equal(finite, e.isfinite()) or not samples.same(a[~finite], e[~finite]):
        return False
    error, own, size = (a - w)[finite].abs(), (e - w)[finite].abs(), w[finite].abs()
    return not error.numel() or bool((error <= 3 * torch.maximum(own, (own / size).nan_to_num(0, 1e300).max() * size)).all())


# Singular vectors are unique up to their signs: magnitudes are compared.
SIGNLESS = {"svd_lowrank", "pca_lowrank"}


def distribution(name, model, inputs, row, first):
    """None, or which statistic of a random result is distributed in another way than eager's."""
    from scipy.stats import ks_2samp

    count = len(row["values"])
    ours = [samples.summary(model.call_tensors(inputs)[first : first + count]) for _ in range(samples.CALLS)]
    for leaf in range(count):
        for statistic in [s for s in range(len(row["calls"][0][leaf])) if name not in SIGNLESS or s == 1]:
            a, b = [c[leaf][statistic] for c in ours], [c[leaf][statistic] for c in row["calls"]]
            if np.allclose([np.min(a), np.max(a)], [np.min(b), np.max(b)], rtol=1e-3, atol=1e-6):  # constant but for rounding
                continue
            if ks_2samp(a, b).pvalue < 1e-6:
                return f"output {leaf}: another distribution (mean, mean of magnitudes, first, last: number {statistic}): {np.mean(a):.4g} instead of {np.mean(b):.4g}"
    return None


# Of equal elements any may be named: what stands at the named positions is compared.
POSITIONS = {"topk", "kthvalue", "median", "nanmedian", "mode"}


def places(name, dtype, row, actual):
    """None, or what is wrong with (values, positions in the sample's input)."""
    sample = samples.chosen(samples.entries()[name], getattr(torch, dtype))[row["sample"]]
    values, positions = actual
    expected = row["values"][0]
    dims = [a for a in [*sample.args, sample.kwargs.get("dim")] if isinstance(a, int)]
    dim = sample.kwargs.get("dim", dims[1 if name in ("topk", "kthvalue") and len(dims) > 1 else 0] if len(dims) > (name in ("topk", "kthvalue")) else -1)
    x, keep = sample.input.cpu(), values.dim() == sample.input.dim()
    named = (x if x.dim() else x[None]).gather(dim if x.dim() else 0, positions if keep and x.dim() else positions.unsqueeze(dim if x.dim() else 0))
    named = named if keep and x.dim() else named.squeeze(dim if x.dim() else 0)
    if not samples.same(named, values):
        return "the positions are not those of the values"
    along = dim if values.dim() else 0
    if name == "topk":
        values, expected = values.sort(along).values, expected.sort(along).values
        if x.dim() and any(len(set(p.tolist())) != len(p) for p in positions.movedim(dim, -1).reshape(-1, positions.shape[dim])):
            return "a position twice"
    return None if samples.same(values, expected) else "other values"


def processed(name, dtype, row, actual):
    """(actual, expected) as the OpInfo compares results that are not unique, like signs of singular vectors; None if it has no such rule."""
    op = samples.entries()[name]
    sample = samples.chosen(op, getattr(torch, dtype))[row["sample"]]
    results = []
    for values in (actual, row["values"]):
        values = iter(values)
        result = sample.output_process_fn_grad(tree_unflatten([next(values) if there else None for there in row["leaves"]], row["form"]))
        results.append([v for v in tree_flatten(result)[0] if v is not None])
    return results


def check_sample(name, dtype, case, number, model, outputs, first):
    """None, or what is wrong with a sample's results, outputs[first:]."""
    row = case["rows"][number]
    actual = outputs[first : first + len(row["values"])]
    if row["kind"] != "exact":
        for a, e in zip(actual, row["values"]):
            if isinstance(e, torch.Tensor) and (a.dtype, a.shape) != (e.dtype, e.shape):
                return f"{a.dtype} {tuple(a.shape)} instead of {e.dtype} {tuple(e.shape)}"
        return distribution(name, model, case["inputs"], row, first) if row["kind"] == "random" else None
    actual = actual[: samples.MEANT.get(name)]
    wide = row["wide"] or [None] * len(actual)
    problem = next(filter(None, (close(a, e, w, case["tolerance"]) for a, e, w in zip(actual, row["values"], wide))), None)
    if problem and name in POSITIONS:
        return places(name, dtype, row, actual) and problem
    if problem and name.split(".")[0] in ("linalg", "svd", "qr", "geqrf", "pca_lowrank", "svd_lowrank"):
        try:
            actual, expected = processed(name, dtype, row, actual)
        except Exception:  # made for eager's own results
            return problem
        again = next(filter(None, (close(a, e, None, case["tolerance"]) for a, e in zip(actual, expected))), None)
        return again and problem
    return problem


def run_program(name, dtype, case, package, report):
    """{sample: what is wrong}"""
    report("opening the package")
    try:
        model = Model(harness.BUILD / "libcoil_runtime.so", package, threads=1)
    except capi.Error as error:
        raise Verdict("refused", "opening: " + tidy(str(error))) from None
    wanted = sum(len(row["values"]) for row in case["rows"])
    try:
        report("running")
        outputs = model.call_tensors([t.clone() if t.is_contiguous() else t for t in case["inputs"]])
        if len(outputs) != wanted:
            raise Verdict("wrong", f"{len(outputs)} results instead of {wanted}")
        report("comparing")
        wrong, first = {}, 0
        for number, row in enumerate(case["rows"]):
            problem = check_sample(name, dtype, case, number, model, outputs, first)
            if problem:
                wrong[row["sample"]] = problem
            first += len(row["values"])
        return wrong
    except capi.Error as error:
        raise Verdict("refused", "running: " + tidy(str(error))) from None
    finally:
        model.close()


def verdict(name, dtype, report=lambda phase: None):
    """{"status", "reason", "samples", ...} of a pair."""
    report("exporting")
    case, folder = samples.load_case(name, dtype)
    result = {"samples": len(case["rows"]), "kinds": sorted({row["kind"] for row in case["rows"]})}
    if case["export"]:
        result["not_exported"] = case["export"]
    if not case["rows"]:
        status = "export" if case["export"] else "eager"
        return {**result, "status": status, "reason": (case["export"] or case["eager"] or ["no usable sample"])[0]}
    package = folder / f"package.{samples.os.getpid()}.pt2"
    try:
        report("compiling")
        compile_program(folder / "program.pt2", package)
        wrong = run_program(name, dtype, case, package, report)
    except Verdict as v:
        return {**result, "status": v.status, "reason": v.reason}
    finally:
        package.unlink(missing_ok=True)
    if wrong:
        sample, reason = next(iter(wrong.items()))
        return {**result, "status": "wrong", "reason": f"sample {sample}: {reason}", "wrong": wrong}
    return {**result, "status": "right", "reason": ""}
