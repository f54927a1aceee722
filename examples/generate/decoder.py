"""A small decoder of bytes, with its caches in buffers: what the example trains, exports and lets coil generate text with."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 256  # a token is a byte
CONTEXT = 256     # rows of the caches


class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, 1e-5)


def turned(x, cos, sin):
    """Rotary embedding: the two halves of each head as the parts of complex numbers."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Layer(nn.Module):
    def __init__(self, dim, heads, inner, context):
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.norm, self.norm_inner = Norm(dim), Norm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.gate, self.up, self.down = nn.Linear(dim, inner, bias=False), nn.Linear(dim, inner, bias=False), nn.Linear(inner, dim, bias=False)
        self.register_buffer("keys", torch.zeros(1, heads, context, self.size), persistent=False)
        self.register_buffer("values", torch.zeros(1, heads, context, self.size), persistent=False)

    def attend(self, x, cos, sin, positions, mask):
        q, k, v = (part.unflatten(-1, (self.heads, self.size)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        if positions is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            self.keys.index_copy_(2, positions, k)
            self.values.index_copy_(2, positions, v)
            y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, x, cos, sin, positions=None, mask=None):
        x = x + self.attend(self.norm(x), cos, sin, positions, mask)
        y = self.norm_inner(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """`forward(ids)` for training: logits [batch, n, 256]. `step(ids, positions)` with caches: logits of the last row, [1, 256]."""

    def __init__(self, dim=192, layers=4, heads=6, inner=512, context=CONTEXT):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, inner, context) for _ in range(layers))
        self.norm = Norm(dim)
        angles = torch.outer(torch.arange(context), 10000.0 ** -(torch.arange(0, dim // heads, 2) / (dim // heads)))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.03)

    def forward(self, ids):
        x, n = self.embedding(ids), ids.shape[1]
        for layer in self.layers:
            x = layer(x, self.cos[:n], self.sin[:n])
        return self.norm(x) @ self.embedding.weight.t()

    def step(self, ids, positions):
        x = self.embedding(ids)
        cos, sin = self.cos[positions], self.sin[positions]
        mask = torch.arange(self.cos.shape[0], device=positions.device) <= positions[:, None]
        for layer in self.layers:
            x = layer(x, cos, sin, positions, mask)
        return self.norm(x[:, -1]) @ self.embedding.weight.t()


class Generation(nn.Module):
    """`Decoder.step` as a module of its own, for torch.export."""

    def __init__(self, decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, ids, positions):
        return self.decoder.step(ids, positions)


def export(decoder, path):
    """Writes the program: any number of new tokens at a time, the caches kept from call to call."""
    n = torch.export.Dim("n", min=1, max=decoder.cos.shape[0])
    example = torch.zeros(1, 5, dtype=torch.int64), torch.arange(5)
    program = torch.export.export(Generation(decoder).eval(), example, dynamic_shapes=({1: n}, {0: n}))
    torch.export.save(program, path)
