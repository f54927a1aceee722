"""The backend that torch.compile finds by the name "coil"."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from typing import Any, Callable, Mapping, Sequence

import torch
from torch._dynamo.backends.common import aot_autograd

from .._compile import settings_of
from .._errors import option_error
from ._cuda_graphs import CudaGraphs
from ._decompositions import decompositions
from ._flex import spell_out_flex_attention
from ._graph import compile_graph
from ._layout import convolutions_in_tf32, products_in_tf32
from ._partition import partition
from ._refusals import refuse_what_eager_refuses
from ._whole import keep_operators_whole

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def compile_fx(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], mode: str | None = None,
               options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Compiles a graph of Dynamo.

    `mode`: "default"; "reduce-overhead" (on CUDA, forward and backward graphs are recorded as CUDA graphs, PyTorch's operators among them, by the rules
    that PyTorch has for these: results are overwritten by later calls); "max-autotune" (the same, and "tune": "max": up to a minute for each graph);
    "max-autotune-no-cudagraphs" (tuned, without CUDA graphs). In "default" mode each program's repeated calls become a CUDA graph where that is faster.
    `options`: "fallback": "torch" (default) runs operators that coil has no code for in PyTorch, "error" refuses the graph;
    "attention", "convolutions": in training on CUDA these are PyTorch's ("torch", default) or coil's ("coil", without breaks of the graph);
    "freeze": inference holds the module's weights as they are at the first call (by default as torch._inductor.config.freezing says);
    "opt_level", "threads", "libraries", "graphs", "tf32", "skip", "tune", "tune_budget" as on the command line; "dump", "debug_info" and
    "kernels" as coil.compile has them. "deterministic" is by default what `torch.use_deterministic_algorithms` says. "tf32" is by default what PyTorch's
    settings say: for products `torch.set_float32_matmul_precision` ("high" and "medium": yes), for convolutions `torch.backends.cudnn.allow_tf32`,
    which is True unless it was changed.
    """
    _check_mode(mode or "default")
    given = dict(options or {})
    fallback = _one_of(given, "fallback", "torch", "error")
    of_pytorch = [name for name in ("attention", "convolutions") if _one_of(given, name, "torch", "coil") == "torch"]
    if mode in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        given.setdefault("graphs", False)  # of single programs
    graphs = CudaGraphs() if mode in ("reduce-overhead", "max-autotune") else None
    if mode and mode.startswith("max-autotune"):
        given.setdefault("tune", "max")
    given.setdefault("tf32", _tf32_allowed())
    given.setdefault("deterministic", torch.are_deterministic_algorithms_enabled())
    freeze = given.pop("freeze", _inductor_freezes())
    if not isinstance(freeze, bool):
        raise option_error(f"'freeze' is {freeze!r}", "True or False")
    if "dims" in given:
        raise option_error("'dims' names the inputs of an exported program, which a graph of torch.compile has not", "torch._dynamo.mark_dynamic(tensor, 0)")
    settings = settings_of(given, "cpu")  # checked once, here; the target is each graph's own
    compiler = functools.partial(compile_graph, settings=settings, fallback=fallback, of_pytorch=of_pytorch, freeze=freeze, graphs=graphs)
    backend = aot_autograd(
        fw_compiler=functools.partial(compiler, kind="forward"),
        bw_compiler=functools.partial(compiler, kind="backward"),
        inference_compiler=functools.partial(compiler, kind="inference"),
        decompositions=decompositions,
        partition_fn=partition,
        keep_inference_input_mutations=True,  # what inputs become is written by coil's kernels
    )
    refuse_what_eager_refuses(gm)
    spell_out_flex_attention(gm)
    keep_operators_whole(gm)
    with _operators_kept(example_inputs):
        return backend(gm, example_inputs)


def _operators_kept(example_inputs: Sequence[Any]) -> Any:
    """On the CPU operators of torch.library.triton_op stay whole: the user may have given them a function for it."""
    on_gpu = any(isinstance(x, torch.Tensor) and x.device.type == "cuda" for x in example_inputs)
    config = importlib.import_module("torch._functorch.config")
    if on_gpu or not hasattr(config, "decompose_custom_triton_ops"):
        return contextlib.nullcontext()
    return config.patch(decompose_custom_triton_ops=False)


def _inductor_freezes() -> bool:
    """What is set for PyTorch's own compiler, if it is there, holds for this one."""
    config = sys.modules.get("torch._inductor.config")
    return bool(getattr(config, "freezing", False))


def _one_of(given: dict[str, Any], name: str, default: str, other: str) -> str:
    value = given.pop(name, default)
    if value not in (default, other):
        raise option_error(f"'{name}' is {value!r}", f'"{default}" or "{other}"')
    return value


def _tf32_allowed() -> str:
    """Of products and convolutions, as eager PyTorch would compute them."""
    products, convolutions = products_in_tf32(), convolutions_in_tf32()
    return "all" if products and convolutions else "products" if products else "convolutions" if convolutions else "no"


@functools.lru_cache(maxsize=None)
def _check_mode(mode: str) -> None:
    if mode not in MODES:
        raise option_error(f"there is no mode '{mode}'", "modes: " + ", ".join(MODES))
