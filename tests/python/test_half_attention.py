"""Attention of 16-bit numbers, as one operator and as decompositions write it (in float32 between conversions), and near misses of that."""

import coil
import pytest
import torch
import torch.nn.functional as F

SEQ = torch.export.Dim("seq", min=2, max=300)


class Attend(torch.nn.Module):
    def __init__(self, causal, masked):
        super().__init__()
        self.causal, self.masked = causal, masked

    def forward(self, q, k, v, keep):
        mask = keep[:, None, None, :] if self.masked else None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal).transpose(1, 2).flatten(2)


class InFloat(torch.nn.Module):
    """The float32 result is used twice, so it cannot be left out."""

    def forward(self, q, k, v, keep):
        scores = (q.float() * 0.5) @ k.float().transpose(-1, -2)
        result = scores.softmax(-1) @ v.float()
        return result.to(q.dtype) + (result * 3).sin().to(q.dtype), keep


def inputs(dtype, seq, dim):
    q, k, v = (torch.randn(2, 3, seq, dim, generator=torch.Generator().manual_seed(seq + i)).to(dtype) for i in range(3))
    return q, k, v, torch.arange(seq)[None] < torch.tensor([[seq], [max(1, seq - 3)]])


def first(outputs):
    return outputs[0] if isinstance(outputs, (tuple, list)) else outputs


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("core", [False, True], ids=["aten", "core"])
@pytest.mark.parametrize("causal, masked, dim", [(False, False, 64), (True, False, 32), (False, True, 48), (False, False, 33)])
def test_attention(dtype, core, causal, masked, dim, tmp_path):
    check(Attend(causal, masked), dtype, core, dim, tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
def test_a_result_in_float32(dtype, tmp_path):
    check(InFloat(), dtype, True, 16, tmp_path)


def check(module, dtype, core, dim, tmp_path):
    shapes = {"q": {2: SEQ}, "k": {2: SEQ}, "v": {2: SEQ}, "keep": {1: SEQ}}
    program = torch.export.export(module, inputs(dtype, 9, dim), dynamic_shapes=shapes)
    model = coil.compile(program.run_decompositions() if core else program, tmp_path / "attention.coil.pt2")
    for seq in (2, 31, 32, 33, 77, 197, 300):
        args = inputs(dtype, seq, dim)
        with torch.no_grad():
            got, want = first(model(*args)), first(module(*(a.double() if a.is_floating_point() else a for a in args)))
        assert got.dtype == dtype
        # One rounding of the result, one of the weights.
        error = (got.double() - want).abs().max() / want.abs().max()
        assert error < (1e-2 if dtype == torch.bfloat16 else 1.5e-3), (seq, error)
