"""Packages of two programs beside packages of one: programs of the zoo, and prompts and tokens of transformers' decoders."""

import pytest
import torch

import coil
import coil.llm
import harness
import small_decoders


# Programs that have nothing to do with each other, next to each other in the zoo: one package runs each as its own package does.
def zoo_pairs():
    import zoo

    names = [name for name in zoo.programs() if zoo.is_made(name)]
    groups = names[:: max(1, len(names) // 24)]
    return list(zip(groups[::2], groups[1::2]))


@pytest.mark.parametrize("pair", zoo_pairs(), ids="+".join)
def test_pairs_of_the_zoo(pair, tmp_path):
    import zoo

    files = []
    for place, name in zip(("first", "second"), pair):
        meta = harness.zoo_meta(zoo.folder_of(name))
        files.append(f"{place}={zoo.folder_of(name) / (name + '.' + zoo.forms(name)[0] + '.pt2')}")
    package = tmp_path / "pair.coil.pt2"
    harness.coil_ok("compile", *files, "-q", "-O", "1", "-o", package)
    for place, name in zip(("first", "second"), pair):
        folder = zoo.folder_of(name)
        meta = harness.zoo_meta(folder)
        tag = next(iter(meta["sets"]))
        harness.coil_ok("run", package, "--program", place, "--input", folder / f"{tag}.npz", "--output", tmp_path / "out.npz")
        for found, want in zip(harness.load_outputs(tmp_path / "out.npz"), harness.load_expected(folder / f"{tag}.npz"), strict=True):
            harness.compare([found], [want], meta["tolerance"], name)


@pytest.mark.parametrize("prefill", ["dynamic", "static"])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3_text"])
def test_prefill_and_decode_of_transformers(family, prefill, tmp_path):
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache as Exportable

    more = {"qwen3": {"head_dim": 16}, "gemma3_text": {"head_dim": 16, "sliding_window": 16}}.get(family, {})
    model = small_decoders.decoder(family, tie_word_embeddings=True, **more)

    def export(count, n=None):
        example = {"input_ids": torch.zeros(1, count, dtype=torch.int64), "cache_position": torch.arange(count)}
        shapes = {"input_ids": {1: n}, "cache_position": {0: n}} if n is not None else None
        return torch.export.export(Exportable(model), (), example, dynamic_shapes=shapes, strict=False)

    n = torch.export.Dim("n", min=2, max=63)
    whole = coil.compile(export(5, torch.export.Dim("n", min=1, max=63)))
    both = coil.compile({"prefill": export(4) if prefill == "static" else export(5, n), "decode": export(1)})
    assert both.report["shared_bytes"] > 0.9 * sum(p.numel() * 4 for p in model.parameters()), "weights that are stored twice"
    prompt, count = [3, 1, 4, 1, 5, 9, 2, 6, 5], 40
    generator = coil.llm.Generator(both)
    assert len(generator._generator.programs) == 2
    found = generator.generate(prompt, count)
    assert found == coil.llm.Generator(whole).generate(prompt, count)
    assert found == small_decoders.greedy(Exportable(model), prompt, count)
