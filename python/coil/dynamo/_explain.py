"""What torch.compile(backend="coil") makes of a function, counted: as torch._dynamo.explain, with coil's part."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping

import torch
from torch.utils import _pytree as pytree

from .._arguments import mapping_of, said
from .._errors import option_error
from .._stats import CompileStats, stats
from ..logs import count


@dataclasses.dataclass
class Explanation:
    """Of one call; `print` it."""

    dynamo_graphs: int
    """Graphs that Dynamo cut the function into."""
    breaks: list[str]
    """Why it did not go on, in its words, with the place in the source."""
    compiled: CompileStats
    """What coil did with these graphs (and those of gradients, which count apart), as `coil.compile_stats()` has it."""

    def __str__(self) -> str:
        lines = [f"Dynamo: {count(self.dynamo_graphs, 'graph')}, {count(len(self.breaks), 'break')}", *(f"  {reason}" for reason in self.breaks), f"coil: {self.compiled}"]
        return "\n".join(lines)


def explain(function: Callable[..., Any], *, options: Mapping[str, Any] | None = None) -> Callable[..., Explanation]:
    """`explain(f)(*args, **kwargs)` calls f twice, for Dynamo's account and for coil's, with compiled code of before forgotten (torch._dynamo.reset()). What
    f changes is changed twice. Where the results have gradients, these are computed once and dropped, so that their graphs are counted too. `options`: as of
    torch.compile(backend="coil"). The process's compile_stats() count it as well."""

    if not callable(function):
        raise option_error(f"'function' is {said(function)}", "a function or a module")
    given = {} if options is None else mapping_of(options, "options")

    def call(*args: Any, **kwargs: Any) -> Explanation:
        torch._dynamo.reset()
        told = torch._dynamo.explain(function)(*args, **kwargs)
        torch._dynamo.reset()
        before = dataclasses.replace(stats, fallbacks=dict(stats.fallbacks))
        _ask_for_gradients(torch.compile(function, backend="coil", options=given or None)(*args, **kwargs))
        torch._dynamo.reset()
        return Explanation(told.graph_count, [_reason(r) for r in told.break_reasons], _since(before))

    return call


def _ask_for_gradients(results: Any) -> None:
    """Graphs of gradients are compiled when the first gradient is asked for. No tensor's `grad` changes."""
    outputs = [r for r in pytree.tree_leaves(results) if isinstance(r, torch.Tensor) and r.requires_grad and r.grad_fn is not None]
    leaves, seen, waiting = [], set(), [r.grad_fn for r in outputs]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        waiting.extend(next_node for next_node, _ in node.next_functions)
    if leaves:
        torch.autograd.grad(outputs, leaves, [torch.zeros_like(r) for r in outputs], allow_unused=True)


def _reason(reason: Any) -> str:
    text = str(reason.reason).strip().splitlines()[0]
    place = reason.user_stack[-1] if reason.user_stack else None
    return f"{text} at {place.filename}:{place.lineno}" if place else text


def _since(before: CompileStats) -> CompileStats:
    fallbacks = {row: count - before.fallbacks.get(row, 0) for row, count in stats.fallbacks.items() if count > before.fallbacks.get(row, 0)}
    counts = {f.name: getattr(stats, f.name) - getattr(before, f.name) for f in dataclasses.fields(CompileStats) if f.name != "fallbacks"}
    return CompileStats(**counts, fallbacks=fallbacks)
