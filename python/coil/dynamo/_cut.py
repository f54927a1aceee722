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

from ._sink import memory_of, readers_behind
from ._split import Split, is_number, tensors_of

aten = torch.ops.aten

_SLACK = 16 << 20  # bytes over eager's peak that are no reason to cut; of large programs a part of the peak:
_SLACK_PART = 50
_MOST_PIECES = 8
_AROUND = 16  # operators on both sides of a cut between which nowhere less is handed on

# Beside what PyTorch says is pointwise.
_FUSED = {aten._to_copy.default, aten.clone.default, aten.expand.default, aten.full_like.default, aten.constant_pad_nd.default, aten.slice_backward.default}


def cut(graph: Graph, split: Split) -> Split:
    """The split, with programs whose memory is above that of eager cut into pieces."""
    levels: dict[Node, int] = {}
    for nodes in split.programs.values():
        for piece, (begin, end) in enumerate(pieces(_Lives(split, nodes))):
            levels.update(dict.fromkeys(nodes[begin:end], piece))
    if any(levels.values()):
        for node in split.level:
            split.level[node] = split.level[node] * _MOST_PIECES + levels.get(node, 0)
        split.group(graph)
    return split


class _Lives:
    """How long the values that a program reads and makes are in memory, in steps: its operators one after the other."""

    def __init__(self, split: Split, nodes: list[Node]):
        self.steps = len(nodes)
        place = {node: i for i, node in enumerate(nodes)}
        self.values: list[_Value] = []
        last: dict[Node, int] = {}
        for i, node in enumerate(nodes):
            for read in {memory_of(n) for n in node.all_input_nodes if not is_number(n)}:
                last[read] = i
        for node in dict.fromkeys([*last, *nodes]):
            readers = list(readers_behind(node, split))
            leaves = any(reader not in place for reader in readers)
            size = _bytes(node)
            if node in place:
                fused = not leaves and _is_pointwise(node) and all(map(_is_pointwise, readers))
                self.values.append(_Value(place[node], self.steps if leaves else last.get(node, place[node]), size, 0 if fused else size))
            elif size:  # what somebody else reads too is held, whatever happens here
                self.values.append(_Value(-1, self.steps if leaves else last[node], size, size))


@dataclasses.dataclass(frozen=True)
class _Value:
    """Bytes that are made at one step (-1: before all) and read last at another (the number of steps: by somebody else). `stored`: of them in memory within
    a piece, where a chain of pointwise operators is one kernel."""

    made: int
    last: int
    size: int
    stored: int


def pieces(lives: _Lives) -> list[tuple[int, int]]:
    """[begin, end) of the steps of each piece; one of all where nothing is won."""
    steps = lives.steps
    if steps < 2:
        return [(0, steps)]
    peak = max(_sums(steps, ((v.made, v.last + 1, v.stored) for v in lives.values)))
    handed = _sums(steps, ((v.made + 1, v.last + 1, v.size) for v in lives.values if v.made >= 0 and v.last < steps))
    places = [at for at in range(1, steps) if handed[at] == min(handed[max(1, at - _AROUND):at + _AROUND + 1])]
    allowed = max(_SLACK, peak // _SLACK_PART)
    while True:
        found = _greedy(lives, peak + allowed, handed, places)
        if len(found) <= _MOST_PIECES:
            won = _taken(lives, 0, steps) - max(_taken(lives, begin, end) for begin, end in found)
            return found if won > 0 else [(0, steps)]
        allowed *= 2


def _greedy(lives: _Lives, most: int, handed: list[int], places: list[int]) -> list[tuple[int, int]]:
    """Pieces that end at some of the places, as long as `most` bytes allow."""
    found: list[tuple[int, int]] = []
    begin = 0
    while begin < lives.steps:
        end = _longest(lives, begin, most)
        if end < lives.steps:
            fitting = [at for at in places if begin < at <= end]
            later = [at for at in fitting if at >= begin + (end - begin) // 2]
            end = min(later, key=lambda at: (handed[at], -at)) if later else fitting[-1] if fitting else next((at for at in places if at > end), lives.steps)
        found.append((begin, end))
        begin = end
    return found


def _taken(lives: _Lives, begin: int, end: int) -> int:
    """Bytes at the worst time of a piece."""
    held = sum(v.size for v in lives.values if v.made < begin <= v.last)
    results = sum(v.size for v in lives.values if begin <= v.made < end <= v.last)
    inside = ((v.made - begin, v.last + 1 - begin, v.stored) for v in lives.values if begin <= v.made and v.last < end)
    return held + results + max(_sums(end - begin, inside), default=0)


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
                between += value.stored
                ends[value.last] = ends.get(value.last, 0) + value.stored
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


def _is_pointwise(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and (torch.Tag.pointwise in node.target.tags or node.target in _FUSED)
