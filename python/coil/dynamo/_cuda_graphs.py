"""mode="reduce-overhead": what a graph launches is recorded once and replayed, by the trees of CUDA graphs and their memory pool that PyTorch
keeps for its own compiler. So its rules hold as they do there: a result is overwritten by the calls of a later iteration (PyTorch says so where a training
step reads it then; of inference it does not always), `torch.compiler.cudagraph_mark_step_begin()` begins an iteration, backward passes continue the forward's."""

from __future__ import annotations

import logging
from typing import Any, Callable, Iterable, Sequence

import torch
from torch.fx import Graph, GraphModule, Node

from ._control import inner_graphs, is_control
from ._split import data_sizes, size_sources, tensors_of, writes_input
from ._support import host_takes_part

log = logging.getLogger("coil")


class CudaGraphs:
    """Of one graph of Dynamo: its forward graph and, in training, the backward one."""

    def __init__(self) -> None:
        self.recorded_forward = False

    def record(self, call: Callable[[list], Any], gm: GraphModule, kind: str, static: Sequence[int], models: Iterable[Any],
               in_torch: Iterable[Node]) -> Callable[[list], Any]:
        """`call` as a recorded function; as it is, with a note, where the graph has what cannot be recorded. `in_torch`: what PyTorch computes of it."""
        reason = "its forward graph is not" if kind == "backward" and not self.recorded_forward else obstacle(gm, static, in_torch)
        if reason:
            log.info("%s graph: not recorded as a CUDA graph: %s", kind, reason)
            return _beside_recorded(call, gm) if kind == "backward" and self.recorded_forward else call
        if kind == "forward":
            self.recorded_forward = True
        return _recorded(call, gm, kind, static, list(models))


def static_inputs(gm: GraphModule, kind: str) -> list[int]:
    """The inputs that stay where they are between calls: parameters and buffers; of a backward graph what the forward one has kept for it."""
    if kind == "backward":
        from torch._inductor.utils import count_tangents

        return list(range(count_tangents(gm)))
    context = torch._guards.TracingContext.try_get()
    return list(context.fw_metadata.static_input_indices or []) if context and context.fw_metadata else []


def write_behind(graph: Graph, static: Sequence[int]) -> list[int]:
    """Takes writes to inputs that lie elsewhere in each call out of a graph: what they become is a further result, which is copied behind the replay.
    The inputs by their positions, in the order of these results. What stays where it is (statistics of a batch norm) is written by the graph."""
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    output = next(n for n in graph.nodes if n.op == "output")
    moved, results = [], list(output.args[0])
    for node in list(graph.nodes):
        if writes_input(node) and not node.users and inputs.index(node.args[0]) not in static:
            moved.append(inputs.index(node.args[0]))
            results.append(node.args[1])
            graph.erase_node(node)
    if moved:
        output.args = (tuple(results),)
    return moved


def written_inputs(graph: Graph) -> list[int]:
    """The inputs that a graph writes to, by their positions."""
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    return sorted({inputs.index(node.args[0]) for node in graph.nodes if writes_input(node)})


def obstacle(gm: GraphModule, static: Sequence[int], in_torch: Iterable[Node]) -> str:
    """Why a graph cannot be recorded; "" if it can."""
    from torch._inductor.utils import get_first_incompatible_cudagraph_node

    if not set(written_inputs(gm.graph)) <= set(static):
        return "it writes to an input that lies elsewhere in each call, and reads it again"
    devices = {t.device for node in gm.graph.nodes for t in tensors_of(node.meta.get("val"))}
    if any(device.type != "cuda" for device in devices):
        return "it has tensors on the CPU"
    if len(devices) != 1:
        return "it has tensors on several devices" if devices else "it has no tensors"
    if _goes_by_data(gm.graph):
        return "it goes on by what its data says, for which the host waits"
    node = get_first_incompatible_cudagraph_node(gm) or next(filter(host_takes_part, in_torch), None)
    return f"the host takes part in {node.target}" if node is not None else ""


def _goes_by_data(graph: Graph) -> bool:
    """Whether sizes of the graph are those that its data says, or its loops end by it."""
    control = [n for n in graph.nodes if is_control(n)]
    return (bool(data_sizes(graph.nodes, size_sources(graph))) or any(n.target.name() == "while_loop" for n in control)
            or any(_goes_by_data(inner.graph) for n in control for inner in inner_graphs(n)))


def _recorded(call: Callable[[list], Any], gm: GraphModule, kind: str, static: Sequence[int], models: list[Any]) -> Callable[[list], Any]:
    from torch._inductor.cudagraph_trees import cudagraphify_impl
    from torch._inductor.cudagraph_utils import get_placeholder_info

    device = next(t.device for node in gm.graph.nodes for t in tensors_of(node.meta.get("val")))
    output = next(n for n in gm.graph.nodes if n.op == "output")
    traces = [value.stack_trace if isinstance(value, torch.fx.Node) else None for value in output.args[0]]
    placeholders, written = get_placeholder_info(gm.graph), tuple(written_inputs(gm.graph))
    replay: Callable[[list], Any] | None = None

    def run(inputs: list) -> Any:
        nonlocal replay
        if replay is None:  # now the sizes are numbers, each combination of which is recorded
            replay = cudagraphify_impl(call, inputs, static, device_index=device.index, stack_traces=traces, is_backward=kind == "backward",
                                       is_inference=kind == "inference", placeholders=placeholders, mutated_input_idxs=written)
        for model in models:  # a replay has no call of ours that would say what an earlier one's kernels have found in the data
            model.check()
        return replay(inputs)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def with_writes_behind(call: Callable[[list], Any], moved: Sequence[int]) -> Callable[[list], Any]:
    """A call of a graph whose writes write_behind() has taken out."""
    if not moved:
        return call

    def run(inputs: list) -> Any:
        written = [inputs[i] for i in moved]
        results = call(inputs)
        for tensor, value in zip(written, results[-len(moved):], strict=True):
            tensor.copy_(value)
        return results[: -len(moved)]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _beside_recorded(call: Callable[[list], Any], gm: GraphModule) -> Callable[[list], Any]:
    """A backward graph that runs as it is behind a forward one that is recorded: the tree has to know that it runs."""
    from torch._inductor.cudagraph_trees import get_manager

    indices = [t.device.index for node in gm.graph.nodes for t in tensors_of(node.meta.get("val")) if t.device.type == "cuda"]

    def run(inputs: list) -> Any:
        manager = get_manager(indices[0], create_if_none_exists=False) if indices else None
        if manager is not None:
            manager.set_to_running_backward()
        return call(inputs)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
