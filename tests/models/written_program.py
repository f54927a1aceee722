"""Writes exported programs (`.pt2`) node by node, without PyTorch: programs of 100,000 nodes in a second, and such as no exporter makes.

`Program.replay` runs the same nodes with PyTorch's operators, where a test wants to know what they give.
"""

import json
import math
import zipfile

import numpy as np

DTYPES = {"u8": 1, "i8": 2, "i16": 3, "i32": 4, "i64": 5, "f16": 6, "f32": 7, "f64": 8, "c64": 10, "bool": 12, "bf16": 13}
NUMPY = {"u8": np.uint8, "i32": np.int32, "i64": np.int64, "f16": np.float16, "f32": np.float32, "f64": np.float64, "c64": np.complex64, "bool": np.bool_}


class Size:
    """A dynamic size: sympy's srepr, and what it is in the example."""

    def __init__(self, text, hint):
        self.text, self.hint = text, hint

    def __add__(self, other):
        return _combined("Add", self, other, int.__add__)

    def __mul__(self, other):
        return _combined("Mul", self, other, int.__mul__)

    def __floordiv__(self, other):
        return _combined("FloorDiv", self, other, int.__floordiv__)


def _combined(head, a, b, function):
    text = [s.text if isinstance(s, Size) else f"Integer({s})" for s in (a, b)]
    return Size(f"{head}({text[0]}, {text[1]})", function(*(s.hint if isinstance(s, Size) else s for s in (a, b))))


def _size(s):
    return {"as_expr": {"expr_str": s.text, "hint": {"as_int": s.hint}}} if isinstance(s, Size) else {"as_int": s}


class Tensor:
    def __init__(self, name, sizes, dtype):
        self.name, self.sizes, self.dtype = name, list(sizes), dtype


def _meta(sizes, dtype):
    strides, step = [], 1
    for s in reversed(sizes):
        strides.insert(0, step)
        step = s * step if isinstance(s, Size) else step * s
    return {"dtype": DTYPES[dtype], "sizes": [_size(s) for s in sizes], "requires_grad": False, "device": {"type": "cpu", "index": None},
            "strides": [_size(s) for s in strides], "storage_offset": {"as_int": 0}, "layout": 7}


def _argument(value):
    if value is None:
        return {"as_none": True}
    if isinstance(value, bool):
        return {"as_bool": value}
    if isinstance(value, int):
        return {"as_int": value}
    if isinstance(value, float):
        return {"as_float": value}
    if isinstance(value, str):
        return {"as_string": value}
    if isinstance(value, Size):
        return {"as_sym_int": {"as_name": value.name}}
    if isinstance(value, Tensor):
        return {"as_tensor": {"name": value.name}}
    if isinstance(value, Graph):
        return {"as_graph": {"name": value.name, "graph": value.json()}}
    if isinstance(value, list) and value and any(isinstance(v, Tensor) for v in value):
        if None in value:
            return {"as_optional_tensors": [{"as_none": True} if v is None else {"as_tensor": {"name": v.name}} for v in value]}
        return {"as_tensors": [{"name": v.name} for v in value]}
    if isinstance(value, list) and any(isinstance(v, Size) for v in value):
        return {"as_sym_ints": [{"as_name": v.name} if isinstance(v, Size) else {"as_int": v} for v in value]}
    return {"as_ints": value}


class Graph:
    """Nodes over inputs; the body of a program, or of a branch."""

    def __init__(self, name="graph"):
        self.name, self.nodes, self.values, self.inputs, self.outputs = name, [], {}, [], []
        self.calls = []  # for replay: target, arguments by name, results
        self.sizes = {}  # that nodes have as arguments
        self.metadata = lambda number: {}
        self.named = lambda number: f"v{number}_{name}"

    def _value(self, name, sizes, dtype):
        self.values[name] = _meta(sizes, dtype)
        return Tensor(name, sizes, dtype)

    def capture(self, tensor):
        """An input of a branch's graph."""
        value = self._value(f"{self.name}_{len(self.inputs)}", tensor.sizes, tensor.dtype)
        self.inputs.append(value)
        return value

    def op(self, target, sizes, dtype="f32", /, **arguments):
        """A node with one result. Arguments have the operator's names; those of higher-order operators begin with `_`."""
        result = self._value(self.named(len(self.nodes)), sizes, dtype)
        self._node(target, arguments, result.name, [{"as_tensor": {"name": result.name}}])
        self.calls.append((target, arguments, result))
        return result

    def ops(self, target, types, listed=True, /, **arguments):
        """A node with several results, of these (sizes, dtype): a list, or one beside the other."""
        name = self.named(len(self.nodes))
        results = [self._value(f"{name}_{i}", *t) for i, t in enumerate(types)]
        names = [{"name": r.name} for r in results]
        self._node(target, arguments, name, [{"as_tensors": names}] if listed else [{"as_tensor": n} for n in names])
        self.calls.append((target, arguments, results))
        return results

    def _node(self, target, arguments, name, outputs):
        for value in [v for a in arguments.values() for v in (a if isinstance(a, list) else [a])]:
            if isinstance(value, Size):
                value.name = self.sizes.setdefault(value.text, f"size_{len(self.sizes)}_{self.name}")
        inputs = [{"name": "" if k.startswith("_") else k, "arg": _argument(v), "kind": 1} for k, v in arguments.items()]
        single = True if target.startswith("higher_order.") and len(outputs) == 1 else None
        self.nodes.append({"target": f"torch.ops.{target}", "inputs": inputs, "metadata": self.metadata(len(self.nodes)), "is_hop_single_tensor_return": single,
                           "name": name, "outputs": outputs})

    def check(self, target, /, **arguments):
        """A node without a result."""
        self.nodes.append({"target": f"torch.ops.{target}", "inputs": [{"name": k, "arg": _argument(v), "kind": 1} for k, v in arguments.items()], "outputs": [],
                           "metadata": {}, "is_hop_single_tensor_return": None})
        self.calls.append((target, arguments, None))

    def output(self, tensor):
        self.outputs.append(tensor)

    def json(self):
        names = [{"as_tensor": {"name": t.name}} for t in self.inputs], [{"as_tensor": {"name": t.name}} for t in self.outputs]
        return {"inputs": names[0], "outputs": names[1], "nodes": self.nodes, "tensor_values": self.values,
                "sym_int_values": {name: {"as_expr": {"expr_str": text, "hint": None}} for text, name in self.sizes.items()}, "sym_bool_values": {},
                "is_single_tensor_return": False, "custom_obj_values": {}, "sym_float_values": {}}


class Program(Graph):
    def __init__(self):
        super().__init__("n")
        self.specs, self.written, self.ranges, self.guards, self.data = [], [], {}, [], {}

    def symbol(self, name, hint, least=1):
        self.ranges[name] = {"min_val": least, "max_val": None}
        return Size(f"Symbol('{name}', positive=True, integer=True)", hint)

    def input(self, *sizes, dtype="f32"):
        value = self._value(f"x{len(self.inputs)}", sizes, dtype)
        self.inputs.append(value)
        self.specs.append({"user_input": {"arg": {"as_tensor": {"name": value.name}}}})
        return value

    def constant(self, array, dtype="f32"):
        return self._held(array, dtype, "c", lambda v, key: {"parameter": {"arg": {"name": v.name}, "parameter_name": key}})

    def state(self, array, dtype="f32"):
        return self._held(array, dtype, "b", lambda v, key: {"buffer": {"arg": {"name": v.name}, "buffer_name": key, "persistent": True}})

    def _held(self, array, dtype, letter, spec):
        value = self._value(f"{letter}{len(self.inputs)}", array.shape, dtype)
        self.inputs.append(value)
        self.specs.append(spec(value, f"held.{value.name}"))
        self.data[value.name] = np.ascontiguousarray(array, NUMPY[dtype])
        return value

    def document(self):
        users = [i for i, s in enumerate(self.specs) if "user_input" in s]
        leaf = {"type": None, "context": None, "children_spec": []}
        inside = {"type": "builtins.tuple", "context": "null", "children_spec": [leaf] * len(users)}
        in_spec = {"type": "builtins.tuple", "context": "null", "children_spec": [inside, {"type": "builtins.dict", "context": "[]", "children_spec": []}]}
        out_spec = {"type": "builtins.tuple", "context": "null", "children_spec": [leaf] * len(self.outputs)}
        call = {"inputs": [], "outputs": [], "in_spec": json.dumps([1, in_spec]), "out_spec": json.dumps([1, out_spec]), "forward_arg_names": [self.inputs[i].name for i in users]}
        results = [{"user_output": {"arg": {"as_tensor": {"name": t.name}}}} for t in self.outputs]
        module = {"graph": self.json(), "signature": {"input_specs": self.specs, "output_specs": results},
                  "module_call_graph": [{"fqn": "", "signature": call}], "metadata": {}, "treespec_namedtuple_fields": {}}
        return {"graph_module": module, "opset_version": {"aten": 10}, "range_constraints": self.ranges, "schema_version": {"major": 8, "minor": 14},
                "verifiers": ["TRAINING"], "torch_version": "2.9.1", "guards_code": self.guards}

    def save(self, path):
        weights = {}
        with zipfile.ZipFile(path, "w") as zip:
            for entry, text in (("archive_format", "pt2"), ("archive_version", "0"), ("byteorder", "little"), (".data/version", "6"),
                                ("data/constants/model_constants_config.json", '{"config": {}}'), ("models/model.json", json.dumps(self.document()))):
                zip.writestr(f"p/{entry}", text)
            for i, (name, array) in enumerate(self.data.items()):
                zip.writestr(f"p/data/weights/weight_{i}", array.tobytes())
                weights[f"held.{name}"] = {"path_name": f"weight_{i}", "is_param": name.startswith("c"), "use_pickle": False, "tensor_meta": self.values[name]}
            zip.writestr("p/data/weights/model_weights_config.json", json.dumps({"config": weights}))
        return path

    def examples(self, seed=0):
        """Values for the inputs that a caller gives."""
        random, out = np.random.default_rng(seed), []
        for tensor, spec in zip(self.inputs, self.specs):
            if "user_input" not in spec:
                continue
            sizes = [s.hint if isinstance(s, Size) else s for s in tensor.sizes]
            if tensor.dtype in ("f32", "f64"):
                out.append(random.uniform(-1, 1, sizes).astype(NUMPY[tensor.dtype]))
            elif tensor.dtype == "c64":
                out.append((random.uniform(-1, 1, sizes) + 1j * random.uniform(-1, 1, sizes)).astype(np.complex64))
            else:
                out.append(random.integers(0, 2, sizes).astype(NUMPY[tensor.dtype]))
        return out

    def replay(self, arrays):
        """What PyTorch's operators give for these inputs. Programs without dynamic arguments."""
        import torch

        arrays = list(arrays)
        given = [arrays.pop(0) if "user_input" in spec else self.data[tensor.name] for tensor, spec in zip(self.inputs, self.specs)]
        return [t.numpy() for t in _run(self, [torch.from_numpy(x.copy()) for x in given])]


def _run(graph, inputs):
    import torch

    values = {tensor.name: value for tensor, value in zip(graph.inputs, inputs)}

    def seen(v):
        return values[v.name] if isinstance(v, Tensor) else [seen(x) for x in v] if isinstance(v, list) else v

    for target, arguments, result in graph.calls:
        if target == "higher_order.cond":
            taken, other, operands = arguments["_true"], arguments["_false"], seen(arguments["_operands"])
            values[result.name] = _run(taken if seen(arguments["_pred"]) else other, operands)[0]
            continue
        family, name, overload = target.split(".")
        value = getattr(getattr(getattr(torch.ops, family), name), overload)(**{k: seen(v) for k, v in arguments.items()})
        for one, its in zip(result, value) if isinstance(result, list) else [(result, value)] if result is not None else []:
            values[one.name] = its
    return [values[t.name] for t in graph.outputs]


def count(sizes):
    return math.prod(sizes)
