"""Models of transformers from configurations that are shrunk by the names of their attributes, and inputs by the names of their arguments.

`make(model_type)` gives (module, keyword arguments) of a base model in eval mode, seeded, which eager runs; it raises where no guess fits.
"""

import inspect
import re

import torch

SIZES = [  # (pattern of an integer attribute's name, what it becomes); the first that matches
    (r"(num|n)_(key_value|kv)_heads|multi_query_group_num|num_key_value_heads_.*", 2),
    (r"(head_dim|attention_head_size|d_head|global_head_dim|qk_nope_head_dim|v_head_dim|attention_head_dim|.*_head_dim)", 16),
    (r"qk_rope_head_dim", 16),
    (r"(q_lora_rank|kv_lora_rank|.*lora_rank|index_topk)", 16),
    (r"num_feat_extract_layers|out_features|out_indices|.*num_.*layers_to_.*|.*_layer_(id|index|idx)|.*num_hidden_layers_to.*", None),
    (r".*(num|n)_(.*_)?(layers?|blocks)|n_layers?|depth|.*_layers|.*_depth|num_.*layers.*", 2),
    (r".*(num|n)_(.*_)?heads?|.*_heads|.*attention_heads|num_heads|mamba_n_heads", 4),
    (r".*vocab_size.*|.*_vocab_size|vocab_size_per_layer_input", 128),
    (r"max_(position_embeddings|target_positions|source_positions|seq_len.*|sequence_length)|n_positions|n_ctx", 64),
    (r".*image_size|.*_res(olution)?|input_size", 32),
    (r"temporal_patch_size", None),
    (r".*patch_size", 8),
    (r"rotary_dim|prediction_length", 8),
    (r"context_size", 16),
    (r"(moe_|shared_expert_|.*expert.*)?(intermediate|ffn|feed_forward|mlp|ff|inner)_(size|dim|hidden_size|proj_dim)|d_ff|d_inner|.*ffn_(dim|hidden_size)|.*intermediate_size.*|n_inner", 64),
    (r".*num_(local_|routed_)?experts|n_routed_experts|moe_num_experts", 4),
    (r"num_experts_per_tok|moe_top_?k|num_experts_per_token|moe_k|top_k_experts", 2),
    (r"n_group|topk_group|num_expert_group", 1),
    (r"(.*_)?(hidden_size|d_model|dim|embed_dim|hidden_dim|projection_dim|n_embd|embedding_size|width|embedding_dim|word_embed_proj_dim|encoder_dim|model_dim|.*_hidden_size|.*_embed_dim|output_dim)", 64),
    (r"(linear_num_(key|value)_heads|mamba_num_heads)", 4),
    (r"(ssm_)?state_size|mamba_d_state|.*_state_size", 16),
    (r"num_queries|num_query_tokens|num_latents|num_object_queries", 8),
    (r"(sliding_window|attention_window|local_attention|attention_chunk_size|chunk_size)", 8),
    (r"num_frames|frames_per_clip", 4),
]
ZERO = re.compile(r".*(dropout|drop_path_rate|layerdrop|drop_rate|_drop|pdrop|_prob|noise_std|jitter_noise)$")
OF_TYPE = {  # what names do not tell: sizes that have to fit together
    "autoformer": {"num_time_features": 1, "feature_size": 10, "context_length": 32},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "informer": {"num_time_features": 1, "feature_size": 10, "context_length": 32},
    "perceiver": {"d_latents": 64, "d_model": 64, "num_self_attends_per_block": 2},
    "sam": {"vision_config": {"output_channels": 64, "num_pos_feats": 32}, "prompt_encoder_config": {"image_embedding_size": 4}},
    "time_series_transformer": {"num_time_features": 1, "feature_size": 10, "context_length": 32},
    "timesfm": {"context_length": 64, "horizon_length": 16},
    "vits": {"vocab_size": 128},
    "zamba2": {"mamba_headdim": 32, "attention_hidden_size": 128, "attention_head_dim": 32, "kv_channels": 16, "num_query_groups": 4, "hybrid_layer_ids": [1]},
}
LAYERS = ("num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers", "n_layer", "n_layers", "num_decoder_layers")


def smaller(name, value, config):
    """The value of an attribute in the small configuration."""
    name = str(name)
    if name in ("out_features", "out_indices", "stage_names"):  # stages that a smaller backbone may lack
        return None
    if name == "prediction_length":  # None by default, and required
        return 8
    if isinstance(value, dict):
        if name.startswith("per_layer"):
            return {k: v for k, v in value.items() if int(k) < 2}
        return rope(value, config) if name.endswith(("rope_parameters", "rope_scaling")) else shrunk(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return 0.0 if ZERO.fullmatch(name) else value
    if isinstance(value, int):
        return smaller_integer(name, value, config)
    return rows(name, list(value), config) if isinstance(value, (list, tuple)) and value else value


def smaller_integer(name, value, config):
    if name in ("mamba_d_head", "mamba_head_dim") or (name == "head_dim" and "expand" in config and "num_heads" in config):
        return 32  # 2 * 64 channels of 4 heads
    if name.endswith(("token_id", "_token_index", "_id")):
        return value if value < 128 else 100 + sum(map(ord, name)) % 20
    if "kv_lora_rank" in config and name == "num_key_value_heads":
        return 4
    if name in LAYERS and len(set(config.get("layer_types") or config.get("layers_block_type") or ["same"])) == 1:
        return min(value, 1)
    size = next((size for pattern, size in SIZES if re.fullmatch(pattern, name)), None)
    return value if size is None or value <= 0 else min(size, value)


def rows(name, values, config):
    """Lists: kinds of layers, sizes of stages."""
    layers = max((v for k, v in config.items() if isinstance(v, int) and re.fullmatch(r"(num_hidden_layers|num_layers|n_layers?|depth)", k)), default=0)
    if len(values) == layers and layers > 2 and isinstance(values[0], (str, int)):
        return list(dict.fromkeys(values))[:2]
    if len(values) == layers and layers > 2:
        return values[:2]
    if name.endswith("num_heads") or name.endswith("num_attention_heads"):
        return [min(2**i, 4) for i in range(len(values))]
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return values
    if "depth" in name or "layers" in name or "blocks" in name:
        return [min(v, 2) for v in values]
    if re.fullmatch(r".*(hidden_sizes|embed_dims?|channels|dims?|conv_dim)", name) and min(values) >= 16:
        return [16 * max(1, min(8, v // min(values))) for v in values]
    if name in ("image_size", "input_size"):
        return [32 for _ in values]
    return values


def rope(value, config):
    """Rotary embeddings, with sections of the channels where positions have several dimensions."""
    half = int(16 * value.get("partial_rotary_factor", config.get("partial_rotary_factor") or 1.0)) // 2
    if half >= 4 and value.get("rope_type", "default") == "default" and "full_attention" not in value:
        value = {**value, "mrope_section": [half - 2 * (half // 4), half // 4, half // 4]}
    return value


def merged(config, change):
    """A configuration with some attributes changed, in nested ones too."""
    return {**config, **{name: merged(config.get(name) or {}, value) if isinstance(value, dict) else value for name, value in change.items()}}


def shrunk(config):
    return {name: smaller(name, value, config) for name, value in config.items()}


def find(config, *names, default=None):
    """The first attribute of these names, in nested configurations too."""
    for name in names:
        value = getattr(config, name, None)
        if value is not None:
            return value
    for value in vars(config).values():
        if hasattr(value, "to_dict"):
            found = find(value, *names)
            if found is not None:
                return found
    return default


def square(value):
    return tuple(value) if isinstance(value, (list, tuple)) else (value, value)


def argument(name, config, parameters):
    """A guess at an argument by its name; None: no guess."""
    length, batch = 16, 2
    if name in ("input_ids", "decoder_input_ids", "text_input_ids"):
        return torch.randint(3, 90, (batch, 8 if name.startswith("dec") else length))
    if name in ("attention_mask", "decoder_attention_mask", "padding_mask"):
        mask = torch.ones(batch, length, dtype=torch.long)
        mask[1, 12:] = 0
        return mask
    if "past_time_features" in parameters or "past_values_padding" in parameters:
        return series(name, config, "freq" in parameters)
    if "is_longer" in parameters and name in ("is_longer", "input_features"):
        return torch.tensor([[True], [False]]) if name == "is_longer" else torch.randn(batch, 4, 1024, find(config, "num_mel_bins", default=64))
    patch = find(config, "patch_size", default=8)
    if name in ("grid_thw", "image_grid_thw"):
        return torch.tensor([[1, 4, 4]])
    if any(n in parameters for n in ("grid_thw", "image_grid_thw")) and name in ("hidden_states", "pixel_values") and isinstance(patch, int):
        return torch.randn(16, find(config, "in_channels", "num_channels", "in_chans", default=3) * find(config, "temporal_patch_size", default=1) * patch * patch)
    height, width = square(find(config, "image_size", "img_size", default=32))[:2]
    channels = find(config, "num_channels", "in_channels", "in_chans", default=3)
    if name == "pixel_values":
        return torch.randn(batch, channels, height, width)
    if name in ("pixel_values_videos", "pixel_values_frames"):
        return torch.randn(batch, find(config, "num_frames", "frames_per_clip", default=4), channels, height, width)
    if name in ("input_values", "input_waveform"):
        return torch.randn(batch, 1600)
    if name == "audio_codes":
        return torch.randint(0, 16, (batch, find(config, "num_codebooks", "num_quantizers", default=4), length))
    if name == "input_features":
        return torch.randn(batch, find(config, "num_mel_bins", "feature_size", "input_feat_per_channel", default=80), 64)
    if name == "bbox":
        corner = torch.randint(0, 30, (batch, length, 2))
        return torch.cat([corner, corner + 5], -1)
    if name == "inputs":
        return torch.randn(batch, length, find(config, "d_model", default=64))
    if name == "past_values":
        return torch.randn(batch, find(config, "context_length", default=32), find(config, "num_input_channels", default=1))
    if name == "hidden_states":
        return torch.randn(batch, length, find(config, "hidden_size", "d_model", default=64))
    return None


def series(name, config, padded):
    """Arguments of forecasters: values of the past and future, with features of their times."""
    batch, ahead = 2, find(config, "prediction_length", default=8)
    length = find(config, "context_length", default=32) + (0 if padded else max(config.lags_sequence))
    return {"past_values": torch.randn(batch, length), "past_time_features": torch.rand(batch, length, 1), "past_observed_mask": torch.ones(batch, length),
            "future_values": torch.randn(batch, ahead), "future_time_features": torch.rand(batch, ahead, 1),
            "past_values_padding": torch.zeros(batch, length, dtype=torch.long), "freq": torch.zeros(batch, 1, dtype=torch.long)}.get(name)


def guesses(module, config):
    """Sets of arguments, the likeliest first."""
    parameters = inspect.signature(module.forward).parameters
    required = [n for n, p in parameters.items() if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    main = getattr(module, "main_input_name", "input_ids")
    main = [main] if isinstance(main, str) else list(main)
    has = [n for n in ("input_ids", "pixel_values", "input_values", "input_features", "hidden_states") if n in parameters]
    wishes = [main, main + ["attention_mask"], has[:1] + ["attention_mask"], main + ["decoder_input_ids"], ["input_ids", "pixel_values"], has[:1], has, main + ["pixel_values_videos"]]
    if "future_values" in parameters:
        wishes.insert(0, ["past_values", "past_time_features", "past_observed_mask", "future_values", "future_time_features"])
    if "is_longer" in parameters:
        wishes.insert(0, ["input_ids", "input_features", "is_longer"])
    sets = []
    for wish in wishes:
        names = list(dict.fromkeys([*wish, *required]))
        found = {n: argument(n, config, parameters) for n in names if n in parameters or "kwargs" in parameters}
        found = {n: v for n, v in found.items() if v is not None}
        if found:
            sets.append(found)
    if "bbox" in parameters:
        sets.append({n: argument(n, config, parameters) for n in ("input_ids", "bbox")})
    for base in list(sets):
        if "pixel_values" in base and base["pixel_values"].dim() == 4:
            sets.append({**base, "pixel_values": torch.randn(2, base["pixel_values"].shape[1], 128, 128)})
        for name, other in (("pixel_values", lambda v: v[:, None].expand(-1, 4, -1, -1, -1).clone()), ("input_features", lambda v: v.transpose(1, 2).contiguous()), ("input_values", lambda v: v[:, None]),
                            ("input_features", lambda v: torch.nn.functional.pad(v, (0, find(config, "max_source_positions", default=64) * 2 - v.shape[-1])))):
            if name in base and base[name].dim() in (2, 3, 4):
                try:
                    sets.append({**base, name: other(base[name])})
                except RuntimeError:
                    pass
    return sets


def configurations(model_type):
    """Small configurations, the likeliest first; the last keeps all but the number of layers."""
    from transformers import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    default = kind().to_dict()
    small = merged(shrunk(default), OF_TYPE.get(model_type, {}))
    layers = {k: min(v, 2) for k, v in default.items() if k in LAYERS and isinstance(v, int)}
    problems = []
    for change in (small, {**small, "num_key_value_heads": 4}, {k: v for k, v in small.items() if not isinstance(v, list)}, {**small, "head_dim": 16}, {**default, **layers}):
        try:
            yield kind.from_dict({k: v for k, v in change.items() if k in default or k != "num_key_value_heads"})
        except Exception as problem:
            problems.append(problem)
    if len(problems) == 5:
        raise problems[0]


def make(model_type):
    problems = []
    for config in configurations(model_type):
        try:
            return built(model_type, config)
        except Exception as problem:
            problems.append(problem)
    raise problems[0]


def built(model_type, config):
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    name = MODEL_MAPPING_NAMES[model_type]
    kind = getattr(transformers, name if isinstance(name, str) else name[-1])
    with torch.device("meta"):
        size = sum(p.numel() for p in kind(config).parameters())
    if size > 60_000_000:
        raise ValueError(f"{size:,} parameters: not shrunk")
    torch.manual_seed(0)
    module = kind(config).float().eval()
    if hasattr(config, "use_cache"):
        config.use_cache = False
    if hasattr(module, "set_default_language"):
        module.set_default_language(next(iter(config.languages)))
    return module, tried(module, guesses(module, config))


def tried(module, sets):
    """The first set of arguments that eager runs."""
    problems = []
    for arguments in sets:
        try:
            torch.manual_seed(0)
            with torch.no_grad():
                module(**arguments)
            return arguments
        except Exception as problem:
            problems.append(problem)
    raise problems[0]


def names():
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return list(MODEL_MAPPING_NAMES)
