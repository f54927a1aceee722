"""Launches of Triton kernels in a functional graph become operators of coil's, one for each kernel, types and specialisation."""

from __future__ import annotations

import copy
import importlib
import json
import operator
import re
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .._errors import KernelError
from ._compile import DTYPES, Launch, Value, registration_of, triton_error
from ._exported import is_launch, is_triton_op
from ._layout import Layouts

aten = torch.ops.aten
_EMPTY = {aten.empty.memory_format, aten.empty_like.default, aten.empty_strided.default, aten.new_empty.default, aten.new_empty_strided.default, aten.empty_permuted.default}
_INT32 = 2**31 - 1
_HINT = 'choose --target cuda:sm_90 (or another), or give the operator a function for the CPU: @operator.register_kernel("cpu"), which torch.compile runs in PyTorch'
_library: Any = None


def rewrite_graph(graph: Graph, targets: str, renamed: dict[str, str] | None = None, refused: dict[Node, str] | None = None) -> list[str]:
    """Changes the graph; the registrations of its kernels as JSON. `renamed` gets the new names of values; without it the graph is one that
    torch.compile makes, which may still be given guards: what a configuration takes from sizes holds for these sizes.
    `refused` gets the launches that coil does not take and why, which stay; without it the first one is an error."""
    registrations: dict[str, str] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or not is_launch(node.target):
            continue
        try:
            registration = _Rewriter(graph, node, targets, renamed).run()
        except KernelError as error:
            if refused is None or error.number != 408:
                raise
            refused[node] = error.reason
            continue
        registrations[registration["name"]] = json.dumps(registration)
    graph.lint()  # what nobody reads any more is left out by those who read the graph
    return list(registrations.values())


def refuse_on_cpu(graph: Graph, fallback: bool = True) -> None:
    """Raises for what Triton has no code for: launches, and operators made of them, unless `fallback` and the user gave these a function of the CPU."""
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if is_launch(node.target):
            raise triton_error(408, kernel_of(node)[0].__name__, "Triton has no code for the CPU", _HINT, where(node))
        if is_triton_op(node.target) and not (fallback and _has_cpu_function(node.target)):
            raise triton_error(408, str(node.target), "Triton has no code for the CPU", _HINT, where(node))


def _has_cpu_function(target: Any) -> bool:
    definitions = importlib.import_module("torch._library.custom_ops").OPDEFS
    definition = definitions.get(target._schema.name)
    return definition is not None and "cpu" in getattr(definition, "_backend_fns", {})


def kernel_of(node: Node) -> tuple[Any, list[Any]]:
    """(JITFunction, its configurations) of a launch."""
    table = importlib.import_module("torch._higher_order_ops.triton_kernel_wrap").kernel_side_table
    kernel = table.get_kernel(node.kwargs["kernel_idx"])
    configs = None
    while not hasattr(kernel, "params"):  # decorators around the JITFunction
        configs = getattr(kernel, "configs", configs)
        kernel = kernel.fn
    return kernel, configs or [importlib.import_module("triton").Config({})]


def where(node: Node) -> str:
    """The line of the model, "model.py:12", out of the trace that PyTorch keeps."""
    lines = re.findall(r'File "([^"]+)", line (\d+)', node.meta.get("stack_trace") or "")
    return f"{lines[-1][0]}:{lines[-1][1]}" if lines else ""


class _Rewriter:
    def __init__(self, graph: Graph, node: Node, targets: str, renamed: dict[str, str] | None):
        self.graph, self.node, self.targets, self.renamed = graph, node, targets, renamed
        self.function, configs = kernel_of(node)
        self.configs = [self._known(c) for c in configs]
        self.layouts = Layouts(graph, node)
        self.parameters: list[str] = []  # of the schema
        self.arguments: list[Any] = []
        self.tensors: dict[Node, str] = {}
        self.values: dict[str, Value] = {}
        self.results: list[tuple[str, Node, list[int]]] = []  # what is written to: the kernel's parameter, its layout before, the order of its dimensions
        self.initial: list[str] = []

    def run(self) -> dict:
        if self.node.kwargs.get("tma_descriptor_metadata"):
            raise self._error("it takes a tensor descriptor that the host makes", "pass the tensor, and make the descriptor in the kernel or use pointers")
        with self.graph.inserting_before(self.node):
            given = self._given()
            written = [name for name in self.node.kwargs["tensors_to_clone"] if name in given]
            for name in written:
                self._result(name, given[name], len(written))
            for name, value in given.items():
                if name not in written:
                    self._value(name, value)
            grids = self._grids()
            launch = Launch(self.function, self.configs, self.values, self._schema(), grids, self.initial if any(self.initial) else [], self._options, where(self.node))
            registration = registration_of(launch, self.targets)
            self._replace(_operator(registration))
        return registration

    def _error(self, problem: str, hint: str) -> Exception:
        return triton_error(408, self.function.__name__, problem, hint, where(self.node))

    def _known(self, config: Any) -> Any:
        """The configuration with plain values: heuristics may compute them from sizes."""
        known: dict[str, Any] = {}
        for name, value in config.kwargs.items():
            if isinstance(value, torch.SymInt) and (self.renamed is None or value.node.expr.is_number):
                known[name] = int(value)
            elif isinstance(value, torch.SymBool) and (self.renamed is None or statically_known_true(value) or statically_known_true(torch.sym_not(value))):
                known[name] = bool(value)
            elif isinstance(value, (torch.SymInt, torch.SymBool, torch.SymFloat)):
                raise self._error(f"its constant '{name}' depends on a dynamic size", "let the export fix that size, or pass a constant that serves all sizes")
        made = copy.copy(config)
        made.kwargs = {**config.kwargs, **known}
        return made

    def _given(self) -> dict[str, Any]:
        """The values of the kernel's parameters, in their order, without those that a configuration gives."""
        table = importlib.import_module("torch._higher_order_ops.triton_kernel_wrap").kernel_side_table
        values = {**table.get_constant_args(self.node.kwargs["constant_args_idx"]), **self.node.kwargs["kwargs"]}
        self._options = {k: v for k, v in values.items() if k not in self.function.arg_names}
        return {k: values[k] for k in self.function.arg_names if k in values}

    # ---- values

    def _add(self, type_: str, name: str, argument: Any) -> str:
        """An argument of the operator, by a name of its own."""
        plain = re.sub(r"^_+|__+", "_", name)
        taken = {p.split()[1] for p in self.parameters}
        while re.fullmatch(r"out\d*", plain) or plain in taken:
            plain += "_"
        self.parameters.append(f"{type_} {plain}")
        self.arguments.append(argument)
        return plain

    def _tensor(self, name: str, node: Node) -> str:
        if node not in self.tensors:
            self.tensors[node] = self._add("Tensor", name, node)
        return self.tensors[node]

    def _type_of(self, name: str, tensor: torch.Tensor) -> str:
        type_ = DTYPES.get(str(tensor.dtype).removeprefix("torch."))
        if type_ is None:
            raise self._error(f"'{name}' is {tensor.dtype}, which coil does not pass to kernels", "pass .view(torch.uint8) of it, and convert in the kernel")
        return type_

    def _result(self, name: str, node: Node, count: int) -> None:
        """What the kernel writes to: a new tensor, which holds the old elements at first unless these are nothing."""
        tensor = node.meta["val"]
        dense, order = self.layouts.dense(node)
        if dense is None:
            raise self._error(f"it writes to '{name}', a view with gaps", "give it a tensor of its own and copy that into the view")
        number = len(self.results)
        self.results.append((name, dense, order))
        self.initial.append("" if self.layouts.owner(node).target in _EMPTY else self._tensor(f"{name}_before", dense))
        self.values[name] = Value("tensor", self._type_of(name, tensor), "out" if count == 1 else f"out{number}")

    def _value(self, name: str, value: Any) -> None:
        parameter = next(p for p in self.function.params if p.name == name)
        meta = value.meta["val"] if isinstance(value, Node) else value
        if isinstance(meta, torch.Tensor):
            type_ = self._type_of(name, meta)
            base, begin = self.layouts.memory(value)
            if base is None:
                raise self._error(f"'{name}' is a view whose memory coil does not know", "pass .contiguous() of it")
            first = "" if begin is None else self._add("SymInt", f"{name}_begin", begin)
            self.values[name] = Value("tensor", type_, self._tensor(name, base), first)
        elif parameter.is_constexpr or meta is None or isinstance(meta, (str, torch.dtype)):
            self.values[name] = Value("constant", value=meta)
        elif isinstance(meta, (bool, torch.SymBool)):
            if isinstance(meta, torch.SymBool):
                raise self._error(f"'{name}' is a condition that is known at run time only", "pass it as a number or a tensor")
            self.values[name] = Value("number", "i1", self._add("bool", name, value), divisible="never")
        elif isinstance(meta, (int, torch.SymInt)):
            self._integer(name, value, meta, parameter.do_not_specialize)
        elif isinstance(meta, float):
            self.values[name] = Value("number", "fp32", self._add("float", name, value), divisible="never")
        elif callable(meta) or isinstance(meta, tuple):
            self.values[name] = Value("constant", value=meta)
        else:
            raise self._error(f"'{name}' is a {type(meta).__name__}, which coil does not pass to kernels", "pass tensors, numbers and constants")

    def _integer(self, name: str, value: Any, number: Any, unspecialised: bool) -> None:
        known = not isinstance(number, torch.SymInt) or number.node.expr.is_number
        if known and int(number) == 1 and not unspecialised:  # as Triton itself does
            self.values[name] = Value("constant", value=1)
            return
        wide = known and not -_INT32 - 1 <= int(number) <= _INT32
        divisible = "unknown"
        if known:
            divisible = "always" if int(number) % 16 == 0 else "never"
        elif statically_known_true(number % 16 == 0):
            divisible = "always"
        self.values[name] = Value("number", "i64" if wide else "i32", self._add("SymInt", name, int(number) if known else value), divisible=divisible)

    def _grids(self) -> list[list[str]]:
        grids = []
        for number, (grid, config) in enumerate(zip(self.node.kwargs["grid"], self.configs)):
            axes = []
            for axis, blocks in zip("xyz", grid):
                count = blocks.meta["val"] if isinstance(blocks, Node) else blocks
                if isinstance(count, int) and count == 1:
                    axes.append("1")
                else:
                    axes.append(self._add("SymInt", f"blocks_{axis}_{number}", int(count) if isinstance(count, int) else blocks))
            ctas = getattr(config, "num_ctas", 1) or 1
            grids.append([f"{axes[0]} * {ctas}" if ctas > 1 else axes[0], *axes[1:]])
        return grids

    # ---- the operator

    def _schema(self) -> str:
        if not self.results:
            raise self._error("it writes to none of its arguments", "remove the launch")
        results = "Tensor" if len(self.results) == 1 else "(" + ", ".join(["Tensor"] * len(self.results)) + ")"
        return f"({', '.join(self.parameters)}) -> {results}"

    def _replace(self, target: Any) -> None:
        made = self.graph.call_function(target, tuple(self.arguments))
        made.meta["stack_trace"] = self.node.meta.get("stack_trace")
        values = [self.layouts.empty(dense.meta["val"]) for _, dense, _ in self.results]
        made.meta["val"] = values[0] if len(values) == 1 else tuple(values)
        written: dict[str, Node] = {}
        for number, (name, _, order) in enumerate(self.results):
            result = made
            if len(values) > 1:
                result = self.graph.call_function(operator.getitem, (made, number))
                result.meta.update(val=values[number], stack_trace=made.meta["stack_trace"])
            written[name] = self.layouts.restore(result, order)
        for user in list(self.node.users):
            user.replace_all_uses_with(written[user.args[1]])  # type: ignore[index]
            if self.renamed is not None:
                self.renamed[user.name] = written[user.args[1]].name  # type: ignore[index]
            self.graph.erase_node(user)
        self.graph.erase_node(self.node)


def _operator(registration: dict) -> Any:
    """The operator in PyTorch. It has no implementation there: only coil's programs hold it."""
    global _library
    if _library is None:
        _library = torch.library.Library("coil_triton", "FRAGMENT")
    name = registration["name"].partition("::")[2]
    if not hasattr(torch.ops.coil_triton, name):
        _library.define(name + registration["signature"])
    return getattr(torch.ops.coil_triton, name).default


__all__ = ["refuse_on_cpu", "rewrite_graph", "where"]
