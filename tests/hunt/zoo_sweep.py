#!/usr/bin/env python3
"""Whole models through three doors, beside eager: the model types of transformers, and (vision) module files of timm and models of torchvision.

Each model runs in a child process with a time limit, so that what crashes or hangs is a line too. A model whose operators, with their dtypes and
numbers of dimensions, were all seen in the models before it is not compiled again unless --all is given or it is named. One line per model and door.

  python tests/hunt/zoo_sweep.py transformers                    # NAME... --door forward gradients package --dtype bfloat16 --part 0/8 --all
"""

import argparse
import collections
import copy
import fnmatch
import multiprocessing
import os
import pathlib
import sys
import time
import traceback
import warnings

import torch
from torch.utils._pytree import tree_leaves, tree_map

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

DOORS = ("forward", "gradients", "package")
BOUND = {torch.float32: 1e-3, torch.bfloat16: 6e-2, torch.float64: 1e-9}


def family(name):
    return __import__(f"zoo_{name}")


def floats(value):
    """The floating tensors of results, also of those that are classes of their own."""
    if hasattr(value, "to_tuple"):
        value = value.to_tuple()
    found = []
    for leaf in tree_leaves(value, is_leaf=lambda v: hasattr(v, "to_tuple")):
        if hasattr(leaf, "to_tuple"):
            found += floats(leaf)
        elif isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex()):
            found.append(leaf)
    return found


def loss_of(results):
    return sum((t * torch.cos(torch.arange(t.numel(), dtype=torch.float32)).view(t.shape).to(t.dtype)).sum().abs() for t in results if t.requires_grad)


def gradients(function, module, arguments):
    module.zero_grad()
    results = floats(function(**arguments))
    loss_of(results).backward()
    return [t.detach() for t in results] + [p.grad for p in module.parameters() if p.grad is not None]


def distance(found, wanted, exact):
    """The largest relative distance of any result; `exact`: the results in double precision. What is about as near to those as eager's counts as 0."""
    if len(found) != len(wanted):
        return f"{len(found)} results, eager has {len(wanted)}"
    scale = max((float(t.abs().double().mean()) for t in wanted if t.numel() and torch.isfinite(t).all()), default=0.0)
    worst = 0.0
    for i, (ours, eagers) in enumerate(zip(found, wanted)):
        if ours.shape != eagers.shape or ours.dtype != eagers.dtype:
            return f"result {i}: {ours.dtype} {tuple(ours.shape)}, eager has {eagers.dtype} {tuple(eagers.shape)}"
        ours, eagers = ours.detach().double(), eagers.detach().double()
        fine = torch.isfinite(eagers)
        if not torch.equal(fine, torch.isfinite(ours)):
            return f"result {i}: {int((fine != torch.isfinite(ours)).sum())} elements are finite in one alone"
        if fine.any():
            norm = float(eagers[fine].norm()) + 1e-3 * scale * int(fine.sum()) ** 0.5 + 1e-30
            off = float((ours[fine] - eagers[fine]).norm()) / norm
            if exact is not None and off > 1e-4:
                true = exact[i].detach().double()[fine]
                eagers_off, ours_off = (float((t[fine] - true).norm()) / norm for t in (eagers, ours))
                off = ours_off if ours_off < off else 0.0 if ours_off <= 2 * eagers_off else off
            worst = max(worst, off)
    return worst


def in_double(module, arguments):
    cast = lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
    return copy.deepcopy(module).double(), tree_map(cast, arguments)


def through(door, module, arguments, level):
    """(results of coil, results of eager, results in double precision or None)."""
    import coil

    ours = copy.deepcopy(module)
    run = gradients if door == "gradients" else lambda function, module, arguments: floats(function(**arguments))
    with torch.set_grad_enabled(door == "gradients"):
        torch.manual_seed(1)
        try:
            wanted = run(module, module, arguments)
        except Exception as problem:
            raise Refused(f"eager: {' '.join(str(problem).split())[:90]}") from problem
        if door == "package":
            try:
                program = torch.export.export(ours, (), arguments, strict=False)
            except Exception as problem:
                raise Refused(f"torch.export: {type(problem).__name__}: {' '.join(str(problem).split())[:90]}") from problem
            compiled = coil.compile(program, options={"opt_level": level})
        else:
            compiled = torch.compile(ours, backend="coil", options={"opt_level": level})
        torch.manual_seed(1)
        found = run(compiled, ours, arguments)
        exact = None
        try:
            double, wider = in_double(module, arguments)
            exact = run(double, double, wider)
        except Exception:
            pass
    if exact is not None and len(exact) != len(wanted):
        exact = None
    return found, wanted, exact


class Refused(Exception):
    """By eager or torch.export."""


def forms(module, arguments):
    """The functions of a model's graphs with their tensors' dtypes and numbers of dimensions, by a trace that compiles nothing."""
    seen = set()

    def note(graph, examples):
        for node in graph.graph.nodes:
            if node.op.startswith("call") and isinstance(node.meta.get("example_value"), torch.Tensor):
                value = node.meta["example_value"]
                seen.add(f"{getattr(node.target, '__name__', node.target)} {value.dtype} {value.dim()} " + " ".join(
                    f"{a.meta['example_value'].dim()}" if isinstance(a, torch.fx.Node) and isinstance(a.meta.get("example_value"), torch.Tensor) else type(a).__name__ for a in node.args))
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(module, backend=note)(**arguments)
    return seen


def judge(which, name, door, options, known):
    """One line, and what the model has that is new."""
    import coil

    try:
        module, arguments = family(which).make(name)
        if options.dtype != "float32":
            dtype = getattr(torch, options.dtype)
            module, arguments = module.to(dtype), tree_map(lambda v: v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v, arguments)
            with torch.no_grad():
                module(**arguments)
    except Exception as problem:
        return f"not made: {type(problem).__name__}: {' '.join(str(problem).split())[:150]}", []
    new = set()
    if not options.all:
        try:
            new = forms(copy.deepcopy(module), arguments)
        except Exception as problem:
            new = {f"{name}: {type(problem).__name__}"}
        if not new - known:
            return "nothing new", []
    torch._dynamo.reset()
    start = time.perf_counter()
    stats = coil.compile_stats()
    try:
        found, wanted, exact = through(door, module, arguments, options.opt_level)
    except Refused as refusal:
        return f"refused by {refusal}", sorted(new)
    except Exception as problem:
        if options.trace:
            traceback.print_exc(file=sys.stdout)
        return f"FAILS {type(problem).__name__}: {' '.join(str(problem).split())[:300]}", sorted(new)
    seconds = time.perf_counter() - start
    far = distance(found, wanted, exact)
    bound = BOUND[getattr(torch, options.dtype)]
    word = "WRONG" if isinstance(far, str) or not far <= bound else "right"
    left = dict(collections.Counter(coil.compile_stats().fallbacks) - collections.Counter(stats.fallbacks))
    text = far if isinstance(far, str) else f"{far:.0e}"
    return f"{word} {text} {seconds:.0f} s, {coil.compile_stats().graphs - stats.graphs} graphs {'SLOW ' if seconds > 20 else ''}{left or ''}", sorted(new)


class Worker:
    """A forked process that judges one model after the other; `ask` starts the next one where it crashed or took too long."""

    def __init__(self, options):
        self.options = options
        self.process = None

    def start(self):
        self.questions, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(target=answers, args=(theirs, self.options), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, *question):
        if self.process is None:
            self.start()
        self.questions.send(question)
        try:
            if self.questions.poll(self.options.limit):
                return self.questions.recv()
            self.process.kill()
            verdict = f"TIME over {self.options.limit} s"
        except EOFError:
            verdict = "CRASH"
        self.process.join()
        if verdict == "CRASH":
            verdict += f" of the process, status {self.process.exitcode}"
        self.process = None
        return verdict, []


def answers(questions, options):
    while True:
        name, door, known = questions.recv()
        questions.send(judge(options.family, name, door, options, known))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=["transformers", "vision"])
    parser.add_argument("names", nargs="*", default=["*"])
    parser.add_argument("--door", nargs="*", default=DOORS, choices=DOORS)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float64"])
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--limit", type=int, default=90, help="seconds of a model behind a door")
    parser.add_argument("--opt-level", type=int, default=2, help="of the generated code")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--trace", action="store_true", help="prints the traceback of what fails")
    return parser.parse_args()


def main():
    options = arguments()
    warnings.filterwarnings("ignore")
    os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1")
    torch.set_num_threads(1)
    part, parts = map(int, options.part.split("/"))
    counts, known, worker = collections.Counter(), set(), Worker(options)
    every = family(options.family).names()
    chosen = dict.fromkeys(name for pattern in options.names for name in fnmatch.filter(every, pattern))
    for name in [*chosen][part::parts]:
        for door in options.door:
            text, new = worker.ask(name, door, known if door == options.door[0] else set())
            counts[text.split()[0]] += 1
            print(f"{name} {door}: {text}"[:500], flush=True)
            known.update(new)
            if not text.startswith(("right", "WRONG")):
                break
    print(dict(counts))
    return bool(counts.keys() & {"WRONG", "FAILS", "CRASH"})


if __name__ == "__main__":
    sys.exit(main())
