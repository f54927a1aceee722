"""Comparing tensors with eager PyTorch's, and moving a program's inputs to a device. Imported by workers only: it loads torch."""

import torch
from torch.utils._pytree import tree_leaves, tree_map


class Failed(Exception):
    """A row's status and text."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def to(values, device):
    """A deep copy on the device, with the same strides."""
    def move(v):
        if not isinstance(v, torch.Tensor):
            return v
        if not v.numel() or v.is_contiguous():
            return v.to(device, copy=True)
        return torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=device).copy_(v)

    return tree_map(move, values)


def describe(tensor):
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def difference(got, expected):
    """The largest difference relative to the largest finite magnitude expected; AssertionError where no tolerance helps."""
    assert got.shape == expected.shape, f"shape {list(got.shape)} instead of {list(expected.shape)}"
    assert got.dtype == expected.dtype, f"dtype {got.dtype} instead of {expected.dtype}"
    expected = expected.to(got.device)
    if got.is_complex():
        got, expected = torch.view_as_real(got.resolve_conj()), torch.view_as_real(expected.resolve_conj())
    if not got.dtype.is_floating_point:
        wrong = (got != expected).reshape(-1)
        if wrong.numel() and bool(wrong.any()):
            at = int(wrong.to(torch.uint8).argmax())
            raise AssertionError(f"{int(wrong.sum())} of {wrong.numel()} differ, first at {at}: {got.reshape(-1)[at].item()} instead of {expected.reshape(-1)[at].item()}")
        return 0.0
    if not got.numel():
        return 0.0
    got, expected = got.double(), expected.double()
    finite = expected.isfinite()
    assert bool((got.isnan() == expected.isnan()).all()), f"NaN in other places: {int(got.isnan().sum())} instead of {int(expected.isnan().sum())}"
    rest = ~finite & ~expected.isnan()
    assert bool((got[rest] == expected[rest]).all()), "infinities differ"
    assert bool(got[finite].isfinite().all()), f"{int((~got[finite].isfinite()).sum())} infinities where eager is finite"
    if not bool(finite.any()):
        return 0.0
    worst = (got[finite] - expected[finite]).abs().max()
    return float(worst / expected[finite].abs().max().clamp(min=1e-30)) if float(worst) else 0.0


def compare(got, expected, tolerance, label):
    """The largest error of the list of tensors; Failed("wrong") beyond the tolerance."""
    if len(got) != len(expected):
        raise Failed("wrong", f"{label}: {len(got)} outputs instead of {len(expected)}")
    worst = 0.0
    for i, (g, e) in enumerate(zip(got, expected)):
        where = f"{label}: output {i} {describe(e)}"
        try:
            error = difference(g, e)
        except AssertionError as problem:
            raise Failed("wrong", f"{where}: {problem}") from None
        if not error <= tolerance:
            bad = ((g.double() - e.to(g.device).double()).abs().reshape(-1)).nan_to_num()
            at = int(bad.argmax())
            raise Failed("wrong", f"{where}: relative error {error:.2e} > {tolerance:.0e}, worst at {at}: {g.reshape(-1)[at].item():.6g} instead of {e.reshape(-1)[at].item():.6g}")
        worst = max(worst, error)
    return worst


def same_bits(a, b):
    return all(x.shape == y.shape and torch.equal(x.contiguous().reshape(-1).view(torch.uint8), y.contiguous().reshape(-1).view(torch.uint8)) for x, y in zip(a, b))


def off_by_one(tensor):
    """The same tensor one element after an aligned address."""
    if not tensor.numel():
        return tensor
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return torch.empty(extent + 1, dtype=tensor.dtype, device=tensor.device).as_strided(tensor.shape, tensor.stride(), 1).copy_(tensor)


def tensor_outputs(values):
    """Flattened outputs as tensors: a plain number as what coil makes of it."""
    return [v if isinstance(v, torch.Tensor) else torch.tensor(v) for v in tree_leaves(values) if v is not None]
