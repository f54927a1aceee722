"""The backend that torch.compile finds by the name "coil"."""

from __future__ import annotations

import functools
from typing import Any, Callable, Mapping, Sequence

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from .._compile import settings_of
from .._errors import option_error
from ._decompositions import decompositions
from ._graph import compile_graph

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def compile_fx(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], mode: str | None = None,
               options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Compiles a graph of Dynamo.

    `mode`: "default", "reduce-overhead" (the same: repeated calls on CUDA become CUDA graphs anyway), "max-autotune" (as
    "tune": "max": up to a minute for each graph), "max-autotune-no-cudagraphs" (without CUDA graphs).
    `options`: "fallback": "torch" (default) runs operators that coil has no code for in PyTorch, "error" refuses the graph;
    "opt_level", "threads", "libraries", "graphs", "tf32", "skip", "tune", "tune_budget" as on the command line; "kernels" as
    coil.compile has it. "tf32" is by default what `torch.set_float32_matmul_precision` says ("high" and "medium": yes).
    """
    _check_mode(mode or "default")
    given = dict(options or {})
    fallback = given.pop("fallback", "torch")
    if fallback not in ("torch", "error"):
        raise option_error(f"'fallback' is {fallback!r}", '"torch" or "error"')
    if mode == "max-autotune-no-cudagraphs":
        given.setdefault("graphs", False)
    if mode and mode.startswith("max-autotune"):
        given.setdefault("tune", "max")
    given.setdefault("tf32", _tf32_allowed())
    settings = settings_of(given, "cpu")  # checked once, here; the target is each graph's own
    compiler = functools.partial(compile_graph, settings=settings, fallback=fallback)
    backend = aot_autograd(
        fw_compiler=functools.partial(compiler, kind="forward"),
        bw_compiler=functools.partial(compiler, kind="backward"),
        inference_compiler=functools.partial(compiler, kind="inference"),
        decompositions=decompositions,
        partition_fn=min_cut_rematerialization_partition,
    )
    return backend(gm, example_inputs)


def _tf32_allowed() -> bool:
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # it was set in PyTorch's other way, for products alone
        return torch.backends.cuda.matmul.fp32_precision == "tf32"


@functools.lru_cache(maxsize=None)
def _check_mode(mode: str) -> None:
    if mode not in MODES:
        raise option_error(f"there is no mode '{mode}'", "modes: " + ", ".join(MODES))
