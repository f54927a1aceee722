"""coil as a backend of transformers' exporters: export, save, load, call, generate; tokens are those of the model itself."""

import json
import shutil
import zipfile

import pytest
import torch
import transformers
from transformers.exporters import AutoExportConfig, AutoHfExporter, ExportedModel

import coil
import coil.transformers
from coil.transformers import CoilConfig, CoilExporter

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 211, "intermediate_size": 96,
         "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def model_of(family, **sizes):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **{k: v for k, v in {**SIZES, **sizes}.items() if v is not None})
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    model = kind.from_config(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(3)
    model.generation_config.eos_token_id = None  # random weights end anywhere
    return model


def inputs_of(rows=1, length=9):
    torch.manual_seed(1)
    ids = torch.randint(3, 211, (rows, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def exported_of(model, example=None, config=None, **options):
    config = config or CoilConfig(dynamic=True)
    return AutoHfExporter.from_config(config).export_for_generation(model, example or inputs_of(2), config, **options)


def same(model, fast, inputs, **options):
    options = {"max_new_tokens": 16, "do_sample": False, **options}
    torch.manual_seed(5)
    want = model.generate(**inputs, **options)
    torch.manual_seed(5)
    made = fast.generate(**inputs, **options)
    assert made.tolist() == want.tolist()
    return want


FAMILIES = {
    "llama": {}, "qwen2": {}, "qwen3": {"head_dim": 16}, "phi3": {}, "olmo2": {}, "granite": {}, "smollm3": {},
    "mistral": {"sliding_window": 6}, "gemma3_text": {"head_dim": 16, "sliding_window": 6},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "hidden_size": None, "num_hidden_layers": None, "num_attention_heads": None, "num_key_value_heads": None, "intermediate_size": None,
             "max_position_embeddings": None, "n_positions": 256},
    "gpt_neox": {"num_key_value_heads": None}, "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    # Layers with a window and without one; the example is longer than the window.
    "gemma2": {"head_dim": 16, "sliding_window": 8}, "exaone4": {"sliding_window": 8, "sliding_window_pattern": 2},
    # Layers whose state is no cache of rows, alone and beside attention.
    "mamba2": {"state_size": 8, "head_dim": 16, "num_heads": 8, "n_groups": 1, "chunk_size": 8, "num_attention_heads": None, "num_key_value_heads": None, "intermediate_size": None,
               "max_position_embeddings": None},
    "bamba": {"attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_state": 8, "mamba_d_head": 16, "mamba_chunk_size": 8, "mamba_n_groups": 1}, "lfm2": {"full_attn_idxs": [1]},
}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_tokens_are_the_models(family, tmp_path):
    model = model_of(family, **FAMILIES[family])
    exported = exported_of(model)
    fast = coil.transformers.for_generation(exported)
    assert not any(p.device.type != "meta" for p in fast.parameters()), "the weights are in the package"
    want = same(model, fast, inputs_of(2), no_repeat_ngram_size=2)
    assert len(set(want[0, 9:].tolist())) > 3, "a model that says one thing proves little"
    same(model, fast, inputs_of(3, 30), max_new_tokens=5)
    exported.save_pretrained(tmp_path)
    names = {p.name for p in tmp_path.iterdir()}
    assert {"model.coil.pt2", "prefill.coil.json", "decode.coil.json", "export.json", "config.json"} <= names
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    with zipfile.ZipFile(tmp_path / "model.coil.pt2") as package:
        stored = sum(i.file_size for i in package.infolist() if i.filename.endswith(".constants"))
    assert 0 < stored < 1.5 * weights, "both programs have the weights once; an embedding of a small vocabulary stands there in two forms"
    again = coil.transformers.for_generation(ExportedModel.from_pretrained(tmp_path))
    same(model, again, inputs_of(2))


@pytest.fixture(scope="module")
def llama():
    model = model_of("llama")
    return model, exported_of(model)


def test_ways_to_generate(llama):
    model, exported = llama
    fast = coil.transformers.for_generation(exported)
    same(model, fast, inputs_of(2), num_beams=3)
    same(model, fast, inputs_of(2), do_sample=True, temperature=1.3, top_k=20)
    same(model, fast, inputs_of(2), repetition_penalty=1.5, no_repeat_ngram_size=2)
    whole = fast.generate(**inputs_of(2), max_new_tokens=4, return_dict_in_generate=True, output_logits=True)
    assert len(whole.logits) == 4 and whole.past_key_values.get_seq_length() == 12
    more = fast.generate(whole.sequences, attention_mask=torch.ones_like(whole.sequences), max_new_tokens=4)
    assert more.tolist() == model.generate(whole.sequences, attention_mask=torch.ones_like(whole.sequences), max_new_tokens=4, do_sample=False).tolist()


def test_padded_batches(llama):
    """An export whose example has padding takes any mask; one without refuses padding instead of attending to it."""
    model, exported = llama
    padded = inputs_of(2)
    padded["input_ids"][0, :4], padded["attention_mask"][0, :4] = 0, 0
    with pytest.raises(coil.InputError, match="attention_mask.*\n.*padding"):
        coil.transformers.for_generation(exported).generate(**padded, max_new_tokens=2)
    fast = coil.transformers.for_generation(exported_of(model, padded))
    same(model, fast, padded)
    other = inputs_of(2, 12)
    other["input_ids"][1, :7], other["attention_mask"][1, :7] = 0, 0
    same(model, fast, other)


def test_static_caches(tmp_path):
    """Caches of a fixed size are written in place: they are no results of the program."""
    model = model_of("llama")
    settings = transformers.GenerationConfig(do_sample=False, cache_implementation="static", cache_config={"max_cache_len": 64}, pad_token_id=0)
    settings.max_cache_len = 64
    exported = exported_of(model, inputs_of(1), generation_config=settings)
    decode = exported.runners["decode"]
    assert len(decode.model.outputs) == 1 and sum(i.mutated for i in decode.model.inputs) >= 4
    fast = coil.transformers.for_generation(exported)
    want = model.generate(**inputs_of(1), max_new_tokens=16, do_sample=False)
    settings = transformers.GenerationConfig(do_sample=False, cache_implementation="static", max_new_tokens=16, max_length=None, pad_token_id=0, cache_config={"max_cache_len": 64})
    settings.max_cache_len = 64
    assert fast.generate(**inputs_of(1), generation_config=settings, disable_compile=True).tolist() == want.tolist()


def test_single_programs(tmp_path):
    """`export` of any model: called as the model is."""
    torch.manual_seed(0)
    config = transformers.BertConfig(**{k: v for k, v in SIZES.items() if k != "num_key_value_heads"})
    model = transformers.BertModel(config).eval()
    coil_config = AutoExportConfig.from_dict({"export_format": "coil", "dynamic": True, "options": {"opt_level": 2}})
    assert isinstance(coil_config, CoilConfig)
    exported = AutoHfExporter.from_config(coil_config).export(model, inputs_of(2), coil_config)
    exported.save_pretrained(tmp_path)
    for program in (exported, ExportedModel.from_pretrained(tmp_path, device="cpu", num_threads=1)):
        assert program.device == torch.device("cpu") and program.dtype == torch.float32
        with torch.no_grad():
            want, made = model(**inputs_of(3, 7)), program(**inputs_of(3, 7))
        assert type(made) is type(want)
        torch.testing.assert_close(made.last_hidden_state, want.last_hidden_state, rtol=1e-4, atol=1e-4)


def test_errors_are_named(llama, tmp_path):
    model, exported = llama
    with pytest.raises(coil.UnsupportedError, match="no program 'prefill'"):
        single = CoilExporter().export(model, inputs_of(2), CoilConfig(dynamic=True))
        coil.transformers.for_generation(single)
    configs = {"prefill": CoilConfig(dynamic=True), "decode": CoilConfig(dynamic=True, options={"opt_level": 1})}
    with pytest.raises(coil.OptionError, match="different targets or options"):
        CoilExporter().export_for_generation(model, inputs_of(2), configs)
    with pytest.raises(coil.OptionError, match="no option 'nonsense'"):
        CoilExporter().export(model, inputs_of(2), CoilConfig(dynamic=True, options={"nonsense": 1}))
    runner = exported.runners["decode"]
    with pytest.raises(coil.InputError, match="has no 'past_key_values'"):
        runner(input_ids=torch.zeros(2, 1, dtype=torch.int64), position_ids=torch.zeros(2, 1, dtype=torch.int64))
    with pytest.raises(coil.InputError, match="was traced with 4"):
        runner(input_ids=torch.zeros(2, 1, dtype=torch.int64), position_ids=torch.zeros(2, 1, dtype=torch.int64), past_key_values=transformers.DynamicCache())
    exported.save_pretrained(tmp_path / "m")
    for text in ("{", "[]", '{"program": 5, "results": []}', json.dumps({"program": None, "results": ["x"]})):
        shutil.rmtree(tmp_path / "broken", ignore_errors=True)
        shutil.copytree(tmp_path / "m", tmp_path / "broken")
        (tmp_path / "broken/decode.coil.json").write_text(text)
        with pytest.raises(coil.ArchiveError, match="does not describe a program"):
            ExportedModel.from_pretrained(tmp_path / "broken")
    (tmp_path / "m/model.coil.pt2").unlink()
    with pytest.raises((coil.MissingFileError, OSError)):
        ExportedModel.from_pretrained(tmp_path / "m")
