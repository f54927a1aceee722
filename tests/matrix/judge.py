"""Whether results are right: beside float64 where the program runs in it, with eager's own error in the same type as the measure."""

import torch

# Of the largest number of a result; bfloat16 and float16 as the zoo's tests have them.
FORWARD = {"float32": 1e-4, "bfloat16": 2e-2, "float16": 4e-3, "autocast": 2e-2}
# What a gradient may be off where eager is (nearly) exact, of the gradient's norm: one unit in the last place of 16 bits, fifty of them of 32 (an
# exponential of coil's may be off by one where eager's is by half of one, and differences of such are what some gradients are made of).
GRADIENT = {"float32": 5e-6, "bfloat16": 8e-3, "float16": 1e-3, "autocast": 8e-3}
TIMES_EAGER = 2.0
# A gradient that is nothing but for float64's roundings (of a number that a softmax does not see) is a sum of roundings in any type: one draw beside
# the largest of a few others.
TIMES_EAGER_OF_NOTHING = 4.0
NONE_AT_ALL = 1e-9  # of the typical gradient
NOTHING = 1e-3  # of the typical gradient: smaller ones are rounding errors around zero, and count by this much


def largest(value, exact):
    """The largest difference, of the largest number."""
    finite = exact.isfinite()
    if not bool(finite.any()):
        return 0.0
    return float((value - exact)[finite].abs().max() / exact[finite].abs().max().clamp_min(1e-30))


def _kind(found, eager):
    """What differs besides numbers, or None."""
    if len(found) != len(eager):
        return f"{len(found)} results instead of {len(eager)}"
    for i, (a, e) in enumerate(zip(found, eager)):
        if a.shape != e.shape or a.dtype != e.dtype:
            return f"result {i}: {a.dtype} {tuple(a.shape)} instead of {e.dtype} {tuple(e.shape)}"
        if a.is_floating_point() or a.is_complex():
            if not torch.equal(a.isfinite(), e.isfinite()) and bool(e.isfinite().all()):
                return f"result {i}: {int((~a.isfinite()).sum())} of {a.numel()} elements are infinite or NaN, eager's are finite"
    return None


def _numbers(t):
    return torch.view_as_real(t.resolve_conj()).double() if t.is_complex() else t.double()


def forward(found, eager, exact, dtype, tolerance=None, others=()):
    """{"status", "text", "error", "eager_error"} of results; `exact` may be None: eager is the measure then. `others`: as of `gradients`."""
    text = _kind(found, eager)
    if text:
        return {"status": "wrong", "text": text}
    of_cell = max(FORWARD[dtype], tolerance or 0.0)
    if exact is not None and any(x.shape != e.shape for x, e in zip(exact, eager)):
        exact = None  # sizes that rounding decides
    worst = (0.0, 0.0, 0)
    for i, (a, e) in enumerate(zip(found, eager)):
        if not (a.is_floating_point() or a.is_complex()):
            if not torch.equal(a, e) and not (exact is not None and torch.equal(a.double(), exact[i].double())):
                return {"status": "wrong", "text": f"result {i}: {int((a != e).sum())} of {a.numel()} {str(a.dtype)[6:]} elements differ"}
            continue
        limit = max(of_cell, FORWARD.get(str(a.dtype)[6:], 0.0))  # a program may compute in fewer bits than the cell's type has
        a, e = _numbers(a), _numbers(e)
        against_eager = largest(a, e)
        if against_eager <= limit:
            worst = max(worst, (against_eager, 0.0, i))
            continue
        if exact is None:
            return {"status": "wrong", "text": f"result {i}: {against_eager:.1e} from eager (no float64 to ask)", "error": against_eager}
        x = _numbers(exact[i])
        ours, eagers = largest(a, x), max((n for n in (largest(r, x) for r in (e, *(_numbers(o[i]) for o in others))) if n == n), default=0.0)
        if not ours <= max(limit, TIMES_EAGER * eagers):
            return {"status": "wrong", "text": f"result {i}: error {ours:.1e}, eager's {eagers:.1e}", "error": ours, "eager_error": eagers}
        worst = max(worst, (ours, eagers, i))
    return {"status": "right", "error": worst[0], "eager_error": worst[1]}


def gradients(found, eager, exact, dtype, others=()):
    """The same of gradients, by their norms: each at most TIMES_EAGER as far from float64 as eager's, or both negligible. `others`: eager's results for
    arguments and parameters that differ by their last bit; eager's error is the largest of all. A gradient jumps where a rounding decides a branch (the
    side of a ReLU), and what cancels to nothing is what roundings left: there the error of one run says nothing about the next."""
    text = _kind(found, eager)
    if text:
        return {"status": "wrong", "text": text}
    reference = exact if exact is not None else [e.double() for e in eager]
    typical = [float(x.norm() / max(x.numel(), 1) ** 0.5) for x in map(_numbers, reference) if x.numel() and bool(x.isfinite().all())]
    typical = sorted(typical)[len(typical) // 2] if typical else 0.0
    rows = []
    for i, (a, e, x) in enumerate(zip(found, eager, reference)):
        if not x.numel() or not bool(e.isfinite().all()) or not bool(x.isfinite().all()):
            continue  # eager overflows: nothing to compare with
        x = _numbers(x)
        scale = max(float(x.norm()), NOTHING * typical * x.numel() ** 0.5, 1e-30)
        error_of = lambda value: float((_numbers(value) - x).norm()) / scale
        eagers = [error_of(e), *(error_of(o[i]) for o in others)]
        times = TIMES_EAGER_OF_NOTHING if others and float(x.norm()) <= NONE_AT_ALL * typical * x.numel() ** 0.5 else TIMES_EAGER
        rows.append((error_of(a), max(n for n in eagers if n == n), i, times))
    usual = sorted(r[1] for r in rows)[len(rows) // 2] if rows else 0.0
    floor = GRADIENT[dtype] * (1 if exact is not None else 4)
    worst = max(rows, key=lambda r: r[0] / max(r[3] * max(r[1], usual), floor), default=(0.0, 0.0, 0, TIMES_EAGER))
    good = worst[0] <= max(worst[3] * max(worst[1], usual), floor)
    row = {"status": "right" if good else "wrong", "error": worst[0], "eager_error": worst[1]}
    return row if good else row | {"text": f"gradient {worst[2]} of {len(found)}: error {worst[0]:.1e}, eager's {worst[1]:.1e}, usually {usual:.1e}"}
