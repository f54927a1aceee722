"""Decoders of transformers, small, with the layers of the real ones and a static cache of 64 rows, and what eager generates with them."""

import torch

ROWS = 64  # of the cache


def decoder(family, **sizes):
    """The module that transformers exports: tokens [1, n] and their places to logits. `sizes`: of its configuration; None leaves one out."""
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 211, "intermediate_size": 96,
             "max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **sizes}
    config = transformers.AutoConfig.for_model(family, **{k: v for k, v in sizes.items() if v is not None})
    config._attn_implementation = "sdpa"
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(3)
    model.generation_config = transformers.GenerationConfig(use_cache=True, cache_implementation="static", max_length=ROWS,
                                                            cache_config={"batch_size": 1, "max_cache_len": ROWS})
    model.generation_config.pad_token_id = 0
    return model


def greedy(module, prompt, count):
    """The tokens behind the prompt that eager finds, one by one."""
    tokens, new = list(prompt), list(prompt)
    with torch.no_grad():
        while len(tokens) < len(prompt) + count:
            logits = module(input_ids=torch.tensor([new]), cache_position=torch.arange(len(tokens) - len(new), len(tokens)))
            new = [int(logits[0, -1].argmax())]
            tokens += new
    return tokens[len(prompt):]
