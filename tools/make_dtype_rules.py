#!/usr/bin/env python3
"""Writes src/lower/dtype_rules.inc: which types of numbers PyTorch's operators take on the CPU, measured.

torch.export traces without looking, so a program may hold a call that eager refuses. For every operator that op_db's samples become in an
exported program, and in a decomposed one, the call is repeated in eager with every choice of types for its tensors (each is the
sample's own type or one other), in a process of its own. A row of the table says what was never taken:

    {"aten.index_add.default", "index:i", "fibc", "self source"},

- kinds of numbers (f floats, i integers, b booleans, c complex) that each argument is taken with in some call;
- kinds that each argument takes, and all of them together;
- groups of arguments that are of one type in every call that is taken.

Kinds, not types: that the CPU has no code for float16 somewhere does not make a program for another device wrong. `+dtype` behind the name:
the call gives the argument `dtype`, which changes what is taken. Operators that take everything have no row.

    ~/.cache/coil/venv/bin/python tools/make_dtype_rules.py [--exported]

--exported leaves the decomposed programs out, which take most of the time; the rows of their operators stay as they are.
"""
import itertools
import json
import os
import pathlib
import re
import signal
import sys
import warnings

import torch
from torch.fx import Interpreter
from torch.utils._pytree import tree_flatten, tree_unflatten

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "tests" / "conformance"))
import samples  # noqa: E402

OTHERS = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.complex64]
CALLS = 4  # of an operator and a list of its arguments
MAX_SLOTS = 6
SECONDS = 20
# A refusal is one of types only if it says so: values may be out of range as well.
OF_TYPES = re.compile(r"not implemented for|scalar type|dtype|same type|support|must be|[Ee]xpected|can't be cast|cannot be cast|bool|Bool|[Ii]ntegral|[Ii]nteger|floating|Long|Float|type", re.S)
OF_VALUES = re.compile(r"overflow|out of bounds|out of range")
# What these do does not depend on the numbers' types in eager, or is another operator's in an exported program.
SKIPPED = {"aten._assert_tensor_metadata", "aten._assert_scalar", "aten.sym_size", "aten.item", "aten._local_scalar_dense"}


def kind(dtype):
    return "b" if dtype == torch.bool else "c" if dtype.is_complex else "f" if dtype.is_floating_point else "i"


class Recorder(Interpreter):
    """Runs an exported graph and keeps the operators' calls."""

    def __init__(self, module, calls):
        super().__init__(module)
        self.calls = calls

    def call_function(self, target, args, kwargs):
        if isinstance(target, torch._ops.OpOverload):
            leaves, _ = tree_flatten((args, kwargs))
            tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
            name = f"{target.namespace}.{target.__name__}"
            form = (tuple((type(x).__name__, x.dim(), kind(x.dtype)) if isinstance(x, torch.Tensor) else type(x).__name__ for x in leaves), "dtype" in str(target._schema) and given_dtype(target, args, kwargs))
            known = self.calls.setdefault(name, {})
            if tensors and form not in known and sum(1 for f in known if f[1] == form[1]) < CALLS and all(x.layout is torch.strided and x.numel() for x in tensors):  # of nothing, everything is taken
                known[form] = (target, *copied(args, kwargs))
        return super().call_function(target, args, kwargs)


def copied(args, kwargs):
    leaves, form = tree_flatten((args, kwargs))
    return tree_unflatten([x.detach().clone() if isinstance(x, torch.Tensor) else x for x in leaves], form)


def given_dtype(target, args, kwargs):
    names = [a.name for a in target._schema.arguments]
    place = names.index("dtype") if "dtype" in names else -1
    return place >= 0 and (kwargs.get("dtype") is not None or (len(args) > place and args[place] is not None))


def exports(calls):
    try:
        samples.exported(calls)
        return True
    except Exception:
        return False


def calls_of_op_db(decompose):
    """{operator: {form: (overload, args, kwargs)}} of all exported and decomposed samples."""
    found, decomposed, table = {}, set(), torch.export.default_decompositions()
    for name, op in samples.entries().items():
        dtypes = [d for d in (torch.float32, torch.int64, torch.bool, torch.complex64) if d in samples.supported(op)]
        for dtype in dtypes[:1]:
            with torch.no_grad():
                calls = [samples.Call(op, sample) for sample in samples.chosen(op, dtype)[:4]]
                for some in [calls] if exports(calls) else [[call] for call in calls]:
                    try:
                        program = samples.exported(some)
                        new = {n.target for n in program.graph.nodes if n.op == "call_function"} - decomposed
                        decomposed |= new
                        for form in [program, program.run_decompositions(table)] if new and decompose else [program]:
                            Recorder(form.module(), found).run(*(t for call in some for t in call.fresh()))
                    except Exception:
                        continue
        print(f"{len(found)} operators {name}", file=sys.stderr)
    return found


def names_of(target, args, kwargs):
    """The name of the argument that each leaf belongs to."""
    names = []
    for argument, value in zip(target._schema.arguments, args):
        names += [argument.name] * len(tree_flatten(value)[0])
    for name, value in kwargs.items():
        names += [name] * len(tree_flatten(value)[0])
    return names


def taken(target, args, kwargs):
    """[(types of the tensors by argument, whether eager takes them)]"""
    leaves, form = tree_flatten((args, kwargs))
    names, slots = names_of(target, args, kwargs), [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
    # Lists of tensors change together.
    groups = [[s for s in slots if names[s] == n] for n in dict.fromkeys(names[s] for s in slots)][:MAX_SLOTS]
    rows = []
    own = tuple(str(leaves[g[0]].dtype) for g in groups)
    for dtype in OTHERS:
        for chosen in itertools.product((False, True), repeat=len(groups)):
            new = list(leaves)
            for group, change in zip(groups, chosen):
                for s in group:
                    x = leaves[s]
                    new[s] = (x.to(dtype) if change and x.dtype != dtype else x).clone()
            types = tuple(str(new[g[0]].dtype).removeprefix("torch.") for g in groups)
            if any(r[0] == types for r in rows):
                continue
            try:
                a, k = tree_unflatten(new, form)
                target(*a, **k)
                rows.append((types, True))
            except Exception as error:
                rows.append((types, bool(OF_VALUES.search(str(error))) or not OF_TYPES.search(str(error))))
    return [names[g[0]] for g in groups], rows


def in_a_process(work):
    """What work() gives, or None where it takes its process down."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(json.dumps(work()).encode())
        except BaseException:
            os._exit(1)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(text) if status == 0 and text else None


KINDS = "fibc"


def row_of(tables):
    """(kinds by argument, kinds together, groups) of the calls of one operator, or None where everything is taken."""
    kinds, tried, together, tried_together, names_seen, unequal, tried_unequal = {}, {}, set(), set(), [], set(), set()
    for names, rows in tables:
        names_seen += [n for n in names if n not in names_seen]
        for types, ok in rows:
            by = {n: getattr(torch, t) for n, t in zip(names, types)}
            ks = {n: kind(d) for n, d in by.items()}
            for n, k in ks.items():
                tried.setdefault(n, set()).add(k)
                if ok:
                    kinds.setdefault(n, set()).add(k)
            if len(set(ks.values())) == 1:
                tried_together.update(ks.values())
                if ok:
                    together.update(ks.values())
            for a, b in itertools.combinations(names, 2):
                if by[a] != by[b]:
                    tried_unequal.add((a, b))
                    if ok:
                        unequal.add((a, b))
    if not kinds:
        return None
    groups, left = [], [n for n in names_seen]
    while left:
        first = left.pop(0)
        group = [first] + [n for n in left if (first, n) in tried_unequal and (first, n) not in unequal]
        group = [n for i, n in enumerate(group) if all((m, n) in tried_unequal and (m, n) not in unequal for m in group[:i])]
        left = [n for n in left if n not in group]
        if len(group) > 1:
            groups.append(" ".join(group))
    limits = {n: "".join(k for k in KINDS if k in kinds[n] or k not in tried[n]) for n in names_seen if n in kinds}
    # What an argument alone excludes says nothing more here.
    whole = "".join(k for k in KINDS if k in together or k not in tried_together or any(k not in l for l in limits.values()))
    if all(l == KINDS for l in limits.values()) and whole == KINDS and not groups:
        return None
    return " ".join(f"{n}:{l}" for n, l in limits.items() if l != KINDS), whole, ",".join(groups)


def main():
    torch.set_num_threads(1)  # a forked process has no other threads
    warnings.filterwarnings("ignore")
    found, lines = calls_of_op_db("--exported" not in sys.argv), []
    for name, calls in sorted(found.items()):
        if name.rpartition(".")[0] in SKIPPED or not name.startswith(("aten.", "prims.")):
            continue
        for with_dtype in (False, True):
            tables = [t for form, call in calls.items() if bool(form[1]) == with_dtype and (t := in_a_process(lambda: taken(*call)))]
            row = row_of(tables) if tables else None
            if row:
                lines.append(f'{{"{name}{"+dtype" if with_dtype else ""}", "{row[0]}", "{row[1]}", "{row[2]}"}},')
    target = SOURCE / "src" / "lower" / "dtype_rules.inc"
    if "--exported" in sys.argv and target.exists():
        lines += [line for line in target.read_text().splitlines() if line.startswith("{") and line.split('"')[1].removesuffix("+dtype") not in found]
        lines.sort()
    target.write_text(f"// Generated by tools/make_dtype_rules.py from PyTorch {torch.__version__.split('+')[0]}. Do not edit.\n" + "\n".join(lines) + "\n")
    print(f"\n{len(lines)} rows, {target}")


if __name__ == "__main__":
    main()
