"""What torch.compile(backend="coil") leaves to PyTorch in graphs of a GPU, traced without one."""

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from coil._compile import settings_of
from coil.dynamo._cuda_graphs import obstacle, with_writes_behind, write_behind, written_inputs
from coil.dynamo._decompositions import decompositions
from coil.dynamo._program import _ask
from coil.dynamo._sink import sink
from coil.dynamo._split import Split
from coil.dynamo._support import torch_nodes


def block(x, w, depthwise, mean, var, line):
    y = torch.relu(F.batch_norm(F.conv2d(x, w, padding=1), mean, var))
    y = F.conv2d(F.max_pool2d(y, 2), depthwise, stride=2, groups=16)
    return F.linear(y.mean((2, 3)), line).softmax(-1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_convolutions_whose_weights_come_with_the_call(dtype):
    """One program for inference, nothing refused; training names them."""
    with FakeTensorMode():
        arguments = [torch.empty(s, dtype=dtype, device="cuda") for s in ((4, 8, 16, 16), (16, 8, 3, 3), (16, 1, 2, 2), (16,), (16,), (10, 16))]
        graph = make_fx(block, decomposition_table=decompositions(), tracing_mode="fake")(*arguments).graph
    device = torch.device("cuda", 0)
    reasons = torch_nodes(graph, device)
    split = Split(graph, set(reasons))
    assert not any(reasons.values()) and len(split.programs) == 1
    (level, nodes), = split.programs.items()
    assert _ask(split, level, nodes, dict(settings_of({}, "cpu"), target="cuda:sm_90", name="inference")) == {}
    kept = {n: reason for n, reason in torch_nodes(graph, device, of_pytorch=("convolutions",)).items() if reason}
    assert [n.target for n in kept] == [torch.ops.aten.convolution.default] * 2
    assert set(kept.values()) == {"training takes PyTorch's convolutions"}


def traced(function, *shapes):
    with FakeTensorMode():
        return make_fx(function, decomposition_table=decompositions(), tracing_mode="fake")(*[torch.empty(s, device="cuda") for s in shapes]).graph


def test_writes_to_inputs_that_move_are_results():
    """Statistics stay where they are and are written by the recorded graph; what a caller gives anew each time is written behind it."""
    def program(x, statistics):
        twice, less = x * 2, statistics * 0.9
        result = twice + less
        x.copy_(twice)
        statistics.copy_(less)
        return (result,)

    graph = traced(program, (4,), (4,))
    assert [n.target for n in graph.nodes].count(torch.ops.aten.copy_.default) == 2
    assert write_behind(graph, [1]) == [0]
    graph.lint()
    assert [n.target for n in graph.nodes].count(torch.ops.aten.copy_.default) == 1 and written_inputs(graph) == [1]
    x, statistics = torch.arange(4.0), torch.ones(4)
    run = with_writes_behind(lambda inputs: (inputs[0] * 0 + 7, inputs[0] * 2), [0])
    result, = run([x, statistics])
    assert torch.equal(x, torch.arange(4.0) * 2) and torch.equal(result, torch.full((4,), 7.0))


def levels(graph, torch_targets):
    nodes = [n for n in graph.nodes if n.op == "call_function"]
    split = Split(graph, {n for n in nodes if n.target in torch_targets})
    first = dict(split.level)
    return split, first, sink(graph, split)


def test_masks_are_computed_where_they_are_read():
    """A comparison of what the forward graph has saved belongs to the program that reads it, not to the first."""
    def backward(saved, grad, w):
        for _ in range(2):
            grad = torch.ops.aten.convolution(torch.where(saved <= 0, 0.0, grad), w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        return (torch.where(saved <= 1, 0.0, grad),)

    graph = traced(backward, (2, 4, 5, 5), (2, 4, 5, 5), (4, 4, 3, 3))
    split, first, sunk = levels(graph, {torch.ops.aten.convolution.default})
    last = [n for n in graph.nodes if n.target is torch.ops.aten.le.Scalar][-1]
    where = next(iter(last.users))
    assert first[last] == 0 and sunk.level[last] == sunk.level[where] > 0
    assert last in sunk.programs[sunk.level[where]] and last not in sunk.programs[0]


def test_what_is_read_behind_views_too_is_computed_where_it_is_read():
    """A tanh that is computed anew: its derivative reads it behind aliases (of a detach), which are nobody's that Python asks for a value."""
    def backward(saved, grad, w):
        for _ in range(2):
            grad = torch.ops.aten.convolution(torch.neg(grad), w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        activation = torch.tanh(saved * 0.5)
        kept = torch.ops.aten.alias(torch.ops.aten.alias(activation))
        transposed = torch.ops.aten.transpose(torch.exp(saved), 2, 3)
        return (grad * (activation + 1) * (1 - kept * kept) * torch.ops.aten.transpose(transposed, 2, 3),)

    graph = traced(backward, (2, 4, 5, 5), (2, 4, 5, 5), (4, 4, 3, 3))
    split, first, sunk = levels(graph, {torch.ops.aten.convolution.default})
    last = max(sunk.programs)
    for target in (torch.ops.aten.tanh.default, torch.ops.aten.exp.default):
        node, = [n for n in graph.nodes if n.target is target]
        assert first[node] == 0 and sunk.level[node] == last > 0, target
    assert [n.target for n in sunk.programs[0]] == [torch.ops.aten.neg.default]


def test_activations_are_computed_anew_before_the_convolution_that_reads_them():
    """Of what the forward graph has saved, one after the other: all at once they would be as much memory as saving them."""
    count = 6

    def backward(grad, w, *saved):
        weights = []
        for image in saved:
            activation = torch.ops.aten.silu(image)
            grad, weight, _ = torch.ops.aten.convolution_backward(grad, activation, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
            sigmoid = torch.sigmoid(image)
            grad = grad * (sigmoid + activation * (1 - sigmoid))
            weights.append(weight)
        return (grad, *weights)

    graph = traced(backward, (2, 4, 5, 5), (4, 4, 3, 3), *[(2, 4, 5, 5)] * count)
    split, first, sunk = levels(graph, {torch.ops.aten.convolution_backward.default})
    read = [n for n in graph.nodes if n.target is torch.ops.aten.convolution_backward.default]
    for convolution in read:
        activation = convolution.args[1]
        assert sunk.level[activation] == sunk.level[convolution] - 1
    assert len({sunk.level[n] for n in read}) == count
    assert max(len([n for n in nodes if n in {c.args[1] for c in read}]) for nodes in sunk.programs.values()) == 1


@pytest.mark.parametrize("what", ["reduction", "output", "torch", "written"])
def test_what_stays_where_it_is(what):
    """A sum of a large tensor, what the graph gives or PyTorch reads, and reads of an input that is written before."""
    def backward(saved, grad, w):
        sums = saved.sum((2, 3), keepdim=True) if what == "reduction" else saved * 3
        grad = torch.ops.aten.convolution(grad, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        if what == "torch":
            grad = torch.ops.aten.convolution(sums, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        if what == "written":
            saved.copy_(w.sum() + torch.zeros_like(saved))
        result = grad * sums
        return (result, sums) if what == "output" else (result,)

    graph = traced(backward, (2, 4, 5, 5), (2, 4, 5, 5), (4, 4, 3, 3))
    split, first, sunk = levels(graph, {torch.ops.aten.convolution.default})
    node = next(n for n in graph.nodes if n.target in (torch.ops.aten.sum.dim_IntList, torch.ops.aten.mul.Tensor))
    if what == "written":  # level of the write: behind all reads of the old value
        copy = next(n for n in graph.nodes if n.target is torch.ops.aten.copy_.default)
        assert sunk.level[node] <= sunk.level[copy]
    else:
        assert sunk.level[node] == first[node]


@pytest.mark.parametrize("count", [1, 150, 3000])
def test_chains_move_whole_or_stay(count):
    """A long chain that only a later program reads is looked at in bounded time, and no part of it is left behind."""
    def backward(saved, grad, w):
        chain = saved
        for _ in range(count):
            chain = torch.relu(chain)
        grad = torch.ops.aten.convolution(grad, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        return (grad * chain,)

    graph = traced(backward, (2, 4, 5, 5), (2, 4, 5, 5), (4, 4, 3, 3))
    split, first, sunk = levels(graph, {torch.ops.aten.convolution.default})
    product = next(n for n in graph.nodes if n.target is torch.ops.aten.mul.Tensor)
    moved = {sunk.level[n] for n in graph.nodes if n.target is torch.ops.aten.relu.default}
    assert moved == ({sunk.level[product]} if count < 200 else {0})


@pytest.mark.parametrize("function, word", [
    (lambda x: torch.linalg.eigh(x @ x.mT)[0], "_linalg_eigh"), (torch.linalg.svdvals, "_linalg_svd"), (torch.linalg.inv, "linalg_inv_ex"), (torch.matrix_exp, "matrix_exp"),
    (lambda x: torchvision.ops.roi_align(x[None], [x[0]], 2), ""), (lambda x: torch.fft.fft(x).abs(), ""), (lambda x: torch.linalg.solve_triangular(x.tril(), x, upper=False), ""), (lambda x: torch.linalg.vector_norm(x), ""),
    (lambda x: x.softmax(-1) @ x, "")], ids=["eigh", "svd", "inv", "matrix_exp", "roi_align", "fft", "solve_triangular", "vector_norm", "softmax"])
def test_graphs_in_which_the_host_takes_part_are_not_recorded(function, word):
    with FakeTensorMode():
        gm = make_fx(function, tracing_mode="fake")(torch.empty(3, 4, 4, device="cuda"))
    reason = obstacle(gm, [], torch_nodes(gm.graph, torch.device("cuda", 0)))
    assert word in reason if word else reason == ""
