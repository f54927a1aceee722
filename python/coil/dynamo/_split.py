"""Which nodes of a graph go to coil together, and which stay in PyTorch.

Every node gets a level: coil's are even, PyTorch's odd, and a node's level is at least that of what it reads. All of coil's nodes
of one level are one program. Views belong to nobody: whoever reads one takes the way from its base along.
"""

from __future__ import annotations

import operator
from typing import Any, Collection, Iterable, Iterator

import sympy
import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ._decompositions import draws
from ._effects import is_check

aten = torch.ops.aten

VIEWS = {
    aten.view.default, aten.t.default, aten.transpose.int, aten.permute.default, aten.expand.default, aten.slice.Tensor,
    aten.select.int, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.detach.default,
    aten.alias.default, aten.diagonal.default, aten.unfold.default,
}
# Those that give a list of views.
VIEW_LISTS = {aten.unbind.int, aten.split.Tensor, aten.split_with_sizes.default, aten.unsafe_split.Tensor, aten.unsafe_split_with_sizes.default}

# The position of the offset among their arguments; it counts from the beginning of the storage, which may be before that of the tensor.
STRIDED = {aten.as_strided.default: 3, aten.as_strided_copy.default: 3, aten.as_strided_scatter.default: 4}

ASSERTION = aten._assert_scalar.default  # about sizes, which Python compares

_SIZES = {aten.sym_size.int, aten.sym_stride.int, aten.sym_numel.default, aten.sym_storage_offset.default}


def is_view(node: Node) -> bool:
    """Whether the node's value is another's memory, seen otherwise: its first argument's."""
    if node.op != "call_function":
        return False
    if node.target is operator.getitem:
        return node.args[0].target in VIEW_LISTS  # type: ignore[union-attr]
    return node.target in VIEWS or node.target in VIEW_LISTS


def base_of(node: Node) -> Node:
    while is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node


def writes_input(node: Node) -> bool:
    """Whether this is how AOTAutograd puts a new value into an input of the graph."""
    return node.op == "call_function" and node.target is aten.copy_.default and node.args[0].op == "placeholder"  # type: ignore[union-attr]


def can_write_input(node: Node) -> bool:
    """Whether a program can do that: a computed value of the same sizes and type."""
    if not writes_input(node) or node.users:
        return False
    target, source = node.args[0], node.args[1]
    if base_of(source).op != "call_function" or len(node.args) > 2 and node.args[2]:  # type: ignore[union-attr, arg-type]
        return False
    old, new = target.meta["val"], source.meta["val"]  # type: ignore[union-attr]
    return old.dtype == new.dtype and old.device == new.device and len(old.shape) == len(new.shape) and \
        all(statically_known_true(a == b) for a, b in zip(old.shape, new.shape)) and not may_overlap(old)


def may_overlap(tensor: torch.Tensor) -> bool:
    """Whether several elements may be in one place. Those with gaps, as of some columns of a matrix, are known not to where sizes and strides are numbers."""
    if torch._prims_common.is_non_overlapping_and_dense_or_false(tensor):
        return False
    dims = [(stride, size) for size, stride in zip(tensor.shape, tensor.stride()) if not statically_known_true(size == 1)]
    if not all(isinstance(n, int) for dim in dims for n in dim):
        return True
    last = 0  # the furthest element of the dimensions of smaller strides
    for stride, size in sorted(dims):
        if stride <= last:
            return size > 0
        last += (size - 1) * stride
    return False


def is_number(node: Node) -> bool:
    """Computed by Python: sizes and flags."""
    value = node.meta.get("val")
    return node.op == "call_function" and isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


def producer(node: Node) -> Node:
    """The operator behind an element of its tuple of results."""
    while node.op == "call_function" and node.target is operator.getitem:
        node = node.args[0]  # type: ignore[assignment]
    return node


def tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)


class Split:
    """`in_torch`: nodes (operators, not elements of their results) that coil does not take."""

    def __init__(self, graph: torch.fx.Graph, in_torch: set[Node]):
        self.in_torch = in_torch
        inputs = size_sources(graph)
        needed = _needed(graph, in_torch)
        self.sizes = {**data_sizes((n for n in graph.nodes if n in needed), inputs), **inputs}
        self.of_data = {symbol: source for symbol, (source, _) in self.sizes.items() if symbol not in inputs}
        self.level: dict[Node, int] = {}
        last_random = -1
        needed = _needed(graph, {node for node in in_torch if not self._is_asserted(node)})
        for node in graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self.level[node] = -1
            elif node.op == "call_function" and node in needed:
                reads = [self.level[n] for n in node.all_input_nodes if n in self.level]
                if writes_input(node):  # after all that reads the old value
                    reads.extend(self.level[reader] for reader in readers(node.args[0]) if reader in self.level)  # type: ignore[arg-type]
                if self.is_torch(node):
                    level = _round_up(max(reads, default=-1), odd=True)
                    if draws(node):
                        level = last_random = max(level, last_random)
                elif writes_input(node):
                    level = max(_round_up(max(reads), odd=False), self._sizes_known(node))
                elif is_number(node) or is_view(node) or node.target is operator.getitem:
                    level = max(reads, default=-1)
                else:
                    # Sizes are expressions inside of coil's programs, not values that they wait for.
                    level = _round_up(max([self.level[n] for n in node.all_input_nodes if not is_number(n)], default=0), odd=False)
                    level = max(level, self._sizes_known(node))
                self.level[node] = level
        self.group(graph)

    def group(self, graph: torch.fx.Graph) -> None:
        """The programs, by the levels of their operators."""
        self.programs: dict[int, list[Node]] = {}
        self.handed_on: set[Node] = set()
        """What tells other programs a size of data."""
        for node in graph.nodes:
            if node in self.level and self.is_coil(node):
                self.programs.setdefault(self.level[node], []).append(node)
                sources = [self.of_data[symbol] for symbol in self._sizes_of_data(node)]
                self.handed_on.update(source for source in sources if self.level[source] != self.level[node])

    def _sizes_of_data(self, node: Node) -> set[sympy.Symbol]:
        return set().union(*map(symbols_of, (node, *node.all_input_nodes))) & self.of_data.keys() if self.of_data else set()

    def _sizes_known(self, node: Node) -> int:
        """The first level at which the sizes of data that an operator of coil's has are known: where a program makes them, in that one."""
        level = 0
        for symbol in self._sizes_of_data(node):
            source = self.of_data[symbol]
            if producer(source) is not node and source not in self.level:  # another value tells it, by an expression: no program can ask for it
                del self.of_data[symbol], self.sizes[symbol]
            elif producer(source) is not node:
                level = max(level, self.level[source] if self.is_coil(producer(source)) else _round_up(self.level[source] + 1, odd=False))
        return level

    def _is_asserted(self, node: Node) -> bool:
        """Whether this asserts of sizes what the program that makes them looks at anyway: their range."""
        if node.target is not ASSERTION or not isinstance(node.args[0], Node):
            return False
        sources = [self.of_data.get(symbol) for number in node.args[0].all_input_nodes for symbol in symbols_of(number)]
        known = all(source is not None and not is_number(source) and self.is_coil(producer(source)) for source in sources)
        return known and bool(sources) and statically_known_true(node.args[0].meta.get("val", False))

    def binds(self, node: Node) -> set[sympy.Symbol]:
        """The sizes of data that an operator makes."""
        return {symbol for symbol, source in self.of_data.items() if producer(source) is node}

    def is_torch(self, node: Node) -> bool:
        return node in self.in_torch

    def asks_for_tensor(self, number: Node) -> bool:
        """Whether Python reads this number out of its tensor: an element of it, or a size that is not told to coil alone."""
        if number not in self.level or not any(isinstance(n.meta.get("val"), torch.Tensor) for n in number.all_input_nodes):
            return False
        if number.target not in _SIZES:
            return True
        return any(user.op == "output" or user in self.level and (self.is_torch(user) or is_number(user)) for user in number.users)

    def is_coil(self, node: Node) -> bool:
        """An operator that coil computes."""
        return node.op == "call_function" and node not in self.in_torch and not is_view(node) and not is_number(node) \
            and node.target is not operator.getitem


def size_sources(graph: torch.fx.Graph) -> dict[sympy.Symbol, tuple[Node, int | None]]:
    """Where the value of each symbol is at run time: an integer input, or a dimension of a tensor input."""
    sources: dict[sympy.Symbol, tuple[Node, int | None]] = {}
    for node in graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        if isinstance(value, torch.SymInt) and value.node.expr.is_Symbol:
            sources[value.node.expr] = (node, None)
        elif isinstance(value, torch.Tensor):
            for dimension, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    sources.setdefault(size.node.expr, (node, dimension))
    return sources


def symbols_of(node: Node) -> set[sympy.Symbol]:
    """Those in the sizes of a node's tensors, or in its number."""
    value = node.meta.get("val")
    numbers = [value] if isinstance(value, torch.SymInt) else [n for tensor in tensors_of(value) for n in (*tensor.shape, *tensor.stride())]
    return set().union(*(n.node.expr.free_symbols for n in numbers if isinstance(n, torch.SymInt)))


def data_sizes(nodes: Iterable[Node], known: Collection[sympy.Symbol]) -> dict[sympy.Symbol, tuple[Node, int | None]]:
    """Where the sizes are at run time that only data decides (nonzero, a number that is read from a tensor): the values that bring them in. `known`: those
    that the graph's inputs tell."""
    sources: dict[sympy.Symbol, tuple[Node, int | None]] = {}
    for node in nodes:
        if node.op == "call_function":
            found = _own_sizes(node, known)
            if found and not any(found.keys() & symbols_of(read) for read in producer(node).all_input_nodes):
                for symbol, dimension in found.items():
                    sources.setdefault(symbol, (node, dimension))
    return sources


def _own_sizes(node: Node, known: Collection[sympy.Symbol]) -> dict[sympy.Symbol, int | None]:
    """The symbols that are a dimension of a node's tensor, or its number."""
    value = node.meta.get("val")
    sizes = [(None, value)] if isinstance(value, torch.SymInt) else [*enumerate(value.shape)] if isinstance(value, torch.Tensor) else []
    symbols = [(size.node.expr, dimension) for dimension, size in sizes if isinstance(size, torch.SymInt)]
    return {expression: dimension for expression, dimension in reversed(symbols) if expression.is_Symbol and expression not in known}


def _round_up(level: int, odd: bool) -> int:
    level = max(level, -1 if odd else 0)
    return level if bool(level % 2) == odd else level + 1


def readers(node: Node) -> Iterator[Node]:
    """The operators that read a tensor or a view of it."""
    for user in node.users:
        if is_view(user):
            yield from readers(user)
        elif user.op == "call_function" and not writes_input(user):
            yield user


def _needed(graph: torch.fx.Graph, in_torch: set[Node]) -> set[Node]:
    """What the results depend on, and what PyTorch runs for its effects."""
    needed: set[Node] = set()
    stack = [n for n in graph.nodes if n.op == "output" or writes_input(n) or is_check(n) or (n in in_torch and n.is_impure())]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(node.all_input_nodes)
    return needed
