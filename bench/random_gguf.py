"""Models of Llama's structure with random weights as GGUF files, for bench/llm.py: what llama.cpp and `coil import-gguf` both read.

usage: python bench/random_gguf.py SHAPE TYPE FILE.gguf      (shapes: bench/llm.py; types: f32, bf16, q8_0, q4_0, ...)
"""

import argparse


def write(shape, kind, path):
    """`shape`: a row of bench/llm.py's SHAPES. Embeddings are tied, so the file has them once; no tokenizer."""
    import gguf
    import numpy as np

    hidden, heads, kv = shape["hidden_size"], shape["num_attention_heads"], shape["num_key_value_heads"]
    inner, vocabulary, width = shape["intermediate_size"], shape["vocab_size"], hidden // heads
    stored = gguf.GGMLQuantizationType[kind.upper()]
    random = np.random.default_rng(0)
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(2048)
    out.add_embedding_length(hidden)
    out.add_block_count(shape["num_hidden_layers"])
    out.add_feed_forward_length(inner)
    out.add_head_count(heads)
    out.add_head_count_kv(kv)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(width)
    out.add_rope_freq_base(10000.0)
    out.add_vocab_size(vocabulary)
    out.add_tokenizer_model("no_vocab")

    def weight(name, rows, columns):
        values = random.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02)
        out.add_tensor(name + ".weight", gguf.quants.quantize(values, stored), raw_dtype=stored)

    def ones(name):
        out.add_tensor(name + ".weight", np.ones(hidden, np.float32))

    weight("token_embd", vocabulary, hidden)
    ones("output_norm")
    for layer in range(shape["num_hidden_layers"]):
        block = f"blk.{layer}."
        ones(block + "attn_norm")
        ones(block + "ffn_norm")
        for name, rows, columns in (("attn_q", hidden, hidden), ("attn_k", kv * width, hidden), ("attn_v", kv * width, hidden), ("attn_output", hidden, hidden),
                                    ("ffn_gate", inner, hidden), ("ffn_up", inner, hidden), ("ffn_down", hidden, inner)):
            weight(block + name, rows, columns)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    from llm import SHAPES

    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("shape", choices=SHAPES)
    arguments.add_argument("type", help="how weights are stored: f32, bf16, q8_0, q4_0, ...")
    arguments.add_argument("file", help="where the model is written")
    given = arguments.parse_args()
    write(SHAPES[given.shape], given.type, given.file)


if __name__ == "__main__":
    main()
