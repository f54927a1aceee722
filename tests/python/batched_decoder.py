"""A decoder whose caches have a row for each of several conversations: tokens [slots, n] and their places [slots, n] to logits [slots, n, 256]."""

import torch
import torch.nn.functional as F
from torch import nn


class Batched(nn.Module):
    """The layers of examples/generate's decoder, with caches [slots, heads, rows, size] that are written at each conversation's own places."""

    def __init__(self, decoder, slots, write="put"):
        super().__init__()
        self.decoder, self.slots, self.write = decoder, slots, write
        rows, heads, size = decoder.cos.shape[0], decoder.layers[0].heads, decoder.layers[0].size
        for i in range(len(decoder.layers)):
            self.register_buffer(f"keys_{i}", torch.zeros(slots, heads, rows, size), persistent=False)
            self.register_buffer(f"values_{i}", torch.zeros(slots, heads, rows, size), persistent=False)

    def written(self, cache, new, positions):
        if self.write == "put":
            cache[torch.arange(self.slots)[:, None], :, positions] = new.transpose(1, 2)
        else:  # of a single token: where
            at = torch.arange(cache.shape[2])[None, None, :, None] == positions[:, :, None, None]
            cache.copy_(torch.where(at, new, cache))
        return cache

    def forward(self, ids, positions):
        d = self.decoder
        x = d.embedding(ids)
        cos, sin = d.cos[positions][:, None], d.sin[positions][:, None]
        mask = (torch.arange(d.cos.shape[0]) <= positions[:, :, None])[:, None]
        for i, layer in enumerate(d.layers):
            y = layer.norm(x)
            q, k, v = (part.unflatten(-1, (layer.heads, layer.size)).transpose(1, 2) for part in layer.qkv(y).chunk(3, -1))
            q, k = (torch.cat([a * cos - b * sin, a * sin + b * cos], -1) for a, b in (t.chunk(2, -1) for t in (q, k)))
            keys, values = self.written(getattr(self, f"keys_{i}"), k, positions), self.written(getattr(self, f"values_{i}"), v, positions)
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = x + layer.out(y.transpose(1, 2).flatten(2))
            y = layer.norm_inner(x)
            x = x + layer.down(F.silu(layer.gate(y)) * layer.up(y))
        return d.norm(x) @ d.embedding.weight.t()


def export(decoder, path, slots, tokens=None, write="put"):
    """tokens: how many of each conversation a call takes; None: any number."""
    n = torch.export.Dim("n", min=1, max=decoder.cos.shape[0]) if tokens is None else None
    example = torch.zeros(slots, tokens or 3, dtype=torch.int64), torch.arange(tokens or 3).repeat(slots, 1)
    shapes = ({1: n}, {1: n}) if n is not None else None
    torch.export.save(torch.export.export(Batched(decoder, slots, write).eval(), example, dynamic_shapes=shapes), path)
