"""One differentiable pair through torch.compile(backend="coil", fullgraph=True) with backward: the gradients of its samples' inputs beside eager's.

All samples are one function; the gradients of its results are the same random numbers in both, and in double precision, which decides as
in evaluate.py whether a gradient is near enough, element by element or by its largest error. Results that change between calls have no gradient to compare: "eager".
"""

import numpy as np
import torch
from torch.utils._pytree import tree_flatten

import compiled
import evaluate
import samples

coil = compiled.coil

# Which of equal elements these take, and so which one the gradient belongs to, is not defined.
TIES = {"argsort", "kthvalue", "median", "mode", "msort", "nanmedian", "sort", "topk"}


class Call(samples.Call):
    """A sample's call as PyTorch's own gradient tests make it: some inputs have to be made symmetric, triangular, ... on the way."""

    def __init__(self, op, sample):
        super().__init__(op, sample)
        tensors = [x for x in tree_flatten((sample.input, sample.args, sample.kwargs))[0] if isinstance(x, torch.Tensor)]
        self.wanted = [t.requires_grad for t in tensors]
        self.narrow = torch.zeros((), dtype=tensors[0].dtype).abs().dtype if tensors and tensors[0].dtype.is_floating_point else torch.float32
        self.ties = op.name in TIES
        self.process = sample.output_process_fn_grad
        inner, wrapper = op.op, op.gradcheck_wrapper
        self.function = lambda first, *args, **kwargs: wrapper(inner, first, *args, **kwargs)

    def arguments(self, wider=False):
        """Fresh leaves with the sample's strides."""
        return [(t.to(samples.WIDER.get(t.dtype, t.dtype)) if wider else t).requires_grad_(wanted) for t, wanted in zip(self.fresh(), self.wanted)]

    def fresh(self):
        dense = [t.is_contiguous() or any(n > 1 and s == 0 for n, s in zip(t.shape, t.stride())) for t in self.tensors]
        return [t.clone() if d else samples.same_layout(t) for t, d in zip(self.tensors, dense)]

    def wider(self):
        """The same in double precision."""
        again = object.__new__(Call)
        again.__dict__.update(self.__dict__, leaves=[samples.WIDER.get(x, x) if isinstance(x, torch.dtype) else x for x in self.leaves])
        return again


def differentiable(call, result):
    """The results that have gradients, as the sample's own function makes them comparable."""
    return [v for v in tree_flatten(call.process(result))[0] if isinstance(v, torch.Tensor) and v.requires_grad]


def of_result(value, number, narrow):
    """A gradient for a call's result: the same numbers, of the type `narrow`, in each dtype."""
    numbers = torch.randn(*value.shape, *([2] if value.is_complex() else []), generator=torch.Generator().manual_seed(number), dtype=torch.float32)
    numbers = numbers.to(narrow).to(torch.float32)
    return (torch.view_as_complex(numbers) if value.is_complex() else numbers).to(value.device, value.dtype)


def gradients(calls, results, arguments):
    """[[gradient or None of each tensor] of each call], on the CPU"""
    outputs = [differentiable(call, result) for call, result in zip(calls, results)]
    leaves = [t for given in arguments for t in given if t.requires_grad]
    samples.spoil_free_memory()
    given = [of_result(v, i, call.narrow) for call, of_call in zip(calls, outputs) for i, v in enumerate(of_call)]
    found = iter(torch.autograd.grad([v for of_call in outputs for v in of_call], leaves, given, allow_unused=True))
    return [samples.on_cpu([next(found) if t.requires_grad else None for t in of_call]) for of_call in arguments]


def eager(call, wider=False, seed=0):
    torch.manual_seed(seed)
    call = call.wider() if wider else call
    arguments = call.arguments(wider)
    return gradients([call], [call(arguments)], [arguments])[0]


def through_coil(calls, backend="coil"):
    def program(*tensors):
        results, at = [], 0
        for call in calls:
            results.append(call(tensors[at : at + len(call.slots)]))
            at += len(call.slots)
        return tuple(results)

    torch._dynamo.reset()
    arguments = [call.arguments() for call in calls]
    samples.spoil_free_memory()
    results = torch.compile(program, backend=backend, fullgraph=True, dynamic=False)(*[t for given in arguments for t in given])
    return gradients(calls, results, arguments)


def as_exact(a, e, w):
    """Whether the largest error is no more than three times eager's own: differences of large terms may leave any element anything. Where eager lost
    the number on its way (an overflow of float16), the one in double precision decides."""
    few = 1e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-4
    finite, in_range = a.isfinite(), w.to(a.dtype).isfinite()
    lost = finite & ~e.isfinite()
    if (e.isfinite() & ~finite).any() or (lost & ~in_range).any():
        return False
    a, e, w = (t.detach().to(torch.complex128) for t in (a, e, w))
    if not ((a - w)[lost].abs() <= few * w[lost].abs()).all():
        return bool(lost.all()) and bool((a - w).abs().max() <= few * w.abs().max())
    finite &= ~lost
    return not finite.any() or bool((a - w)[finite].abs().max() <= 3 * (e - w)[finite].abs().max())


def among_equals(gradient, of):
    """The gradients of equal elements in an order of their own."""
    keys = [t.detach().double().flatten().numpy() for t in (gradient, of)]
    return gradient.detach().flatten()[torch.from_numpy(np.lexsort(keys))]


def difference(ours, theirs, wide, tolerance, call=None):
    """None, or how the gradients of one call differ; none at all is zero."""
    for number, (a, e, w) in enumerate(zip(ours, theirs, wide or [None] * len(theirs), strict=True)):
        if a is None and e is None:
            continue
        a, e = (torch.zeros_like(e) if a is None else a), (torch.zeros_like(a) if e is None else e)
        a, e = a.resolve_conj().resolve_neg(), e.resolve_conj().resolve_neg()
        if call and call.ties and not a.is_complex():
            of = call.fresh()[number].cpu()
            a, e, w = among_equals(a, of), among_equals(e, of), None
        problem = evaluate.close(a, e, w, tolerance)
        if problem and not (w is not None and a.shape == e.shape and a.dtype == e.dtype and as_exact(a, e, w)):
            return f"gradient {number}: {problem}"
    return None


def fails_without_coil(calls):
    try:
        through_coil(calls, "aot_eager")
    except Exception:
        return True
    return False


def tried(calls, rows, tolerance, report):
    """The verdict of these samples in one graph."""
    coil.reset_compile_stats()
    report("tracing")
    try:
        results = through_coil(calls)
    except Exception as error:
        if not compiled.is_coil(error) and type(error).__module__.startswith("torch") or isinstance(error, (NotImplementedError, AttributeError)):
            return {"status": "export", "reason": compiled.said(error)}
        return {"status": "export" if fails_without_coil(calls) else "refused", "reason": compiled.said(error)}
    report("comparing")
    stats = coil.compile_stats()
    verdict = {"operators": stats.operators, "in_pytorch": stats.fallback_operators, "fallbacks": stats.fallbacks, "status": "right", "reason": ""}
    for call, ours, row in zip(calls, results, rows, strict=True):
        problem = difference(ours, row["gradients"], row["wide"], tolerance, call)
        if problem:
            return {**verdict, "status": "wrong", "reason": f"sample {row['sample']}: {problem}"}
    return verdict


def expectation(call, number):
    """Eager's gradients, alone and in double precision; ValueError where they change between calls."""
    row = {"sample": number, "gradients": eager(call), "wide": None}
    if difference(eager(call, seed=1), row["gradients"], None, (0, 0)):
        raise ValueError("random")
    try:
        row["wide"] = eager(call, wider=True)
    except Exception:  # not every operator takes doubles
        pass
    return row


def verdict(name, dtype, report=lambda phase: None):
    """As compiled.verdict's."""
    report("exporting")
    op = samples.entries()[name]
    calls, rows, failures = [], [], []
    for number, sample in enumerate(samples.chosen(op, getattr(torch, dtype), requires_grad=True)):
        call = Call(op, sample)
        try:
            rows.append(expectation(call, number))
            calls.append(call)
        except Exception as error:
            failures.append(samples.short(error))
    if not rows:
        return {"status": "eager", "reason": (failures or ["no usable sample"])[0]}
    tolerance = samples.tolerance(op, getattr(torch, dtype))
    return compiled.narrowed(tried(calls, rows, tolerance, report), [lambda c=c, r=r: tried([c], [r], tolerance, report) for c, r in zip(calls, rows)])
