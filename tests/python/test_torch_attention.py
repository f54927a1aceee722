"""torch.compile(backend="coil") of every fused attention that PyTorch's dispatcher may choose, forward and backward, beside attention in
float64. The operators of CUDA have no code in PyTorch for the CPU, but shapes: what is traced here is what a GPU's graph holds, coil computes it."""

import itertools
import math
import operator

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import coil

aten = torch.ops.aten
FORMS = ("flash", "efficient", "cudnn", "overrideable", "cpu")


pytestmark = pytest.mark.usefixtures("fresh_compiles")


def fused(form, q, k, v, bias, causal, scale):
    """(result, logarithms of the sums or None)"""
    if form == "flash":
        return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, scale=scale)[:2]
    if form == "efficient":
        return aten._scaled_dot_product_efficient_attention(q, k, v, bias, True, 0.0, causal, scale=scale)[:2]
    if form == "cudnn":
        return aten._scaled_dot_product_cudnn_attention(q, k, v, bias, True, 0.0, causal, False, scale=scale)[:2]
    if form == "overrideable":
        return aten._scaled_dot_product_fused_attention_overrideable(q, k, v, bias, 0.0, causal, False, scale=scale)[:2]
    return aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, attn_mask=bias, scale=scale)


def by_definition(q, k, v, bias, causal, scale):
    q, k, v = (t.double() for t in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    scores = q @ k.transpose(2, 3) * (scale or 1 / math.sqrt(q.shape[-1]))
    if bias is not None:
        scores = scores + bias.double()
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    sees = (scores > -math.inf).any(-1, keepdim=True)
    weights = torch.where(sees, torch.where(sees, scores, 0.0).softmax(-1), 0.0)
    return weights @ v, scores.detach().logsumexp(-1)


def problem(dtype, lengths=(17, 17), heads=(4, 4), dims=(24, 24), bias=None):
    (rows, keys), (h, kv), (d, dv) = lengths, heads, dims
    q, k, v = (torch.randn(2, n, s, w).to(dtype).requires_grad_() for n, s, w in ((h, rows, d), (kv, keys, d), (kv, keys, dv)))
    if bias == "learnt":
        bias = torch.randn(2, h, rows, keys).to(dtype).requires_grad_()
    elif bias == "mask":
        bias = torch.where(torch.rand(2, h, rows, keys) < 0.3, -math.inf, 0.0).to(dtype)
        bias[0, 0, 1] = -math.inf  # a row that sees nothing
    return q, k, v, bias


def check(form, q, k, v, bias=None, causal=False, scale=None, backward=True, equal=False):
    leaves = [t for t in (q, k, v, bias) if t is not None and t.requires_grad]

    def function(q, k, v, bias):
        if equal:
            q = q + 0.0 * k
        y, sums = fused(form, q * 1, k, v, bias, causal, scale)
        return y * 1, sums * 1

    compiled = torch.compile(function, backend="coil", fullgraph=True, options={"fallback": "error"})
    y, sums = compiled(q, k, v, bias)
    wanted, wanted_sums = by_definition(q, k, v, bias, causal, scale)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-9, torch.bfloat16: 3e-2, torch.float16: 4e-3}[q.dtype]
    torch.testing.assert_close(y.double(), wanted, atol=tolerance, rtol=tolerance)
    assert y.dtype == q.dtype
    sums = sums.reshape(*sums.shape[:2], -1)
    if form == "efficient":
        assert sums.shape[2] % 32 == 0 and (sums[:, :, q.shape[2]:] == math.inf).all()
    torch.testing.assert_close(sums[:, :, :q.shape[2]].double(), wanted_sums, atol=tolerance, rtol=tolerance)
    if not backward:
        return
    grad = torch.randn_like(y)
    ours = torch.autograd.grad(y, leaves, grad)
    theirs = torch.autograd.grad(wanted, leaves, grad.double())
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype and a.shape == b.shape
        torch.testing.assert_close(a.double(), b.double(), atol=tolerance * max(1.0, b.abs().max().item()), rtol=tolerance)
    stats = coil.compile_stats()
    assert stats.packages and not stats.fallback_operators, str(stats)


@pytest.mark.parametrize("form", FORMS)
def test_causal_in_float32(form):
    check(form, *problem(torch.float32, lengths=(33, 33), dims=(8, 8)), causal=True, scale=0.3)


@pytest.mark.parametrize("form,dtype", list(zip(FORMS, itertools.cycle([torch.bfloat16, torch.float16]))), ids=str)
def test_halves(form, dtype):
    check(form, *problem(dtype))


@pytest.mark.parametrize("form", ["efficient", "cudnn", "overrideable", "cpu"])
def test_masks(form):
    check(form, *problem(torch.bfloat16 if form == "cudnn" else torch.float32, lengths=(9, 20), bias="mask"))


@pytest.mark.parametrize("form,dtype,keys", [("efficient", torch.float32, 16), ("efficient", torch.bfloat16, 19), ("overrideable", torch.bfloat16, 16)], ids=str)
def test_learnt_bias(form, dtype, keys):
    check(form, *problem(dtype, lengths=(9, keys), bias="learnt"), causal=True)


@pytest.mark.parametrize("form,dtype,heads", [("flash", torch.bfloat16, (8, 1)), ("cudnn", torch.float32, (6, 2)), ("overrideable", torch.float16, (4, 2))], ids=str)
def test_heads_that_share_keys(form, dtype, heads):
    check(form, *problem(dtype, heads=heads, lengths=(12, 12)), causal=True)


@pytest.mark.parametrize("form,lengths,dims", [("flash", (1, 1), (1, 1)), ("flash", (1, 7), (300, 300)), ("efficient", (5, 3), (3, 3)), ("cudnn", (17, 17), (16, 48)),
                                               ("overrideable", (1, 1), (40, 40)), ("cpu", (7, 1), (3, 3))], ids=str)
def test_odd_sizes(form, lengths, dims):
    check(form, *problem(torch.float32, lengths=lengths, dims=dims))


@pytest.mark.parametrize("form", ["flash", "efficient"])
def test_dynamic_lengths(form):
    """Lengths are among the results of the forward graph and the arguments of the backward one, as symbols."""
    for length in (16, 23):
        q, k, v, _ = problem(torch.float32, lengths=(length, length))
        for t in (q, k, v):
            torch._dynamo.mark_dynamic(t, 2)
        check(form, q, k, v, causal=True, equal=True)


def both_halves(q, k, v, grad):
    y, sums, cum_q, cum_k, max_q, max_k, seed, offset, _ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)
    return y, sums, seed, *aten._scaled_dot_product_flash_attention_backward(grad, q, k, v, y, sums, cum_q, cum_k, max_q, max_k, 0.0, True, seed, offset)


def test_training_on_cuda_takes_the_kernels_of_pytorch():
    """Both halves, unless it is asked otherwise; inference is coil's. No result that is no tensor is left for anybody to hand on."""
    from coil.dynamo._results import attention_kernel, settle_results
    from coil.dynamo._support import torch_nodes
    with FakeTensorMode():  # of a device that need not be there
        graph = make_fx(both_halves, tracing_mode="fake")(*[torch.empty(2, 4, 16, 8, dtype=torch.bfloat16, device="cuda") for _ in range(4)]).graph
    settle_results(graph)
    kernels = [n for n in graph.nodes if attention_kernel(n)]
    assert [attention_kernel(n) for n in kernels] == ["forward", "backward"]
    assert all(isinstance(n.meta["val"], torch.Tensor) for n in graph.nodes if n.name.startswith("getitem"))
    device = torch.device("cuda", 0)
    assert set(torch_nodes(graph, device, of_pytorch=("attention",))) >= set(kernels)
    assert not set(torch_nodes(graph, device)) & set(kernels)


def test_gradients_of_biases_lie_as_pytorch_leaves_them():
    """With gaps between rows of 197: a program that was told of dense ones would have them copied in every call. Where coil computes them they are dense."""
    from coil.dynamo._results import settle_results

    def backward(grad, q, k, v, bias, y, sums, seed, offset):
        return aten._scaled_dot_product_efficient_attention_backward(grad, q, k, v, bias, y, sums, seed, offset, 0.0, [True] * 4)[3].sum(0)

    for of_pytorch in ((), ("attention",)):
        with FakeTensorMode():
            q = torch.empty(2, 4, 197, 64, dtype=torch.bfloat16, device="cuda")
            bias = torch.empty(1, 4, 197, 200, dtype=torch.bfloat16, device="cuda")[..., :197].expand(2, 4, 197, 197)
            seed = torch.empty((), dtype=torch.int64, device="cuda")
            sums = torch.empty(2, 4, 224, device="cuda")
            graph = make_fx(backward, tracing_mode="fake")(q, q, q, q, bias, q, sums, seed, seed).graph
        settle_results(graph, of_pytorch)
        gradient = next(n.meta["val"] for n in graph.nodes if n.target is operator.getitem and n.args[1] == 3)
        assert gradient.is_contiguous() != bool(of_pytorch)


def test_halves_apart():
    """What the forward half keeps is what PyTorch's backward half takes, and the other way round: the CPU has both."""
    q, k, v, _ = problem(torch.float32, lengths=(31, 31))
    theirs, their_sums = aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)
    half = torch.compile(lambda q, k, v: aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True), backend="coil", fullgraph=True)
    with torch.no_grad():
        ours, our_sums = half(q, k, v)
        torch.testing.assert_close(our_sums, their_sums.detach(), atol=1e-5, rtol=1e-5)
        grad = torch.randn_like(ours)

        def back(grad, q, k, v, y, sums):
            return aten._scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, y, sums, 0.0, True)

        want = back(grad, q, k, v, theirs, their_sums)
        for got in (back(grad, q, k, v, ours, our_sums), torch.compile(back, backend="coil", fullgraph=True)(grad, q, k, v, theirs, their_sums)):
            torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_flex_attention(dtype, monkeypatch):
    """Score and mask functions, what they read, heads that share keys; gradients, which PyTorch has for other devices only."""
    from torch.nn.attention import flex_attention as flex
    monkeypatch.setattr(flex, "_validate_device", lambda *a: None)
    q, k, v, _ = problem(dtype, lengths=(24, 40), heads=(4, 2), dims=(8, 8))
    slope, start = torch.rand(4, requires_grad=True), torch.tensor([3, 9])

    def masked(b, h, i, j):
        return (j >= start[b]) & (i + 16 >= j)

    def function(q, k, v, slope):
        blocks = flex.create_block_mask(masked, 2, None, 24, 40, device="cpu")
        return flex.flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s - slope[h] * (i + 16 - j), block_mask=blocks, enable_gqa=True)

    y = torch.compile(function, backend="coil", fullgraph=True, options={"fallback": "error"})(q, k, v, slope)
    i, j = torch.arange(24)[:, None], torch.arange(40)
    seen = (j >= start[:, None, None, None]) & (i + 16 >= j)
    bias = torch.where(seen, -slope.double()[:, None, None] * (i + 16 - j), -math.inf)
    wanted = by_definition(q, k, v, bias, False, None)[0]
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(y.double(), wanted, atol=tolerance, rtol=tolerance)
    grad = torch.randn_like(y)
    leaves = [q, k, v, slope]
    for a, b in zip(torch.autograd.grad(y, leaves, grad), torch.autograd.grad(wanted, leaves, grad.double())):
        torch.testing.assert_close(a.double(), b.double(), atol=tolerance * max(1.0, b.abs().max().item()), rtol=tolerance)


def test_what_has_no_formula_stays_in_pytorch():
    """Dropout, and causal masks over unequal lengths where kernels disagree: named, not computed otherwise."""
    q, k, v, _ = problem(torch.float32, lengths=(4, 6))
    cases = {"random": lambda q, k, v: aten._scaled_dot_product_flash_attention(q, k, v, 0.1, False)[0],
             "causal": lambda q, k, v: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0]}
    for word, function in cases.items():
        with torch.no_grad(), pytest.raises(Exception, match=word):
            torch.compile(function, backend="coil", fullgraph=True, options={"fallback": "error"})(q, k, v)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_on_a_processor_copy_no_scores(causal, tmp_path):
    """The logarithms of the sums lie by heads; the matrices of scores, which read them, need not."""
    q, k, v = (torch.randn(2, 3, 40, 16, requires_grad=True) for _ in range(3))
    compiled = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), backend="coil", options={"dump": str(tmp_path)})
    found = torch.autograd.grad(compiled(q, k, v).square().sum(), (q, k, v))
    wanted = torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=causal).square().sum(), (q, k, v))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    plan = next(tmp_path.glob("*_backward/*plan*.txt")).read_text()
    assert "attention_grad_key" in plan and "kernel copy" not in plan
