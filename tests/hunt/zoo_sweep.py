#!/usr/bin/env python3
"""Whole models through many doors, beside eager: the model types of transformers, (vision) module files of timm and models of torchvision, and the
(matrix) architectures of tests/models.

forward, gradients, package: torch.compile, the same with gradients, torch.export; autocast: gradients under bfloat16; train: gradients in training
mode, random numbers by a seed; dynamic: torch.compile(dynamic=True), and a second batch that may compile nothing; sizes: a package of any batch, for
two of them; aoti: that in stock PyTorch; checkpoint: gradients with forward computed again.

Each model runs in a child process with a time limit, so that what crashes or hangs is a line too. A model whose operators, with their dtypes and
numbers of dimensions, were all seen in the models before it is not compiled again unless --all is given or it is named. One line per model and door.

  python tests/hunt/zoo_sweep.py transformers                    # NAME... --door forward gradients package --dtype bfloat16 --part 0/8 --all
"""

import argparse
import collections
import contextlib
import copy
import fnmatch
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time
import traceback
import warnings

import torch
from torch.utils._pytree import tree_leaves, tree_map

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

DOORS = ("forward", "gradients", "package")
MORE_DOORS = ("autocast", "train", "dynamic", "sizes", "aoti", "checkpoint")
WITH_GRADIENTS = ("gradients", "autocast", "train", "checkpoint")
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
    return sum((t * torch.cos(torch.arange(t.numel(), dtype=torch.float32, device=t.device)).view(t.shape).to(t.dtype)).sum().abs() for t in results if t.requires_grad)


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
        if exact is not None:  # what eager alone overflows is judged by the results in double precision
            true = exact[i].detach().double()
            eagers = torch.where(~fine & torch.isfinite(true), true, eagers)
            fine = torch.isfinite(eagers)
        if not torch.equal(fine, torch.isfinite(ours)):
            return f"result {i}: {int((fine != torch.isfinite(ours)).sum())} elements are finite in one alone"
        if fine.any():
            norm = float(eagers[fine].norm()) + 1e-3 * scale * int(fine.sum()) ** 0.5 + 1e-30
            off = float((ours[fine] - eagers[fine]).norm()) / norm
            if exact is not None and off > 1e-4:
                true = true[fine]
                eagers_off, ours_off = (float((t[fine] - true).norm()) / norm for t in (eagers, ours))
                off = 0.0 if ours_off <= 2 * eagers_off else min(ours_off, off)
            worst = max(worst, off)
    return worst


def in_double(module, arguments):
    cast = lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v
    return copy.deepcopy(module).double(), tree_map(cast, arguments)


def rows(arguments):
    """The leading size that most tensors have."""
    sizes = [t.shape[0] for t in tree_leaves(arguments) if isinstance(t, torch.Tensor) and t.dim()]
    return max(sizes, key=sizes.count)


def with_rows(arguments, count):
    """The arguments with so many rows."""
    old = rows(arguments)
    grow = lambda v: v[torch.arange(count, device=v.device) % old].clone() if isinstance(v, torch.Tensor) and v.dim() and v.shape[0] == old else v
    return tree_map(grow, arguments)


def packaged(door, module, arguments, level):
    """A package of the module, opened by coil or PyTorch."""
    import coil

    sizes = None
    if door != "package":
        old = rows(arguments)
        sizes = tree_map(lambda v: {0: torch.export.Dim.AUTO} if isinstance(v, torch.Tensor) and v.dim() and v.shape[0] == old else None, arguments)
    try:
        program = torch.export.export(module, (), arguments, dynamic_shapes=sizes, strict=False)
    except Exception as problem:
        raise Refused(f"torch.export: {type(problem).__name__}: {' '.join(str(problem).split())[:90]}") from problem
    options = {"opt_level": level}
    if door != "aoti":
        return coil.compile(program, options=options)
    with tempfile.TemporaryDirectory() as folder:
        coil.compile(program, f"{folder}/model.pt2", options=options)
        return torch._inductor.aoti_load_package(f"{folder}/model.pt2")


def checkpointed(module):
    from torch.utils.checkpoint import checkpoint

    return lambda **arguments: checkpoint(module, use_reentrant=False, **arguments)


def runner(door, sets):
    """What is called with a function, its module and the first arguments: the results of all sets."""
    device = next((t.device.type for t in tree_leaves(sets) if isinstance(t, torch.Tensor)), "cpu")

    def run(function, module, arguments):
        torch.manual_seed(1)
        with torch.autocast(device, torch.bfloat16) if door == "autocast" else contextlib.nullcontext():
            if door in WITH_GRADIENTS:
                return gradients(function, module, arguments)
            return [t for each in [arguments, *sets[1:]] for t in floats(function(**each))]

    return run


def through(door, module, arguments, level):
    """(results of coil, results of eager, results in double precision or None, calls to time)."""
    sets = [arguments]
    if door in ("dynamic", "sizes", "aoti"):
        arguments = with_rows(arguments, max(2, rows(arguments)))
        sets = [arguments, with_rows(arguments, rows(arguments) + 1)]
    module = copy.deepcopy(module).train(door == "train")
    ours, timed = copy.deepcopy(module), copy.deepcopy(module)
    run = runner(door, sets)
    with torch.set_grad_enabled(door in WITH_GRADIENTS):
        try:
            wanted = run(module, module, arguments)
        except Exception as problem:
            raise Refused(f"eager: {' '.join(str(problem).split())[:90]}") from problem
        if door in ("package", "sizes", "aoti"):
            compiled = packaged(door, ours, arguments, level)
        else:
            compiled = torch.compile(checkpointed(ours) if door == "checkpoint" else ours, backend="coil", options={"opt_level": level}, dynamic=True if door == "dynamic" else None)
        found = run(compiled, ours, arguments)
        exact = None
        with contextlib.suppress(Exception):
            double, wider = in_double(module, arguments)
            exact = run(double, double, wider) if len(sets) == 1 and door != "train" else None
    if exact is not None and len(exact) != len(wanted):
        exact = None
    return found, wanted, exact, {"eager": lambda: run(timed, timed, arguments), "coil": lambda: run(compiled, ours, arguments)}


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


def slowness(calls, door):
    """How many times as long as eager a call takes, the best of a few in turns."""
    best = {}
    for _ in range(4):
        for peer, call in calls.items():
            with torch.set_grad_enabled(door in WITH_GRADIENTS):
                start = time.perf_counter()
                call()
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
            best[peer] = min(best.get(peer, 1e9), time.perf_counter() - start)
    ratio = best["coil"] / best["eager"]
    return f"{ratio:.2f} of eager's {best['eager'] * 1e3:.1f} ms {'SLOWER ' if ratio > 1.3 else ''}"


def judge(which, name, door, options, known):
    """One line, and what the model has that is new."""
    import coil

    try:
        module, arguments = family(which).make(name)
        module, arguments = module.to(options.device), tree_map(lambda v: v.to(options.device) if isinstance(v, torch.Tensor) else v, arguments)
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
        found, wanted, exact, calls = through(door, module, arguments, options.opt_level)
    except Refused as refusal:
        return f"refused by {refusal}", sorted(new)
    except Exception as problem:
        if options.trace:
            traceback.print_exc(file=sys.stdout)
        return f"FAILS {type(problem).__name__}: {' '.join(str(problem).split())[:300]}", sorted(new)
    seconds = time.perf_counter() - start
    ratio = slowness(calls, door) if options.times else ""
    far = distance(found, wanted, exact)
    bound = BOUND[torch.bfloat16 if door == "autocast" else getattr(torch, options.dtype)]
    word = "WRONG" if isinstance(far, str) or not far <= bound else "right"
    left = dict(collections.Counter(coil.compile_stats().fallbacks) - collections.Counter(stats.fallbacks))
    text = far if isinstance(far, str) else f"{far:.0e}"
    return f"{word} {text} {seconds:.0f} s, {coil.compile_stats().graphs - stats.graphs} graphs {'SLOW ' if seconds > 20 else ''}{ratio}{left or ''}", sorted(new)


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
    parser.add_argument("family", choices=["transformers", "vision", "matrix"])
    parser.add_argument("names", nargs="*", default=["*"])
    parser.add_argument("--door", nargs="*", default=DOORS, choices=DOORS + MORE_DOORS)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float64"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--times", action="store_true", help="a call's time beside eager's")
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
            if text.startswith(("not made", "nothing new")):
                break
    print(dict(counts))
    return bool(counts.keys() & {"WRONG", "FAILS", "CRASH"})


if __name__ == "__main__":
    sys.exit(main())
