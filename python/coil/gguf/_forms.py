"""Architectures of GGUF files: what their layers are built of, and what a file says about its model's sizes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from .._errors import make_error


@dataclasses.dataclass(frozen=True)
class Form:
    """How an architecture differs from Llama's."""

    norm: str = "rms"          # or "layer": of means too
    pairs: bool = False        # the file has the two parts of a rotated pair side by side, else in a head's halves
    activation: str = "silu"   # or "gelu", "gelu_tanh", "relu2"
    gated: bool = True         # up is multiplied by the activation of gate, else there is no gate
    parallel: bool = False     # attention and the perceptron read the same x
    weightless: bool = False   # norms have no weights
    post: bool = False         # there are norms behind attention and the perceptron
    embedding: bool = False    # rows of the embedding times the root of the width
    window_every: int = 0      # layers of a group, of which the last one sees all keys and the others a window; 1: all have the window; 0: none has
    turned: str = "all"        # layers that are turned by place; or "windows": those with a window; "three": three of four; "none": places have an embedding
    divided: bool = False      # logits are divided by the file's scale, else multiplied
    local_base: float = 0      # of the frequencies of layers with a window, where they have their own
    experts: str = ""          # a mixture of them: what the chosen ones give is weighed by their shares of all ("shares"), or of the chosen ones ("shares of chosen")


FORMS: dict[str, Form] = {
    "llama": Form(pairs=True, experts="shares of chosen"),
    "qwen2": Form(),
    "qwen2moe": Form(experts="shares"),
    "qwen3": Form(),
    "qwen3moe": Form(experts="shares of chosen"),
    "arcee": Form(pairs=True, activation="relu2", gated=False),
    "cohere2": Form(norm="layer", pairs=True, parallel=True, window_every=4, turned="windows"),
    "command-r": Form(norm="layer", pairs=True, parallel=True),
    "ernie4_5": Form(pairs=True),
    "exaone4": Form(post=True, window_every=4, turned="windows"),
    "falcon": Form(norm="layer", activation="gelu", gated=False, parallel=True),
    "gemma": Form(activation="gelu_tanh", embedding=True),
    "gemma2": Form(activation="gelu_tanh", embedding=True, post=True, window_every=2),
    "gemma3": Form(activation="gelu_tanh", embedding=True, post=True, window_every=6, local_base=10000.0),
    "glm4": Form(pairs=True, post=True),
    "gpt2": Form(norm="layer", activation="gelu_tanh", gated=False, turned="none"),
    "gptneox": Form(norm="layer", activation="gelu", gated=False),
    "granite": Form(pairs=True, divided=True),
    "granitemoe": Form(pairs=True, divided=True, experts="shares of chosen"),
    "nemotron": Form(norm="layer", activation="relu2", gated=False),
    "olmo": Form(norm="layer", pairs=True, weightless=True),
    "olmo2": Form(post=True, window_every=4),
    "olmoe": Form(experts="shares"),
    "phi2": Form(norm="layer", activation="gelu_tanh", gated=False, parallel=True),
    "phi3": Form(window_every=1),
    "smollm3": Form(pairs=True, turned="three"),
    "stablelm": Form(norm="layer"),
    "starcoder2": Form(norm="layer", activation="gelu_tanh", gated=False),
}


@dataclasses.dataclass
class Scaling:
    """How the frequencies of places are changed for contexts that are longer than those of the training."""

    kind: str = "none"          # "linear", "yarn", "longrope"
    factor: float = 1.0
    trained: int = 0            # rows of the context before
    attention: float = 1.0      # by which cosines and sines are multiplied
    fast: float = 32.0
    slow: float = 1.0


@dataclasses.dataclass
class Shape:
    """What the file says about the model."""

    architecture: str
    form: Form
    layers: int
    width: int
    heads: int
    key_heads: int
    head_size: int
    epsilon: float
    frequency_base: float
    scaling: Scaling
    context: int
    turned_size: int = 0                    # of a head, which is turned by its place; the rest stays
    window: int = 0                         # keys that a layer with a window sees
    parallel: bool = False
    attention_scale: float | None = None
    attention_cap: float = 0.0              # scores and logits are bent to stay below; 0: they are not
    logit_cap: float = 0.0
    logit_scale: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    clamp: float = 0.0                      # of queries, keys and values; 0: none
    experts: int = 0                        # of a layer with a mixture of them
    chosen: int = 0                         # of these for a token
    expert_scale: float = 1.0               # what they give is multiplied by

    def has_window(self, layer: int) -> bool:
        every = self.form.window_every
        return self.window > 0 and every > 0 and (every == 1 or layer % every < every - 1)

    def is_turned(self, layer: int) -> bool:
        if self.form.turned == "windows":
            return self.window == 0 or self.has_window(layer)
        return self.form.turned == "all" or (self.form.turned == "three" and layer % 4 < 3)


def unsupported(path: str, what: str, hint: str | None = None) -> Exception:
    hint = hint or f"import-gguf reads decoders of these architectures: {', '.join(FORMS)}; export others from PyTorch"
    return make_error(105, f"COIL-E105: '{path}': {what}\n  hint: {hint}")


def damaged(path: str, what: str) -> Exception:
    return make_error(13, f"COIL-E013: '{path}' is damaged: {what}\n  hint: download it again")


class _Fields:
    """Numbers of the file's head, checked."""

    def __init__(self, reader: Any, path: str):
        self._fields, self._path, self.arch = reader.fields, path, ""

    def get(self, name: str, default: Any = None) -> Any:
        found = self._fields.get(name if name.startswith("general.") else f"{self.arch}.{name}")
        try:
            value = default if found is None else found.contents()
        except (ValueError, IndexError):  # no text, no such element
            value = None
        if value is None:
            name = name if name.startswith("general.") else f"{self.arch}.{name}"
            raise make_error(13, f"COIL-E013: '{self._path}' does not say its {name}\n  hint: make it with a current convert_hf_to_gguf.py")
        return value

    def count(self, name: str, default: Any = None) -> int:
        value = self.get(name, default)
        if not (isinstance(value, int) and not isinstance(value, bool) and (0 < value < 1 << 31 or value == default == 0)):
            raise damaged(self._path, f"its {self.arch}.{name} is {value!r}")
        return value

    def real(self, name: str, default: Any = None, least: float = 0.0) -> float:
        value = self.get(name, default)
        if isinstance(value, (int, float)) and math.isfinite(value) and value >= least:
            return float(value)
        raise damaged(self._path, f"its {self.arch}.{name} is {value!r}")


def _scaling_of(fields: _Fields, path: str, context: int) -> Scaling:
    kind = fields.get("rope.scaling.type", "none")
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise unsupported(path, f"its rotary embedding is scaled by '{kind}'")
    factor = fields.real("rope.scaling.factor", 1.0, 1e-6) if kind != "none" else 1.0
    return Scaling(kind, factor, fields.count("rope.scaling.original_context_length", context), fields.real("rope.scaling.attn_factor", 1.0, 1e-6),
                   fields.real("rope.scaling.yarn_beta_fast", 32.0, 1e-6), fields.real("rope.scaling.yarn_beta_slow", 1.0, 1e-6))


def _attention_scale(fields: _Fields, arch: str, layers: int, width: int, heads: int) -> float | None:
    """What scores are multiplied by; None: one over the root of a head's size."""
    if (arch, layers) in (("gemma2", 46), ("gemma3", 62)):  # of 27B alone, and no number of the file says so
        return (width / heads) ** -0.5
    given = fields.real("attention.scale", 0.0)
    return given if given > 0 else None


def shape_of(reader: Any, path: str) -> Shape:
    """Raises COIL-E013 for a file whose numbers are missing or make no model, COIL-E105 for architectures that are not read."""
    fields = _Fields(reader, path)
    arch = fields.get("general.architecture")
    if arch not in FORMS:
        raise unsupported(path, f"its architecture is '{arch}'")
    fields.arch, form = arch, FORMS[arch]
    experts = fields.count("expert_count", 0)
    if experts and not form.experts:
        raise unsupported(path, "it is a mixture of experts")
    if any(isinstance(fields.get(f"attention.{n}", 1), list) for n in ("head_count", "head_count_kv")):
        raise unsupported(path, "its layers have different numbers of heads")
    width, heads, layers = fields.count("embedding_length"), fields.count("attention.head_count"), fields.count("block_count")
    key_heads = fields.count("attention.head_count_kv", heads)
    size = fields.count("attention.key_length", max(width // heads, 1))
    turned = fields.count("rope.dimension_count", size) if form.turned != "none" else size
    if heads % key_heads or size % 2 or turned > size or turned % 2:
        raise damaged(path, f"it has {heads} heads of {size} on {key_heads} of keys, of which {turned} are turned")
    if fields.count("attention.value_length", size) != size:
        raise unsupported(path, "values have another size than keys")
    if layers > len(reader.tensors):
        raise damaged(path, f"it says that it has {layers} layers, and has {len(reader.tensors)} tensors")
    chosen = fields.count("expert_used_count") if experts else 0
    if chosen > experts:
        raise damaged(path, f"a token has {chosen} of {experts} experts")
    context = fields.count("context_length", 4096)
    window = int(fields.real("attention.sliding_window", 4096 if arch == "gemma2" else 0)) if form.window_every else 0
    scale = fields.real("logit_scale", 0.0) or 1.0
    epsilon = fields.real("attention.layer_norm_rms_epsilon" if form.norm == "rms" else "attention.layer_norm_epsilon")
    return Shape(arch, form, layers, width, heads, key_heads, size, epsilon, fields.real("rope.freq_base", 10000.0, 1e-6), _scaling_of(fields, path, context), context,
                 turned_size=turned, window=window, parallel=form.parallel or (arch == "gptneox" and bool(fields.get("use_parallel_residual", True))),
                 attention_scale=_attention_scale(fields, arch, layers, width, heads),
                 attention_cap=fields.real("attn_logit_softcapping", 50.0 if arch == "gemma2" else 0.0),
                 logit_cap=fields.real("final_logit_softcapping", 30.0 if arch == "gemma2" else 0.0), logit_scale=1 / scale if form.divided else scale,
                 embedding_scale=width ** 0.5 if form.embedding else fields.real("embedding_scale", 0.0) or 1.0,
                 residual_scale=fields.real("residual_scale", 0.0) or 1.0, clamp=fields.real("attention.clamp_kqv", 0.0),
                 experts=experts, chosen=chosen, expert_scale=fields.real("expert_weights_scale", 0.0) or 1.0)
