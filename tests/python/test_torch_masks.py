"""Masks that would keep PyTorch from fused attention on a GPU (coil/dynamo/_masks.py)."""

import pytest
import torch
import torch.nn.functional as F

from coil.dynamo import _masks


def graphs_of(function, *args):
    torch._dynamo.reset()
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm

    torch.compile(function, backend=backend, fullgraph=True)(*args)
    return graphs[0]


def expanded(q, rows, start=0):
    at = torch.arange(rows) + start
    return (at[None, None, :, None] >= 0).expand(q.shape[0], -1, rows, rows)


QUERY = torch.randn(2, 3, 5, 4)


@pytest.mark.parametrize("way", ["keyword", "position"])
def test_a_mask_of_truth_is_left_out(way):
    def function(q):
        mask = expanded(q, 5)
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask) if way == "keyword" else F.scaled_dot_product_attention(q, q, q, mask, 0.0)

    gm = graphs_of(function, QUERY)
    assert not _masks.leave_out_masks(gm)  # not on a GPU
    assert _masks.leave_out_masks(gm, wanted=lambda node: True)
    node = next(n for n in gm.graph.nodes if _masks.is_attention(n))
    assert node.kwargs.get("attn_mask", node.args[3] if len(node.args) > 3 else None) is None
    gm.recompile()
    torch.testing.assert_close(gm(QUERY)[0], function(QUERY))


MASKS = {"one row is false": lambda q: expanded(q, 5, start=-1),
         "causal": lambda q: torch.ones(5, 5, dtype=torch.bool).tril(),
         "from an input": lambda q: (q[:, :1, :, :1] > -100).expand(-1, -1, -1, 5),
         "numbers": lambda q: torch.zeros(5, 5),
         "drawn": lambda q: torch.rand(5, 5) >= 0}


@pytest.mark.parametrize("name", MASKS)
def test_other_masks_stay(name):
    gm = graphs_of(lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=MASKS[name](q)), QUERY)
    assert not _masks.leave_out_masks(gm, wanted=lambda node: True)


@pytest.mark.parametrize("half", [True, False])
def test_biases_are_copied_for_fused_kernels(half, monkeypatch):
    given, attend = [], F.scaled_dot_product_attention

    def spy(q, k, v, mask, *args, **kwargs):
        given.append(mask)
        return attend(q, k, v, mask, *args, **kwargs)

    monkeypatch.setattr(_masks, "fusible", lambda query: half)
    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    bias = torch.randn(5, 5, 3).permute(2, 0, 1)[None].clone(memory_format=torch.channels_last)
    bias[0, 1, 2] = float("-inf")  # this query sees nothing
    for mask, copied in ((bias, half), (torch.ones(5, 1, dtype=torch.bool).expand(5, 5), False), (torch.randn(5, 5), False), (None, False)):
        given.clear()
        found = _masks.attention(QUERY, QUERY, QUERY, mask, 0.0, scale=0.5)
        torch.testing.assert_close(found, attend(QUERY, QUERY, QUERY, mask, scale=0.5))
        if mask is not None:
            assert torch.equal(given[0], mask) and (given[0].stride(-1) == 1 if copied else given[0] is mask)
    assert not _masks.attention(QUERY, QUERY, QUERY, bias)[:, 1, 2].any()


def test_through_torch_compile():
    """On the CPU nothing changes, with gradients of the mask too."""
    bias = torch.randn(5, 5, 3, requires_grad=True)

    def function(q, bias):
        return F.scaled_dot_product_attention(q, q, q, attn_mask=bias.permute(2, 0, 1)[None].expand(2, -1, -1, -1))

    torch._dynamo.reset()
    expected = torch.autograd.grad(function(QUERY, bias).square().sum(), bias)
    found = torch.autograd.grad(torch.compile(function, backend="coil", fullgraph=True)(QUERY, bias).square().sum(), bias)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
