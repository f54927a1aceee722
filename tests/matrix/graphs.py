"""The graphs of one cell of torch.compile, each beside eager and float64 with the same arguments.

A whole network may jump: where a rounding decides the side of a ReLU, all gradients before it change, and what another rounding would have decided
is no error. One graph of AOTAutograd given the same arguments does not: the backward graph is told which side was taken, or computes it from the
same numbers. So each graph is judged for itself: what it computes as gradients are judged (judge.gradients), and of flags and positions, which its
successor is told, few may differ: as many as numbers lie within their last bits of a tie."""

import contextlib
import copy
import math
from unittest import mock

import torch
from torch import fx
from torch.utils._pytree import tree_map

import doors
import judge

NUDGES = 3
NEAR_A_TIE = 8  # numbers of a unit in the last place, to either side, within which a tie may be decided otherwise


class Graphs:
    """Collects a verdict for each call of a graph in `watched`; `text`: what is wrong with the first that is."""

    def __init__(self, dtype):
        self.dtype, self.calls, self.text = dtype, 0, ""

    @contextlib.contextmanager
    def watched(self):
        import coil.dynamo._backend as backend

        compile_graph = backend.compile_graph

        def watching(gm, inputs, **settings):
            plain = fx.GraphModule(gm, copy.deepcopy(gm.graph))
            run = compile_graph(gm, inputs, **settings)

            def call(arguments):
                given = [v.clone() if isinstance(v, torch.Tensor) else v for v in arguments]
                with torch.random.fork_rng(devices=[]):
                    found = run(arguments)
                self.compare(plain, given, found, settings["kind"])
                return found

            call._boxed_call = True
            return call

        with mock.patch.object(backend, "compile_graph", watching):
            yield self

    def compare(self, graph, given, found, kind):
        self.calls += 1
        eager, exact = interpreted(graph, given), interpreted(graph, given, wide=True)
        others = [interpreted(graph, [nudged(v, self.dtype, seed * 1000 + i) for i, v in enumerate(given)]) for seed in range(NUDGES)]
        text = different_flags(found, eager, exact, self.dtype)
        floats = [i for i, e in enumerate(eager) if isinstance(e, torch.Tensor) and e.is_floating_point()]
        chosen = lambda values: [values[i] for i in floats]
        verdict = judge.gradients(chosen(found), chosen(eager), chosen(exact), self.dtype, [chosen(o) for o in others])
        text = text or verdict.get("text", "")
        if text and not self.text:
            self.text = f"{kind} graph with the same arguments: {text}"


def interpreted(graph, given, wide=False):
    """What PyTorch computes of the graph, one operator after the other; `wide`: in float64. Draws no random numbers from those that follow."""
    graph = in_float64(graph) if wide else graph
    cast = lambda v: v.double() if wide and v.is_floating_point() else v.clone()
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64 if wide else default)
        with torch.no_grad(), torch.random.fork_rng(devices=[]), doors.InFloat64() if wide else contextlib.nullcontext():
            return fx.Interpreter(graph).run(*[cast(v) if isinstance(v, torch.Tensor) else v for v in given])
    finally:
        torch.set_default_dtype(default)


def in_float64(graph):
    """The graph with every type of fewer bits that its arguments name replaced."""
    wide = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    cast = lambda v: doors.InFloat64.WIDE.get(v, v) if isinstance(v, torch.dtype) else v
    for node in wide.graph.nodes:
        node.args, node.kwargs = tree_map(cast, node.args), tree_map(cast, node.kwargs)
    return wide


def nudged(value, dtype, seed):
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    source = torch.Generator().manual_seed(seed)
    step = torch.rand(value.shape, generator=source, dtype=torch.float64).mul(2).sub(1).mul(doors.LAST_BIT[dtype]).add(1)
    return torch.empty_like(value).copy_(value.double() * step.to(value.device))


def different_flags(found, eager, exact, dtype):
    """Of flags and integers what differs from both eager's and float64's, if that is more than ties explain."""
    for i, (a, e, x) in enumerate(zip(found, eager, exact)):
        if not isinstance(e, torch.Tensor) or e.is_floating_point() or e.is_complex():
            continue
        wrong = int(((a != e) & (a != x)).sum())
        few = 1 + math.ceil(NEAR_A_TIE * doors.LAST_BIT[dtype] * e.numel())
        if wrong > few:
            return f"result {i}: {wrong} of {e.numel()} {str(e.dtype)[6:]} elements differ, {few} may"
    return ""
