"""Real shapes of language models, as transformers' LlamaConfig names their sizes, for bench/llm.py and what it compares with."""

SHAPES = {
    "moe": dict(hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, vocab_size=16000, intermediate_size=512, num_experts=32, num_experts_per_tok=4),
    "tiny": dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=500, intermediate_size=128),
    "135m": dict(hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3, vocab_size=49152, intermediate_size=1536),
    "360m": dict(hidden_size=960, num_hidden_layers=32, num_attention_heads=15, num_key_value_heads=5, vocab_size=49152, intermediate_size=2560),
    "1b": dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, intermediate_size=8192),
    "3b": dict(hidden_size=3072, num_hidden_layers=28, num_attention_heads=24, num_key_value_heads=8, vocab_size=128256, intermediate_size=8192),
    "8b": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256, intermediate_size=14336),
}
