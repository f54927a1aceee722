"""A decoder as Llama and its relatives have it, over a GGUF file's weights, which stay quantised in the program."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn

from ._blocks import Rows, mapped


@dataclasses.dataclass
class Shape:
    """What the file says about the model."""

    architecture: str
    layers: int
    width: int
    heads: int
    key_heads: int
    head_size: int
    epsilon: float
    frequency_base: float
    frequency_scale: float
    context: int


class Weight(nn.Module):
    """A matrix [n, k]: floats, or numbers with scales (and zeros) by group of a row. Products and lookups write out (q - zero) * scale, in which coil finds
    the quantised product."""

    def __init__(self, rows: Rows | torch.Tensor, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype
        if isinstance(rows, Rows):
            self.register_buffer("numbers", mapped(rows.numbers))
            self.register_buffer("scale", mapped(rows.scale))
            self.register_buffer("zero", None if rows.zero is None else mapped(rows.zero))
            self.group = rows.group
        else:
            self.register_buffer("floats", rows)
            self.group = 0

    def rows(self, ids: torch.Tensor | None = None) -> torch.Tensor:
        """Those of `ids`, or all."""
        def pick(t: torch.Tensor) -> torch.Tensor:
            return t if ids is None else t[ids]

        if self.group == 0:
            return pick(self.floats)
        q = pick(self.numbers).unflatten(-1, (-1, self.group)).float()
        if self.zero is not None:
            q = q - pick(self.zero).unsqueeze(-1)
        return (q * pick(self.scale).unsqueeze(-1).float()).flatten(-2).to(self.dtype)

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        return F.linear(x, self.rows(), bias)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)


class Layer(nn.Module):
    """One layer. `weights`: by the names that follow "blk.N." in the file."""

    def __init__(self, shape: Shape, weights: dict[str, Rows | torch.Tensor], context: int, dtype: torch.dtype):
        super().__init__()
        self.shape = shape
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            setattr(self, name, Weight(weights[f"{name}.weight"], dtype))
        vectors = {n: w for n, w in weights.items() if isinstance(w, torch.Tensor) and w.ndim == 1}
        self.vectors = nn.ParameterDict({n.replace(".", "_"): nn.Parameter(w) for n, w in vectors.items()})
        self.register_buffer("keys", torch.zeros(1, shape.key_heads, context, shape.head_size, dtype=dtype), persistent=False)
        self.register_buffer("values", torch.zeros(1, shape.key_heads, context, shape.head_size, dtype=dtype), persistent=False)

    def vector(self, name: str) -> torch.Tensor | None:
        name = name.replace(".", "_")
        return self.vectors[name] if name in self.vectors else None

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight = self.vector(f"{name}.weight")
        return x if weight is None else F.rms_norm(x, x.shape[-1:], weight, self.shape.epsilon)

    def attend(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, places: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (getattr(self, f"attn_{c}")(x, self.vector(f"attn_{c}.bias")).unflatten(-1, (-1, self.shape.head_size)).transpose(1, 2) for c in "qkv")
        q, k = _turned(self.norm(q, "attn_q_norm"), cos, sin), _turned(self.norm(k, "attn_k_norm"), cos, sin)
        self.keys.index_copy_(2, places, k)
        self.values.index_copy_(2, places, v)
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask, enable_gqa=self.shape.heads != self.shape.key_heads)
        return self.attn_output(y.transpose(1, 2).flatten(2), self.vector("attn_output.bias"))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, places: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm(x, "attn_norm"), cos, sin, places, mask)
        y = self.norm(x, "ffn_norm")
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))


class Decoder(nn.Module):
    """`forward(tokens [1, n], places [n])`: logits [1, n, V], or with `last_only` [1, 1, V], those after the last token. Caches of `context` rows are its
    buffers; floats between layers, caches and logits are `dtype`."""

    last_only = False

    def __init__(self, shape: Shape, weights: dict[str, Rows | torch.Tensor], context: int, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.token_embd = Weight(weights["token_embd.weight"], dtype)
        self.output = Weight(weights["output.weight"], dtype) if "output.weight" in weights else self.token_embd  # tied
        blocks: list[dict[str, Rows | torch.Tensor]] = [{} for _ in range(shape.layers)]
        for name, value in weights.items():
            if name.startswith("blk."):
                _, number, rest = name.split(".", 2)
                blocks[int(number)][rest] = value
        self.blk = nn.ModuleList(Layer(shape, block, context, dtype) for block in blocks)
        self.output_norm = nn.Parameter(weights["output_norm.weight"])
        self.epsilon, self.context = shape.epsilon, context
        steps = torch.arange(0, shape.head_size, 2, dtype=torch.float64) / shape.head_size
        frequencies = shape.frequency_base ** -steps / shape.frequency_scale
        if "rope_freqs.weight" in weights:  # Llama 3.1's, by frequency
            frequencies = frequencies / weights["rope_freqs.weight"].double()
        angles = torch.outer(torch.arange(context, dtype=torch.float64), frequencies)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x = self.token_embd.rows(tokens)
        cos, sin = self.cos[places], self.sin[places]
        mask = torch.arange(self.context) <= places[:, None]
        for layer in self.blk:
            x = layer(x, cos, sin, places, mask)
        if self.last_only:
            x = x[:, -1:]
        return self.output(F.rms_norm(x, x.shape[-1:], self.output_norm, self.epsilon))
