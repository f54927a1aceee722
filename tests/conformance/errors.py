"""What eager refuses must be refused, and sizes of 0 must be as good as others: calls made of op_db's entries, judged one by one.

An entry has three kinds of calls:
- errors: the error inputs that PyTorch's own tests have of it;
- dtypes: a sample with one tensor of another dtype;
- zeros: a sample with one or two dimensions, all dimensions of one or two sizes, or one integer argument set to 0.

A call that eager refuses has to be refused: by torch.export, by coil's compiler, or by the compiled program when it is called. What coil says
names the operator, and the line of the model's source. A call that eager answers (zeros only) has to have the same answer.

Where eager's CPU only lacks the kernel for a size of number of its kind, coil may answer ("wider"). KNOWN are calls on which eager itself is
not right. tests/conformance/results/errors.jsonl.xz keeps the last result of every entry.

usage: python tests/conformance/errors.py [--jobs 2] [--results errors.jsonl] [--kinds errors,dtypes,zeros] [PATTERN...]
"""

import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import pathlib

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import evaluate
import harness
import samples

KINDS = ("errors", "dtypes", "zeros")
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64]
SAMPLES = 2  # of an entry, that are changed
MAX_CALLS = 160  # of an entry and a kind
MAX_ELEMENTS = 20_000
SECONDS = 60
# The CPU's kernel is there for other numbers of the same kind; another device's may be for these. Not coil's business.
LACKS_SIZE = re.compile(r"not implemented for '(Half|BFloat16|Int|Short|Char|Byte)'")
# {(entry, what was changed): why coil does not do what eager does}
BOOLEAN_POWERS = "eager takes booleans as exponents of booleans, but not of floats"
FRACTIONS = "eager takes fractions as factors of integers on some of its paths and not on others"
VIEWS_OF_NOTHING = "eager makes views of tensors without elements and fails there"
ANOTHER_SHAPE = "eager's result has not the shape that PyTorch's own meta function gives"
HIDDEN = "positions in an empty dimension are refused where the mask hides them, too"
KNOWN = {
    **{(entry, f"sample 1: {what}"): VIEWS_OF_NOTHING for entry in ("index_fill", "index_copy", *(f"index_reduce.{r}" for r in ("mean", "prod", "amin", "amax")))
       for what in ("tensor 0: dimension 1 is 0", "all 5 are 0")},
    **{("_unsafe_masked_index", f"sample {n}: {what}"): HIDDEN for n, dims in ((0, 3), (1, 2)) for what in ("all 5 are 0", *(f"tensor 0: dimension {d} is 0" for d in range(dims)))},
    **{("_unsafe_masked_index", f"sample 0: tensor 0: dimensions {a} and {b} are 0"): HIDDEN for a, b in ((0, 1), (0, 2), (1, 2))},
    **{("ldexp", f"sample {n}: tensor 1 bool"): BOOLEAN_POWERS for n in (0, 1)},
    **{(entry, f"sample 1: tensor 0,1,2 {dtype}"): FRACTIONS for entry in ("addmm", "addbmm") for dtype in ("int64", "int32", "uint8")},
    ("addmv", "sample 1: all 10 are 0"): ANOTHER_SHAPE,
    ("repeat_interleave", "sample 0: all 4 are 0"): ANOTHER_SHAPE,
}
OF_ERRORS = ("answers", "vague", "crash", "hang", "wrong", "refused_right", "error")  # verdicts that are faults


class Case:
    """One call: what was changed, and a samples.Call."""

    def __init__(self, what, call):
        self.what, self.call = what, call


def signature_of(leaves):
    """The same calls are tried once."""
    return tuple((tuple(x.shape), x.dtype, x.stride()) if isinstance(x, torch.Tensor) else samples.said(x) for x in leaves)


def changed(op, sample, slot, value):
    """The sample with leaf `slot` replaced."""
    leaves, form = tree_flatten((sample.input, sample.args, sample.kwargs))
    leaves = list(leaves)
    if callable(slot):
        leaves = [slot(x) for x in leaves]
    else:
        leaves[slot] = value
    first, args, kwargs = tree_unflatten(leaves, form)
    return samples.Call(op, torch.testing._internal.common_methods_invocations.SampleInput(first, args=args, kwargs=kwargs)), leaves


def some_samples(op):
    dtype = next((d for d in (torch.float32, torch.int64, torch.bool, torch.complex64) if d in samples.supported(op)), None)
    if dtype is None:
        return []
    picked = [s for s in samples.chosen(op, dtype) if sum(t.numel() for t in tree_flatten((s.input, s.args, s.kwargs))[0] if isinstance(t, torch.Tensor)) <= MAX_ELEMENTS]
    return sorted(picked, key=lambda s: -len(samples.features(s)))[:SAMPLES]


def error_cases(op):
    if not op.error_inputs_func:
        return
    for given in op.error_inputs("cpu"):
        if samples.usable(given.sample_input):
            yield Case(str(given.error_regex)[:80], samples.Call(op, given.sample_input))


def dtype_cases(op):
    for number, sample in enumerate(some_samples(op)):
        leaves, _ = tree_flatten((sample.input, sample.args, sample.kwargs))
        slots = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        for dtype in DTYPES:
            for group in [[s] for s in slots] + ([slots] if len(slots) > 1 else []):
                numbers = [s for s in group if leaves[s].dtype != dtype]
                if not numbers:
                    continue
                new = dict(zip(map(id, [leaves[s] for s in numbers]), [leaves[s].detach().to(dtype) for s in numbers]))
                call, _ = changed(op, sample, lambda x: new.get(id(x), x), None)
                yield Case(f"sample {number}: tensor {','.join(str(slots.index(s)) for s in numbers)} {samples.dtype_name(dtype)}", call)


def resized(tensor, sizes):
    """A tensor of other sizes (some 0 now), of the same kind of values."""
    if 0 in sizes:
        return torch.empty(sizes, dtype=tensor.dtype)
    return tensor.detach()


def zero_cases(op):
    for number, sample in enumerate(some_samples(op)):
        leaves, _ = tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [(i, x) for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        seen = set()

        def case(what, change):
            call, new = changed(op, sample, change, None)
            if signature_of(new) not in seen:
                seen.add(signature_of(new))
                yield Case(f"sample {number}: {what}", call)

        for size in dict.fromkeys(n for _, x in tensors for n in x.shape if n):
            yield from case(f"all {size} are 0", lambda x: resized(x, [0 if n == size else n for n in x.shape]) if isinstance(x, torch.Tensor) else x)
            yield from case(f"all {size} are 0, numbers too", lambda x: resized(x, [0 if n == size else n for n in x.shape]) if isinstance(x, torch.Tensor)
                            else 0 if type(x) is int and x == size else x)
        for slot, tensor in tensors:
            for dim, n in enumerate(tensor.shape):
                if n:
                    sizes = [0 if d == dim else m for d, m in enumerate(tensor.shape)]
                    yield from case(f"tensor {slot}: dimension {dim} is 0", lambda x: resized(x, sizes) if x is tensor else x)
            for pair in itertools.combinations([d for d, n in enumerate(tensor.shape) if n], 2):
                sizes = [0 if d in pair else m for d, m in enumerate(tensor.shape)]
                yield from case(f"tensor {slot}: dimensions {pair[0]} and {pair[1]} are 0", lambda x: resized(x, sizes) if x is tensor else x)
        for first, second in itertools.combinations(dict.fromkeys(n for _, x in tensors for n in x.shape if n), 2):
            yield from case(f"all {first} and {second} are 0", lambda x: resized(x, [0 if n in (first, second) else n for n in x.shape]) if isinstance(x, torch.Tensor) else x)
        for slot, value in enumerate(leaves):
            if type(value) is int and value:
                zero = list(leaves)
                zero[slot] = 0
                at = iter(zero)
                yield from case(f"argument {slot} is 0", lambda x: next(at))


MAKERS = {"errors": error_cases, "dtypes": dtype_cases, "zeros": zero_cases}


def cases(name, kind):
    torch.manual_seed(17)
    found = []
    for case in MAKERS[kind](samples.entries()[name]):
        found.append(case)
        if len(found) == MAX_CALLS:
            break
    return found


def eager(call, seed=0):
    """(results, None) or (None, error)"""
    try:
        with torch.no_grad():
            values = [v for v in tree_flatten(call.eager(seed))[0] if v is not None]
        return [v.detach().resolve_conj().resolve_neg().clone() if isinstance(v, torch.Tensor) else v for v in values], None
    except Exception as error:
        return None, error


def ends_the_process(call):
    """Whether eager does, which no exception tells."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        eager(call)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def called(package, tensors):
    """("results", path), or (status, reason): the package in a process of its own."""
    path = package.with_suffix(".out")
    path.unlink(missing_ok=True)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            model = evaluate.Model(harness.BUILD / "libcoil_runtime.so", package, threads=1)
            torch.save(model.call_tensors(tensors), path)
            os.write(writer, b"ok")
        except BaseException as error:
            os.write(writer, str(error).encode()[:4000])
        os._exit(0)
    os.close(writer)
    text = b""
    while more := os.read(reader, 1 << 16):
        text += more
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return ("hang", f"a call takes more than {SECONDS} s") if number == signal.SIGALRM else ("crash", f"a call ends with {signal.Signals(number).name}")
    return ("results", path) if text == b"ok" else ("raised", text.decode(errors="replace"))


def named(message):
    """Whether it is coil's own error with an operator and a place in the source."""
    return "COIL-E" in message and ".py:" in message


def compiled(program, package, target="cpu:x86-64-v3"):
    """None, or (status, reason)."""
    package.unlink(missing_ok=True)
    try:
        done = subprocess.run([harness.COIL, "compile", program, "-o", package, "--target", target, "--threads", "1", "-q"], capture_output=True, text=True, errors="replace",
                              timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "hang", f"coil compile: more than {SECONDS} s"
    if done.returncode == 0:
        return None
    if done.returncode < 0 or done.returncode == harness.EXIT_INTERNAL or "COIL-E" not in done.stderr:
        return "crash", f"coil compile: exit code {done.returncode}: {done.stderr[-300:]}"
    return "refused", done.stderr


def judge(case, folder):
    """(status, reason): "eager" (nothing to ask), "export", "refused", "raised", "right", "wider", or one of OF_ERRORS."""
    if ends_the_process(case.call):
        return "eager", ""
    expected, error = eager(case.call)
    if error is None and not case.what.startswith("sample"):
        return "eager", ""
    if error is None and "is 0" not in case.what and "are 0" not in case.what:
        return "eager", ""
    program, package = folder / "program.pt2", folder / "package.pt2"
    try:
        made = samples.exported([case.call])
        torch.export.save(made, program)
    except Exception as problem:
        return "export", samples.short(problem)
    problem = compiled(program, package)
    if problem is None:
        problem = called(package, case.call.fresh())
    status, text = problem
    if status in ("crash", "hang"):
        return status, evaluate.tidy(text)
    if error is not None:
        if status == "results" and LACKS_SIZE.search(str(error)):
            return "wider", ""
        if status == "results":
            return "answers", f"eager: {samples.short(error)}"
        return (status, evaluate.tidy(text)) if named(text) else ("vague", text.strip()[:300])
    if status != "results":
        return ("refused" if status == "refused" else "refused_right"), evaluate.tidy(text)
    actual = torch.load(text)
    if len(actual) != len(expected):
        return "wrong", f"{len(actual)} results instead of {len(expected)}"
    if case.call.function.__name__ in samples.UNINITIALISED:
        return "right", ""
    again = eager(case.call, 1)[0]
    if not all(samples.same(a, b) for a, b in zip(expected, again)):
        return ("right", "random") if all(not isinstance(e, torch.Tensor) or e.shape == a.shape for a, e in zip(actual, expected)) else ("wrong", "shapes")
    wrong = next(filter(None, (evaluate.close(a, e, None, None) for a, e in zip(actual, expected))), None)
    return ("wrong", wrong) if wrong else ("right", "")


def verdict(name, kind, report=lambda phase: None):
    """All calls of an entry and a kind: {"status": the worst, "reason", "calls": {status: number}, "found": [[what, status, reason]...]}"""
    found, counts = [], {}
    with tempfile.TemporaryDirectory(prefix="coil-errors-") as folder:
        for case in cases(name, kind):
            report(f"{case.what}")
            status, reason = ("known", KNOWN[name, case.what]) if (name, case.what) in KNOWN else judge(case, pathlib.Path(folder))
            counts[status] = counts.get(status, 0) + 1
            if status in OF_ERRORS:
                found.append([case.what, status, reason])
    worst = next((row for row in found if row[1] in OF_ERRORS), None)
    return {"status": worst[1] if worst else "right", "reason": f"{worst[0]}: {worst[2]}" if worst else "", "calls": counts, "found": found}


def main():
    import argparse

    import run

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("errors.jsonl"))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_intermixed_args()
    pairs = run.matching([(name, kind) for kind in options.kinds.split(",") for name in samples.entries()], options.patterns)
    known = run.read_results(options.results)
    run.judge_all([p for p in pairs if p not in known], options.jobs, options.results, way="errors")
    results = [r for p in pairs if (r := run.read_results(options.results).get(p))]
    total = {}
    for r in results:
        for status, n in r.get("calls", {}).items():
            total[status] = total.get(status, 0) + n
        for what, status, reason in r.get("found", []):
            if status in OF_ERRORS:
                print(f"{r['name']} {r['dtype']} {what}: {status}: {reason}")
        if "found" not in r:
            print(f"{r['name']} {r['dtype']}: {r['status']}: {r['reason']}")
    print(total)
    return 1 if any(r["status"] in OF_ERRORS for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
