#!/usr/bin/env python3
"""Programs as users write them through many doors, beside eager.

package      coil's package of torch.export           forward      torch.compile under no_grad
aoti         that package in stock PyTorch            gradients    torch.compile with gradients
inference    torch.compile in inference_mode          dynamic      gradients through torch.compile(dynamic=True)
autocast     gradients under autocast(bfloat16)       bfloat16, float64: gradients of all in this type
steps        three steps of an optimizer that is compiled as well, beside the model
recorded     gradients by mode="reduce-overhead" on a GPU: the third call, which replays a CUDA graph
aarch64      the package as aarch64 code, run by the cross-built command under qemu (`make aarch64`); NumPy has the types of all arguments

What is wrong, fails or stays in PyTorch is printed; with --times all programs, and the microseconds of a call in turns with eager. What eager or
torch.export refuse themselves is counted alone.

  python tests/hunt/hunt.py                       # NAME... 'conv*' --door gradients --device cuda --times --part 0/8
"""

import argparse
import collections
import contextlib
import copy
import fnmatch
import functools
import pathlib
import sys
import tempfile
import time
import warnings

import torch
from torch.utils._pytree import tree_leaves, tree_map

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "aarch64"))
import registry
from zoo_sweep import distance

DOORS = ("package", "forward", "gradients")
PACKAGES = ("package", "aoti", "aarch64")
MORE_DOORS = ("aoti", "inference", "dynamic", "autocast", "bfloat16", "float64", "steps", "recorded", "aarch64")
WITH_GRADIENTS = ("gradients", "dynamic", "autocast", "bfloat16", "float64", "steps", "recorded")
ROUNDED = {"autocast": 3e-2, "bfloat16": 3e-2}  # doors whose results are judged by their distance from double precision, and what is always near enough
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-9, torch.complex128: 1e-9}
NOT_EXPORTED = ("natural_hvp", "hmc_step", "pde_residual", "jacrev_fwd", "maml", "per_sample_grads", "transforms_of_whole_operators", "linearized")  # torch.export leaves a transform of functorch open
SLOW = 1.15


class Refused(Exception):
    """By eager, Dynamo or torch.export."""


class Packaged(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def tensors(value):
    return [v for v in tree_leaves(value) if isinstance(v, torch.Tensor)]


def fresh(args, as_they_lie):
    """Copies of the arguments, so that what a program writes stays with the call."""

    def one(value):
        if not isinstance(value, torch.Tensor):
            return value
        return (value.detach() if as_they_lie else value.detach().clone()).requires_grad_(value.requires_grad)

    return tree_map(one, args)


def parameters(function):
    return [p for p in function.parameters() if p.requires_grad] if isinstance(function, torch.nn.Module) else []


def weighted(t):
    t = torch.view_as_real(t) if t.is_complex() else t.to_dense() if t.is_sparse else t
    return (t * torch.cos(torch.arange(t.numel(), device=t.device, dtype=torch.float32)).view(t.shape).to(t.dtype)).sum()


def narrowed(value, dtype):
    """A module or arguments with what is float32 in another type."""
    if isinstance(value, torch.nn.Module):
        return value.to(dtype)
    return tree_map(lambda v: v.detach().to(dtype).requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) and v.dtype == torch.float32 else v, value)


def stepped(function, compiled, args, optimizer_step):
    """The parameters and losses of three steps of Adam."""
    optimizer = torch.optim.AdamW(function.parameters(), lr=1e-2)
    step = optimizer_step(optimizer)
    losses = []
    for _ in range(3):
        loss = sum(weighted(t) for t in tensors(compiled(*fresh(args, False))) if t.requires_grad)
        optimizer.zero_grad()
        loss.backward()
        step()
        losses.append(loss.detach())
    return losses + [p.detach() for p in function.parameters()]


def call(function, args, door):
    """All results; with gradients, these and what arguments hold after the call as well."""
    device = torch.get_default_device().type
    torch.manual_seed(1)
    with torch.autocast(device, torch.bfloat16) if door == "autocast" else torch.inference_mode() if door == "inference" else contextlib.nullcontext():
        results = function(*args)
    if door not in WITH_GRADIENTS:
        return tree_leaves(results)
    leaves = [x for x in tensors(args) if x.requires_grad and x.is_leaf] + parameters(function)
    loss = sum(weighted(t) for t in tensors(results) if t.requires_grad)
    return tree_leaves(results) + list(torch.autograd.grad(loss, leaves, allow_unused=True)) + tensors(args)


def difference(found, wanted):
    """What is wrong of the results; empty: nothing."""
    if len(found) != len(wanted):
        return f"{len(found)} results, eager has {len(wanted)}"
    for i, (ours, eagers) in enumerate(zip(found, wanted)):
        if not isinstance(eagers, torch.Tensor):
            if ours != eagers and not (ours != ours and eagers != eagers):
                return f"result {i}: {ours}, eager has {eagers}"
            continue
        if not isinstance(ours, torch.Tensor) or ours.dtype != eagers.dtype or ours.shape != eagers.shape:
            return f"result {i}: {type(ours).__name__} {getattr(ours, 'dtype', '')} {tuple(getattr(ours, 'shape', ()))}, eager has {eagers.dtype} {tuple(eagers.shape)}"
        ours, eagers = (t.detach().to_dense() if t.is_sparse else t.detach() for t in (ours, eagers))
        bound = TOLERANCE.get(eagers.dtype, 2e-4)
        try:
            torch.testing.assert_close(ours, eagers, rtol=bound, atol=bound, equal_nan=True)
        except AssertionError as problem:
            return f"result {i}: " + " ".join(str(problem).split())
    return ""


def emulated(program, *args):
    """Results of a program's aarch64 code under qemu."""
    import numpy
    import run_zoo

    with tempfile.TemporaryDirectory() as folder:
        model, package, inputs, out = (f"{folder}/{name}" for name in ("model.pt2", "model.coil.pt2", "in.npz", "out.npz"))
        try:
            numpy.savez(inputs, **{f"in_{i}": t.detach().numpy() for i, t in enumerate(tensors(args))})
        except TypeError as problem:  # bfloat16, sparse tensors
            raise Refused("NumPy") from problem
        torch.export.save(program, model)
        done = run_zoo.harness.coil("compile", model, "--target", "aarch64:i8mm", "-o", package)
        if done.returncode == 0:
            done = run_zoo.emulated("run", package, "--input", inputs, "--output", out, level="i8mm")
        if done.returncode != 0:
            raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-300:]}")
        return tuple(torch.from_numpy(a) for a in run_zoo.harness.load_outputs(out))


def opened(function, args, door):
    """The program behind a door."""
    import coil

    if door not in PACKAGES:
        return torch.compile(function, backend="coil", dynamic=True if door == "dynamic" else None, mode="reduce-overhead" if door == "recorded" else None)
    try:
        program = torch.export.export(Packaged(function), args, strict=False)
        if door == "package":
            return coil.compile(program)
        if door == "aarch64":
            return functools.partial(emulated, program)
        with tempfile.TemporaryDirectory() as folder:
            coil.compile(program, f"{folder}/model.pt2")
            return torch._inductor.aoti_load_package(f"{folder}/model.pt2")
    except Exception as problem:
        if isinstance(problem, coil.Error):
            raise
        raise Refused("torch.export") from problem


def made(name):
    """(function, arguments, whether anything has gradients), the same each time."""
    make, tags = registry.PROGRAMS[name]
    torch.manual_seed(0)
    function, args = make()
    if isinstance(function, torch.nn.Module) and "train" not in tags:
        function.eval()
    return function, args, bool(parameters(function)) or any(t.requires_grad for t in tensors(args))


def through(name, door):
    """(results of coil, of eager, in double precision where this door is judged by it, calls to time) of one program."""
    function, args, _ = made(name)
    lies = "strided" in name or "expanded" in name
    exact = None
    if door in ROUNDED:
        with contextlib.suppress(Exception):
            exact = call(narrowed(copy.deepcopy(function), torch.float64), narrowed(fresh(args, lies), torch.float64), "gradients")
    if door in ("bfloat16", "float64"):
        function, args = (narrowed(v, getattr(torch, door)) for v in (function, args))
    reference, ours = copy.deepcopy(function), copy.deepcopy(function)
    try:
        wanted = stepped(reference, reference, args, lambda o: o.step) if door == "steps" else call(reference, fresh(args, lies), door)
    except Exception as problem:
        raise Refused("eager") from problem
    if door == "aarch64" and len(tensors(wanted)) < len(wanted):
        raise Refused("the command")  # it writes numbers as tensors, and no None
    compiled = opened(ours, fresh(args, lies), door)
    if door == "steps":
        found = stepped(ours, compiled, args, lambda o: torch.compile(o.step, backend="coil"))
    else:
        found = call(compiled, fresh(args, lies), door)
    for _ in range(2 if door == "recorded" else 0):
        torch.compiler.cudagraph_mark_step_begin()
        wanted, found = call(reference, fresh(args, lies), door), [t.clone() if isinstance(t, torch.Tensor) else t for t in call(compiled, fresh(args, lies), door)]
    timed = fresh(args, lies)
    return found, wanted, exact, {"eager": lambda: call(reference, timed, door), "coil": lambda: call(compiled, timed, door)}


def dynamo_alone_fails(name, door):
    """Whether PyTorch's own backend without a compiler fails as well."""
    function, args, _ = made(name)
    torch._dynamo.reset()
    try:
        call(torch.compile(function, backend="aot_eager", dynamic=True if door == "dynamic" else None), args, door)
    except Exception:
        return True
    return False


def check(name, door):
    """(what is wrong, operators in PyTorch with their reasons, calls to time) of one program behind one door, None where it has no such door."""
    import coil

    function, _, differentiable = made(name)
    if (door in WITH_GRADIENTS and not differentiable) or (door in PACKAGES and (name in NOT_EXPORTED or "random" in registry.PROGRAMS[name][1])) or (door == "steps" and not parameters(function)):
        return None
    torch._dynamo.reset()
    before = collections.Counter(coil.compile_stats().fallbacks)
    with torch.set_grad_enabled(door in WITH_GRADIENTS):
        found, wanted, exact, calls = through(name, door)
    wrong = far(found, wanted, exact, ROUNDED[door]) if door in ROUNDED else difference(found, wanted)
    return wrong, dict(collections.Counter(coil.compile_stats().fallbacks) - before), calls


def far(found, wanted, exact, bound):
    """What is wrong of results in few bits; empty: nothing."""
    def floating(values):
        return [torch.view_as_real(v) if v.is_complex() else v for v in values if isinstance(v, torch.Tensor) and not v.is_sparse and (v.is_floating_point() or v.is_complex())]

    found, wanted = floating(found), floating(wanted)
    exact = None if exact is None or len(floating(exact)) != len(wanted) else floating(exact)
    off = distance(found, wanted, exact)
    return off if isinstance(off, str) else "" if off <= bound else f"off by {off:.1e}"


def times(calls, rounds=5, least=0.02):
    """Microseconds of a call, the second best of rounds in turns."""
    found = {peer: [] for peer in calls}
    for _ in range(rounds):
        for peer, function in calls.items():
            count, start = 0, time.perf_counter()
            while not count or time.perf_counter() - start < least:
                function()
                count += 1
            if torch.get_default_device().type == "cuda":
                torch.cuda.synchronize()
            found[peer].append((time.perf_counter() - start) / count * 1e6)
    return {peer: round(sorted(values)[1], 1) for peer, values in found.items()}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["*"])
    parser.add_argument("--door", nargs="*", default=DOORS, choices=DOORS + MORE_DOORS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--part", default="0/1")
    return parser.parse_args()


def report(name, door, options, counts):
    try:
        found = check(name, door)
        if found is None:
            return
        wrong, left, calls = found
        word = "wrong" if wrong else "right"
        text = f"{wrong} {left or ''}"
        if options.times:
            with torch.set_grad_enabled(door in WITH_GRADIENTS):
                measured = times(calls)
            ratio = measured["coil"] / measured["eager"]
            text += f" {measured} {ratio:.2f}{' SLOW' if ratio > SLOW else ''}"
    except Refused as refusal:
        word, text = f"refused by {refusal}", ""
    except Exception as problem:
        word, text = "fails", f"{type(problem).__name__}: " + " ".join(str(problem).split())
        if door not in (*PACKAGES, "steps") and dynamo_alone_fails(name, door):
            word, text = "refused by Dynamo", ""
    counts[word] += 1
    if text.strip() or word == "wrong":
        print(f"{name} {door}: {word} {text}"[:400], flush=True)


def main():
    options = arguments()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    torch.set_default_device(options.device)
    part, parts = map(int, options.part.split("/"))
    counts = collections.Counter()
    for place, (name, (_, tags)) in enumerate(registry.load().items()):
        if place % parts != part or not any(fnmatch.fnmatch(name, pattern) for pattern in options.names) or ("large" in tags and options.names == ["*"]):
            continue
        for door in options.door:
            report(name, door, options, counts)
    print(dict(counts))
    return any(counts[word] for word in ("wrong", "fails"))


if __name__ == "__main__":
    sys.exit(main())
