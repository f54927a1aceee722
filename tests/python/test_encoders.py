"""Models with an encoder and a decoder: through transformers' exporters, and as packages that coil.llm, `coil generate` and C generate text with."""

import ctypes
import json
import os
import subprocess
import sys
from ctypes import byref, c_int64, c_void_p

import pytest
import torch
import transformers
from transformers.exporters import AutoHfExporter, ExportedModel

import coil
import coil.llm
import coil.transformers
import harness
from coil.llm.serve import make_server
from coil.transformers import CoilConfig

T5 = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "vocab_size": 211, "decoder_start_token_id": 0, "tie_word_embeddings": False}
BART = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
        "vocab_size": 211, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
FAMILIES = {"t5": ("T5", T5), "bart": ("Bart", BART), "whisper": ("Whisper", {**BART, "num_mel_bins": 16, "max_source_positions": 30, "max_target_positions": 64,
                                                                             "begin_suppress_tokens": None, "suppress_tokens": None})}
ROWS = 40  # of the decoder's cache


def model_of(family):
    kind, sizes = FAMILIES[family]
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(getattr(transformers, f"{kind}Config")(**sizes)).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(3)
    for name in ("eos_token_id", "forced_eos_token_id", "forced_bos_token_id"):
        setattr(model.generation_config, name, None)  # random weights end anywhere
    return model


def inputs_of(family, rows, length):
    torch.manual_seed(length)
    if family == "whisper":
        return {"input_features": torch.randn(rows, 16, 60)}
    ids = torch.randint(3, 211, (rows, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@pytest.mark.parametrize("family", FAMILIES)
def test_through_transformers(family, tmp_path):
    model = model_of(family)
    config = CoilConfig(dynamic=True)
    exported = AutoHfExporter.from_config(config).export_for_generation(model, inputs_of(family, 2, 9), config)
    assert list(exported.components) == ["encoder", "prefill", "decode"]
    fast = coil.transformers.for_generation(exported)
    assert not any(p.device.type != "meta" for p in fast.parameters()), "the weights are in the package"
    for rows, length, options in ((2, 9, {}), (3, 14, {}), (2, 5, {"num_beams": 3}), (2, 9, {"do_sample": True, "top_k": 20})):
        inputs, options = inputs_of(family, rows, length), {"max_new_tokens": 32, "do_sample": False, "no_repeat_ngram_size": 2, **options}
        torch.manual_seed(5)
        want = model.generate(**inputs, **options)
        torch.manual_seed(5)
        assert fast.generate(**inputs, **options).tolist() == want.tolist()
    assert len(set(want[0].tolist())) > 5, "a model that says one thing proves little"
    if family == "t5":
        exported.save_pretrained(tmp_path)
        again = coil.transformers.for_generation(ExportedModel.from_pretrained(tmp_path))
        inputs = inputs_of(family, 2, 7)
        assert again.generate(**inputs, max_new_tokens=5).tolist() == model.generate(**inputs, max_new_tokens=5).tolist()


# As files: the parts that transformers' own wrappers export, in one package.
@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    from transformers.integrations.executorch import Seq2SeqLMExportableModule

    made = {}
    for family in ("t5", "bart"):
        folder, model = tmp_path_factory.mktemp(family), model_of(family)
        parts = Seq2SeqLMExportableModule(model, max_hidden_seq_length=64, max_cache_length=ROWS).export()
        torch.export.save(parts.exported_encoder, folder / "encoder.pt2")
        torch.export.save(parts.exported_decoder, folder / "decoder.pt2")
        harness.coil_ok("compile", folder / "encoder.pt2", folder / "decoder.pt2", "-q", "-O", "1", "-o", folder / "m.coil.pt2")
        made[family] = (folder, model_of(family))
    return made


# Random weights say one thing for ever without it.
PENALTY = coil.llm.Sampling(repetition_penalty=3.0)
penalised = transformers.RepetitionPenaltyLogitsProcessor(3.0)


def greedy(model, source, start, count):
    tokens = list(start)
    with torch.no_grad():
        states = model.get_encoder()(torch.tensor([source])).last_hidden_state
        for _ in range(count):
            hidden = model.get_decoder()(input_ids=torch.tensor([tokens]), encoder_hidden_states=states, use_cache=False).last_hidden_state
            tokens.append(int(penalised(torch.tensor([tokens]), model.lm_head(hidden)[:, -1]).argmax()))
    return tokens[len(start):]


SOURCE, OTHER = [5, 17, 99, 200, 41, 8, 3], [9, 150, 33]


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_tokens_are_eagers(family, packages):
    folder, model = packages[family]
    generator = coil.llm.Generator(folder / "m.coil.pt2")
    assert generator.takes_source and generator.vocabulary == 211 and generator._generator.programs == ["decoder"]
    want = greedy(model, SOURCE, [2], 32)
    assert generator.generate([2], 32, PENALTY, source=SOURCE) == want and len(set(want)) > 3
    talk = generator.conversation([2], PENALTY, source=SOURCE)
    first = talk.generate(4)
    fork, saved = talk.fork(), talk.save()
    assert fork.source == SOURCE and first + fork.generate(4) == want[:8]
    talk.set_source(OTHER)  # the same answer so far, of another text
    assert talk.generate(5) == greedy(model, OTHER, [2, *first], 5)
    again = coil.llm.Generator(folder / "m.coil.pt2").conversation((), PENALTY)
    again.restore(saved)
    assert again.source == SOURCE and again.generate(4) == want[4:8]
    listed = ",".join(map(str, SOURCE))
    told = json.loads(harness.coil_ok("generate", folder / "m.coil.pt2", "--source", listed, "--ids", "2", "--repetition-penalty", "3", "-n", "8", "--json").stdout)
    assert told["tokens"] == want[:8]


def test_errors_leave_the_conversation_usable(packages):
    folder, model = packages["bart"]
    generator = coil.llm.Generator(folder / "m.coil.pt2")
    talk = generator.conversation([2], PENALTY)
    with pytest.raises(coil.InputError, match="COIL-E210.*read nothing yet"):
        talk.generate(1)
    for source, text in (([], "source is empty"), ([5] * 65, "65 tokens.*takes.*to 64"), ([5, 5000], "COIL-E210"), ([5, -5], "COIL-E210")):
        with pytest.raises(coil.InputError, match=text):
            talk.set_source(source)
        assert talk.source == []
    talk.set_source(SOURCE)
    assert talk.generate(6) == greedy(model, SOURCE, [2], 6)
    saved = talk.save()
    for at in range(0, len(saved), 97):
        with pytest.raises(coil.InputError, match="COIL-E213"):
            talk.restore(saved[:at])
    assert talk.generate(2) == greedy(model, SOURCE, [2], 8)[6:]
    for arguments in (["--ids", "2"], ["--ids", "2", "--source", "x"]):
        harness.assert_refused(harness.coil("generate", folder / "m.coil.pt2", *arguments), code=402)
    harness.coil_ok("compile", folder / "decoder.pt2", "-q", "-O", "1", "-o", folder / "alone.pt2")
    with pytest.raises(coil.UnsupportedError, match="(?s)COIL-E105.*there is no encoder.*coil compile encoder.pt2 decoder.pt2"):
        coil.llm.Generator(folder / "alone.pt2")


class Sampling(ctypes.Structure):  # coil_sampling, up to the field that is used
    _fields_ = [("struct_bytes", ctypes.c_uint32), ("num_biases", ctypes.c_int32), ("bias_tokens", c_void_p), ("biases", c_void_p), ("repetition_penalty", ctypes.c_float)]


def test_command_in_python(packages):
    folder, model = packages["bart"]
    letters = "".join(chr(t) for t in SOURCE if t < 128)
    ids = list(letters.encode())
    command = [sys.executable, "-m", "coil.llm", "generate", folder / "m.coil.pt2", "--start", "2", "--source", letters, "--repetition-penalty", "3", "--tokens", "4"]
    done = subprocess.run(command, capture_output=True, env=dict(os.environ, PYTHONPATH=str(harness.PYTHON_PATH)))
    assert done.returncode == 0, done.stderr
    assert done.stdout == coil.llm.Bytes().decode(greedy(model, ids, [2], 4)).encode()
    with pytest.raises(coil.UnsupportedError, match="COIL-E105: the model has an encoder"):
        make_server(coil.llm.Generator(folder / "m.coil.pt2", tokenizer="bytes"), port=0)


def test_c(packages):
    folder, model = packages["t5"]
    lib = ctypes.CDLL(str(harness.BUILD / "libcoil_runtime.so"))
    lib.coil_last_error.restype = ctypes.c_char_p
    opened, generator, talk, made = c_void_p(), c_void_p(), c_void_p(), c_int64()
    assert lib.coil_open(str(folder / "m.coil.pt2").encode(), None, byref(opened)) == 0, lib.coil_last_error()
    assert lib.coil_generator_create(opened, byref(generator)) == 0, lib.coil_last_error()
    assert lib.coil_generator_takes_source(generator) == 1 and lib.coil_generator_takes_source(None) == 0
    sampling = Sampling(ctypes.sizeof(Sampling), repetition_penalty=3.0)
    assert lib.coil_conversation_create(generator, byref(sampling), byref(talk)) == 0
    assert lib.coil_conversation_append(talk, (c_int64 * 1)(0), c_int64(1)) == 0
    token = c_int64()
    assert lib.coil_conversation_next(talk, byref(token)) == 210 and b"read nothing yet" in lib.coil_last_error()
    assert lib.coil_conversation_set_source(talk, (c_int64 * len(SOURCE))(*SOURCE), c_int64(len(SOURCE))) == 0
    tokens = (c_int64 * 6)()
    assert lib.coil_conversation_generate(talk, c_int64(6), None, 0, c_int64(0), c_int64(0), tokens, byref(made)) == 0, lib.coil_last_error()
    assert list(tokens)[: made.value] == greedy(model, SOURCE, [0], 6)
    lib.coil_conversation_destroy(talk)
    lib.coil_generator_destroy(generator)
    lib.coil_close(opened)
