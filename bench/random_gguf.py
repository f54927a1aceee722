"""Models of Llama's structure with random weights as GGUF files, for bench/llm.py: what llama.cpp and `coil import-gguf` both read.

usage: python bench/random_gguf.py SHAPE TYPE FILE.gguf      (shapes: bench/llm_shapes.py; types: f32, bf16, q8_0, q4_0, ...)
"""

import argparse

_ROWS = 4096  # that are made at a time: a model of any size takes little memory

_FILE_TYPES = {"F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "BF16": 32}


def _tensors(shape):
    """(name, rows, columns) of each weight, and (name, None, columns) of each norm, in the file's order."""
    hidden, heads, kv, inner = shape["hidden_size"], shape["num_attention_heads"], shape["num_key_value_heads"], shape["intermediate_size"]
    keys = kv * shape.get("head_dim", hidden // heads)
    queries = heads * shape.get("head_dim", hidden // heads)
    yield "token_embd", shape["vocab_size"], hidden
    if not shape.get("tied", True):
        yield "output", shape["vocab_size"], hidden
    yield "output_norm", None, hidden
    for layer in range(shape["num_hidden_layers"]):
        block = f"blk.{layer}."
        yield block + "attn_norm", None, hidden
        yield block + "ffn_norm", None, hidden
        for name, rows, columns in (("attn_q", queries, hidden), ("attn_k", keys, hidden), ("attn_v", keys, hidden), ("attn_output", hidden, queries)):
            yield block + name, rows, columns
        experts = shape.get("num_experts", 0)
        if experts:
            yield block + "ffn_gate_inp", experts, hidden
        for name, rows, columns in (("ffn_gate", inner, hidden), ("ffn_up", inner, hidden), ("ffn_down", hidden, inner)):
            yield block + name + ("_exps" if experts else ""), experts * rows if experts else rows, columns


_DEVIATIONS = {"Q4_0": 4.61, "Q8_0": 73.9, "IQ4_NL": 68.6}  # of the numbers that random bytes are


def _stored(random, rows, columns, kind):
    """Random rows as the type stores them. Blocks of some types are drawn as they lie: quantising takes a large model minutes."""
    import gguf
    import numpy as np

    if kind.name not in _DEVIATIONS:
        return gguf.quants.quantize(random.standard_normal((rows, columns), dtype=np.float32) * np.float32(0.02), kind)
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = np.frombuffer(random.bytes(rows * columns // block * size), np.uint8).reshape(-1, size).copy()
    scales = (random.random(len(blocks), np.float32) + np.float32(0.5)) * np.float32(0.02 / _DEVIATIONS[kind.name])  # equal tables would be stored once
    blocks[:, :2] = scales.astype(np.float16).view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def _add_words(out, count):
    """Bytes first, as tokenizers of bytes need them, then words of their own."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(b) for b in kept] + [chr(256 + i) for i in range(256 - len(kept))]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list([*letters, "he", *(f"<{i}>" for i in range(count - len(letters) - 1))])
    out.add_token_types([1] * count)
    out.add_token_merges(["h e"])
    out.add_bos_token_id(count - 2)
    out.add_eos_token_id(count - 1)
    out.add_pad_token_id(count - 1)
    out.add_add_bos_token(False)
    out.add_chat_template("{{ messages[0].content }}")


def write(shape, kind, path, words=False):
    """`shape`: a row of bench/llm_shapes.py. Embeddings are tied unless it says otherwise, so the file has them once. words: with a tokenizer that knows a word
    for each token."""
    import gguf
    import numpy as np

    hidden, heads, kv = shape["hidden_size"], shape["num_attention_heads"], shape["num_key_value_heads"]
    width = shape.get("head_dim", hidden // heads)
    stored = gguf.GGMLQuantizationType[kind.upper()]
    random = np.random.default_rng(0)
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(2048)
    out.add_embedding_length(hidden)
    out.add_block_count(shape["num_hidden_layers"])
    out.add_feed_forward_length(shape["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(kv)
    out.add_key_length(width)
    out.add_value_length(width)
    out.add_layer_norm_rms_eps(1e-5)
    experts = shape.get("num_experts", 0)
    if experts:
        out.add_expert_count(experts)
        out.add_expert_used_count(shape["num_experts_per_tok"])
    out.add_rope_dimension_count(width)
    out.add_rope_freq_base(10000.0)
    out.add_vocab_size(shape["vocab_size"])
    out.add_file_type(_FILE_TYPES.get(stored.name, 0))
    if words:
        _add_words(out, shape["vocab_size"])
    else:
        out.add_tokenizer_model("no_vocab")
    for name, rows, columns in _tensors(shape):
        if rows is None:
            out.add_tensor_info(name + ".weight", (columns,), np.dtype(np.float32), columns * 4)
            continue
        block, size = gguf.GGML_QUANT_SIZES[stored]
        if columns % block:
            raise ValueError(f"{name}: rows of {columns} do not divide into blocks of {block}")
        line = columns // block * size
        sizes = (experts, rows // experts, line) if name.endswith("_exps") else (rows, line)
        out.add_tensor_info(name + ".weight", sizes, np.dtype(np.uint8), rows * line, raw_dtype=stored)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_ti_data_to_file()
    file = out.fout[0]
    for _, rows, columns in _tensors(shape):
        out.write_padding(file, file.tell())
        for begin in range(0, rows or 1, _ROWS):
            data = np.ones(columns, np.float32) if rows is None else _stored(random, min(_ROWS, rows - begin), columns, stored)
            file.write(memoryview(np.ascontiguousarray(data)).cast("B"))
    out.write_padding(file, file.tell())
    out.close()


def main():
    from llm_shapes import SHAPES

    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("shape", choices=SHAPES)
    arguments.add_argument("type", help="how weights are stored: f32, bf16, q8_0, q4_0, ...")
    arguments.add_argument("file", help="where the model is written")
    given = arguments.parse_args()
    write(SHAPES[given.shape], given.type, given.file)


if __name__ == "__main__":
    main()
