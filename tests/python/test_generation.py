"""coil.llm and coil generate: conversations beside eager, the forms of programs, states and errors."""

import json
import os
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import coil
import coil.llm
import harness
import small_decoders
import tiny_decoder
from tiny_decoder import CONTEXT, PROMPT, compiled, decoder, greedy, tiny


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return tiny_decoder.package_of(tmp_path_factory.mktemp("decoder"))


@pytest.fixture
def generator(package):
    return coil.llm.Generator(package, tokenizer="bytes")


def test_tokens_are_eagers(generator):
    want = greedy(tiny(), PROMPT, 15)
    assert generator.generate(PROMPT, 15) == want
    talk = generator.conversation(PROMPT)
    assert [talk.generate(1)[0] for _ in range(15)] == want and talk.tokens == PROMPT + want
    other = generator.conversation()
    other.append(PROMPT[:2])
    other.append(PROMPT[2:])
    assert other.generate(15) == want
    assert len(set(want)) > 3, "a model that says one thing proves little"


class Rows(nn.Module):
    """The decoder's step in another form."""

    def __init__(self, form, steps=None):
        super().__init__()
        self.inner, self.form = tiny(), form

    def forward(self, ids, places=None):
        if self.form == "whole":
            return self.inner(ids)
        if self.form == "rank 1":
            return self.inner.step(ids[None], places)[0]
        if self.form == "place ids":
            return self.inner.step(ids, places[0])[:, None]
        if self.form == "start":
            return self.inner.step(ids, places + torch.arange(ids.shape[1]))
        if self.form == "int32":
            return self.inner.step(ids.long(), places.long()).to(torch.bfloat16).float()
        return self.inner.step(ids, places)


N = torch.export.Dim("n", min=1, max=CONTEXT)
FORMS = {
    "whole": ((torch.zeros(1, 5, dtype=torch.int64),), ({1: N}, None)),
    "rank 1": ((torch.zeros(5, dtype=torch.int64), torch.arange(5)), ({0: N}, {0: N})),
    "place ids": ((torch.zeros(1, 5, dtype=torch.int64), torch.arange(5)[None]), ({1: N}, {1: N})),
    "start": ((torch.zeros(1, 5, dtype=torch.int64), torch.tensor(0)), ({1: N}, None)),
    "int32": ((torch.zeros(1, 5, dtype=torch.int32), torch.arange(5, dtype=torch.int32)), ({1: N}, {0: N})),
    "one token": ((torch.zeros(1, 1, dtype=torch.int64), torch.arange(1)), None),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_programs(form, tmp_path):
    example, dynamic = FORMS[form]
    if dynamic is not None:
        dynamic = dynamic[: len(example)] + ((None,) if len(example) == 1 and form != "whole" else ())
    path = compiled(Rows(form), example, dynamic if form != "whole" else (dynamic[0],), tmp_path)
    generator = coil.llm.Generator(path)
    assert generator.vocabulary == 256 and generator.tokens_per_call == (1 if form == "one token" else CONTEXT)
    talk = generator.conversation(PROMPT)
    assert talk.generate(12) == greedy(tiny(), PROMPT, 12)


def test_forks_go_their_own_ways(generator):
    talk = generator.conversation(PROMPT)
    first = talk.generate(4)
    fork = talk.fork()
    fork.append([1, 2, 3])
    talk.append([9])
    model = tiny()
    assert fork.generate(4) == greedy(model, PROMPT + first + [1, 2, 3], 4)
    assert talk.generate(4) == greedy(model, PROMPT + first + [9], 4)
    talk.truncate(len(PROMPT) + 2)
    talk.append([7])
    assert talk.generate(5) == greedy(model, PROMPT + first[:2] + [7], 5)


def test_conversations_at_the_same_time(generator):
    model, results = tiny(), {}

    def speak(k):
        results[k] = generator.generate([k, k + 1, 65], 12)

    threads = [threading.Thread(target=speak, args=(k,)) for k in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {k: greedy(model, [k, k + 1, 65], 12) for k in range(12)}


def test_saved_and_restored(generator, package, tmp_path):
    talk = generator.conversation(PROMPT)
    talk.generate(3)
    saved = talk.save()
    want = talk.generate(5)
    (tmp_path / "saved").write_bytes(saved)
    code = f"import coil.llm; t = coil.llm.Generator({str(package)!r}).conversation(); t.restore(open({str(tmp_path / 'saved')!r}, 'rb').read()); print(t.generate(5))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(coil.__file__))))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == want


def test_damaged_and_foreign_states_are_refused(generator, tmp_path):
    talk = generator.conversation(PROMPT)
    talk.generate(2)
    saved, tokens = talk.save(), talk.tokens
    for at in [*range(0, 48), len(saved) - 1]:
        for damaged in (saved[:at], saved + b"x"):
            with pytest.raises(coil.InputError, match="COIL-E213"):
                talk.restore(damaged)
    for at in range(0, min(len(saved), 400)):
        changed = bytearray(saved)
        changed[at] ^= 0xFF
        try:
            generator.conversation().restore(bytes(changed))
        except coil.InputError as error:
            assert error.number == 213
    assert talk.tokens == tokens
    decoder.export(tiny(seed=1), tmp_path / "other.export.pt2")
    harness.coil_ok("compile", tmp_path / "other.export.pt2", "-q", "-o", tmp_path / "other.pt2")
    with pytest.raises(coil.InputError, match="COIL-E213.*another model"):
        coil.llm.Generator(tmp_path / "other.pt2").conversation().restore(saved)
    assert talk.generate(3) == greedy(tiny(), tokens, 3)


def test_errors_leave_the_conversation_usable(generator):
    model = tiny()
    talk = generator.conversation(PROMPT)
    with pytest.raises(coil.InputError, match="COIL-E210: token 256 is not in the vocabulary of 256"):
        talk.append([1, 256])
    with pytest.raises(coil.InputError, match="COIL-E210"):
        talk.append([-1])
    assert talk.tokens == PROMPT
    with pytest.raises(coil.InputError, match="COIL-E210.*empty"):
        generator.conversation().generate(1)
    talk.generate(CONTEXT - len(PROMPT))
    full = talk.tokens
    assert len(full) == CONTEXT
    last = talk.generate(1)  # the last row
    with pytest.raises(coil.InputError, match=f"(?s)COIL-E210: token {CONTEXT} of the conversation.*caches are full"):
        talk.generate(1)
    assert talk.tokens == full + last
    talk.truncate(10)
    assert talk.generate(3) == greedy(model, full[:10], 3)
    with pytest.raises(coil.OptionError, match="cannot be kept"):
        talk.truncate(100)
    long = generator.conversation([65] * (CONTEXT + 5))
    with pytest.raises(coil.InputError, match="COIL-E210"):
        long.generate(1)
    long.truncate(5)
    assert long.generate(2) == greedy(model, [65] * 5, 2)


class Fixed(nn.Module):
    def forward(self, ids):
        return torch.nn.functional.one_hot(ids, 16).float()


class Pictures(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :10]


@pytest.mark.parametrize("module,example,text", [
    (Fixed(), (torch.zeros(1, 5, dtype=torch.int64),), "exactly 5 tokens at a time"),
    (Fixed(), (torch.zeros(1, 1, dtype=torch.int64),), "keeps nothing of those before"),
    (Pictures(), (torch.zeros(1, 3, 4, 4),), "'x' is neither tokens nor their places"),
])
def test_other_programs_are_refused(module, example, text, tmp_path):
    with pytest.raises(coil.UnsupportedError, match=f"COIL-E105.*{text}"):
        coil.llm.Generator(compiled(module, example, None, tmp_path))


@pytest.mark.parametrize("sampling", [dict(), dict(temperature=0.7, seed=5)])
def test_drafts_change_nothing_but_the_calls(generator, sampling):
    prompt = [1, 2, 3, 4, 1, 2, 3]
    want = generator.generate(prompt, 16, coil.llm.Sampling(**sampling))
    for draft in (1, 3, 7):
        talk = generator.conversation(prompt, coil.llm.Sampling(**sampling))
        assert talk.generate(16, draft=draft) == want
        talk.truncate(12)
        assert talk.generate(3, draft=draft) == generator.generate((prompt + want)[:12], 3, coil.llm.Sampling(**sampling))


def test_stops(generator):
    want = greedy(tiny(), PROMPT, 15)
    stop = want[5]
    assert generator.generate(PROMPT, 15, stop=[stop]) == want[: want.index(stop) + 1]


def test_command(package, generator):
    text = harness.coil_ok("generate", package, "--ids", "72,101,108 108 111", "-n", 8, "--json").stdout
    want = greedy(tiny(), PROMPT, 8)
    assert json.loads(text)["tokens"] == want
    shown = harness.coil_ok("generate", package, "--ids", "72,101,108,108,111", "-n", 8, "--stop", want[3], "--draft", 2).stdout
    assert shown.split() == [str(t) for t in want[: want.index(want[3]) + 1]]
    printed = harness.coil_ok("generate", package, "--bytes", "--prompt", "Hello", "-n", 8).stdout
    assert printed.startswith("Hello") and "\x1b" not in printed
    for arguments in (["--prompt", "x"], [], ["--ids", "1", "--prompt", "x", "--bytes"], ["--ids", "1,a"], ["--ids", "1", "--temperature", "-1"]):
        harness.assert_refused(harness.coil("generate", package, *arguments), code=402)
    harness.assert_refused(harness.coil("generate", package, "--ids", "300"), "not in the vocabulary", code=210)
    harness.assert_refused(harness.coil("generate", harness.DIGITS, "--ids", "1"), code=105)


def test_example_in_c(package, tmp_path):
    """examples/generate/generate.c, compiled as a user would, with the shared library."""
    build = os.path.dirname(os.path.abspath(harness.COIL))
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{harness.REPO / 'include'}", str(harness.REPO / "examples/generate/generate.c"), "-o", str(tmp_path / "generate"),
               f"-L{build}", "-lcoil_runtime", f"-Wl,-rpath,{build}"]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    done = subprocess.run([tmp_path / "generate", package, "Hello", "12"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = "".join(chr(t) for t in greedy(tiny(), PROMPT, 12) if t == 10 or 32 <= t < 127)
    assert done.stdout == "Hello" + shown + "\n"
    for arguments, text in (([harness.DIGITS, "x"], "COIL-E"), ([package, ""], "empty"), ([package, "x", "3", "-1"], "temperature"), ([package, "x", "40"], "caches are full")):
        done = subprocess.run([tmp_path / "generate", *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == 1 and text in done.stderr, done.stderr


# Decoders of transformers, small, with the layers of the real ones: exported with the static cache of transformers' own wrapper.
FAMILIES = {
    "llama": {}, "qwen3": {"head_dim": 16}, "gemma3_text": {"head_dim": 16, "sliding_window": 16}, "phi3": {}, "gpt_neox": {"num_key_value_heads": None}, "olmo2": {},
    "glm4": {"head_dim": 16}, "mixtral": {"num_local_experts": 4},
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_static_caches_of_transformers(family, strict, tmp_path):
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache as Exportable

    if strict and family not in ("llama", "qwen3"):
        pytest.skip("one way of exporting is enough for the other families")
    model = small_decoders.decoder(family, **FAMILIES[family])
    n = torch.export.Dim("n", min=1, max=63)
    example = {"input_ids": torch.zeros(1, 5, dtype=torch.int64), "cache_position": torch.arange(5)}
    saved = torch.export.export(Exportable(model), (), example, dynamic_shapes={"input_ids": {1: n}, "cache_position": {0: n}}, strict=strict)
    torch.export.save(saved, tmp_path / "m.export.pt2")
    harness.coil_ok("compile", tmp_path / "m.export.pt2", "-q", "-O", "1", "-o", tmp_path / "m.pt2")
    prompt, count = [3, 1, 4, 1, 5, 9, 2, 6], 40
    found = coil.llm.Generator(tmp_path / "m.pt2").generate(prompt, count)
    assert found == small_decoders.greedy(Exportable(model), prompt, count)
    copies = [line for line in harness.coil_ok("inspect", tmp_path / "m.pt2", "--kernels").stdout.splitlines() if line.split()[-2:] == ["copy", "copy"]]
    assert not copies or family == "mixtral"  # grouped products may fail while they run


def test_the_example_speaks_english(tmp_path):
    """What `make demo-llm` shows: the checked-in decoder."""
    program = harness.REPO / "examples/generate/decoder.pt2"
    assert program.stat().st_size < 10 << 20
    harness.coil_ok("compile", program, "-q", "-o", tmp_path / "decoder.pt2")
    text = harness.coil_ok("generate", tmp_path / "decoder.pt2", "--bytes", "--prompt", "You may ", "-n", 150).stdout
    words = text.split()
    assert text.startswith("You may ") and text.isascii() and sum(w.strip(",.").lower() in ("the", "of", "a", "and", "to", "work", "copy", "license", "covered", "program") for w in words) >= 5, text
