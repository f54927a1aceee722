"""What torch.compile(backend="coil") makes, called beside eager."""

import torch

import coil


def leaves(value):
    return torch.utils._pytree.tree_leaves(value)


def assert_same(ours, theirs, atol=1e-5, rtol=1e-4):
    """Values, dtypes, devices and strides."""
    ours, theirs = leaves(ours), leaves(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, atol=atol, rtol=rtol, equal_nan=True)
            assert a.stride() == b.stride(), f"strides {a.stride()}, eager has {b.stride()}"
            assert a.requires_grad == b.requires_grad
        else:
            assert a == b and type(a) is type(b)


def check(function, *arguments, **options):
    """Compiles, compares one call with eager, and returns the compiled function."""
    compiled = torch.compile(function, backend="coil", **options)
    expected = function(*[a.clone() if isinstance(a, torch.Tensor) else a for a in arguments])
    assert_same(compiled(*[a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]), expected)
    return compiled


def nothing_in_torch():
    stats = coil.compile_stats()
    assert stats.packages + stats.cache_hits and not stats.fallback_operators, str(stats)
