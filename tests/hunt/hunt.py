#!/usr/bin/env python3
"""Programs as users write them through three doors, beside eager: a package of torch.export, torch.compile, and torch.compile with gradients.

What is wrong, fails or stays in PyTorch is printed; with --times all programs, and the microseconds of a call in turns with eager. What eager or
torch.export refuse themselves is counted alone.

  python tests/hunt/hunt.py                       # NAME... 'conv*' --door gradients --device cuda --times --part 0/8
"""

import argparse
import collections
import copy
import fnmatch
import pathlib
import sys
import time
import warnings

import torch
from torch.utils._pytree import tree_leaves, tree_map

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import registry

DOORS = ("package", "forward", "gradients")
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-9, torch.complex128: 1e-9}
NOT_EXPORTED = ("natural_hvp", "hmc_step", "pde_residual", "jacrev_fwd", "maml", "per_sample_grads", "transforms_of_whole_operators", "linearized")  # torch.export leaves a transform of functorch open
SLOW = 1.15


class Refused(Exception):
    """By eager or torch.export."""


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


def call(function, args, door):
    """All results; with gradients, these and what arguments hold after the call as well."""
    results = function(*args)
    if door != "gradients":
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


def opened(function, args, door):
    """The program behind a door."""
    import coil

    if door != "package":
        return torch.compile(function, backend="coil")
    try:
        return coil.compile(torch.export.export(Packaged(function), args, strict=False))
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


def check(name, door):
    """(what is wrong, operators in PyTorch with their reasons, calls to time) of one program behind one door, None where it has no such door."""
    import coil

    function, args, differentiable = made(name)
    if (door == "gradients" and not differentiable) or (door == "package" and name in NOT_EXPORTED):
        return None
    torch._dynamo.reset()
    before = collections.Counter(coil.compile_stats().fallbacks)
    lies = "strided" in name or "expanded" in name
    reference, ours = copy.deepcopy(function), copy.deepcopy(function)
    with torch.set_grad_enabled(door == "gradients"):
        try:
            wanted = call(reference, fresh(args, lies), door)
        except Exception as problem:
            raise Refused("eager") from problem
        compiled = opened(ours, fresh(args, lies), door)
        wrong = difference(call(compiled, fresh(args, lies), door), wanted)
    left = collections.Counter(coil.compile_stats().fallbacks) - before
    timed = fresh(args, lies)
    return wrong, dict(left), {"eager": lambda: call(reference, timed, door), "coil": lambda: call(compiled, timed, door)}


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
    parser.add_argument("--door", nargs="*", default=DOORS, choices=DOORS)
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
            with torch.set_grad_enabled(door == "gradients"):
                measured = times(calls)
            ratio = measured["coil"] / measured["eager"]
            text += f" {measured} {ratio:.2f}{' SLOW' if ratio > SLOW else ''}"
    except Refused as refusal:
        word, text = f"refused by {refusal}", ""
    except Exception as problem:
        word, text = "fails", f"{type(problem).__name__}: " + " ".join(str(problem).split())
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
