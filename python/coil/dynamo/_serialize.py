"""Nodes of an ATen graph as the JSON of an exported program: what the compiler reads out of a `.pt2`, without its making.

Facts of the format (schema 8.x): torch/_export/serde/schema.py. Only what coil's reader asks for is written.
"""

from __future__ import annotations

import json
import re
import operator
from typing import Any, Collection, Iterable

import sympy
import torch
from torch.fx import Node

from .._errors import Error
from ._control import graph_behind, is_control
from ._decompositions import operator_name
from ._places import module_path
from ._fixed_sizes import FixedSizes
from ._results import read_results, unread_arguments

DTYPES = {torch.uint8: 1, torch.int8: 2, torch.int16: 3, torch.int32: 4, torch.int64: 5, torch.float16: 6, torch.float32: 7,
          torch.float64: 8, torch.complex32: 9, torch.complex64: 10, torch.complex128: 11, torch.bool: 12, torch.bfloat16: 13,
          torch.uint16: 28, torch.float8_e4m3fn: 29, torch.float8_e5m2: 30, torch.float8_e4m3fnuz: 31, torch.float8_e5m2fnuz: 32, torch.float8_e8m0fnu: 33, torch.uint32: 34, torch.uint64: 35}
# What the compiler computes with; the others it only knows the names of.
TAKEN = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.bool,
         torch.bfloat16, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
         torch.float8_e8m0fnu, torch.uint16, torch.uint32, torch.uint64, torch.complex32}
LAYOUTS = {torch.sparse_coo: 1, torch.sparse_csr: 2, torch.strided: 7}
MEMORY_FORMATS = {torch.contiguous_format: 1, torch.channels_last: 2, torch.channels_last_3d: 3, torch.preserve_format: 4}


class CannotSerialize(Error):
    """A node that the form of a `.pt2` has no words for; it stays in PyTorch."""


class ProgramWriter:
    """Collects the parts of one program. Values are named by their operator and a number of their own, so that equal parts of a
    graph (the layers of a network) become equal programs."""

    def __init__(self, outer: "ProgramWriter | None" = None, prefix: str = "", binds: Collection[sympy.Symbol] = ()) -> None:
        """`outer`: of the graph that this one is an argument in; names begin with `prefix`. `binds`: the sizes that the program finds in its data."""
        self.binds: Collection[sympy.Symbol] = outer.binds if outer else binds
        self.tensors: dict[str, Any] = {}
        self.numbers: dict[str, Any] = {}
        self.nodes: list[dict] = []
        self.origins: list[dict] = []
        self.symbols: dict[str, sympy.Symbol] = outer.symbols if outer else {}
        self._text: dict[sympy.Expr, str] = {}
        self.fixed: FixedSizes = outer.fixed if outer else FixedSizes()
        self.names: dict[Node, str] = {}
        self._prefix = prefix

    def name(self, node: Node) -> str:
        name = self.names.get(node)
        if name is None:
            word = "x" if node.op != "call_function" else getattr(node.target, "_opname", "part")
            name = self.names[node] = f"{self._prefix}{word}_{len(self.names)}"
        return name

    # ---- values

    def expression(self, value: Any) -> sympy.Expr | None:
        """The expression of a symbolic integer; None for a plain one, and for one that the graph's guards fix."""
        if not isinstance(value, torch.SymInt):
            return None
        expression = self.fixed.simplest(value)
        return None if expression.is_number else expression

    def integer(self, value: Any) -> int:
        return int(self.fixed.simplest(value)) if isinstance(value, torch.SymInt) else int(value)

    def size(self, value: Any) -> dict:
        expression = self.expression(value)
        if expression is None:
            return {"as_int": self.integer(value)}
        text = self._text.get(expression)
        if text is None:
            named = {symbol: self.named_size(symbol) for symbol in expression.free_symbols}
            self.symbols.update((as_named.name, symbol) for symbol, as_named in named.items())
            text = self._text[expression] = sympy.srepr(expression.xreplace(named))
        return {"as_expr": {"expr_str": text, "hint": None}}

    def named_size(self, symbol: sympy.Symbol) -> sympy.Symbol:
        """As the program has it. PyTorch names sizes of data (u0) in a way that means just that; those that a program's inputs tell are inputs' sizes."""
        return symbol if symbol.name.startswith("s") or symbol in self.binds else sympy.Symbol(f"s{symbol.name}", integer=True)

    def define_tensor(self, name: str, value: torch.Tensor) -> None:
        self.tensors[name] = {
            "dtype": DTYPES[value.dtype], "sizes": [self.size(s) for s in value.shape], "strides": [self.size(s) for s in value.stride()],
            "requires_grad": False, "device": {"type": value.device.type, "index": None}, "storage_offset": {"as_int": 0}, "layout": 7}

    # ---- nodes

    def add(self, node: Node) -> None:
        if is_control(node):
            self.add_control(node)
            return
        schema = node.target._schema  # type: ignore[union-attr]
        inputs = []
        unread = unread_arguments(node)
        for position, parameter in enumerate(schema.arguments):
            if parameter.name in unread:
                inputs.append({"name": parameter.name, "arg": {"as_none": True}, "kind": 2})
            elif position < len(node.args) and not parameter.kwarg_only:
                inputs.append({"name": parameter.name, "arg": self.argument(node.args[position], parameter), "kind": 1})
            elif parameter.name in node.kwargs:
                inputs.append({"name": parameter.name, "arg": self.argument(node.kwargs[parameter.name], parameter), "kind": 2})
        self.nodes.append({"target": f"torch.ops.{node.target.namespace}.{node.target._opname}.{node.target._overloadname}",
                           "inputs": inputs, "outputs": self.outputs(node), "name": self.name(node)})
        self.origins.append(_origin(node))

    def add_control(self, node: Node) -> None:
        """A branch or a loop: its graphs, and what they take."""
        name = self.name(node)
        inputs = []
        for position, value in enumerate(node.args):
            graph = graph_behind(value)
            if graph is not None:
                label = f"{name}_graph_{position}"
                argument = {"as_graph": {"name": label, "graph": ProgramWriter(self, label + "_").inner_graph(graph)}}
            elif isinstance(value, (list, tuple)):
                operands = [operand for operand in value if not _is_size(operand)]
                if not all(map(_is_tensor, operands)):
                    raise CannotSerialize(f"an operand of {node.target} is no tensor")
                argument = {"as_tensors": [{"name": self.name(operand)} for operand in operands]}
            elif _is_tensor(value):
                argument = {"as_tensor": {"name": self.name(value)}}
            elif isinstance(value, (bool, int)):
                argument = {"as_bool": value} if isinstance(value, bool) else {"as_int": value}
            else:
                raise CannotSerialize(f"an argument of {node.target} is a {type(value).__name__}")
            inputs.append({"name": "", "arg": argument, "kind": 1})
        self.nodes.append({"target": f"torch.ops.{operator_name(node.target)}", "inputs": inputs, "outputs": self.outputs(node), "name": name})
        self.origins.append(_origin(node))

    def inner_graph(self, module: torch.fx.GraphModule) -> dict:
        """The JSON of a graph that is an argument. Sizes that it takes are known by their expressions: they are left out here as they
        are where it is called."""
        takes: list[dict] = []
        gives: list[dict] = []
        for node in module.graph.nodes:
            value = node.meta.get("val")
            if node.op == "placeholder" and not isinstance(value, torch.SymInt):
                self.define_tensor(self.name(node), value)
                takes.append({"as_tensor": {"name": self.name(node)}})
            elif node.op == "output":
                results = node.args[0] if isinstance(node.args[0], (list, tuple)) else [node.args[0]]
                if not all(map(_is_tensor, results)):
                    raise CannotSerialize("a result of an inner graph is no tensor")
                gives = [{"as_tensor": {"name": self.name(r)}} for r in results]
            elif node.op == "get_attr" and graph_behind(node) is None:
                raise CannotSerialize("an inner graph has a constant of its own")
            elif node.op == "call_function" and node.target is not operator.getitem and not isinstance(value, (torch.SymInt, int)):
                self.add(node)
        return {"inputs": takes, "outputs": gives, "nodes": [{**n, "metadata": {}} for n in self.nodes], "tensor_values": self.tensors,
                "sym_int_values": self.numbers, "sym_bool_values": {}, "sym_float_values": {}, "is_single_tensor_return": False}

    def outputs(self, node: Node) -> list[dict]:
        value = node.meta.get("val")
        if value is None:  # a check
            return []
        if isinstance(value, torch.Tensor):
            self.define_tensor(self.name(node), value)
            return [{"as_tensor": {"name": self.name(node)}}]
        several = is_control(node) or len(node.target._schema.returns) != 1  # type: ignore[union-attr]
        results = self.elements(node, value, self.name(node), read_results(node))
        if not several:
            if any("as_none" in r for r in results):
                raise CannotSerialize(f"an element of the list that {node.target} gives is no tensor")
            return [{"as_tensors": results}]
        return [r if r.keys() & {"as_none", "as_tensors"} else {"as_tensor": r} for r in results]

    def elements(self, node: Node, value: Any, name: str, read: set[int] | None) -> list[dict]:
        """The results of a node (or the elements of one that is a list) with names of their own. What is no tensor has no name: it is known
        already (_results.py). Neither has what nobody reads, if the compiler has no word for its type."""
        users: dict[int, list[Node]] = {}
        for user in node.users:
            if user.target is operator.getitem:
                users.setdefault(user.args[1], []).append(user)  # type: ignore[arg-type]
        results: list[dict] = []
        for i, item in enumerate(value):
            label = f"{name}_{i}"
            if isinstance(item, (list, tuple)):
                lists = users.get(i, ())
                inner = [self.elements(one, item, label, None) for one in lists] or [self._unread(item, label)]
                results.append({"as_tensors": inner[0]})
                continue
            if not isinstance(item, torch.Tensor) or (read is not None and i not in read and item.dtype not in TAKEN):
                results.append({"as_none": True})
                continue
            for element in users.get(i, ()):
                self.names[element] = label
            self.define_tensor(label, item)
            results.append({"name": label})
        return results

    def _unread(self, items: Iterable[torch.Tensor], name: str) -> list[dict]:
        """A list among the results that nobody looks into."""
        names = [f"{name}_{i}" for i, _ in enumerate(items)]
        for label, item in zip(names, items):
            self.define_tensor(label, item)
        return [{"name": label} for label in names]

    def argument(self, value: Any, parameter: Any) -> dict:
        if value is None:
            return {"as_none": True}
        if isinstance(value, Node):
            return self.reference(value)
        if isinstance(value, bool):
            return {"as_bool": value}
        if isinstance(value, int):
            return {"as_int": value}
        if isinstance(value, float):
            return {"as_float": _number(value)}
        if isinstance(value, complex):
            return {"as_complex": {"real": _number(value.real), "imag": _number(value.imag)}}
        if isinstance(value, str):
            return {"as_string": value}
        if isinstance(value, (list, tuple)):
            return self.list_argument(value, parameter)
        if isinstance(value, torch.dtype) and value in DTYPES:
            return {"as_scalar_type": DTYPES[value]}
        if isinstance(value, torch.device):
            return {"as_device": {"type": value.type, "index": None}}
        if isinstance(value, torch.memory_format):
            return {"as_memory_format": MEMORY_FORMATS[value]}
        if isinstance(value, torch.layout) and value in LAYOUTS:
            return {"as_layout": LAYOUTS[value]}
        raise CannotSerialize(f"argument '{parameter.name}' is a {type(value).__name__}")

    def reference(self, node: Node) -> dict:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            return {"as_tensor": {"name": self.name(node)}}
        if isinstance(value, bool):
            return {"as_bool": value}
        if isinstance(value, (int, torch.SymInt)):
            if self.expression(value) is None:
                return {"as_int": self.integer(value)}
            self.numbers[self.name(node)] = self.size(value)
            return {"as_sym_int": {"as_name": self.name(node)}}
        if isinstance(value, float):
            return {"as_float": _number(value)}
        raise CannotSerialize(f"an argument is a {type(value).__name__} that is known at run time only")

    def list_argument(self, values: Iterable[Any], parameter: Any) -> dict:
        items = [self.argument(v, parameter) for v in values]
        keys = {key for item in items for key in item}
        if not items:
            return {"as_tensors": []} if "Tensor" in str(parameter.type) else {"as_ints": []}
        if keys == {"as_tensor"}:
            return {"as_tensors": [item["as_tensor"] for item in items]}
        if keys == {"as_tensor", "as_none"} or keys == {"as_none"}:
            return {"as_optional_tensors": items}
        if keys == {"as_int", "as_sym_int"} or keys == {"as_sym_int"}:
            return {"as_sym_ints": [item.get("as_sym_int", item) for item in items]}
        if keys == {"as_int", "as_float"}:
            keys, items = {"as_float"}, [{"as_float": float(next(iter(item.values())))} for item in items]
        if len(keys) == 1 and keys <= {"as_int", "as_float", "as_bool", "as_string"}:
            (key,) = keys
            return {key + "s": [item[key] for item in items]}
        raise CannotSerialize(f"argument '{parameter.name}' is a list of {', '.join(sorted(keys))}")

    # ---- the whole

    def program(self, inputs: list[tuple[str, bool]], outputs: list[str], ranges: dict[str, tuple[int | None, int | None]], weights: list[str]) -> dict:
        """`inputs`: name, and whether it is a tensor (else a symbolic integer). `weights`: tensors that are known when it is compiled."""
        takes = [{"as_tensor": {"name": n}} if is_tensor else {"as_sym_int": {"as_name": n}} for n, is_tensor in inputs]
        gives = [{"as_tensor": {"name": n}} for n in outputs]
        held = [{"as_tensor": {"name": n}} for n in weights]
        return {
            "graph_module": {
                "graph": {"inputs": held + takes, "outputs": gives, "nodes": self.nodes, "tensor_values": self.tensors,
                          "sym_int_values": self.numbers, "sym_bool_values": {}, "sym_float_values": {}, "is_single_tensor_return": False},
                "signature": {"input_specs": [{"parameter": {"arg": {"name": n}, "parameter_name": n}} for n in weights] + [{"user_input": {"arg": a}} for a in takes],
                              "output_specs": [{"user_output": {"arg": a}} for a in gives]},
                "module_call_graph": []},
            "range_constraints": {name: {"min_val": low, "max_val": high} for name, (low, high) in ranges.items()},
            "schema_version": {"major": 8, "minor": 20}, "torch_version": torch.__version__, "guards_code": []}

    def text_with_traces(self, program: dict) -> str:
        for node, origin in zip(self.nodes, self.origins):
            node["metadata"] = origin
        return json.dumps(program)


def _origin(node: Node) -> dict:
    """As an export has it: the stack, and the innermost module as "key,path,type"."""
    trace, module = node.meta.get("stack_trace") or "", re.sub("[,;]", "_", module_path(node))  # which separate modules there
    return ({"stack_trace": trace} if trace else {}) | ({"nn_module_stack": f",{module},"} if module else {})


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)


def _is_size(value: Any) -> bool:
    """A symbolic integer with an expression of known symbols."""
    size = value.meta.get("val") if isinstance(value, Node) else None
    return isinstance(size, torch.SymInt) and not size.node.expr.is_number


def _number(value: float) -> float | str:
    if value != value:
        return "NaN"
    return value if abs(value) != float("inf") else ("Infinity" if value > 0 else "-Infinity")
