"""Models of transformers whose calls are a package's programs: `generate` with all that it knows, weights and arithmetic in coil."""

from __future__ import annotations

import functools
from typing import Any

import torch
import transformers
from transformers.cache_utils import Cache, DummyLayer, DynamicCache, EncoderDecoderCache
from transformers.exporters import ExportedModel
from transformers.exporters.exporter_dynamo import is_cache_object

from .._errors import make_error
from ._encoders import Encoder
from ._runner import CoilRunner
from ._windows import forget_windows

# What `generate` passes about the form of results; programs have the form that they were traced with.
_ABOUT_RESULTS = {"use_cache", "output_attentions", "output_hidden_states", "return_dict", "logits_to_keep"}
_CACHES = ("past_key_values", "cache_params", "state")  # what models call it


def for_generation(exported: ExportedModel) -> Any:
    """A model of the exported class, without weights, for `generate`: prompts go to the component "prefill", later tokens to "decode",
    on the device that `exported` is on. Raises COIL-E105 for exports without these (`export_for_generation` makes them).

    Calls of several threads, each with a cache of its own, may run side by side.
    """
    runners = exported.runners
    missing = [name for name in ("prefill", "decode") if not isinstance(runners.get(name), CoilRunner)]
    if missing or exported.config is None:
        lacks = f"no program '{missing[0]}'" if missing else "no configuration"
        raise make_error(105, f"COIL-E105: the export has {lacks} to generate with, only {', '.join(map(repr, runners))}\n  hint: export_for_generation makes one")
    kind = getattr(transformers, runners["prefill"].metadata.architecture or "", None)
    if kind is None:
        raise make_error(105, f"COIL-E105: transformers has no class '{runners['prefill'].metadata.architecture}'")
    with torch.device("meta"):
        model = _class_of(kind)(exported.config)
    model.eval()
    model.coil_runners = runners
    if exported.generation_config is not None:
        model.generation_config = exported.generation_config
    return model


def _class_of(kind: type) -> type:
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args:
            raise TypeError("programs of coil take keyword arguments only")
        name = "decode" if _begun(kwargs) else "prefill"
        runner = self.coil_runners[name]
        made = runner(**_arguments(runner, kwargs, name))
        cache = getattr(made, "past_key_values", None)
        if cache is not None:
            forget_windows(cache)
        return made

    def get_encoder(self: Any, modality: str | None = None) -> Any:
        encoder = kind.get_encoder(self, modality)
        runner = self.__dict__.get("coil_runners", {}).get("encoder") if modality is None else None
        if runner is None:
            return encoder
        return Encoder(lambda **kwargs: runner(**_arguments(runner, kwargs, "encoder")), encoder.forward)

    # generate asks the signature which arguments there are.
    functools.update_wrapper(forward, kind.forward)
    device = property(lambda self: next(iter(self.coil_runners.values())).device if "coil_runners" in self.__dict__ else torch.device("meta"))
    dtype = property(lambda self: next(iter(self.coil_runners.values())).dtype if "coil_runners" in self.__dict__ else torch.float32)
    return type(f"Coil{kind.__name__}", (kind,), {"forward": forward, "get_encoder": get_encoder, "device": device, "dtype": dtype, "__module__": kind.__module__})


def _begun(kwargs: dict[str, Any]) -> bool:
    """Whether the call's cache has been written to, under whatever name the model has it. One that transformers has no layers for (RWKV's list) has been, if
    it is there."""
    past = next((value for key, value in kwargs.items() if value is not None and (key in _CACHES or is_cache_object(value))), None)
    past = getattr(past, "self_attention_cache", past)
    if not isinstance(past, Cache):
        return past is not None
    return any(_layer_begun(layer) for layer in past.layers if not isinstance(layer, DummyLayer))


def _layer_begun(layer: Any) -> bool:
    """Keys and values have one flag; states of recurrent layers and of convolutions have one each."""
    states = [flag for name in ("is_conv_states_initialized", "is_recurrent_states_initialized") for flag in getattr(layer, name, {}).values()]
    return any([*states, getattr(layer, "is_initialized", not states)])


def _arguments(runner: CoilRunner, kwargs: dict[str, Any], name: str) -> dict[str, Any]:
    """What the program takes of a call's arguments. What it does not take must say nothing."""
    taken = {}
    for key, value in kwargs.items():
        if key in runner.order:
            taken[key] = value
        elif not (value is None or key in _ABOUT_RESULTS or (key.endswith("attention_mask") and isinstance(value, torch.Tensor) and bool(value.all()))):
            raise make_error(201, f"COIL-E201: the call has '{key}', which the program '{name}' was not traced with: it takes {', '.join(map(repr, runner.order))}"
                                  "\n  hint: export with an example that has it (for a mask: a batch with padding)")
    if isinstance(taken.get("past_key_values"), (DynamicCache, EncoderDecoderCache)):
        forget_windows(taken["past_key_values"])
    return taken
