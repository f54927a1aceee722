"""A backward graph's programs cut into several, so that what the forward graph has saved is freed on the way.

A program's results have their memory before its first kernel runs, and what it reads is held until its last has. Eager frees each saved tensor once it
has been read, and makes each parameter's gradient when its turn comes: a training step's peak is where the backward pass begins. So a program that would
take more than that is cut, where the least has to be handed on: between a network's layers that is one gradient, which is stored anyway.
"""

from __future__ import annotations

import dataclasses
from typing import Iterator

import torch
from torch.fx import Graph, Node

from ._sink import _memory, _readers
from ._split import Split, is_number, tensors_of

_SLACK = 16 << 20  # bytes over eager's peak that are no reason to cut; of large programs a part of the peak:
_SLACK_PART = 50
_MOST_PIECES = 12


def cut(graph: Graph, split: Split) -> Split:
    """The split, with programs whose memory is above that of eager cut into pieces."""
    levels: dict[Node, int] = {}
    for nodes in split.programs.values():
        for piece, (begin, end) in enumerate(pieces(_Lives(graph, split, nodes))):
            levels.update(dict.fromkeys(nodes[begin:end], piece))
    if any(levels.values()):
        for node in split.level:
            split.level[node] = split.level[node] * _MOST_PIECES + levels.get(node, 0)
        split.group(graph)
    return split


class _Lives:
    """How long the values that a program reads and makes are in memory, in steps: its operators one after the other."""

    def __init__(self, graph: Graph, split: Split, nodes: list[Node]):
        self.steps = len(nodes)
        place = {node: i for i, node in enumerate(nodes)}
        self.values: list[_Value] = []
        last: dict[Node, int] = {}
        for i, node in enumerate(nodes):
            for read in {_memory(n) for n in node.all_input_nodes if not is_number(n)}:
                last[read] = i
        for node in dict.fromkeys([*last, *nodes]):
            leaves = any(reader not in place for reader in _readers(node, split))
            size = _bytes(node)
            if node in place:
                self.values.append(_Value(place[node], self.steps if leaves else last.get(node, place[node]), size))
            elif size:  # what somebody else reads too is held, whatever happens here
                self.values.append(_Value(-1, self.steps if leaves else last[node], size))


@dataclasses.dataclass(frozen=True)
class _Value:
    """Bytes that are made at one step (-1: before all) and read last at another (the number of steps: by somebody else)."""

    made: int
    last: int
    size: int


def pieces(lives: _Lives) -> list[tuple[int, int]]:
    """[begin, end) of the steps of each piece; one of all where nothing is won."""
    steps = lives.steps
    if steps < 2:
        return [(0, steps)]
    peak = max(_sums(steps, ((v.made, v.last + 1, v.size) for v in lives.values)))
    handed = _sums(steps, ((v.made + 1, v.last + 1, v.size) for v in lives.values if v.made >= 0 and v.last < steps))
    allowed = max(_SLACK, peak // _SLACK_PART)
    while True:
        found = _greedy(lives, peak + allowed, handed)
        if len(found) <= _MOST_PIECES:
            return found
        allowed *= 2


def _greedy(lives: _Lives, most: int, handed: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    begin = 0
    while begin < lives.steps:
        end = _longest(lives, begin, most)
        if end < lives.steps:
            # In the later half of what would fit, where the least is handed on; the last such place.
            first = begin + max(1, (end - begin) // 2)
            end = min(range(first, max(end, first) + 1), key=lambda at: (handed[at], -at))
        found.append((begin, end))
        begin = end
    return found


def _longest(lives: _Lives, begin: int, most: int) -> int:
    """Up to where a piece that begins there keeps within `most` bytes."""
    steps = lives.steps
    held = sum(v.size for v in lives.values if v.made < begin <= v.last)
    inside = sorted((v for v in lives.values if v.made >= begin), key=lambda v: v.made)
    ends: dict[int, int] = {}  # bytes that die behind a step
    results = between = largest = at = 0
    for end in range(begin + 1, steps + 1):
        between -= ends.pop(end - 2, 0)
        while at < len(inside) and inside[at].made < end:
            value = inside[at]
            at += 1
            if value.last >= steps:
                results += value.size
            else:
                between += value.size
                ends[value.last] = ends.get(value.last, 0) + value.size
        largest = max(largest, between)
        if held + results + largest > most:
            return end - 1
    return steps


def _sums(steps: int, spans: Iterator[tuple[int, int, int]]) -> list[int]:
    """At each step from 0 the bytes of the spans [from, to) that it is in."""
    changes = [0] * (steps + 2)
    for begin, end, size in spans:
        changes[max(begin, 0)] += size
        changes[min(end, steps + 1)] -= size
    sums, total = [], 0
    for change in changes[:steps]:
        total += change
        sums.append(total)
    return sums


def _bytes(node: Node) -> int:
    return sum(_number(t.numel()) * t.element_size() for t in tensors_of(node.meta.get("val")))


def _number(size: int | torch.SymInt) -> int:
    """A size, or what it was at the call that is compiled for."""
    return size if isinstance(size, int) else int(size.node.hint or 0)
