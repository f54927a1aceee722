"""One program of coil's out of a graph: serialised, compiled (once for equal ones), opened, and called."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import importlib
import json
import logging
import operator
import os
import threading
import time
import weakref
from collections import OrderedDict
from typing import Any, Callable

import sympy
import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .. import _runtime
from .._errors import Error, InternalError, make_error
from .._memory import with_free_memory
from .._stats import stats
from .._program import weight_row
from .._strides import run_with_copies
from ._control import graph_behind
from ._decompositions import operator_name
from ._effects import as_eager_raises
from ._results import read_nodes
from ._serialize import CannotSerialize, ProgramWriter
from ._split import STRIDED, Split, base_of, is_number, is_view, producer, readers, tensors_of, writes_input
from ._stages import folder_for, program_compiled
from ._support import is_dense, unknown_operators

log = logging.getLogger("coil")


@dataclasses.dataclass
class Program:
    inputs: list[Node]
    """Tensors that it takes, by the graph's nodes."""
    symbols: list[sympy.Symbol]
    """Sizes that it takes as well."""
    outputs: list[Node]
    function: Callable[..., list]
    model: "_runtime.Model"


@dataclasses.dataclass
class _Parts:
    inputs: list[Node]
    symbols: list[sympy.Symbol]
    outputs: list[Node]
    writer: ProgramWriter
    document: dict
    weights: dict[str, torch.Tensor]


class Models:
    """Open models by what they were compiled from. Those that a compiled function still holds are found as long as it does; of the others the ones
    that were used last are kept open, for the next equal graph (after torch._dynamo.reset(), say)."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._last: OrderedDict[bytes, "_runtime.Model"] = OrderedDict()
        self._alive: weakref.WeakValueDictionary[bytes, "_runtime.Model"] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def get(self, key: bytes) -> "_runtime.Model | None":
        with self._lock:
            model = self._alive.get(key)
            if model is not None:
                self._use(key, model)
            return model

    def add(self, key: bytes, model: "_runtime.Model") -> None:
        with self._lock:
            self._alive[key] = model
            self._use(key, model)

    def _use(self, key: bytes, model: "_runtime.Model") -> None:
        self._last[key] = model
        self._last.move_to_end(key)
        while len(self._last) > self._kept:
            self._last.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._last.clear()

    def __len__(self) -> int:
        return len(self._alive)


models = Models(kept=32)
_kernels: "weakref.WeakKeyDictionary[_runtime.Model, int]" = weakref.WeakKeyDictionary()  # how many each has


def build_programs(split: Split, levels: dict[int, list[Node]], settings: dict, device: torch.device,
                   frozen: dict[Node, torch.Tensor]) -> dict[int, Program | Error]:
    """Compiles coil's nodes of each of these levels, with the values of the inputs in `frozen`: several at once, equal ones once. An Error in the place
    of what the compiler refuses."""
    start = time.perf_counter()
    results: dict[int, Program | Error] = {}
    written: dict[int, tuple[_Parts, bytes]] = {}
    for level, nodes in levels.items():
        try:
            parts = _write(split, level, nodes, frozen)
        except Error as error:
            results[level] = error
            continue
        # Of those with weights the text does not say everything.
        own = str(level) if parts.weights else ""
        written[level] = parts, hashlib.sha256(json.dumps([parts.document, settings, str(device), own]).encode()).digest()
    stats.serialize_seconds += time.perf_counter() - start
    found: dict[bytes, Any] = {}  # models and errors
    jobs: dict[bytes, _Parts] = {}
    for parts, key in written.values():
        if key in jobs or key in found:
            stats.cache_hits += 1
            continue
        model = None if parts.weights else models.get(key)
        if model is None:
            jobs[key] = parts
        else:
            stats.cache_hits += 1
            found[key] = model
    found.update(_compile_all(jobs, settings, device))
    for level, (parts, key) in written.items():
        model = found[key]
        if isinstance(model, Error):
            results[level] = model
            continue
        stats.kernels += _kernels.get(model, 0)
        results[level] = Program(parts.inputs, parts.symbols, parts.outputs, _caller(model, parts.inputs), model)
    return results


MOST_AT_ONCE = 16  # compiles; each takes some 50 MB


def _compile_all(jobs: dict[bytes, _Parts], settings: dict, device: torch.device) -> dict[bytes, "_runtime.Model | Error"]:
    start = time.perf_counter()
    # What is tuned is timed, by one at a time.
    at_once = 1 if settings.get("tune", "off") != "off" else min(len(jobs), os.cpu_count() or 1, settings.get("threads") or MOST_AT_ONCE, MOST_AT_ONCE)
    folders = [folder_for(settings) for _ in jobs]
    if jobs:  # equal kernels of several programs are compiled once
        settings = dict(settings, batch=importlib.import_module("coil._compiler").Batch())
    works = [_compiling(parts, dict(settings, dump=folder) if folder else settings, device) for parts, folder in zip(jobs.values(), folders)]
    if at_once <= 1:
        made = [work() for work in works]
    else:
        with concurrent.futures.ThreadPoolExecutor(at_once, "coil-compile") as pool:
            try:
                made = list(pool.map(lambda work: work(), works))
            except BaseException:  # Ctrl-C: those that have begun end
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    models_made: list[_runtime.Model | Error] = [model for model, _ in made]
    for folder, (_, report) in zip(folders, made):
        program_compiled(folder, settings, report)
    for (key, parts), (model, report) in zip(jobs.items(), made):
        if not isinstance(model, Error):
            stats.packages += 1
            _kernels[model] = report["kernels"] if report else 0
            if not parts.weights:
                models.add(key, model)
    stats.compile_seconds += time.perf_counter() - start
    return dict(zip(jobs, models_made))


def _compiling(parts: _Parts, settings: dict, device: torch.device) -> Callable[[], tuple["_runtime.Model | Error", dict | None]]:
    """The work of one compile, for any thread: it looks at nothing of the graph's. It gives the model and the compiler's report."""
    compiler = importlib.import_module("coil._compiler")
    text = parts.writer.text_with_traces(parts.document)
    weights = {name: tensor.detach().cpu() for name, tensor in parts.weights.items()}
    rows = {name: weight_row(tensor) for name, tensor in weights.items()}
    threads = 1 if torch.get_num_threads() == 1 else 0
    place = "cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"

    def work() -> tuple["_runtime.Model | Error", dict | None]:
        try:
            package, report = compiler.compile_json(text, rows, None, settings)
            return with_free_memory(_runtime.Model.open_memory, package, place, threads), report
        except Error as error:
            return error, None
        finally:
            weights.clear()

    return work


# ---- From nodes to the text

def _write(split: Split, level: int, nodes: list[Node], frozen: dict[Node, torch.Tensor] | None = None) -> _Parts:
    writer = ProgramWriter(binds=set().union(*map(split.binds, nodes)) if split.of_data else ())
    weights: dict[str, torch.Tensor] = {}
    inputs: list[Node] = []
    members = set(nodes)
    written: set[Node] = set()

    def need(node: Node) -> None:
        """Makes a value that an operator reads known to the program: a view by its way from the base, anything else as an input."""
        if node in written or is_number(node) or isinstance(node.meta.get("val"), torch.SymInt) or graph_behind(node) is not None:
            return
        written.add(node)
        if is_view(node):
            need(node.args[0])  # type: ignore[arg-type]
            if node.target is not operator.getitem:
                writer.add(node)
            return
        if producer(node) in members:
            return
        writer.define_tensor(writer.name(node), node.meta["val"])
        if frozen and node in frozen:
            weights[writer.name(node)] = frozen[node]
        else:
            inputs.append(node)

    for node in nodes:
        for operand in read_nodes(node):
            need(operand)
        writer.add(node)
    outputs = _outputs(split, members)
    for node in outputs:
        need(node)
    symbols = _symbols_to_pass(writer, inputs)
    for symbol in symbols:
        if symbol not in split.sizes:
            reason = f"the size {symbol} is known to no input of the graph"
            raise make_error(105, f"COIL-E105: {reason}", reason)
        named = writer.named_size(symbol)
        writer.numbers[named.name] = {"as_expr": {"expr_str": sympy.srepr(named), "hint": None}}
    names = [(writer.name(n), True) for n in inputs] + [(writer.named_size(s).name, False) for s in symbols]
    ranges = {name: writer.fixed.range_of(symbol, *_range(symbol, nodes, inputs)) for name, symbol in sorted(writer.symbols.items())}
    document = writer.program(names, [writer.name(n) for n in outputs], ranges, list(weights))
    return _Parts(inputs, symbols, outputs, writer, document, weights)


def _outputs(split: Split, members: set[Node]) -> list[Node]:
    """What others read of a program. Of a view, its base, which they take their own view of; but a view that alone is read, and
    dense, is computed as such: unless it is all of a base that the program reads itself, which would then be stored twice."""
    wanted: list[Node] = []

    def outside(user: Node) -> bool:
        if user.op == "output":
            return True
        if is_number(user):
            return split.asks_for_tensor(user)
        return user in split.level and not is_view(user) and user.target is not operator.getitem and user not in members

    def visit(node: Node) -> None:
        if node in split.handed_on or any(outside(user) for user in node.users):
            wanted.append(node)
        for user in node.users:
            if is_view(user) or user.target is operator.getitem:
                visit(user)

    for node in split.level:
        if node in members:
            visit(node)
    by_base: dict[Node, list[Node]] = {}
    for node in wanted:
        by_base.setdefault(base_of(node), []).append(node)
    return [nodes[0] if len(nodes) == 1 and _can_be_computed(nodes[0]) and not split_reads(nodes[0], split) and not _is_stored_anyway(nodes[0], base, members) else base
            for base, nodes in by_base.items()]


def split_reads(node: Node, split: Split) -> bool:
    """Whether another of coil's programs, or an operator that looks at the storage, reads this view: it takes the base."""
    return is_view(node) and any(user in split.level and (split.is_coil(user) or user.target in STRIDED) for user in node.users)


def _is_stored_anyway(node: Node, base: Node, members: set[Node]) -> bool:
    """Whether a view has all elements of its base, and one of the program's operators reads that, or a view of it."""
    whole, part = base.meta["val"], node.meta["val"]
    return node is not base and isinstance(whole, torch.Tensor) and statically_known_true(whole.numel() == part.numel()) and is_dense(whole) and \
        any(reader in members for reader in readers(base))


def _can_be_computed(node: Node) -> bool:
    value = node.meta["val"]
    return not is_view(node) or is_dense(value)


def _symbols_to_pass(writer: ProgramWriter, inputs: list[Node]) -> list[sympy.Symbol]:
    """The sizes that no input has as a dimension of its own."""
    told = {expression for node in inputs for expression in map(writer.expression, node.meta["val"].shape) if expression is not None}
    return [symbol for _, symbol in sorted(writer.symbols.items()) if symbol not in told and symbol not in writer.binds]


def _range(symbol: sympy.Symbol, nodes: list[Node], inputs: list[Node]) -> tuple[int | None, int | None]:
    for node in [*inputs, *nodes]:
        for tensor in tensors_of(node.meta["val"]):
            if tensor.fake_mode.shape_env is not None:  # type: ignore[attr-defined]
                bounds = tensor.fake_mode.shape_env.bound_sympy(symbol)  # type: ignore[attr-defined]
                low = int(bounds.lower) if bounds.lower.is_Integer else None
                high = int(bounds.upper) if bounds.upper.is_Integer else None
                return low, high
    return None, None


# ---- What the compiler refuses

def find_problems(split: Split, level: int, nodes: list[Node], settings: dict, error: Error) -> dict[Node, str]:
    """The nodes behind an error of build_program; all of them when it is nobody's in particular."""
    if isinstance(error, InternalError):
        log.warning("coil failed to compile a graph, which PyTorch runs instead; please report it: %s", error)
        return {n: "a bug in coil" for n in nodes}
    problems = _ask(split, level, nodes, settings)
    if problems is None:  # the program cannot even be read: one node at a time
        problems = {}
        for node in nodes:
            found = _ask(split, level, [node], settings)
            problems.update({node: _short(error)} if found is None else found)
    return problems or _named(split, level, nodes, error) or {n: _short(error) for n in nodes}


def _named(split: Split, level: int, nodes: list[Node], error: Error) -> dict[Node, str]:
    """The node whose value the error names."""
    if not error.node:
        return {}
    found = [producer(node) for node, name in _write(split, level, nodes).writer.names.items() if name == error.node]
    return {node: _short(error) for node in found if node in nodes}


def _ask(split: Split, level: int, nodes: list[Node], settings: dict) -> dict[Node, str] | None:
    compiler = importlib.import_module("coil._compiler")
    try:
        parts = _write(split, level, nodes)
        rows = compiler.unsupported(json.dumps(parts.document), settings)
    except (Error, CannotSerialize):
        return None
    by_name = {parts.writer.name(n): n for n in nodes}
    problems = {}
    for name, target, problem, unknown in rows:
        node = by_name.get(name)
        if node is None:
            return None
        problems[node] = problem
        if unknown and target == operator_name(node.target):
            unknown_operators[target] = problem
    return problems


def _short(error: Error) -> str:
    return error.reason or str(error)


# ---- Calls

def _caller(model: "_runtime.Model", inputs: list[Node]) -> Callable[..., list]:
    """`inputs`: what the program takes; those that it writes to are never copied, but for a lazy sign."""
    run = model.run
    written = {i for i, node in enumerate(inputs) if any(writes_input(user) and user.args[0] is node for user in node.users)}

    def coil_program(*args: Any) -> list:
        try:
            return run(args)
        except Error as error:
            if error.number != 205:
                raise as_eager_raises(error) from None
        stats.strided_copies += 1
        return run_with_copies(run, args, lambda index: index not in written, written.__contains__)

    return coil_program
