"""torch.compile(backend="coil"): inference beside eager, and what the statistics say of it."""

import gc
import json
import os
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import harness
import coil
from compiled_beside_eager import assert_same, check, nothing_in_torch

pytestmark = pytest.mark.usefixtures("fresh_compiles")


# ---- The door

def test_no_import_is_needed():
    code = """
import torch
f = torch.compile(lambda a, b: (a * b + 1).relu(), backend="coil", fullgraph=True)
a, b = torch.randn(8), torch.randn(8)
torch.testing.assert_close(f(a, b), (a * b + 1).relu())
import coil
assert coil.compile_stats().packages == 1
assert "coil" in torch._dynamo.list_backends()
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                          env=dict(os.environ, PYTHONPATH=str(harness.PYTHON_PATH)))
    assert done.stdout == "fine\n", done.stdout + done.stderr


def test_modes_and_options():
    x = torch.randn(8)
    for mode in ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
        torch._dynamo.reset()
        check(lambda a: a.sin(), x, mode=mode, options=None)
    torch._dynamo.reset()
    check(lambda a: a.cos(), x, options={"opt_level": 1, "fallback": "error"})
    torch._dynamo.reset()
    with pytest.raises(Exception, match="there is no option 'speed'"):
        check(lambda a: a.cos(), x, options={"speed": 11})


@pytest.mark.parametrize("options, text", [({"opt_level": 7}, "0 to 3"), ({"tf32": 3}, "tf32 is '3'"), ({"tune": "much"}, "no tuning 'much'"), ({"threads": -5}, "1 to 4096"),
                                           ({"skip": ["nothing"]}, "no pass 'nothing'"), ({"replay": "/nonexistent/x.json"}, "does not exist"), ({"dims": {"b": "x:0"}}, "'dims' names")],
                         ids=lambda v: next(iter(v)) if isinstance(v, dict) else "")
def test_wrong_values_of_options(options, text):
    """They are errors, not reasons to run everything in PyTorch."""
    with pytest.raises(Exception, match=text):
        torch.compile(lambda a: a.cos(), backend="coil", options=options)(torch.randn(8))


def test_equal_graphs_are_compiled_once():
    a, b = torch.randn(4, 8), torch.randn(4, 8)
    check(lambda x, y: (x * y).tanh().sum(0), a, b)
    torch._dynamo.reset()
    check(lambda p, q: (p * q).tanh().sum(0), a, b)
    stats = coil.compile_stats()
    assert (stats.packages, stats.cache_hits) == (1, 1), str(stats)


# ---- Inference

@pytest.mark.parametrize("function", [
    lambda a, b: a * b + 1,
    lambda a, b: (a @ b.t()).softmax(-1),
    lambda a, b: torch.cat([a, b], 1).amax(0),
    lambda a, b: F.layer_norm(a, (6,)) + b.mean(),
    lambda a, b: torch.where(a > b, a, b).sort(1),
    lambda a, b: (a.to(torch.bfloat16) * 2, (b * 10).int() // 3, a > b),
    lambda a, b: F.gelu(a).topk(2),
    lambda a, b: (torch.arange(4.0) * 2, torch.zeros(3), a[0, :2] + torch.tensor([1.0, 2.0])),
    lambda a, b: a[:0].sum() + torch.cat([a[:0], b]).sum(),
], ids=range(9))
def test_functions(function):
    check(function, torch.randn(4, 6), torch.randn(4, 6), fullgraph=True)
    nothing_in_torch()


@pytest.mark.parametrize("function", [
    lambda a: a.t(),
    lambda a: (a.t(), a.unsqueeze(1), a[1:, ::2]),
    lambda a: a.sin().t(),
    lambda a: (a.sin(), a.sin()[1:, ::2]),
    lambda a: a.sum(0, keepdim=True).expand(3, 6),
    lambda a: (a + 1).permute(1, 0).contiguous().t(),
    lambda a: (lambda s: (s, s, a, a))(a.sin()),
    lambda a: (lambda s: (s, s.unsqueeze(0), s.t()))(a.sin()),
    lambda a: (a * 2).unbind(1),
    lambda a: a.split(2),
    lambda a: a.unfold(1, 3, 2) + 0,
], ids=range(11))
def test_views_and_strides(function):
    check(function, torch.randn(4, 6))
    torch._dynamo.reset()
    check(function, torch.randn(6, 4).t())


def test_views_of_results_share_memory():
    compiled = torch.compile(lambda a: (lambda s: (s, s.view(-1)))(a.sin()), backend="coil")
    whole, flat = compiled(torch.randn(3, 4))
    flat[5] = 7
    assert whole[1, 1] == 7


def test_channels_last():
    x = torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last)
    compiled = check(lambda a: F.relu(a * 2 - 1), x)
    assert compiled(x).is_contiguous(memory_format=torch.channels_last)


def test_strides_that_change_from_call_to_call():
    compiled = torch.compile(lambda a: a * 2 + 1, backend="coil", dynamic=False)
    for x in (torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(8, 6)[::2], torch.randn(4, 1).expand(4, 6)):
        assert_same(compiled(x), x * 2 + 1)


def test_dynamic_shapes():
    compiled = check(lambda a: F.pad(a, (1, 2)).reshape(-1) + a.shape[1], torch.randn(4, 6), dynamic=True)
    for rows, columns in ((2, 3), (7, 5), (30, 17)):
        x = torch.randn(rows, columns)
        assert_same(compiled(x), F.pad(x, (1, 2)).reshape(-1) + x.shape[1])
    assert coil.compile_stats().packages <= 2, str(coil.compile_stats())
    nothing_in_torch()


def test_strided_inputs_of_dynamic_sizes():
    compiled = torch.compile(lambda a: a * 2 + 1, backend="coil", dynamic=True)
    for n in (4, 7, 9):
        for x in (torch.randn(n, 2 * n)[:, ::2], torch.randn(n, 2 * n, 3)[:, :, 1], torch.randn(n, n + 5)[:, 1:4], torch.randn(n, 3).t()):
            assert_same(compiled(x), x * 2 + 1)


def test_lazily_negated_and_conjugated_inputs():
    x = torch.randn(4, dtype=torch.complex64)
    check(lambda a: a * 2, x.conj().imag)
    compiled = torch.compile(lambda a: (a * 2).abs(), backend="coil")
    for y in (x.conj(), x):
        torch.testing.assert_close(compiled(y), (y * 2).abs())


@pytest.mark.parametrize("view", [lambda z: z.conj(), lambda z: z.conj().imag, lambda z: z.mT.conj(), lambda z: z.conj().imag[1:]])
def test_written_inputs_with_lazy_signs(view, fresh_compiles):
    """In torch.compile and in packages: what lies in memory has the other sign."""
    ours, packages, eagers = (torch.arange(12, dtype=torch.float32).view(3, 4).to(torch.complex64).mul(1 + 2j) for _ in range(3))
    wanted = view(eagers).mul_(3)
    torch.testing.assert_close(torch.compile(lambda x: x.mul_(3), backend="coil")(view(ours)), wanted)
    torch.testing.assert_close(ours, eagers)
    given = view(packages)
    if not given.is_contiguous():
        return  # a package wants the strides of its export, which knows no signs
    model = coil.compile(Written(), args=(torch.zeros(given.shape, dtype=given.dtype),))
    torch.testing.assert_close(model(given), wanted.resolve_conj().resolve_neg())
    torch.testing.assert_close(packages, eagers)


class Written(torch.nn.Module):
    def forward(self, x):
        return x.mul_(3)


def test_numbers_read_out_of_tensors():
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check(lambda a: a * a.sum().item() + a.max().int().item(), torch.randn(5), fullgraph=True)


def test_dynamic_results_and_arguments():
    def function(a, n, factor):
        return a.shape[0] * 2, a[:n].sum(), None, 3.5, a * factor + torch.arange(a.shape[1]) * n

    compiled = torch.compile(function, backend="coil", dynamic=True)
    for rows, n, factor in ((4, 2, 0.5), (9, 3, 2.5), (5, 4, -1.0)):
        x = torch.randn(rows, 6)
        assert_same(compiled(x, n, factor), function(x, n, factor))


def test_automatic_dynamic():
    module = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).eval()
    compiled = torch.compile(module, backend="coil")
    with torch.no_grad():
        for rows in (3, 5, 8, 2):
            x = torch.randn(rows, 6)
            assert_same(compiled(x), module(x))
    nothing_in_torch()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm = nn.Embedding(50, 32), nn.LayerNorm(32)
        self.qkv, self.out, self.head = nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 50)

    def forward(self, tokens):
        x = self.embedding(tokens)
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, 32))
        return self.head(F.gelu(x))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_module(context):
    module, tokens = Attention().eval(), torch.randint(0, 50, (2, 12))
    with context():
        assert_same(torch.compile(module, backend="coil")(tokens), module(tokens))
    nothing_in_torch()


def test_mutation():
    def function(a, b):
        a[0] = 5
        view = a.t()
        view.add_(1)
        b.mul_(2)
        return a.sum(0), view

    a, b = torch.randn(4, 6), torch.randn(3)
    a2, b2 = a.clone(), b.clone()
    ours, theirs = torch.compile(function, backend="coil")(a, b), function(a2, b2)
    assert_same(ours, theirs)
    assert_same((a, b), (a2, b2))
    assert ours[1].data_ptr() == a.data_ptr()


def test_buffers():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(2))

        def forward(self, x):
            self.calls += 1
            return x * self.calls.sum()

    ours, theirs, x = Counting(), Counting(), torch.randn(3)
    compiled = torch.compile(ours, backend="coil")
    for _ in range(3):
        assert_same(compiled(x), theirs(x))
    assert_same(ours.calls, theirs.calls)


def test_graph_breaks():
    def function(a):
        b = a.sin()
        torch._dynamo.graph_break()
        return b.cos() if b.sum() > 0 else b.exp()

    for x in (torch.rand(8), -torch.rand(8)):
        check(function, x)
    assert coil.compile_stats().graphs >= 3


def test_autocast():
    def function(a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.linear(a, b).relu()

    result = torch.compile(function, backend="coil")(torch.ones(4, 6), torch.full((3, 6), 0.5))
    assert result.dtype == torch.bfloat16 and torch.equal(result, torch.full((4, 3), 3.0, dtype=torch.bfloat16))


# ---- What stays in PyTorch

@torch.library.custom_op("coil_tests::foreign", mutates_args=())
def foreign(x: torch.Tensor) -> torch.Tensor:
    """An operator that coil will never know."""
    return x.abs() * 2


@foreign.register_fake
def _(x):
    return torch.empty_like(x)


def test_operators_in_between_run_in_torch():
    def function(a):
        square = a @ a.t() + torch.eye(4)
        return (foreign(square).sqrt() + 1).sum()

    check(function, torch.randn(4, 6), fullgraph=True)
    stats = coil.compile_stats()
    assert stats.fallback_operators == 1 and stats.packages == 2 and "foreign" in str(stats), str(stats)


def test_programs_of_a_graph_are_compiled_at_once(monkeypatch):
    """Several between operators that stay in PyTorch, two of them equal; all compiles begin before any is over."""
    from coil.dynamo import _program
    check(lambda a: foreign(a) + 3, torch.randn(4, 4))  # from here on it is known to stay in PyTorch
    torch._dynamo.reset()
    coil.reset_compile_stats()
    begun, everybody = [], threading.Barrier(4, timeout=60)
    original = _program._compiling

    def compiling(*args):
        work = original(*args)

        def meet():
            begun.append(threading.current_thread().name)
            everybody.wait()
            return work()
        return meet

    monkeypatch.setattr(_program, "_compiling", compiling)
    monkeypatch.setattr(_program.os, "cpu_count", lambda: 4)

    def function(x):
        for _ in range(3):
            x = foreign(x.sin() + 1.2345)  # of no other test: those are kept
        return foreign(x * 2.3456).sum(-1)

    x = torch.randn(6, 9, 3)
    torch.testing.assert_close(torch.compile(function, backend="coil")(x), function(x))
    stats = coil.compile_stats()
    assert (stats.packages, stats.cache_hits, len(set(begun))) == (4, 1, 4), (str(stats), begun)


def test_fallback_can_be_refused():
    with pytest.raises(Exception, match="COIL-E102.*foreign"):
        check(lambda a: foreign(a) + 1, torch.randn(4, 4), options={"fallback": "error"})


def test_complex_numbers():
    check(lambda a: torch.fft.fft(a).abs() + a.sin(), torch.randn(4, 8), fullgraph=True)
    assert coil.compile_stats().packages >= 1


def test_random_numbers_are_eagers():
    def function(a):
        noise = torch.rand_like(a)
        return F.dropout(a, 0.3) + noise * torch.randn(4, 6)

    x = torch.randn(4, 6)
    torch.manual_seed(5)
    expected = function(x)
    torch.manual_seed(5)
    assert_same(torch.compile(function, backend="coil")(x), expected)


# ---- Errors

def test_an_assertion_of_the_program():
    def function(a, i):
        return a[i] * 2

    compiled = torch.compile(function, backend="coil")
    assert_same(compiled(torch.arange(4.0), torch.tensor([1, 2])), torch.tensor([2.0, 4.0]))
    with pytest.raises((coil.InputError, IndexError), match="out of"):
        compiled(torch.arange(4.0), torch.tensor([1, 9]))


def test_the_bound_of_open_programs():
    from coil.dynamo._program import Models

    class Model:
        pass

    models, held = Models(kept=4), []
    for i in range(100):
        model = Model()
        models.add(bytes([i]), model)
        if i % 10 == 0:
            held.append(model)
        del model
    assert len(models) == 14 and all(models.get(bytes([i])) is not None for i in range(0, 100, 10)), "those in use are found"
    del held
    gc.collect()
    assert len(models) == 4


def test_an_error_that_names_a_node_blames_it(monkeypatch):
    """What the compiler refuses as a whole, though it knows each operator: the node that the error names stays in PyTorch, the others do not."""
    from coil import _compiler
    from coil._errors import make_error

    original = _compiler.compile_json

    def refusing(text, *rest):
        sines = [node["outputs"][0]["as_tensor"]["name"] for node in json.loads(text)["graph_module"]["graph"]["nodes"] if "aten.sin." in node["target"]]
        if sines:
            raise make_error(105, f"COIL-E105: too deep\n  hint: none for {sines[0]}", "too deep", sines[0])
        return original(text, *rest)

    monkeypatch.setattr(_compiler, "compile_json", refusing)
    x = torch.randn(4, 8)
    function = lambda x: torch.softmax(x.sin() @ x.t(), -1).cos()
    torch.testing.assert_close(torch.compile(function, backend="coil")(x), function(x))
    assert coil.compile_stats().fallbacks == {"aten.sin.default: too deep": 1}
