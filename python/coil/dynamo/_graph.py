"""One graph of AOTAutograd -> a function: coil's programs, with PyTorch's operators in between where there must be any."""

from __future__ import annotations

import functools
import logging
import operator
from typing import Any, Callable, Collection, Sequence

import sympy
import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import _BoxedCodeGen

from .. import _runtime
from .._errors import Error, FileError, OptionError, make_error
from .._registry import may_have_kernel
from .._stats import stats
from ..triton import refuse_on_cpu, rewrite_graph
from ._biases import separate_biases
from ._control import inner_nodes, is_control
from ._cuda_graphs import CudaGraphs, static_inputs, with_writes_behind, write_behind
from ._cut import cut
from ._decompositions import operator_name
from ._devices import on_the_gpu
from ._dropout import draw_masks
from ._effects import free_checks
from ._freeze import FrozenGraph, weights_of
from ._generator import random_state
from ._layout import lay_images_channels_last
from ._numbers import numbers_as_tensors
from ._patches import write_patches
from ._products import write_products
from ._program import Program, build_programs, find_problems
from ._results import settle_results
from ._rewrite import close_gaps, fill_unwritten, read_whole_storages, return_written_inputs, separate_gradients
from ._sink import sink
from ._split import Split, is_number, is_view, size_sources
from ._stages import graph_begun, graph_split
from ._support import FREE, graph_device, torch_nodes

log = logging.getLogger("coil")


def compile_graph(gm: GraphModule, example_inputs: Sequence[Any], *, settings: dict, fallback: str, of_pytorch: Collection[str], freeze: bool,
                  graphs: CudaGraphs | None, kind: str) -> Callable[[list], Any]:
    """A boxed function of the graph's inputs. `fallback`: "torch" or "error"; `of_pytorch`: what training on CUDA takes from PyTorch;
    `freeze`: inference takes the module's weights as they are at the first call; `graphs`: what the graph launches is recorded."""
    stats.graphs += 1
    device = graph_device(gm.graph)
    records = graphs if device.type == "cuda" else None
    static = static_inputs(gm, kind) if records else []
    settings = dict(settings, target=target_of(device) if device.type in ("cpu", "cuda") else "cpu", name=kind)
    if device.type == "cuda" and not settings["machine"] and _runtime.cuda_devices():  # the program runs here and nowhere else
        settings["machine"] = "this"
    settings["host_routines"] = False  # PyTorch computes on the GPU what packages let the CPU compute
    graph_begun(gm, kind)
    own = of_pytorch if fallback == "torch" and kind != "inference" else ()
    kept = own if device.type == "cuda" else ()
    settle_results(gm.graph, kept)
    fill_unwritten(gm.graph)
    draw_masks(gm.graph, size_sources(gm.graph), in_kernels=not records)
    if kind != "inference":
        _lay_out(gm, example_inputs, own, device, kind)
    moved = write_behind(gm.graph, static) if records else []
    launches: dict[Node, str] = {}  # of Triton kernels that coil does not take
    copied: list[Node] = []
    if device.type == "cuda":
        copied = on_the_gpu(gm.graph, device)
        registrations = rewrite_graph(gm.graph, settings["target"], refused=launches)
        settings["kernels"] = [*settings["kernels"], *registrations]
        if registrations:
            settle_results(gm.graph, kept)
    else:
        refuse_on_cpu(gm.graph)
        free_checks(gm.graph)
    if kind == "backward":
        separate_gradients(gm.graph)
    return_written_inputs(gm.graph)
    read_whole_storages(gm.graph)
    close_gaps(gm.graph)
    filled = [*numbers_as_tensors(gm.graph), *copied]
    reasons = torch_nodes(gm.graph, device, functools.partial(may_have_kernel, settings), own)
    reasons.update(dict.fromkeys(filled, FREE))
    reasons.update(launches)
    operators = [n for n in gm.graph.nodes if n.op == "call_function" and not is_number(n) and n.target is not operator.getitem and n not in filled]
    stats.operators += len(operators) + sum(1 for n in operators if is_control(n) for inner in inner_nodes(n) if not is_number(inner))

    def build(frozen: dict[Node, torch.Tensor]) -> Callable[[list], Any]:
        programs, split = _compile_programs(gm, settings, device, reasons, frozen, kind)
        used = {n: reason for n, reason in reasons.items() if n in split.level and reason}
        if used and fallback == "error":
            node, reason = next(iter(used.items()))
            raise make_error(102, f"COIL-E102: {node.target}: {reason}\n  hint: options={{\"fallback\": \"torch\"}} runs it in PyTorch")
        for node, reason in used.items():
            if getattr(node.target, "namespace", "") == "coil_triton":  # PyTorch cannot run it any more
                raise make_error(102, f"COIL-E102: {node.target}: {reason}\n  hint: docs/triton.md lists what kernels in Triton may be")
        _count_fallbacks(used, kind)
        graph_split(gm, split, reasons, kind, [programs[level].model for level in sorted(programs)])
        log.debug("%s graph of %d operators: %d programs, %d operators in PyTorch", kind, len(operators), len(programs), len(used))
        call = _assemble(gm, split, programs)
        return with_writes_behind(records.record(call, gm, kind, static, {p.model for p in programs.values()}, used), moved) if records else call

    weights = weights_of(gm.graph) if freeze and kind == "inference" else {}
    return FrozenGraph(weights, build) if weights else build({})


def _lay_out(gm: GraphModule, inputs: Sequence[Any], of_pytorch: Collection[str], device: torch.device, kind: str) -> None:
    """The graph's images as PyTorch's convolutions want them. Of a forward graph AOTAutograd is told how results lie: the backward graph is given them so."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context else None
    reported = context.output_strides if context and kind == "forward" else None
    first_saved = metadata.num_forward if metadata and reported is not None else None
    graph, strides = lay_images_channels_last(gm.graph, inputs, of_pytorch, device, first_saved)
    if device.type == "cuda" and "convolutions" in of_pytorch:
        write_products(graph)
        write_patches(graph)
        separate_biases(graph)
    if graph is not gm.graph:  # setting it makes PyTorch write the module's code anew
        gm.graph = graph
    if strides and reported is not None:
        reported.extend(strides)


def target_of(device: torch.device) -> str:
    """This machine, and nothing more: half the time of a package for all."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return f"cuda:sm_{major}{minor}"
    return f"cpu:{host_isa()}"


_host_isa = ""


def host_isa() -> str:
    global _host_isa
    if not _host_isa:
        _host_isa = _runtime.host_isa()
    return _host_isa


def _compile_programs(gm: GraphModule, settings: dict, device: torch.device, reasons: dict[Node, str],
                      frozen: dict[Node, torch.Tensor], kind: str) -> tuple[dict[int, Program], Split]:
    """Compiles what coil takes. Nodes that turn out to be refused are added to `reasons`, and the rest is split anew."""
    done: dict[tuple[Node, ...], Program] = {}
    while True:
        split = sink(gm.graph, Split(gm.graph, set(reasons)))
        if kind == "backward":
            split = cut(gm.graph, split)
        refused: dict[Node, str] = {}
        new = {level: nodes for level, nodes in split.programs.items() if tuple(nodes) not in done}
        for level, made in build_programs(split, new, settings, device, frozen).items():
            if isinstance(made, (OptionError, FileError)):  # the user's, of no node
                raise made
            if isinstance(made, Error):
                refused.update(find_problems(split, level, new[level], settings, made))
            else:
                done[tuple(new[level])] = made
        programs = {level: done[tuple(nodes)] for level, nodes in split.programs.items() if tuple(nodes) in done}
        if not refused:
            return programs, split
        reasons.update(refused)


def _count_fallbacks(used: dict[Node, str], kind: str) -> None:
    stats.fallback_operators += len(used)
    for node, reason in used.items():
        row = f"{operator_name(node.target)}: {reason}"
        if row not in stats.fallbacks:
            log.info("%s graph: %s runs in PyTorch: %s", kind, operator_name(node.target), reason)
        stats.fallbacks[row] = stats.fallbacks.get(row, 0) + 1


def _native_dropout(*args: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """With a mask of bool also where there are no elements, for which PyTorch's kernel gives one of the input's type."""
    result, mask = torch.ops.aten.native_dropout.default(*args)
    return result, mask.to(torch.bool)


_CALLED_AS = {torch.ops.aten.native_dropout.default: _native_dropout, torch.ops.coil.random_state.default: random_state}
"""What is called in the place of an operator: without a way through PyTorch's dispatcher."""


class _Assembler:
    """The graph that calls the programs, and PyTorch for the rest."""

    def __init__(self, gm: GraphModule, split: Split, programs: dict[int, Program]):
        self.gm, self.split, self.programs = gm, split, programs
        self.graph = Graph()
        self.values: dict[Node, Node] = {}

    def run(self) -> Graph:
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.graph.placeholder(node.name)
        torch_steps: dict[int, list[Node]] = {}
        for node in self.gm.graph.nodes:
            if node in self.split.level and self.split.is_torch(node):
                torch_steps.setdefault(self.split.level[node], []).append(node)
        for level in sorted({*torch_steps, *self.programs}):
            for node in torch_steps.get(level, ()):
                self.values[node] = self.graph.node_copy(node, self.value)
                self.values[node].target = _CALLED_AS.get(node.target, node.target)  # type: ignore[call-overload]
            if level in self.programs:
                self.call(self.programs[level])
        output = next(n for n in self.gm.graph.nodes if n.op == "output")
        self.graph.output(torch.fx.map_arg(output.args[0], self.value))
        return self.graph

    def call(self, program: Program) -> None:
        inputs = [self.value(n) for n in program.inputs] + [self.size(s) for s in program.symbols]
        call = self.graph.call_function(program.function, tuple(inputs))
        for i, node in enumerate(program.outputs):
            self.values[node] = self.graph.call_function(operator.getitem, (call, i))

    def size(self, symbol: sympy.Symbol) -> Node:
        node, dimension = self.split.sizes[symbol]
        if dimension is None:
            return self.value(node)
        return self.graph.call_function(torch.ops.aten.sym_size.int, (self.value(node), dimension))

    def value(self, node: Node) -> Node:
        """The node's value here; views, numbers and elements of results are made where they are first asked for."""
        if node not in self.values:
            assert node.op == "get_attr" or is_view(node) or is_number(node) or node.target is operator.getitem, node
            self.values[node] = self.graph.node_copy(node, self.value)
        return self.values[node]


def _assemble(gm: GraphModule, split: Split, programs: dict[int, Program]) -> Callable[[list], Any]:
    graph = _Assembler(gm, split, programs).run()
    graph.set_codegen(_BoxedCodeGen())
    made = GraphModule(gm, graph, class_name="CoilGraph")
    function = made.forward
    placeholders = any(n.op == "placeholder" for n in graph.nodes)

    def call(inputs: list) -> Any:
        if not placeholders:
            inputs.clear()
        return function(inputs)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call

