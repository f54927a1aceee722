"""Programs as PyTorch traces them for a GPU, where operators keep other results than on the CPU. They are exported with fake tensors of a GPU, compiled
for the CPU, and compared with the formulas."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import coil
from coil.dynamo._devices import on_the_gpu
from coil.dynamo._support import torch_nodes

aten = torch.ops.aten


def compiled(function, args):
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        program = torch.export.export(type("Module", (torch.nn.Module,), {"forward": lambda self, *a: function(*a)})(), tuple(a.to("cuda") for a in args))
    return coil.compile(program, target="cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("operator", ["_native_batch_norm_legit_no_training", "native_batch_norm", "_native_batch_norm_legit"])
def test_batch_norm_with_given_statistics_keeps_them(operator, dtype):
    torch.manual_seed(0)
    x, (weight, bias, mean), variance = torch.randn(2, 5, 4, 3).to(dtype), torch.randn(3, 5), torch.rand(5) + 0.1
    flags = (False,) if operator in ("native_batch_norm", "_native_batch_norm_legit") else ()
    function = lambda *a: getattr(aten, operator)(*a, *flags, 0.1, 1e-5)[:3]
    args = (x, weight, bias, mean, variance)
    with FakeTensorMode(allow_non_fake_inputs=True):
        kept = function(*(a.to("cuda") for a in args))
    y, saved_mean, saved_deviation = compiled(function, args)(*args)
    assert [tuple(t.shape) for t in kept[1:]] == [tuple(saved_mean.shape), tuple(saved_deviation.shape)]
    torch.testing.assert_close(y, torch.nn.functional.batch_norm(x, mean, variance, weight, bias, False, 0.1, 1e-5))
    if kept[1].numel():
        torch.testing.assert_close(saved_mean, mean)
        torch.testing.assert_close(saved_deviation, (variance + 1e-5).rsqrt())


def test_the_gelu_of_a_gpu_is_by_tanh():
    torch.manual_seed(0)
    x, a, b = torch.randn(4), torch.randn(5, 6), torch.randn(6, 4)
    found = compiled(lambda *t: aten._addmm_activation(*t, use_gelu=True), (x, a, b))(x, a, b)
    torch.testing.assert_close(found, torch.nn.functional.gelu(x + a @ b, approximate="tanh"), atol=1e-6, rtol=1e-5)
    with torch.no_grad():
        on_the_cpu = coil.compile(lambda *t: aten._addmm_activation(*t, use_gelu=True), args=(x, a, b))(x, a, b)
    torch.testing.assert_close(on_the_cpu, aten._addmm_activation(x, a, b, use_gelu=True), atol=1e-6, rtol=1e-5)


def traced(function, *args):
    with FakeTensorMode() as mode:
        return make_fx(function, tracing_mode="fake")(*(mode.from_tensor(a).to("cuda") if isinstance(a, torch.Tensor) else a for a in args))


def traced_beside_the_cpu(function, first, *others):
    """The first argument on the GPU, the others on the CPU."""
    with FakeTensorMode() as mode:
        return make_fx(function, tracing_mode="fake")(mode.from_tensor(first).to("cuda"), *(mode.from_tensor(a) for a in others))


def moved(function, *args):
    """The graph with its numbers on the GPU; the nodes that computed on the CPU before and after; what stays in PyTorch but for copies to the GPU; the copies."""
    gm = traced(function, *args)
    on_cpu = lambda: [n.target for n in gm.graph.nodes if n.op == "call_function" and isinstance(n.meta["val"], torch.Tensor) and n.meta["val"].device.type == "cpu"]
    before = on_cpu()
    copies = on_the_gpu(gm.graph, torch.device("cuda:0"))
    gm.graph.lint()
    gm.recompile()
    kept = torch_nodes(gm.graph, torch.device("cuda:0"))
    return gm, before, on_cpu(), [n for n in kept if n not in copies], copies


def same_on_the_cpu(gm, function, *args):
    """The graph runs where there is no GPU, and gives what the function gives."""
    for node in gm.graph.nodes:
        if "device" in node.kwargs:
            node.kwargs = {**node.kwargs, "device": "cpu"}
    for name, value in list(gm.named_buffers()):
        setattr(gm, name, value.cpu())
    gm.recompile()
    found, expected = gm(*args), function(*args)
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected))):
        torch.testing.assert_close(a, b)


def test_numbers_of_the_cpu_that_only_the_gpu_reads_move_there():
    def function(x):
        number = torch.scalar_tensor(3.0)
        wide = (number * 2 + torch.full((), 1.0)).to(torch.float64)
        return x * wide, x.masked_fill(x > 0, torch.tensor(-2.5)), x + torch.tensor(True)

    gm, before, after, kept, copies = moved(function, torch.randn(4))
    assert len(before) >= 6 and not after and not kept and not copies
    made = [n for n in gm.graph.nodes if n.target in (aten.scalar_tensor.default, aten.full.default)]
    assert made and all(n.kwargs["device"] == torch.device("cuda:0") for n in made)
    assert {n.args[0] for n in made if n.target is aten.scalar_tensor.default} == {3.0, -2.5, True}
    same_on_the_cpu(gm, function, torch.randn(4))


def noise_steps(x):
    """A schedule on the CPU, whose numbers scale images one by one."""
    shares = torch.cumprod(1 - torch.linspace(1e-3, 0.02, 10), 0)
    for t in range(2):
        x = x * shares[t].sqrt() + (1 - shares[t]).sqrt() * x.sin()
    return x


def pairs_of_a_triangle(x):
    i, j = torch.tril_indices(4, 4, offset=-1).unbind(0)
    return (x @ x.mT)[:, i, j]


def rows_by_a_range(x):
    return aten.index_put(x, [None, torch.arange(2).repeat(2)], torch.tensor(1.0)), x[:, torch.arange(3) // 2]


@pytest.mark.parametrize("function", [noise_steps, pairs_of_a_triangle, rows_by_a_range])
def test_what_is_made_on_the_cpu_for_the_gpu_moves_there(function):
    x = torch.randn(2, 4, 4)
    gm, before, after, kept, copies = moved(function, x)
    assert before and not after and not kept and not copies
    same_on_the_cpu(gm, function, x)


def test_what_the_cpu_reads_as_well_is_made_twice():
    def function(x):
        number = torch.scalar_tensor(3.0) + 1  # a result
        vector = torch.full((3,), 2.0) * torch.scalar_tensor(5.0)
        return x * number, number, vector.sum() + 1, x[torch.arange(3)]

    x = torch.randn(4)
    gm, before, after, kept, copies = moved(function, x)
    assert after == [target for target in before if target is not aten.arange.default] and not copies
    assert len(kept) == len(after)  # the CPU's alone
    same_on_the_cpu(gm, function, x)


def test_numbers_that_follow_from_the_cpus_inputs_are_copied():
    def function(x, scale):
        return x * (scale + torch.scalar_tensor(1.0)), x + scale

    gm = traced_beside_the_cpu(function, torch.randn(4), torch.tensor(2.0))
    copies = on_the_gpu(gm.graph, torch.device("cuda:0"))
    assert [n.args[0].target for n in copies] == [aten.add.Tensor, "scale_1"]
    assert {n.target for n in torch_nodes(gm.graph, torch.device("cuda:0"))} == {aten._to_copy.default, aten.scalar_tensor.default, aten.add.Tensor}


def test_inputs_of_the_cpu_are_copied():
    def function(x, scale, places):
        return x * scale + scale.to(x.device), x[places]

    gm = traced_beside_the_cpu(function, torch.randn(4), torch.tensor(2.0), torch.tensor([2, 0]))
    copies = on_the_gpu(gm.graph, torch.device("cuda:0"))
    gm.graph.lint()
    assert [n.args[0].name for n in copies] == ["scale_1", "places_1"]
    assert {n.target for n in torch_nodes(gm.graph, torch.device("cuda:0"))} == {aten._to_copy.default}


def test_numbers_beside_an_input_of_the_gpu_move():
    _, before, after, kept, copies = moved(lambda x, s: x * (s + 1) * torch.scalar_tensor(2.0), torch.randn(4), torch.tensor(2.0))
    assert before and not after and not kept and not copies
