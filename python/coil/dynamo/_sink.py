"""Operators computed in the program that reads them, or in the last before PyTorch's operator that does, rather than in the first that could compute them.

A level is the earliest possible one. In a backward graph, where what the forward one has saved is known from the beginning, that is too early: the
masks of all ReLUs, say, would be computed first, written to memory, and read again one by one by the programs between PyTorch's convolutions; and the
activations that are computed anew would all be in memory at once, which is what computing them anew is to avoid.
"""

from __future__ import annotations

from typing import Iterator

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ._split import Split, base_of, is_number, producer, writes_input

_LARGEST = 200  # operators that move together: a bound of the time


def sink(graph: Graph, split: Split) -> Split:
    """The split, in which operators of coil's that only later programs or operators of PyTorch's read are in the last program that is early enough."""
    for node in reversed(graph.nodes):
        later = _first_reader(node, split)
        if later is not None:
            for member in _cone(node, later, split):
                split.level[member] = later
    split.group(graph)
    return split


def _first_reader(node: Node, split: Split) -> int | None:
    """The level of the first program that reads the node's results or runs before who reads them, if it is a later one. Results of the graph, and what
    Python asks for, stay."""
    if not _moves(node, split):
        return None
    first = min((_needed_at(reader, split) for reader in readers_behind(node, split)), default=-1)
    return first if first > split.level[node] else None


def _needed_at(reader: Node, split: Split) -> int:
    if reader.op == "output":
        return -1
    if split.is_coil(reader):
        return split.level[reader]
    return split.level[reader] - 1 if split.is_torch(reader) else -1


def _moves(node: Node, split: Split) -> bool:
    return node in split.level and split.is_coil(node) and not _writes(node) and not split.binds(node)


def _writes(node: Node) -> bool:
    return not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.is_mutable


def readers_behind(node: Node, split: Split) -> Iterator[Node]:
    """The operators behind views, elements of lists and numbers, and the graph's output."""
    for user in node.users:
        if user.op == "output" or user in split.level and (split.is_coil(user) or split.is_torch(user) or is_number(user) and split.asks_for_tensor(user)):
            yield user
        elif user in split.level:
            yield from readers_behind(user, split)


def _cone(node: Node, later: int, split: Split) -> list[Node]:
    """The node, what it alone needs and what needs that too, if all of it can be computed at a later level from what is in memory then, without holding
    more than is saved: inputs of the graph, and values that are read as late anyway. Nothing if there is something else, or too much of it."""
    members: dict[Node, None] = {}
    left: list[Node] = []

    def join(wanted: Node) -> bool:
        """Whether this operator, and its readers before that level, can move: a silu and its derivative, say, begin with the same sigmoid."""
        joined: dict[Node, None] = {}
        joining = [wanted]
        while joining:
            member = joining.pop()
            if member in members or member in joined:
                continue
            if not _moves(member, split) or len(members) + len(joined) == _LARGEST:
                return False
            joined[member] = None
            early = [reader for reader in readers_behind(member, split) if _needed_at(reader, split) < later]
            if any(reader.op == "output" for reader in early):
                return False
            joining.extend(early)
        members.update(joined)
        left.extend(joined)
        return True

    if not join(node):
        return []
    while left:
        member = left.pop()
        for source in {memory_of(n) for n in member.all_input_nodes}:
            if source in members or source not in split.level or is_number(source):
                continue
            readers = [reader for reader in readers_behind(source, split) if reader not in members]
            if _is_written(readers, later, split):
                return []
            if any(reader.op == "output" or split.level[reader] >= later for reader in readers):
                continue
            if not join(source) and not _no_larger(source, member):
                return []
    return list(members)


def _is_written(readers: list[Node], later: int, split: Split) -> bool:
    """Whether one of these writes to what it reads, before that level or, in PyTorch, at all."""
    written = [reader for reader in readers if reader.op != "output" and _writes(reader)]
    return any(split.is_torch(reader) or writes_input(reader) and split.level[reader] < later for reader in written)


def memory_of(node: Node) -> Node:
    """The operator or the input whose memory a node's value is."""
    while True:
        behind = producer(base_of(node))
        if behind is node:
            return node
        node = behind


def _no_larger(source: Node, node: Node) -> bool:
    """Whether keeping the source longer takes no more memory than keeping the node's results, by their numbers of elements."""
    theirs, ours = _elements(source), _elements(node)
    return theirs is None or (ours is not None and statically_known_true(theirs <= ours))


def _elements(node: Node) -> int | torch.SymInt | None:
    value = node.meta.get("val")
    tensors = [t for t in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(t, torch.Tensor)]
    return sum(t.numel() for t in tensors) if tensors else None
