"""A decoder as Llama and its relatives (_forms.py) have it, over a GGUF file's weights, which stay quantised in the program."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from ._blocks import Rows, mapped
from ._forms import Form, Scaling, Shape


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
    """The first part of each head by its place, as wide as the tables say."""
    part = 2 * cos.shape[-1]
    a, b = x[..., :part].chunk(2, -1)
    rest = () if part == x.shape[-1] else (x[..., part:],)
    return torch.cat([(a * cos - b * sin).to(x.dtype), (a * sin + b * cos).to(x.dtype), *rest], -1)


def _bent(x: torch.Tensor, cap: float) -> torch.Tensor:
    return x if cap == 0 else torch.tanh(x / cap) * cap


_ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "relu2": lambda x: F.relu(x).square()}


class Perceptron(nn.Module):
    """One for all rows. `names`: of its matrices up, down and, where it is gated, gate."""

    def __init__(self, form: Form, names: dict[str, str], weights: dict[str, Rows | torch.Tensor], dtype: torch.dtype):
        super().__init__()
        self.activation, self.parts = _ACTIVATIONS[form.activation], list(names)
        for part, name in names.items():
            setattr(self, part, Weight(weights[f"{name}.weight"], dtype))
            bias = weights.get(f"{name}.bias")
            self.register_parameter(f"{part}_bias", None if bias is None else nn.Parameter(bias))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up = self.up(x, self.up_bias)
        return self.down(self.activation(self.gate(x, self.gate_bias)) * up if "gate" in self.parts else self.activation(up), self.down_bias)


class Experts(nn.Module):
    """Perceptrons of which a router chooses some for each row, which go by their shares into the sum; beside them there may be one that all rows have."""

    def __init__(self, shape: Shape, weights: dict[str, Rows | torch.Tensor], dtype: torch.dtype):
        super().__init__()
        self.shape, self.activation, self.dtype = shape, _ACTIVATIONS[shape.form.activation], dtype
        self.router = Weight(weights["ffn_gate_inp.weight"], dtype)
        self.fused = "ffn_gate_up_exps.weight" in weights
        for part in ("gate_up", "down") if self.fused else ("gate", "up", "down"):
            setattr(self, part, Weight(weights[f"ffn_{part}_exps.weight"], dtype))
        names = {part: f"ffn_{part}_shexp" for part in ("up", "down", "gate")}
        self.shared = Perceptron(shape.form, names, weights, dtype) if "ffn_down_shexp.weight" in weights else None
        share = weights.get("ffn_gate_inp_shexp.weight")
        self.register_parameter("shared_share", None if share is None else nn.Parameter(share))

    def routed(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each row the shares of its experts, and which these are."""
        shares, chosen = self.router(x).float().softmax(-1).topk(self.shape.chosen, -1)
        if self.shape.form.experts == "shares of chosen":
            shares = shares / shares.sum(-1, keepdim=True)
        return shares * self.shape.expert_scale if self.shape.expert_scale != 1 else shares, chosen

    def inner(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        if self.fused:
            gate, up = grouped(x, self.gate_up, ends).chunk(2, -1)
        else:
            gate, up = grouped(x, self.gate, ends), grouped(x, self.up, ends)
        return self.activation(gate) * up

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x, used = given.flatten(0, 1), self.shape.chosen
        shares, chosen = self.routed(x)
        experts, order = chosen.flatten().sort(stable=True)
        ends = (experts <= torch.arange(self.shape.experts).unsqueeze(-1)).sum(-1, dtype=torch.int32)
        y = grouped(self.inner(x[order // used], ends), self.down, ends)
        y = (y[order.argsort()].unflatten(0, (-1, used)) * shares.unsqueeze(-1).to(self.dtype)).sum(1)
        if self.shared is not None:
            always = self.shared(x)
            y = y + (always if self.shared_share is None else always * torch.sigmoid(F.linear(x, self.shared_share.unsqueeze(0))))
        return y.unflatten(0, (1, -1))


def grouped(x: torch.Tensor, weight: Weight, ends: torch.Tensor) -> torch.Tensor:
    """Rows that are sorted by expert times the matrices [experts, n, k] of these; ends: behind each expert's rows."""
    return torch._grouped_mm(x, weight.rows().transpose(-2, -1), offs=ends)


class Places(NamedTuple):
    """Of a call's tokens: where they are, how a layer turns queries and keys (None: not at all), and which keys it sees."""

    places: torch.Tensor
    cos: torch.Tensor | None
    sin: torch.Tensor | None
    mask: torch.Tensor


def zeros(sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """As torch.zeros, but pages that nobody writes take no memory: caches of 4096 rows are a gigabyte of a model of 8B."""
    return torch.from_numpy(np.zeros(math.prod(sizes) * dtype.itemsize, np.uint8)).view(dtype).reshape(sizes)


class Layer(nn.Module):
    """One layer. `weights`: by the names that follow "blk.N." in the file. Programs of layers whose weights and `kind` are alike differ in nothing else."""

    def __init__(self, shape: Shape, number: int, weights: dict[str, Rows | torch.Tensor], context: int, dtype: torch.dtype):
        super().__init__()
        self.shape, self.kind = shape, (shape.has_window(number), shape.is_turned(number))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            setattr(self, name, Weight(weights[f"{name}.weight"], dtype))
        names = {part: f"ffn_{part}" for part in ("up", "down", *(("gate",) if shape.form.gated else ()))}
        self.ffn = Experts(shape, weights, dtype) if "ffn_gate_inp.weight" in weights else Perceptron(shape.form, names, weights, dtype)
        # (StableLM's files have no second norm where both read the same x.)
        self.parallel = shape.parallel or not (shape.form.weightless or shape.form.post or "ffn_norm.weight" in weights)
        vectors = {n: w for n, w in weights.items() if isinstance(w, torch.Tensor) and w.ndim == 1 and not n.startswith(("ffn_up", "ffn_down", "ffn_gate"))}
        self.vectors = nn.ParameterDict({n.replace(".", "_"): nn.Parameter(w) for n, w in vectors.items()})
        for name in ("keys", "values"):
            self.register_buffer(name, zeros((1, shape.key_heads, context, shape.head_size), dtype), persistent=False)

    def vector(self, name: str) -> torch.Tensor | None:
        name = name.replace(".", "_")
        return self.vectors[name] if name in self.vectors else None

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight = self.vector(f"{name}.weight")
        weightless = self.shape.form.weightless and name in ("attn_norm", "ffn_norm")
        return x if weight is None and not weightless else normed(x, weight, self.vector(f"{name}.bias"), self.shape)

    def product(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return getattr(self, name)(x, self.vector(f"{name}.bias"))

    def heads(self, x: torch.Tensor, part: str, at: Places) -> torch.Tensor:
        """Queries, keys or values: [1, heads, n, size]."""
        y, norm = self.product(x, f"attn_{part}"), f"attn_{part}_norm"
        if self.shape.clamp:
            y = y.clamp(-self.shape.clamp, self.shape.clamp)
        weight = self.vector(f"{norm}.weight")
        whole = weight is not None and weight.numel() != self.shape.head_size  # of all heads together
        if whole:
            y = self.norm(y, norm)
        y = y.unflatten(-1, (-1, self.shape.head_size)).transpose(1, 2)
        if weight is not None and not whole:
            y = self.norm(y, norm)
        return y if part == "v" or at.cos is None else _turned(y, at.cos, at.sin)

    def attend(self, x: torch.Tensor, at: Places) -> torch.Tensor:
        q, k, v = (self.heads(x, part, at) for part in "qkv")
        self.keys.index_copy_(2, at.places, k)
        self.values.index_copy_(2, at.places, v)
        y = self.mixed(q, at.mask) if self.shape.attention_cap else F.scaled_dot_product_attention(
            q, self.keys, self.values, attn_mask=at.mask, scale=self.shape.attention_scale, enable_gqa=self.shape.heads != self.shape.key_heads)
        return self.product(y.transpose(1, 2).flatten(2), "attn_output")

    def mixed(self, q: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Attention whose scores are bent."""
        shape = self.shape
        scale = shape.attention_scale or shape.head_size ** -0.5
        scores = torch.matmul(q.unflatten(1, (shape.key_heads, -1)) * scale, self.keys.unsqueeze(2).transpose(-1, -2))
        weights = _bent(scores.float(), shape.attention_cap).masked_fill(~mask, -math.inf).softmax(-1).to(q.dtype)
        return torch.matmul(weights, self.values.unsqueeze(2)).flatten(1, 2)

    def forward(self, x: torch.Tensor, at: Places) -> torch.Tensor:
        before, scale = self.norm(x, "attn_norm"), self.shape.residual_scale
        y = self.norm(self.attend(before, at), "post_attention_norm")
        if self.parallel:
            own = self.vector("ffn_norm.weight") is not None
            return x + (y + self.ffn(self.norm(x, "ffn_norm") if own else before)) * scale
        x = x + (y if scale == 1 else y * scale)
        y = self.norm(self.ffn(self.norm(x, "ffn_norm")), "post_ffw_norm")
        return x + (y if scale == 1 else y * scale)


def normed(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, shape: Shape) -> torch.Tensor:
    size = x.shape[-1:]
    return F.rms_norm(x, size, weight, shape.epsilon) if shape.form.norm == "rms" else F.layer_norm(x, size, weight, bias, shape.epsilon)


def frequencies_of(shape: Shape, weights: dict[str, Rows | torch.Tensor], context: int) -> tuple[torch.Tensor, float]:
    """Of the turned part of a head by its pairs, and what cosines and sines are multiplied by."""
    scaling: Scaling = shape.scaling
    steps = torch.arange(0, shape.turned_size, 2, dtype=torch.float64) / shape.turned_size
    frequencies, attention = shape.frequency_base ** -steps, scaling.attention
    if scaling.kind == "yarn":  # low ones are stretched, high ones stay, in between a ramp
        low, high = (shape.turned_size * math.log(scaling.trained / (turns * 2 * math.pi)) / (2 * math.log(shape.frequency_base)) for turns in (scaling.fast, scaling.slow))
        low, high = max(math.floor(low), 0), min(math.ceil(high), shape.turned_size - 1)
        ramp = ((torch.arange(len(steps), dtype=torch.float64) - low) / max(high - low, 1e-3)).clamp(0, 1)
        frequencies = frequencies / scaling.factor * ramp + frequencies * (1 - ramp)
        attention *= 1 + 0.1 * math.log(max(scaling.factor, 1.0))
    elif scaling.kind == "linear":
        frequencies = frequencies / scaling.factor
    for name, wanted in (("rope_freqs", True), ("rope_factors_long", context > scaling.trained), ("rope_factors_short", context <= scaling.trained)):
        factors = weights.get(f"{name}.weight")
        if wanted and isinstance(factors, torch.Tensor):  # Llama 3.1's and Phi 3's, by frequency
            frequencies = frequencies / factors.double()
    return frequencies, attention


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
        self.blk = nn.ModuleList(Layer(shape, i, block, context, dtype) for i, block in enumerate(blocks))
        for name in ("output_norm.weight", "output_norm.bias", "output.bias", "position_embd.weight"):
            self.register_parameter(name.replace(".", "_"), nn.Parameter(weights[name]) if name in weights else None)
        self.shape, self.context = shape, context
        self._add_tables("", *frequencies_of(shape, weights, context))
        if shape.form.local_base:
            self._add_tables("local_", shape.form.local_base ** (-torch.arange(0, shape.turned_size, 2, dtype=torch.float64) / shape.turned_size), 1.0)

    def _add_tables(self, prefix: str, frequencies: torch.Tensor, attention: float) -> None:
        angles = torch.outer(torch.arange(self.context, dtype=torch.float64), frequencies)
        self.register_buffer(f"{prefix}cos", (angles.cos() * attention).float(), persistent=False)
        self.register_buffer(f"{prefix}sin", (angles.sin() * attention).float(), persistent=False)

    def _places(self, places: torch.Tensor) -> dict[tuple[bool, bool], Places]:
        """For each kind of layer."""
        rows, found = torch.arange(self.context), {}
        seen = rows <= places[:, None]
        for window, turned in sorted({layer.kind for layer in self.blk}):
            prefix = "local_" if window and self.shape.form.local_base else ""
            tables = [getattr(self, f"{prefix}{t}")[places] if turned else None for t in ("cos", "sin")]
            # A cache that is no longer than the window needs no second mask.
            mask = seen & (rows > places[:, None] - self.shape.window) if window and self.shape.window < self.context else seen
            found[window, turned] = Places(places, *tables, mask)
        return found

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        x, of_kind = self.token_embd.rows(tokens), self._places(places)
        if self.position_embd_weight is not None:
            x = x + self.position_embd_weight[places]
        if self.shape.embedding_scale != 1:
            x = x * torch.tensor(self.shape.embedding_scale, dtype=x.dtype)  # rounded to it, as the models do
        for layer in self.blk:
            x = layer(x, of_kind[layer.kind])
        if self.last_only:
            x = x[:, -1:]
        logits = self.output(normed(x, self.output_norm_weight, self.output_norm_bias, self.shape), self.output_bias)
        return _bent(logits if self.shape.logit_scale == 1 else logits * self.shape.logit_scale, self.shape.logit_cap)
