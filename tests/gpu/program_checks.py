"""What models.py does with one program, in a worker process: eager, export, compile, the C API, stock PyTorch."""

import copy
import json
import pathlib
import subprocess
import time
import traceback

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

import api_checks
import coil_torch
import programs
import zoo
from comparing import Failed, compare, difference, off_by_one, same_bits, tensor_outputs, to
from paths import COIL, RUNTIME


def exact_arithmetic():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False


class Bench:
    """What the checks of a worker share."""

    def __init__(self, options):
        self.options = options
        self.device, self.cuda = options.device, options.device.startswith("cuda")
        self.work = pathlib.Path(options.work)
        self.lib = coil_torch.library(RUNTIME)
        self.target = "cpu"
        exact_arithmetic()
        torch.set_num_threads(2)
        if options.target:
            self.target = options.target
        elif self.cuda:
            torch.cuda.set_device(options.device)
            self.target = "cuda:sm_%d%d" % torch.cuda.get_device_capability()

    def path(self, name, ending):
        return self.work / (name.replace("/", "_").replace("@", "_") + ending)

    def open(self, package, device=None):
        return coil_torch.Model(self.lib, package, device or self.device, threads=2)

    def sync(self):
        if self.cuda:
            torch.cuda.synchronize()

    def compile(self, program, package, *arguments, target=None, threads=2, limit=160):
        """The summary that coil prints."""
        command = [COIL, "compile", program, "--target", target or self.target, "-o", package, "--threads", threads, "--json", *self.options.coil_args, *arguments]
        try:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, errors="replace", timeout=limit)
        except subprocess.TimeoutExpired:
            raise Failed("timeout", f"coil compile took more than {limit} s") from None
        if done.returncode == 0:
            return json.loads(done.stdout)
        if done.returncode < 0 or done.returncode == 70:
            raise Failed("compiler crash", f"exit code {done.returncode}\n{done.stdout[-300:]}{done.stderr[-1500:]}")
        raise Failed("refused", done.stderr[-1500:].strip() or f"exit code {done.returncode}")


def eager(bench, case, args, devices=None):
    """(outputs, inputs after the call, device) on the device, or on the CPU where PyTorch lacks a CUDA kernel."""
    for device in devices or (bench.device, "cpu"):
        module = copy.deepcopy(zoo.fresh(case)).to(device)
        own = to((args, case.kwargs), device)
        try:
            with torch.device(device):
                outputs = tensor_outputs(module(*own[0], **own[1]))
            bench.sync()
            return [o.detach().clone() for o in outputs], [v for v in tree_leaves(own) if isinstance(v, torch.Tensor)], device
        except (RuntimeError, NotImplementedError) as error:
            if device == "cpu" or "CUDA error" in str(error):
                raise
    raise AssertionError


def beside_double(case, args, got, expected):
    """(coil's, eager's) largest error beside the program in float64; None where that does not work. On the CPU: some of PyTorch's
    CUDA kernels hold float32 constants in float64 too (hardswish: 1/6)."""
    widen = lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
    try:
        module = copy.deepcopy(case.module).double().cpu()
        own = to(tree_map(widen, (args, case.kwargs)), "cpu")
        exact = tensor_outputs(module(*own[0], **own[1]))
        pairs = [(difference(g.double().cpu(), x), difference(e.double().cpu(), x)) for g, e, x in zip(got, expected, exact) if g.is_floating_point()]
        return max(p[0] for p in pairs), max(p[1] for p in pairs)
    except Exception:  # it is only an explanation
        return None


def export(bench, case, form, path):
    device = bench.device if form == "cuda" else "cpu"
    module = copy.deepcopy(zoo.fresh(case)).to(device)
    args, kwargs = to((case.args, case.kwargs), device)
    with torch.device(device):
        program = torch.export.export(module, args, kwargs or None, dynamic_shapes=case.dynamic)
    torch.export.save(program.run_decompositions() if form == "core" else program, path)


def excused(bench, case, tag, args, got, expected, tolerance, problem):
    """Why results that are not those of PyTorch's CUDA kernels are right all the same; raises where they are not."""
    if "relative error" in str(problem):
        both = beside_double(case, args, got, expected)
        if not both:
            raise problem
        text = f"beside float64: coil {both[0]:.2e}, eager {both[1]:.2e}"
        if not both[0] <= 1.25 * both[1]:
            raise Failed("wrong", f"{problem}\n{text}") from None
        return f"{tag}: {problem} - but {text}"
    # Which of several modes, where NaN is in an order: PyTorch's own kernels for the CPU and for CUDA differ there.
    try:
        compare(got, eager(bench, case, args, ["cpu"])[0], tolerance, tag)
    except Failed:
        raise problem from None
    return f"{tag}: {problem} - but equal to PyTorch on the CPU"


def run_sets(bench, model, case, tolerance, expect, row):
    """The C API on every input set. Returns the worst error, and {input set: results} where coil's are right and eager's differ."""
    worst, notes, nearer = 0.0, [], {}
    side = torch.cuda.Stream() if bench.cuda else None
    for n, (tag, args) in enumerate((case.inputs or {"example": case.args}).items()):
        expected, after, _ = expect(tag, args)
        tensors = lambda: [v for v in tree_leaves(to((args, case.kwargs), bench.device)) if isinstance(v, torch.Tensor)]
        inputs = tensors()
        bench.sync()
        model.reset_state()
        got = model.run(inputs)
        try:
            worst = max(worst, compare(got, expected, tolerance, f"{tag}, C API"))
        except Failed as problem:
            notes.append(excused(bench, case, tag, args, got, expected, tolerance, problem))
            nearer[tag] = got
        compare(inputs, after, tolerance, f"{tag}, inputs after the call")
        if n >= 2 or sum(t.nbytes for t in inputs) > 1 << 30:
            continue
        model.reset_state()
        inputs = tensors()
        call = model.bind(inputs)
        call.into(model.empty_outputs(inputs))
        bench.sync()
        with torch.cuda.stream(side) if side else torch.no_grad():
            model.call(call)
        model.synchronize()
        if not same_bits(call.owned, got):
            compare(call.owned, nearer.get(tag, expected), 10 * tolerance, f"{tag}, into the caller's memory on another stream")
            raise Failed("wrong", f"{tag}: a second run, into the caller's memory, gave other bits")
        model.reset_state()
        inputs = [off_by_one(t) for t in tensors()]
        bench.sync()
        compare(model.run(inputs), nearer.get(tag, expected), tolerance, f"{tag}, addresses aligned to an element only")
    if notes:
        row["notes"] = notes
    return worst, nearer


def run_stock(bench, package, case, tolerance, expect, nearer):
    """The package in stock PyTorch, beside eager's results, or `nearer` ones where there are such. Returns the worst error."""
    worst = 0.0
    loaded = torch._inductor.aoti_load_package(str(package))
    for n, (tag, args) in enumerate((case.inputs or {"example": case.args}).items()):
        if n and any(True for _ in case.module.buffers()):
            break
        own = to((args, case.kwargs), bench.device)
        bench.sync()
        outputs = tensor_outputs(loaded(*own[0], **own[1]))
        bench.sync()
        worst = max(worst, compare(outputs, nearer.get(tag) or expect(tag, args)[0], tolerance, f"{tag}, aoti_load_package"))
    return worst


def records_wrong_states(case):
    """PyTorch 2.11's export; 2.15's is right."""
    return torch.__version__ < "2.12" and any(isinstance(m, torch.nn.LSTM) for m in case.module.modules())


def check_program(bench, item, stage):
    row = {}
    name, _, form = item["id"].partition("@")
    program = programs.programs()[name]
    row.update(group=program.group, form=form or "cpu")
    stage("building", **row)
    try:
        case = programs.seeded(name, program.make)
        case.module.requires_grad_(False)
        first = eager(bench, case, case.args if bench.options.target else next(iter(case.inputs.values()), case.args))[0]
    except Exception as error:
        if "CUDA error" in str(error):
            raise
        return row | {"status": "skipped", "text": f"eager PyTorch: {type(error).__name__}: {str(error)[:600]}"}
    tolerance = zoo.tolerance(case, [*tree_leaves((case.args, case.kwargs)), *first])
    floats = [t.dtype for t in [*case.module.parameters(), *tree_leaves((case.args, case.kwargs)), *first] if isinstance(t, torch.Tensor) and t.dtype.is_floating_point]
    row.update(dtype=str(min(floats, key=lambda d: d.itemsize)).removeprefix("torch.") if floats else "integer", tolerance=tolerance)
    row["sets"] = len(case.inputs or {1: 1})
    source, package = bench.path(item["id"], ".pt2"), bench.path(item["id"], ".coil.pt2")
    stage("export", **row)
    start = time.perf_counter()
    try:
        export(bench, case, form, source)
    except Exception as error:
        return row | {"status": "skipped", "text": f"torch.export: {type(error).__name__}: {str(error)[:600]}"}
    row["export_s"] = round(time.perf_counter() - start, 3)
    stage("compile", **row)
    start = time.perf_counter()
    try:
        summary = bench.compile(source, package, threads=6 if program.group == "model" else 2)
    except Failed as problem:
        if records_wrong_states(case) and "that coil does not compute" in str(problem):
            return row | {"status": "skipped", "text": f"PyTorch {torch.__version__} records an LSTM's states with a dimension too many: {problem}"}
        raise
    row.update(compile_s=round(time.perf_counter() - start, 3), kernels=summary.get("kernels"), package_bytes=package.stat().st_size)
    if bench.options.target:
        package.unlink()
        source.unlink()
        return row | {"status": "ok"}
    known = {}

    def expect(tag, args):
        if tag not in known:
            known[tag] = eager(bench, case, args)
        return known[tag]

    problem, nearer = None, {}
    stage("C API", **row)
    try:
        start = time.perf_counter()
        model = bench.open(package)
        row.update(load_ms=round((time.perf_counter() - start) * 1e3, 2), isa=model.isa())
        row["error"], nearer = run_sets(bench, model, case, tolerance, expect, row)
        row["reference"] = next(iter(known.values()))[2]
        row["memory"] = model.memory()
        model.close()
    except (Failed, coil_torch.Error) as error:
        problem = error
        row["c_api"] = "failed"
    if not bench.options.no_stock:
        stage("stock PyTorch", **row)
        try:
            row["stock_error"] = run_stock(bench, package, case, tolerance, expect, nearer)
        except Failed as error:
            problem = problem or error
            row["stock"] = str(error)[:600]
        except RuntimeError as error:
            problem = problem or Failed("stock", f"aoti_load_package: {str(error)[:1200]}")
            row["stock"] = str(error)[:600]
    if problem:
        raise WithRow(problem, row)
    package.unlink()
    source.unlink()
    return row | {"status": "ok"}


class WithRow(Exception):
    """What failed, and what is known of the row."""

    def __init__(self, error, row):
        super().__init__(str(error))
        self.error, self.row = error, row


def check_fault(bench, item, stage):
    """An index out of range: COIL-E210, from the synchronisation or from the next call; the call after that is right."""
    function, good, bad = programs.faults()[item["id"].removeprefix("fault/")]
    torch.manual_seed(0)
    good, bad = good(), bad()
    source, package = bench.path(item["id"], ".pt2"), bench.path(item["id"], ".coil.pt2")
    module = programs.zoo_case.Function(function)
    torch.export.save(torch.export.export(module, good), source)
    stage("compile")
    bench.compile(source, package)
    if bench.options.target:
        return {"status": "ok", "group": "fault"}
    stage("C API")
    model = bench.open(package)
    good, bad = to(good, bench.device), to(bad, bench.device)
    expected = tensor_outputs(module(*good))
    for wait in (True, False, True):
        try:
            call = model.bind(bad)
            model.call(call)
            if wait:
                model.synchronize()
            else:
                bench.sync()
                model.call(model.bind(good))
            raise Failed("wrong", f"no error for an index out of range ({'synchronised' if wait else 'seen by the next call'})")
        except coil_torch.Error as error:
            if error.code != 210:
                raise Failed("wrong", f"wanted COIL-E210: {error}") from None
            text = str(error)
        compare(model.run(good), expected, 1e-4, "the call after the error")
    model.close()
    return {"status": "ok", "group": "fault", "message": text}


def check_museum(bench, item, stage):
    """A program that another PyTorch exported, on a GPU or on the CPU, with the inputs and outputs that it had there."""
    path = pathlib.Path(item["path"])
    package, arrays = bench.path(item["id"], ".coil.pt2"), path.with_name(path.stem.removesuffix("_core") + ".npz")
    row = {"group": "museum"}
    stage("compile", **row)
    row["kernels"] = bench.compile(path, package).get("kernels")
    if bench.options.target:
        return row | {"status": "ok"}
    stage("C API", **row)
    model = bench.open(package)
    if not arrays.exists():
        return row | {"status": "ok", "text": "compiled; there are no arrays to compare with"}
    with np.load(arrays) as data:
        inputs = [torch.from_numpy(data[f"in_{i}"].copy()) for i in range(sum(n.startswith("in_") for n in data.files))]
        expected = [torch.from_numpy(np.array(data[f"out_{i}"])) for i in range(sum(n.startswith("out_") for n in data.files))]
    inputs = [t.to(coil_torch.DTYPES[model.info(i).dtype]).to(bench.device) for i, t in enumerate(inputs[: model.num_inputs])]
    got = model.run(inputs)
    row["error"] = compare([g.float() if g.dtype == torch.bfloat16 else g for g in got], expected, 2e-2 if "bf16" in path.name else 1e-4, "C API")
    model.close()
    stage("stock PyTorch", **row)
    if not bench.options.no_stock and "stats" not in path.name:  # its calls have a plain number among their arguments
        outputs = [o.float() if o.dtype == torch.bfloat16 else o for o in tensor_outputs(torch._inductor.aoti_load_package(str(package))(*inputs))]
        row["stock_error"] = compare(outputs, expected, 2e-2 if "bf16" in path.name else 1e-4, "aoti_load_package")
    return row | {"status": "ok"}


def check_api(bench, item, stage):
    stage("API check", group="api")
    note = api_checks.CHECKS[item["id"].removeprefix("api/")](bench)
    return {"status": "ok", "group": "api"} | ({"note": note} if note else {})


def check(bench, item, stage):
    """One row; whatever goes wrong is in it."""
    kind = item["id"].split("/")[0] if "/" in item["id"] else "program"
    row = {}

    def note(text, **fields):
        row.update(fields)
        stage(text, **fields)

    try:
        with torch.no_grad():
            row = {"program": check_program, "fault": check_fault, "museum": check_museum, "api": check_api}[kind](bench, item, note)
    except Failed as error:
        row |= {"status": error.status, "text": str(error)}
    except WithRow as problem:
        row |= problem.row | {"status": getattr(problem.error, "status", "failed"), "text": str(problem.error)}
    except coil_torch.Error as error:
        row |= {"status": "failed", "text": str(error)}
    except Exception as error:
        row |= {"status": "broken" if "CUDA error" in str(error) else "error", "text": f"{type(error).__name__}: {str(error)[:800]}\n{traceback.format_exc()[-1200:]}"}
    try:
        bench.sync()
    except Exception as error:  # the CUDA context is lost: the next program needs another process
        row["retire"] = True
        row["text"] = f"{row.get('text', '')}\nafterwards: {str(error)[:300]}".strip()
        row["status"] = row["status"] if row["status"] != "ok" else "broken"
    if bench.cuda and "CUDA error" in row.get("text", ""):
        row["retire"] = True
    return row
