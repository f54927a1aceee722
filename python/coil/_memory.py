"""Memory of a device that PyTorch keeps for itself."""

from __future__ import annotations

import sys
from typing import Any, Callable, TypeVar

from ._errors import OutOfMemoryError

_T = TypeVar("_T")


def with_free_memory(open_model: Callable[..., _T], *args: Any) -> _T:
    """`open_model(*args)`; once more where a device had no memory and PyTorch's caching allocator has some that nobody uses."""
    try:
        return open_model(*args)
    except OutOfMemoryError:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized() or torch.cuda.memory_reserved() == torch.cuda.memory_allocated():
            raise
    torch.cuda.empty_cache()
    return open_model(*args)
