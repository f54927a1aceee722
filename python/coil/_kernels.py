"""Kernels that users write: registered once, then operators of PyTorch and of coil's programs."""

from __future__ import annotations

import ast
import functools
import importlib
import json
import os
from typing import Any, Callable, Mapping, Sequence

from . import _runtime
from ._arguments import flag_of, listed, mapping_of, path_of, said, text_of
from ._bench import do_bench
from ._compile import settings_of
from ._errors import _shown, make_error, option_error
from ._memory import with_free_memory
from ._registry import kernels_by_name

_KEPT_CALLS = 256  # compiled calls of one kernel outside of programs


class UserKernel:
    """What `register_kernel` gives. Called, it runs the operator in PyTorch; `coil.compile` and `torch.compile` take it as `kernels`."""

    def __init__(self, registration: dict, out: Any, reference: Callable | None):
        self.registration = registration
        self.reference = reference
        self._out = out
        self.op: Any = None
        """The operator of PyTorch, torch.ops.namespace.name.default; None without PyTorch."""
        self._library: Any = None
        self._calls: dict[tuple, _runtime.Model] = {}

    @property
    def name(self) -> str:
        return self.registration["name"]

    @property
    def configs(self) -> list[dict]:
        return list(self.registration["configs"]) or [{}]

    def __repr__(self) -> str:
        return f"coil.UserKernel({self.name}{self.registration['signature']})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.op(*args, **kwargs)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the registration, sources included, as a file for `coil compile --kernels`."""
        _runtime.write_file(path_of(path, "path"), json.dumps(self.registration, indent=1).encode())

    def with_config(self, index: int) -> str:
        """The registration, as JSON, with one configuration alone."""
        return json.dumps(dict(self.registration, configs=[self.configs[index]]))

    def check(self, *args: Any, rtol: float | None = None, atol: float | None = None, **kwargs: Any) -> None:
        """Runs every configuration with these arguments and compares the results, and what is written, with the reference's; without a
        reference with the first configuration's. Raises coil.Error (E408) that names the configuration that differs. Tolerances are those of
        torch.testing.assert_close; arguments are not changed."""
        torch = importlib.import_module("torch")
        tolerances = {} if rtol is None and atol is None else {"rtol": rtol or 0, "atol": atol or 0}
        results = [self._results(functools.partial(_run, self, i), args, kwargs) for i in range(len(self.configs))]
        expected = self._results(self.reference, args, kwargs) if self.reference else results[0]
        for config, found in zip(self.configs, results):
            try:
                torch.testing.assert_close(found, expected, **tolerances, equal_nan=True)
            except AssertionError as error:
                other = "the reference's" if self.reference else "the first configuration's"
                raise make_error(408, f"COIL-E408: user kernel '{self.name}': the results of the configuration {config} are not {other}: {error}") from None

    def _results(self, function: Callable, args: tuple, kwargs: dict) -> list:
        """Copies of the arguments are passed; what the function returns and those of them that it may change."""
        torch = importlib.import_module("torch")
        copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        more = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()}
        result = function(*copies, **more)
        results = list(result) if isinstance(result, (tuple, list)) else [] if result is None else [result]
        written = [v for a, v in zip(self.op._schema.arguments, _positional(self.op, copies, more)) if a.is_write]
        return results + written

    def benchmark(self, *args: Any, warmup: float = 25, rep: float = 100, quantiles: Sequence[float] | None = None, **kwargs: Any) -> list[tuple[dict, Any]]:
        """Times every configuration with these arguments by coil.do_bench, the call of the operator included: [(configuration, milliseconds), ...]."""
        times = []
        for i, config in enumerate(self.configs):
            times.append((config, do_bench(functools.partial(_run, self, i, *args, **kwargs), warmup=warmup, rep=rep, quantiles=quantiles)))
        return times


def register_kernel(
    name: str,
    *,
    signature: str,
    cpu: str | os.PathLike | None = None,
    cuda: str | os.PathLike | None = None,
    range: str | int | None = None,  # noqa: A002
    work: str | int | None = None,
    grid: str | int | Sequence[str | int] | None = None,
    block: str | int | None = None,
    shared: str | int | None = None,
    configs: Sequence[Mapping[str, int]] = (),
    key: str | None = None,
    contiguous: bool = True,
    headers: Mapping[str, str] | None = None,
    entry: str | None = None,
    out: Any = None,
    reference: Callable | None = None,
) -> UserKernel:
    """Registers a kernel that coil compiles into programs, and, where PyTorch is installed, the operator `name` for it.

    `name`: "namespace::operator"; it does not exist yet. `signature`: PyTorch's, "(Tensor x, Tensor? b, float alpha=1.0, int[] n=[]) -> Tensor";
    arguments that the kernel changes are Tensor(a!).
    `cpu`, `cuda`: C++ and CUDA C++, as text or the path of a file. The function in it is called like the operator (or `entry`).
    `range`: CPU: how many items there are, a formula; threads share them, and the function does [begin, end) of them. `work`: what an item costs, in
    vector operations, a formula; None: one for each element of the results.
    `grid`, `block`, `shared`: CUDA: blocks along one to three axes, threads of a block, bytes of its dynamic shared memory; formulas.
    `configs`: dicts of whole numbers, constants of the source; a tuner tries all, the first serves without. `key`: the number by which the choices of a
    tuner differ, a formula; None: the first configuration's range.
    `contiguous`: False: the function takes any strides; otherwise what is not dense and row-major is copied first.
    `headers`: further texts that the sources include, by name.
    `out`: sizes and dtype of the results: None (those of the first tensor), the name of a tensor, {"size": [formula, ...], "dtype": a tensor's name or "float32"},
    a list of these for several results, or a function of PyTorch's fake tensors (torch.library.register_fake).
    `reference`: a function of the same arguments in PyTorch, which `UserKernel.check` compares with.

    Formulas: whole numbers, + - * // % ( ), cdiv(a, b), min(a, b), max(a, b), constants of the configuration, int arguments, and sizes: x.size(0), x.numel(),
    x.dim(); results are called out, or out0, out1... Errors: coil.Error E408 for the registration; E409, when it is compiled, for a source.
    """
    if not (reference is None or callable(reference)):
        raise option_error(f"'reference' is {said(reference)}", "a function")
    registration: dict[str, Any] = {"name": text_of(name, "name"), "signature": text_of(signature, "signature"),
                                    "configs": [mapping_of(c, "configs") for c in listed(configs, "configs")], "contiguous": flag_of(contiguous, "contiguous")}
    if key is not None:
        registration["key"] = _formula_text(key, "key")
    if cpu is not None:
        registration["cpu"] = _code(name, cpu, "cc", headers, entry, {"range": range, "work": work})
    if cuda is not None:
        registration["cuda"] = _code(name, cuda, "cu", headers, entry, {"grid": grid, "block": block, "shared": shared})
    try:
        written = text_of(json.dumps(registration), "registration")
    except (TypeError, ValueError, RecursionError) as error:  # what JSON does not have
        raise make_error(408, f"COIL-E408: user kernel {said(name)}: {error}") from None
    importlib.import_module("coil._compiler").check_kernel(written)
    if name in kernels_by_name:
        raise make_error(408, f"COIL-E408: user kernel '{name}': it is registered already\n  hint: one registration holds the sources for all targets")
    kernel = UserKernel(registration, out, reference)
    _define(kernel)
    kernels_by_name[name] = kernel
    return kernel


def _formula_text(value: Any, field: str) -> str:
    if not isinstance(value, (str, int)):
        raise option_error(f"'{field}' is {said(value)}", "a formula: a text or a whole number")
    return str(value)


def _code(name: str, source: Any, suffix: str, headers: Any, entry: str | None, fields: dict[str, Any]) -> dict:
    code: dict[str, Any] = {}
    if not isinstance(source, (str, os.PathLike)):
        raise option_error(f"the source of '{name}' is {said(source)}", "a text, or the path of a file")
    if isinstance(source, os.PathLike) or "\n" not in source and source.endswith((".cc", ".cpp", ".cu", ".h")):
        path = path_of(source, suffix)
        with open(path, encoding="utf-8") as file:
            code = {"text": file.read(), "file": _shown(path)}
    else:
        code = {"text": text_of(source, suffix), "file": f"{name.rpartition(':')[2]}.{suffix}"}
    if headers is not None:
        code["headers"] = {text_of(n, "headers"): text_of(t, "headers") for n, t in mapping_of(headers, "headers").items()}
    if entry is not None and entry != "":
        code["entry"] = text_of(entry, "entry")
    for field, value in fields.items():
        if value is not None:
            code[field] = [_formula_text(v, field) for v in value] if isinstance(value, (list, tuple)) else _formula_text(value, field)
    return code


# ---- The operator in PyTorch

def _define(kernel: UserKernel) -> None:
    try:
        torch = importlib.import_module("torch")
    except ImportError:  # without PyTorch there are no operators, only programs
        return
    namespace, _, word = kernel.name.partition("::")
    if hasattr(getattr(torch.ops, namespace), word):
        raise make_error(408, f"COIL-E408: user kernel '{kernel.name}': PyTorch has an operator of this name already\n  hint: choose another name")
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define(word + kernel.registration["signature"])
    for place, key in (("cpu", "CPU"), ("cuda", "CUDA")):
        if place in kernel.registration:
            library.impl(word, functools.partial(_run, kernel, None), key)
    torch.library.register_fake(kernel.name, _fake(kernel), lib=library)
    kernel.op = getattr(getattr(torch.ops, namespace), word).default
    kernel._library = library  # the operator lives as long as this


def _fake(kernel: UserKernel) -> Callable:
    if callable(kernel._out):
        return kernel._out

    def fake(*args: Any, **kwargs: Any) -> Any:
        torch = importlib.import_module("torch")
        schema = kernel.op._schema
        values = dict(zip((a.name for a in schema.arguments), _positional(kernel.op, args, kwargs)))
        rules = kernel._out if isinstance(kernel._out, (list, tuple)) else [kernel._out] * len(schema.returns)
        if len(rules) != len(schema.returns):
            raise make_error(408, f"COIL-E408: user kernel '{kernel.name}': 'out' is of {len(rules)} results, the signature has {len(schema.returns)}")
        results = tuple(_like(torch, kernel, rule, values) for rule in rules)
        return None if not results else results[0] if len(results) == 1 else results

    return fake


def _like(torch: Any, kernel: UserKernel, rule: Any, values: dict[str, Any]) -> Any:
    tensors = {n: v for n, v in values.items() if isinstance(v, torch.Tensor)}
    first = next(iter(tensors.values()), None)
    if rule is None or isinstance(rule, str):
        model = first if rule is None else tensors.get(rule)
        if model is None:
            raise make_error(408, f"COIL-E408: user kernel '{kernel.name}': 'out' names {rule!r}, which is no tensor of the call")
        return torch.empty(model.shape, dtype=model.dtype, device=model.device)
    sizes = [_formula(kernel, s, values) for s in rule["size"]] if "size" in rule else list(first.shape)  # type: ignore[union-attr]
    dtype = rule.get("dtype")
    dtype = first.dtype if dtype is None else tensors[dtype].dtype if dtype in tensors else getattr(torch, str(dtype).removeprefix("torch."), None)  # type: ignore[union-attr]
    if not isinstance(dtype, torch.dtype):
        raise make_error(408, f"COIL-E408: user kernel '{kernel.name}': 'out' has the dtype {rule['dtype']!r}, which is no tensor of the call and no dtype")
    return torch.empty(sizes, dtype=dtype, device=first.device if first is not None else "cpu")


def _formula(kernel: UserKernel, text: Any, values: dict[str, Any]) -> Any:
    """The value of a formula of sizes; symbolic ones stay symbolic."""
    functions = {"cdiv": lambda a, b: (a + b - 1) // b, "min": min, "max": max}

    def value(node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name) and node.id in values:
            return values[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp):
            a, b = value(node.left), value(node.right)
            for kind, operation in ((ast.Add, lambda: a + b), (ast.Sub, lambda: a - b), (ast.Mult, lambda: a * b), (ast.FloorDiv, lambda: a // b), (ast.Mod, lambda: a % b)):
                if isinstance(node.op, kind):
                    return operation()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            return functions[node.func.id](*map(value, node.args))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("size", "numel", "dim"):
            return getattr(value(node.func.value), node.func.attr)(*map(value, node.args))
        raise ValueError(ast.dump(node))

    try:
        return value(ast.parse(str(text), mode="eval").body)
    except (SyntaxError, ValueError, IndexError, TypeError) as error:
        raise make_error(408, f"COIL-E408: user kernel '{kernel.name}': the formula {text!r} of 'out' cannot be read ({error})") from None


# ---- Calls outside of programs

def _positional(op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list:
    """A value for each argument of the schema."""
    values = list(args)
    for a in op._schema.arguments[len(values):]:
        values.append(kwargs[a.name] if a.name in kwargs else a.default_value)
    return values


def _run(kernel: UserKernel, config: int | None, *args: Any, **kwargs: Any) -> Any:
    """The operator by itself: a program of this one node, compiled once for each kind of arguments."""
    torch = importlib.import_module("torch")
    values = _positional(kernel.op, args, kwargs)
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    kinds = [(v.dtype, tuple(v.shape), v.stride(), v.device) if isinstance(v, torch.Tensor) else v for v in values]
    key = (config, torch.get_num_threads() == 1, repr(kinds))
    model = kernel._calls.get(key)
    if model is None:
        while len(kernel._calls) >= _KEPT_CALLS:
            kernel._calls.pop(next(iter(kernel._calls)))
        model = kernel._calls[key] = _compile_call(kernel, config, values)
    results = model.run([t.detach() for t in tensors])
    count = len(kernel.op._schema.returns)
    return None if count == 0 else results[0] if count == 1 else tuple(results[:count])


def _compile_call(kernel: UserKernel, config: int | None, values: list) -> "_runtime.Model":
    from .dynamo._graph import target_of

    torch = importlib.import_module("torch")
    writer = importlib.import_module("coil.dynamo._serialize").ProgramWriter()
    op = kernel.op
    tensors = [v for v in values if isinstance(v, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    names: list[str] = []
    inputs = []
    for parameter, value in zip(op._schema.arguments, values):
        if isinstance(value, torch.Tensor):
            names.append(f"arg_{parameter.name}")
            writer.define_tensor(names[-1], value)
            inputs.append({"name": parameter.name, "arg": {"as_tensor": {"name": names[-1]}}, "kind": 1})
        else:
            inputs.append({"name": parameter.name, "arg": writer.argument(value, parameter), "kind": 1})
    fakes = _fake_results(torch, kernel, values)
    results = [f"result_{i}" for i, _ in enumerate(fakes)]
    for name, fake in zip(results, fakes):
        writer.define_tensor(name, fake)
    writer.nodes.append({"target": f"torch.ops.{op.namespace}.{op._opname}.{op._overloadname}", "inputs": inputs, "outputs": [{"as_tensor": {"name": r}} for r in results],
                         "name": op._opname})
    writer.origins.append({})
    text = writer.text_with_traces(writer.program([(n, True) for n in names], results, {}, []))
    settings = settings_of({"kernels": [kernel]}, target_of(device))
    settings["name"] = op._opname
    if config is not None:
        settings["kernels"] = [kernel.with_config(config)]
    package, _ = importlib.import_module("coil._compiler").compile_json(text, {}, None, settings)
    place = "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"
    return with_free_memory(_runtime.Model.open_memory, package, place, 1 if torch.get_num_threads() == 1 else 0)


def _fake_results(torch: Any, kernel: UserKernel, values: list) -> list:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for v in values]
        result = _fake(kernel)(*fakes)
    return list(result) if isinstance(result, (tuple, list)) else [] if result is None else [result]
