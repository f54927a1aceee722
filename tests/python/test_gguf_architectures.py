"""coil import-gguf: architectures beside transformers' eager models with the same random weights, files as convert_hf_to_gguf.py writes them."""

import re

import gguf
import numpy as np
import pytest
import torch
import transformers

import coil
import coil.gguf
import coil.llm

WIDTH, INNER, HEADS, SIZE, VOCABULARY, CONTEXT = 64, 96, 4, 16, 120, 64
BASE = dict(hidden_size=WIDTH, intermediate_size=INNER, num_attention_heads=HEADS, num_key_value_heads=2, vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, num_hidden_layers=3)


class Case:
    """arch: of the file; config: beside BASE; head: numbers of the file's head; permuted: q and k are written with pairs side by side; more: what norms' weights
    are less by in transformers."""

    def __init__(self, arch, model=None, config=None, head=None, permuted=False, more=0.0, drop=(), fused=False, **shape):
        self.arch, self.model, self.config, self.permuted, self.more, self.drop = arch, model or arch, {**(config or {}), **shape}, permuted, more, drop
        self.head, self.fused = head or {}, fused


RMS, LAYER = {"attention.layer_norm_rms_epsilon": 1e-5}, {"attention.layer_norm_epsilon": 1e-5}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
LONG = {"rope_type": "longrope", "short_factor": [1.0 + i / 9 for i in range(8)], "long_factor": [2.0 + i / 3 for i in range(8)], "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 16}
CASES = {
    "llama": Case("llama", head=RMS, permuted=True, rms_norm_eps=1e-5),
    "llama_bias": Case("llama", head=RMS, permuted=True, rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True),
    "llama_yarn": Case("llama", head={**RMS, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16}, permuted=True, rms_norm_eps=1e-5,
                       rope_parameters=YARN),
    "llama_heads_of_80": Case("llama", head={**RMS, "attention.key_length": 80, "attention.value_length": 80, "rope.dimension_count": 80}, permuted=True, rms_norm_eps=1e-5, head_dim=80),
    "qwen2": Case("qwen2", head=RMS, rms_norm_eps=1e-5),
    "qwen3": Case("qwen3", head={**RMS, "attention.key_length": 16, "attention.value_length": 16}, rms_norm_eps=1e-5, head_dim=16),
    "mixtral": Case("llama", "mixtral", head={**RMS, "expert_count": 5, "expert_used_count": 2}, permuted=True, rms_norm_eps=1e-5, num_local_experts=5, num_experts_per_tok=2,
                    rope_parameters=PLAIN),
    "qwen2_moe": Case("qwen2moe", "qwen2_moe", head={**RMS, "expert_count": 6, "expert_used_count": 3}, rms_norm_eps=1e-5, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32,
                      shared_expert_intermediate_size=INNER),
    "qwen3_moe": Case("qwen3moe", "qwen3_moe", head={**RMS, "expert_count": 6, "expert_used_count": 3, "attention.key_length": 16, "attention.value_length": 16}, rms_norm_eps=1e-5, head_dim=16,
                      num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=True),
    "qwen3_moe_one_expert": Case("qwen3moe", "qwen3_moe", head={**RMS, "expert_count": 4, "expert_used_count": 1}, rms_norm_eps=1e-5, head_dim=16, num_experts=4, num_experts_per_tok=1,
                                 moe_intermediate_size=32, norm_topk_prob=True),
    "granitemoe": Case("granitemoe", head={**RMS, "embedding_scale": 12.0, "residual_scale": 0.3, "attention.scale": 0.1, "logit_scale": 4.0, "expert_count": 5, "expert_used_count": 2}, permuted=True,
                       rms_norm_eps=1e-5, embedding_multiplier=12.0, residual_multiplier=0.3, attention_multiplier=0.1, logits_scaling=4.0, num_local_experts=5, num_experts_per_tok=2),
    "granitemoeshared": Case("granitemoe", "granitemoeshared", head={**RMS, "embedding_scale": 12.0, "residual_scale": 0.3, "attention.scale": 0.1, "logit_scale": 4.0, "expert_count": 5,
                                                                     "expert_used_count": 2}, permuted=True, rms_norm_eps=1e-5, embedding_multiplier=12.0, residual_multiplier=0.3,
                             attention_multiplier=0.1, logits_scaling=4.0, num_local_experts=5, num_experts_per_tok=2, shared_intermediate_size=32),
    "olmoe_fused": Case("olmoe", head={**RMS, "expert_count": 5, "expert_used_count": 2}, rms_norm_eps=1e-5, num_experts=5, num_experts_per_tok=2, fused=True),
    "olmoe": Case("olmoe", head={**RMS, "expert_count": 5, "expert_used_count": 2}, rms_norm_eps=1e-5, num_experts=5, num_experts_per_tok=2),
    "arcee": Case("arcee", head=RMS, permuted=True, rms_norm_eps=1e-5),
    "cohere": Case("command-r", "cohere", head={**LAYER, "logit_scale": 0.25}, logit_scale=0.25, layer_norm_eps=1e-5, tie_word_embeddings=True, rope_parameters=PLAIN),
    "cohere2": Case("cohere2", head={**LAYER, "logit_scale": 0.25, "attention.sliding_window": 9}, logit_scale=0.25, layer_norm_eps=1e-5, sliding_window=9, num_hidden_layers=8, sliding_window_pattern=4,
                    tie_word_embeddings=True),
    "ernie4_5": Case("ernie4_5", head=RMS, rms_norm_eps=1e-5, head_dim=16, rope_parameters=PLAIN, tie_word_embeddings=True),
    "exaone4": Case("exaone4", head={**RMS, "attention.sliding_window": 9}, rms_norm_eps=1e-5, sliding_window=9, sliding_window_pattern=4, num_hidden_layers=8, head_dim=16),
    "gemma": Case("gemma", head={**RMS, "attention.key_length": 32, "attention.value_length": 32}, more=1.0, rms_norm_eps=1e-5, head_dim=32),
    "gemma2": Case("gemma2", head={**RMS, "attention.key_length": 32, "attention.value_length": 32, "attention.sliding_window": 9, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}, more=1.0,
                   rms_norm_eps=1e-5, head_dim=32, query_pre_attn_scalar=32, sliding_window=9, attn_logit_softcapping=5.0, final_logit_softcapping=3.0, num_hidden_layers=5),
    "gemma3": Case("gemma3", "gemma3_text", head={**RMS, "attention.key_length": 32, "attention.value_length": 32, "attention.sliding_window": 9, "rope.freq_base": 1e6, "rope.scaling.type": "linear",
                                                  "rope.scaling.factor": 8.0},
                   more=1.0, rms_norm_eps=1e-5, head_dim=32, query_pre_attn_scalar=32, sliding_window=9, num_hidden_layers=13,
                   rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
    "glm4": Case("glm4", head={**RMS, "rope.dimension_count": 8}, rms_norm_eps=1e-5, head_dim=16, partial_rotary_factor=0.5, attention_bias=True, pad_token_id=0),
    "granite": Case("granite", head={**RMS, "embedding_scale": 12.0, "residual_scale": 0.3, "attention.scale": 0.1, "logit_scale": 4.0}, permuted=True, rms_norm_eps=1e-5, embedding_multiplier=12.0,
                    residual_multiplier=0.3, attention_multiplier=0.1, logits_scaling=4.0),
    "nemotron": Case("nemotron", head={**LAYER, "rope.dimension_count": 8}, more=1.0, norm_eps=1e-5, partial_rotary_factor=0.5, head_dim=16),
    "olmo": Case("olmo", head={**LAYER, "attention.clamp_kqv": 0.5}, permuted=True, clip_qkv=0.5),
    "olmo2": Case("olmo2", head=RMS, rms_norm_eps=1e-5),
    "phi": Case("phi2", "phi", head={**LAYER, "rope.dimension_count": 8}, layer_norm_eps=1e-5, partial_rotary_factor=0.5),
    "phi3": Case("phi3", head={**RMS, "attention.sliding_window": 9}, rms_norm_eps=1e-5, sliding_window=9, pad_token_id=0),
    "phi3_longrope": Case("phi3", head={**RMS, "rope.scaling.original_context_length": 16, "rope.scaling.attn_factor": (1 + np.log(4) / np.log(16)) ** 0.5}, rms_norm_eps=1e-5, pad_token_id=0,
                          rope_parameters=LONG, original_max_position_embeddings=16),
    "smollm3": Case("smollm3", head=RMS, permuted=True, rms_norm_eps=1e-5, num_hidden_layers=8, pad_token_id=0, rope_parameters=PLAIN),
    "stablelm": Case("stablelm", head={**LAYER, "rope.dimension_count": 8}, layer_norm_eps=1e-5, partial_rotary_factor=0.5, use_qkv_bias=True),
    "stablelm_parallel": Case("stablelm", head=LAYER, layer_norm_eps=1e-5, partial_rotary_factor=1.0, use_parallel_residual=True),
    "starcoder2": Case("starcoder2", head=LAYER, norm_epsilon=1e-5),
    "gpt2": Case("gpt2", head={**LAYER, "attention.head_count_kv": HEADS}, num_key_value_heads=HEADS, n_embd=WIDTH, n_inner=INNER, n_head=HEADS, n_layer=3, n_positions=CONTEXT),
    "gptneox": Case("gptneox", "gpt_neox", head={**LAYER, "rope.dimension_count": 8}, num_key_value_heads=HEADS, rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
    "falcon": Case("falcon", head=LAYER, parallel_attn=True, multi_query=True, alibi=False, new_decoder_architecture=False, num_kv_heads=1),
}


def hugging_face(case):
    torch.manual_seed(3)
    known = {k: v for k, v in {**BASE, **case.config}.items() if v is not None}
    config = transformers.AutoConfig.for_model(case.model, bos_token_id=1, eos_token_id=2, **known)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, 0.15 if parameter.ndim > 1 else 0.3)
            if "norm" in name and name.endswith("weight") or re.search(r"ln_\w+\.weight", name):
                parameter.add_(1 - case.more)
    model.tie_weights()
    return model


def halves_to_pairs(data, heads):
    """As the converter permutes q and k."""
    return data.reshape(heads, 2, -1, *data.shape[1:]).swapaxes(1, 2).reshape(data.shape)


CUT = ("experts.gate_up_proj", "shared_mlp.input_linear.weight")  # gate and up are one matrix


def layer_of(name):
    return f"blk.{re.search(r'[.]([0-9]+)[.]', name)[1]}."


def written(case, model, path, kind=None):
    config, arch = model.config, case.arch
    heads, key_heads = config.num_attention_heads, case.head.pop("key_heads", None) or getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    if arch == "falcon":
        key_heads = 1
    writer = gguf.GGUFWriter(path, arch)
    numbers = {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": config.num_hidden_layers, "feed_forward_length": INNER, "attention.head_count": heads,
               "attention.head_count_kv": key_heads, "rope.freq_base": 10000.0, **case.head}
    for name, value in numbers.items():
        {int: writer.add_uint32, str: writer.add_string}.get(type(value), writer.add_float32)(f"{arch}.{name}", value)
    names = gguf.get_tensor_name_map(next(a for a, n in gguf.MODEL_ARCH_NAMES.items() if n == arch), config.num_hidden_layers)
    tied = getattr(config, "tie_word_embeddings", False)

    def add(new, data):
        data = np.ascontiguousarray(data)
        if kind and data.ndim >= 2 and "norm" not in new and "gate_inp" not in new:
            writer.add_tensor(new, gguf.quants.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(new, data)

    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and tied or name.endswith((".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq", ".attention.bias")):
            continue
        data = tensor.float().numpy()
        cut = {"experts.gate_up_proj": "exps", "shared_mlp.input_linear.weight": "shexp"}.get(next((e for e in CUT if name.endswith(e)), ""))
        if cut and not case.fused:  # as the converter does
            for part, half in zip(("gate", "up"), np.split(data, 2, axis=-2)):
                add(f"{layer_of(name)}ffn_{part}_{cut}.weight", half)
            continue
        own = {"experts.gate_up_proj": "ffn_gate_up_exps", "experts.down_proj": "ffn_down_exps", "shared_mlp.output_linear.weight": "ffn_down_shexp"}
        known = next((own[e] for e in own if name.endswith(e)), None)
        new = f"{layer_of(name)}{known}.weight" if known else names.get_name(name.replace("moe.router", "moe.gate"), try_suffixes=(".weight", ".bias"))
        assert new, name
        if "shexp" in new and data.shape[0] == 1:
            data = data[0]
        if case.more and "norm" in name and name.endswith("weight"):
            data = data + np.float32(case.more)
        if case.model == "gpt2" and re.search(r"(c_attn|c_proj|c_fc)\.weight", name):
            data = data.T
        if case.model == "gpt_neox" and "query_key_value" in name:
            data = data.reshape(heads, 3, -1, *data.shape[1:]).swapaxes(0, 1).reshape(data.shape)
        if case.permuted and (part := re.search(r"attn_([qk])\.", new)):
            data = halves_to_pairs(data, heads if part[1] == "q" else key_heads)
        add(new, data)
    rope = getattr(config, "rope_parameters", None) or {}
    for which in ("long", "short"):
        if f"{which}_factor" in rope:
            writer.add_tensor(f"rope_factors_{which}.weight", np.array(rope[f"{which}_factor"], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


IDS = torch.tensor([[(7 * i * i + 3 * i + 5) % VOCABULARY for i in range(24)]])


@pytest.mark.parametrize("name", CASES)
def test_logits_are_those_of_transformers(name, tmp_path):
    case = CASES[name]
    model = hugging_face(case)
    written(case, model, tmp_path / "m.gguf")
    with torch.no_grad():
        want = model(IDS).logits
        decoder = coil.gguf.load_gguf(tmp_path / "m.gguf")
        torch.testing.assert_close(decoder(IDS, torch.arange(IDS.shape[1])), want, rtol=2e-4, atol=2e-4 * want.abs().max().item())
        single = [decoder(IDS[:, i:i + 1], torch.tensor([i])) for i in range(IDS.shape[1])]  # over the caches of before, of which only rows up to a token are seen
    torch.testing.assert_close(torch.cat(single, 1), want, rtol=2e-4, atol=2e-4 * want.abs().max().item())


@pytest.mark.parametrize("name", ["gemma2", "gemma3", "cohere2", "phi3", "mixtral", "qwen2_moe"])
def test_packages_generate_what_transformers_does(name, tmp_path):
    """With weights of 8 bits: those of the file, dequantised, are transformers'."""
    case = CASES[name]
    model = hugging_face(case)
    kind = gguf.GGMLQuantizationType.Q8_0
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.ndim >= 2 and "norm" not in key and not re.search(r"\bgate\.|router|expert_gate", key):
                parameter.copy_(torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(parameter.numpy(), kind), kind).astype(np.float32)))
    written(case, model, tmp_path / "m.gguf", kind)
    coil.gguf.import_gguf(tmp_path / "m.gguf", tmp_path / "m.coil.pt2", options={"opt_level": 1})
    package = coil.load(tmp_path / "m.coil.pt2", program="prefill")
    with torch.no_grad():
        want = model(IDS).logits
        torch.testing.assert_close(package(IDS, torch.arange(IDS.shape[1])), want, rtol=2e-3, atol=2e-3 * want.abs().max().item())
        tokens = IDS
        for _ in range(12):
            tokens = torch.cat([tokens, model(tokens).logits[:, -1:].argmax(-1)], 1)
    talk = coil.llm.Generator(tmp_path / "m.coil.pt2").conversation(IDS[0].tolist())
    assert list(talk.generate(12)) == tokens[0, IDS.shape[1]:].tolist()
