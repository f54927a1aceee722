"""coil import-gguf: tiny files of each quantisation, beside gguf's own dequantisation in transformers' Llama."""

import json
import os
import random
import resource
import subprocess
import sys

import gguf
import numpy as np
import pytest
import torch
import transformers
from gguf import GGMLQuantizationType as Kind
from tokenizers.pre_tokenizers import ByteLevel

import coil
import coil.gguf
import coil.llm
import harness
from coil.gguf._blocks import _BLOCKS, unpacked
from coil.gguf._codebooks import CODEBOOKS
from coil.gguf._store import Store

WIDTH, INNER, HEADS, KEY_HEADS, SIZE, LAYERS, VOCABULARY, CONTEXT = 256, 512, 4, 2, 64, 2, 300, 48
KINDS = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
BLOCKS = {"Q4_K": (144, (0, 2)), "Q5_K": (176, (0, 2)), "Q6_K": (210, (208,)), "Q2_K": (84, (80, 82)), "IQ4_XS": (136, (0,))}  # of 256 numbers; where their float16s are


def quantised(values, kind, rng):
    """Bytes of the file. gguf writes no blocks of K types: any bytes are one, with scales that give numbers of a weight's size."""
    if kind not in BLOCKS:
        return gguf.quants.quantize(values, Kind[kind])
    size, halves = BLOCKS[kind]
    blocks = rng.integers(0, 256, (values.shape[0], values.shape[1] // 256, size), dtype=np.uint8)
    for at in halves:
        scale = (rng.uniform(0.5, 1, blocks.shape[:2]) * {"Q4_K": 2e-4, "Q5_K": 1e-4, "Q6_K": 3e-5, "Q2_K": 4e-3, "IQ4_XS": 3e-5}[kind]).astype(np.float16)
        blocks[..., at:at + 2] = scale[..., None].view(np.uint8)
    if kind == "Q4_K":
        blocks[0, 0, :16] = 0  # a block whose scales are 0
        blocks[0, 0, 2:4] = np.array([1e-4], np.float16).view(np.uint8)
        blocks[0, 0, 8:12] = 5
    return blocks.reshape(values.shape[0], -1)


def write(path, kind, arch="llama", tied=True, tokenizer=False, leave_out=(), extra=(), numbers=()):
    """A file, and what gguf says its tensors are."""
    rng = np.random.default_rng(7)
    writer, floats = gguf.GGUFWriter(path, arch), {}
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    for name, value in numbers:
        writer.kv_data[0].pop(f"{arch}.{name}", None)
        (writer.add_string if isinstance(value, str) else writer.add_uint32)(f"{arch}.{name}", value)
    if tokenizer:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        letters = sorted(ByteLevel.alphabet())
        writer.add_token_list([*letters, "he", *(f"<{i}>" for i in range(VOCABULARY - len(letters) - 1))])
        writer.add_token_types([1] * VOCABULARY)
        writer.add_token_merges(["h e"])
        writer.add_bos_token_id(256)
        writer.add_eos_token_id(257)

    def add(name, *shape, scale=0.0):
        if name in leave_out:
            return
        if len(shape) == 1:
            floats[name] = values = (1 + rng.standard_normal(shape) * 0.1).astype(np.float32) if not name.endswith("bias") else rng.standard_normal(shape).astype(np.float32)
            writer.add_tensor(name, values)
            return
        data = quantised((rng.standard_normal(shape) * scale).astype(np.float32), kind, rng)
        floats[name] = gguf.quants.dequantize(data, Kind[kind]).astype(np.float32)
        writer.add_tensor(name, data, raw_dtype=Kind[kind])

    add("token_embd.weight", VOCABULARY, WIDTH, scale=1.0)
    add("output_norm.weight", WIDTH)
    if not tied:
        add("output.weight", VOCABULARY, WIDTH, scale=0.1)
    for i in range(LAYERS):
        b = f"blk.{i}."
        add(b + "attn_norm.weight", WIDTH)
        add(b + "ffn_norm.weight", WIDTH)
        for part, heads in (("q", HEADS), ("k", KEY_HEADS), ("v", KEY_HEADS)):
            add(f"{b}attn_{part}.weight", heads * SIZE, WIDTH, scale=0.1)
            if arch == "qwen2":
                add(f"{b}attn_{part}.bias", heads * SIZE)
            if arch == "qwen3" and part != "v":
                add(f"{b}attn_{part}_norm.weight", SIZE)
        add(b + "attn_output.weight", WIDTH, HEADS * SIZE, scale=0.1)
        add(b + "ffn_gate.weight", INNER, WIDTH, scale=0.1)
        add(b + "ffn_up.weight", INNER, WIDTH, scale=0.1)
        add(b + "ffn_down.weight", WIDTH, INNER, scale=0.1)
    for name in extra:
        add(name, 64, WIDTH, scale=0.1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return floats


NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
         "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}


def reference(floats, arch):
    """transformers' model with these weights. Llama's files have the two parts of each complex number of q and k side by side."""
    config = transformers.AutoConfig.for_model(arch, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS,
                                               head_dim=SIZE, vocab_size=VOCABULARY, rms_norm_eps=1e-5, max_position_embeddings=CONTEXT, tie_word_embeddings="output.weight" not in floats)
    model, state = transformers.AutoModelForCausalLM.from_config(config).float().eval(), {}
    for name, value in floats.items():
        prefix, rest = ("model.layers.{}.".format(name.split(".")[1]), name.split(".", 2)[2]) if name.startswith("blk.") else ("", name)
        stem, kind = rest.rsplit(".", 1)
        value = torch.from_numpy(value)
        if arch == "llama" and stem in ("attn_q", "attn_k"):
            value = value.reshape(-1, SIZE // 2, 2, WIDTH).transpose(1, 2).reshape(-1, WIDTH)
        state[f"{prefix}{NAMES[stem]}.{kind}"] = value
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all("lm_head" in m for m in missing), (missing, unexpected)
    model.tie_weights()
    return model


@pytest.fixture(autouse=True)
def python(monkeypatch):
    """The command runs this Python, with the coil that is tested."""
    monkeypatch.setenv("COIL_TORCH", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(harness.PYTHON_PATH))


IDS = torch.tensor([[3, 14, 159, 26, 5, 35, 89, 79]])


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_are_taken_apart(kind, tmp_path):
    floats = write(tmp_path / "m.gguf", kind)
    for tensor in gguf.GGUFReader(tmp_path / "m.gguf").tensors:
        rows, want = unpacked(tensor), floats[tensor.name]
        if not isinstance(rows, torch.Tensor):
            q = rows.numbers.reshape(want.shape[0], -1, rows.group).astype(np.float32)
            rows = ((q - (0 if rows.zero is None else rows.zero[..., None])) * rows.scale.astype(np.float32)[..., None]).reshape(want.shape)
        np.testing.assert_allclose(rows, want, rtol=1e-5, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize("kind", sorted(CODEBOOKS))
def test_codebooks_are_looked_up(kind):
    """Any bytes are a block of these: what gguf makes of them is whole numbers times scales, bit for bit (beside numbers that are added)."""
    size, take_apart = _BLOCKS[kind]
    blocks = np.random.default_rng(3).integers(0, 256, (3, 100, size), dtype=np.uint8)
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(blocks.reshape(300, size), Kind[kind])
        numbers, scale, zero = take_apart(blocks)
        found = ((numbers - (np.float32(0) if zero is None else zero[..., None])) * scale.astype(np.float32)[..., None]).reshape(want.shape)
    finite = np.isfinite(want).all(1)
    assert finite.sum() > 200 and numbers.dtype == np.int8 and len(np.unique(numbers)) <= 16
    most = np.abs(want[finite]).max(1, keepdims=True)
    assert (np.abs(found[finite] - want[finite]) <= (most * 2e-7 if zero is not None else 0)).all()


@pytest.mark.parametrize("kind,arch,tied", [("Q2_K", "llama", True), ("IQ4_XS", "llama", False), ("F16", "llama", True), ("Q4_0", "llama", True), ("Q8_0", "qwen2", False), ("Q4_K", "llama", False), ("Q6_K", "qwen3", True), ("Q5_1", "llama", True)])
def test_logits_are_those_of_the_dequantised_model(kind, arch, tied, tmp_path):
    floats = write(tmp_path / "m.gguf", kind, arch, tied)
    told = harness.coil_ok("import-gguf", tmp_path / "m.gguf", "-o", tmp_path / "m.coil.pt2", "-O", "1").stdout
    assert "m.coil.pt2" in told
    model, package = reference(floats, arch), coil.load(tmp_path / "m.coil.pt2")
    assert package.programs == ["prefill", "decode", "prefill_last"]
    with torch.no_grad():
        want = model(IDS).logits
    torch.testing.assert_close(package(IDS, torch.arange(8)), want, rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(package["prefill_last"](IDS, torch.arange(8)), want[:, -1:], rtol=2e-3, atol=2e-3)
    made = package["decode"].new_state()
    for place in range(8):
        torch.testing.assert_close(made(IDS[:, place:place + 1], torch.tensor([place])), want[:, place:place + 1], rtol=2e-3, atol=2e-3)
    found = coil.llm.Generator(package).generate(IDS[0].tolist(), 10)
    eager = model.generate(IDS, max_new_tokens=10, do_sample=False, eos_token_id=None, pad_token_id=0)[0, 8:].tolist()
    assert found == eager
    assert coil.llm.Generator(package).generate([*found, *found, *found], 10, draft=4) == coil.llm.Generator(package).generate([*found, *found, *found], 10)
    shown = harness.coil_ok("inspect", tmp_path / "m.coil.pt2", "--program", "decode", "--json").stdout
    constants, numbers = json.loads(shown)["memory"]["constants_bytes"], sum(v.size for v in floats.values())
    most = {"Q2_K": 1.3, "IQ4_XS": 1.1, "Q4_0": 1.1, "Q4_K": 1.4, "Q8_0": 1.4, "Q6_K": 1.9}.get(kind)  # bytes a number: packed, with its scales; an embedding stands there beside
    assert most is None or constants < (most + 0.3) * numbers, constants / numbers


@pytest.mark.parametrize("kind,tied", [("Q4_0", True), ("Q8_0", True), ("Q4_K", False), ("Q6_K", True), ("Q4_1", True), ("Q5_0", False)])
def test_activations_in_8_bits(kind, tied, tmp_path):
    """Near the logits of the dequantised model, the same for a prompt and token by token, and nothing is kept twice."""
    floats = write(tmp_path / "m.gguf", kind, "llama", tied)
    harness.coil_ok("import-gguf", tmp_path / "m.gguf", "-o", tmp_path / "m.coil.pt2", "-O", "1", "--activations", "int8")
    model, package = reference(floats, "llama"), coil.load(tmp_path / "m.coil.pt2")
    with torch.no_grad():
        want = model(IDS).logits
    found = package(IDS, torch.arange(8))
    assert 1e-4 < (found - want).abs().max() / want.abs().max() < 0.1
    made = package["decode"].new_state()
    for place in range(8):
        torch.testing.assert_close(made(IDS[:, place:place + 1], torch.tensor([place])), found[:, place:place + 1], rtol=2e-2, atol=2e-2 * want.abs().max().item())
    shown = harness.coil_ok("inspect", tmp_path / "m.coil.pt2", "--program", "decode", "--json").stdout
    constants, numbers = json.loads(shown)["memory"]["constants_bytes"], sum(v.size for v in floats.values())
    assert constants < {"Q4_0": 0.65, "Q8_0": 1.15, "Q4_K": 0.9, "Q6_K": 1.3, "Q4_1": 0.75, "Q5_0": 1.2}[kind] * numbers, constants / numbers


def test_tokenizer_comes_along(tmp_path):
    write(tmp_path / "m.gguf", "Q8_0", tokenizer=True)
    path = coil.gguf.import_gguf(tmp_path / "m.gguf", tmp_path / "m.coil.pt2", context=16, options={"opt_level": 1})
    assert path == str(tmp_path / "m.tokenizer.json")
    generator = coil.llm.Generator(tmp_path / "m.coil.pt2", tokenizer=path)
    assert generator.codec.encode("ab") == generator.codec.encode("a") + generator.codec.encode("b")
    assert len(generator.generate("hello", 3)) > 0


@pytest.mark.parametrize("options,code,text", [
    (dict(arch="mamba"), 105, "architecture is 'mamba'"),
    (dict(leave_out=("blk.1.ffn_up.weight",)), 13, "no tensor 'blk.1.ffn_up.weight'"),
    (dict(extra=("blk.0.ffn_gate_inp.weight",)), 105, "'blk.0.ffn_gate_inp.weight'"),
    (dict(arch="qwen2", numbers=(("expert_count", 8),)), 105, "mixture of experts"),
    (dict(numbers=(("expert_count", 8),)), 13, "llama.expert_used_count"),
    (dict(numbers=(("expert_count", 2), ("expert_used_count", 3))), 13, "3 of 2 experts"),
    (dict(numbers=(("expert_count", 64), ("expert_used_count", 2)), extra=("blk.0.ffn_gate_inp.weight",), leave_out=[f"blk.0.ffn_{c}.weight" for c in ("gate", "up", "down")]), 13,
     "no tensor 'blk.0.ffn_down_exps.weight'"),
    (dict(numbers=(("expert_count", 64), ("expert_used_count", 2)), extra=("blk.0.ffn_gate_inp.weight",)), 105, "'blk.0.ffn_down.weight'"),
    (dict(numbers=(("rope.scaling.type", "dynamic"),)), 105, "'dynamic'"),
    (dict(numbers=(("attention.value_length", 32),)), 105, "values have another size"),
    (dict(numbers=(("rope.dimension_count", 66),)), 13, "66 are turned"),
    (dict(arch="gemma2"), 13, "no tensor 'blk.0.post_attention_norm.weight'"),
    (dict(arch="starcoder2", leave_out=[f"blk.{i}.ffn_gate.weight" for i in range(2)]), 13, "starcoder2.attention.layer_norm_epsilon"),
])
def test_other_models_are_refused(options, code, text, tmp_path):
    write(tmp_path / "m.gguf", "F32", **options)
    with pytest.raises(coil.Error, match=f"COIL-E{code:03d}.*{text}"):
        coil.gguf.load_gguf(tmp_path / "m.gguf")


@pytest.mark.parametrize("kind,size,width,tied", [("Q4_0", 96, 192, True), ("IQ4_NL", 80, 320, False)])
def test_odd_heads(kind, size, width, tied, tmp_path, monkeypatch):
    """Sizes of heads that no vector divides, heads that are together wider than the model, and numbers of a codebook."""
    monkeypatch.setattr(sys.modules[__name__], "SIZE", size)
    monkeypatch.setattr(sys.modules[__name__], "WIDTH", width)
    if kind == "IQ4_NL":  # gguf writes none: all blocks are some
        monkeypatch.setattr(sys.modules[__name__], "quantised", lambda values, kind, rng: iq4_nl(values, rng))
    floats = write(tmp_path / "m.gguf", kind, "llama", tied, numbers=[("attention.key_length", size), ("attention.value_length", size)])
    coil.gguf.import_gguf(tmp_path / "m.gguf", tmp_path / "m.coil.pt2", options={"opt_level": 1})
    with torch.no_grad():
        want = reference(floats, "llama")(IDS).logits
    torch.testing.assert_close(coil.load(tmp_path / "m.coil.pt2")(IDS, torch.arange(8)), want, rtol=2e-3, atol=2e-3)


def iq4_nl(values, rng):
    blocks = rng.integers(0, 256, (values.shape[0], values.shape[1] // 32, 18), dtype=np.uint8)
    blocks[..., :2] = (rng.uniform(0.5, 1, blocks.shape[:2]) * 2e-3).astype(np.float16)[..., None].view(np.uint8)
    return blocks.reshape(values.shape[0], -1)


@pytest.mark.parametrize("kind", ["F64", "I8", "Q8_K"])
def test_types_that_are_not_read(kind, tmp_path, monkeypatch):
    block, size = gguf.GGML_QUANT_SIZES[Kind[kind]]
    monkeypatch.setattr(sys.modules[__name__], "quantised", lambda values, kind, rng: np.zeros((values.shape[0], values.shape[1] // block * size), np.uint8))
    monkeypatch.setattr(gguf.quants, "dequantize", lambda data, kind, known=gguf.quants.dequantize: known(data, kind) if data.size == 0 else np.zeros(1))
    write(tmp_path / "m.gguf", kind)
    with pytest.raises(coil.Error, match=f"COIL-E105: .*'token_embd.weight' is of the type {kind}"):
        coil.gguf.load_gguf(tmp_path / "m.gguf")


@pytest.mark.parametrize("change,text", [
    (lambda b: b"", "is empty"), (lambda b: b[:3], "ends after 3 bytes"), (lambda b: b[:7], "ends after 7 bytes"), (lambda b: b[:100], "ends too early"), (lambda b: b[:-1], "ends too early"),
    (lambda b: b"PK" + b[2:], "letters GGUF"), (lambda b: bytes(100), "letters GGUF"), (lambda b: b[:4] + b[4:8][::-1] + b[8:], "big endian"),
    (lambda b: b[:4] + bytes([1, 0, 0, 0]) + b[8:], "version 1"), (lambda b: b[:4] + bytes([9, 0, 0, 0]) + b[8:], "version 9"),
])
def test_what_is_wrong_is_said(change, text, tmp_path):
    write(tmp_path / "m.gguf", "Q8_0")
    (tmp_path / "x.gguf").write_bytes(change((tmp_path / "m.gguf").read_bytes()))
    with pytest.raises(coil.Error, match=f"COIL-E013: .*{text}"):
        coil.gguf.load_gguf(tmp_path / "x.gguf")


def test_damaged_files_are_named(tmp_path):
    """Bytes in front of the weights changed by chance: a model all the same, or an error with a code."""
    write(tmp_path / "m.gguf", "Q8_0")
    whole, chance, named = (tmp_path / "m.gguf").read_bytes(), np.random.default_rng(3), 0
    head = whole.index(b"blk.1.ffn_down.weight") + 60
    for _ in range(150):
        changed = bytearray(whole)
        for at in chance.integers(0, head, chance.integers(1, 4)):
            changed[at] = chance.choice([0, 1, 127, 255, chance.integers(0, 256)])
        (tmp_path / "changed.gguf").write_bytes(changed)
        try:
            coil.gguf.load_gguf(tmp_path / "changed.gguf")
        except coil.Error as error:
            named += error.number in (13, 105)
    assert named > 50
    for numbers, text in (((("attention.head_count", 2),), "sizes"), ((("block_count", 4000000),), "4000000 layers"), ((("attention.head_count_kv", 0),), "is 0")):
        write(tmp_path / "wrong.gguf", "F32", numbers=numbers)
        with pytest.raises(coil.Error, match=f"COIL-E013.*{text}"):
            coil.gguf.load_gguf(tmp_path / "wrong.gguf")


def mutated(content, rng):
    """Another file: bytes, counts and kinds of the part before the weights are other ones, or the end is missing."""
    head = content.find(b"blk.1") + 3000
    for _ in range(rng.randint(1, 3)):
        at, choice = rng.randrange(min(head, len(content) - 8)), rng.random()
        if choice < 0.4:
            content[at] = rng.randrange(256)
        elif choice < 0.7:
            content[at:at + 8] = rng.choice([0, 1, 2**31, 2**32, 2**40, 2**63 - 1, 2**64 - 1]).to_bytes(8, "little")
        elif choice < 0.85:
            content[at:at + 4] = rng.choice([0, 8, 9, 12, 99, 2**31, 2**32 - 1]).to_bytes(4, "little")
        else:
            del content[rng.randrange(24, len(content)):]
            break
    return content


def test_mutated_files(tmp_path):
    """Each is read as it stands or named as damaged; COIL_FUZZ_FILES says how many."""
    from coil.gguf._forms import shape_of
    from coil.gguf._read import open_file, weights_of

    write(str(tmp_path / "good.gguf"), "Q4_K", tokenizer=True)
    good, rng, path = (tmp_path / "good.gguf").read_bytes(), random.Random(int(os.environ.get("COIL_FUZZ_SEED", 1))), tmp_path / "x.gguf"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(int(os.environ.get("COIL_FUZZ_FILES", 40))):
        path.write_bytes(mutated(bytearray(good), rng))
        try:
            reader = open_file(path)
            weights_of(reader, shape_of(reader, str(path)), str(path), Store(), torch.float32)
        except coil.Error as error:
            assert "COIL-E" in str(error)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10, "KB"


def test_errors_of_the_command(tmp_path):
    write(tmp_path / "m.gguf", "F32")
    whole = (tmp_path / "m.gguf").read_bytes()
    harness.assert_refused(harness.coil("import-gguf", tmp_path / "none.gguf", "-o", tmp_path / "x.pt2"), code=1)
    for cut in (0, 3, 20, 200, len(whole) // 2):
        (tmp_path / "cut.gguf").write_bytes(whole[:cut])
        with pytest.raises(coil.Error, match="COIL-E013"):
            coil.gguf.load_gguf(tmp_path / "cut.gguf")
    harness.assert_refused(harness.coil("import-gguf", tmp_path / "cut.gguf", "-o", tmp_path / "x.pt2"), code=13)
    harness.assert_refused(harness.coil("import-gguf", tmp_path / "m.gguf", "-o", tmp_path / "x.pt2", "--context", "100"), "trained for", code=402)
    assert not (tmp_path / "x.pt2").exists()
    (tmp_path / "without/gguf").mkdir(parents=True)
    (tmp_path / "without/gguf/__init__.py").write_text("raise ImportError('none here')")
    path = os.pathsep.join([str(tmp_path / "without"), os.path.dirname(os.path.dirname(coil.__file__))])
    done = subprocess.run([sys.executable, "-m", "coil.gguf", tmp_path / "m.gguf", "-o", tmp_path / "x.pt2"], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=path))
    assert done.returncode == 1 and "COIL-E402: reading GGUF files needs the Python package gguf" in done.stderr and "pip install gguf" in done.stderr
