"""coil.llm and coil generate: conversations beside eager, sampling beside transformers' rules, states, errors, the endpoint."""

import http.client
import importlib.util
import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn

import coil
import coil.llm
import harness
import small_decoders
from coil.llm.serve import make_server

spec = importlib.util.spec_from_file_location("decoder", harness.REPO / "examples/generate/decoder.py")
decoder = importlib.util.module_from_spec(spec)
spec.loader.exec_module(decoder)

CONTEXT = 24


def compiled(module, example, dynamic, folder, name="m"):
    torch.export.save(torch.export.export(module.eval(), example, dynamic_shapes=dynamic), folder / f"{name}.export.pt2")
    harness.coil_ok("compile", folder / f"{name}.export.pt2", "-q", "-o", folder / f"{name}.pt2")
    return folder / f"{name}.pt2"


def tiny(seed=0):
    torch.manual_seed(seed)
    model = decoder.Decoder(dim=32, layers=2, heads=2, inner=48, context=CONTEXT)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(6)  # logits that tell tokens apart
    return model.eval()


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decoder")
    decoder.export(tiny(), folder / "decoder.export.pt2")
    harness.coil_ok("compile", folder / "decoder.export.pt2", "-q", "-o", folder / "decoder.pt2")
    return folder / "decoder.pt2"


@pytest.fixture
def generator(package):
    return coil.llm.Generator(package, tokenizer="bytes")


def greedy(model, prompt, count):
    tokens = list(prompt)
    with torch.no_grad():
        while len(tokens) < len(prompt) + count:
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt):]


PROMPT = [72, 101, 108, 108, 111]


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


# Sampling, on a model whose logits are a table of the last token's.
V = 40


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Parameter(torch.randn(V, V) * 2)

    def forward(self, ids):
        return self.table[ids]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    n = torch.export.Dim("n", min=1, max=64)
    return coil.llm.Generator(compiled(Table(), (torch.zeros(1, 3, dtype=torch.int64),), ({1: n},), tmp_path_factory.mktemp("table")))


RULES = {
    "temperature": dict(temperature=1.0),
    "hot": dict(temperature=2.5),
    "top_k": dict(temperature=1.0, top_k=5),
    "top_p": dict(temperature=1.0, top_p=0.7),
    "tiny_top_p": dict(temperature=1.0, top_p=1e-6),
    "min_p": dict(temperature=1.0, min_p=0.2),
    "all": dict(temperature=1.5, top_k=12, top_p=0.9, min_p=0.05, repetition_penalty=1.3),
}


def expected(tokens, temperature, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0):
    """Probabilities by transformers' own processors."""
    from transformers.generation import logits_process as rules

    ids, scores = torch.tensor([tokens]), Table().table.detach()[tokens[-1]][None].clone()
    processors = [rules.RepetitionPenaltyLogitsProcessor(repetition_penalty)] if repetition_penalty != 1 else []
    processors.append(rules.TemperatureLogitsWarper(temperature))
    processors += [rules.TopKLogitsWarper(top_k)] if top_k else []
    processors += [rules.TopPLogitsWarper(top_p)] if top_p < 1 else []
    processors += [rules.MinPLogitsWarper(min_p)] if min_p else []
    for p in processors:
        scores = p(ids, scores)
    return torch.softmax(scores[0].double(), 0).numpy()


@pytest.mark.parametrize("rule", RULES)
def test_sampling_follows_the_rules(table, rule):
    tokens, count = [4, 17, 4, 30, 7], 4000
    want = expected(tokens, **RULES[rule])
    found = np.zeros(V)
    for seed in range(count):
        found[table.generate(tokens, 1, coil.llm.Sampling(seed=seed, **RULES[rule]))[0]] += 1
    assert not found[want == 0].any()
    # Five standard deviations of a count.
    assert (np.abs(found - count * want) <= 5 * np.sqrt(count * want * (1 - want)) + 1).all()


def test_seeds_repeat_and_differ(table):
    options = dict(temperature=1.0)
    runs = [table.generate([3], 20, coil.llm.Sampling(seed=seed, **options)) for seed in (1, 1, 2, 2**63 + 5, 2**63 + 5)]
    assert runs[0] == runs[1] != runs[2] and runs[3] == runs[4] != runs[0]


def test_biases_and_masks(table):
    assert table.generate([3], 5, coil.llm.Sampling(bias={11: 1e4})) == [11] * 5
    seen = []

    def only_even(tokens, allowed):
        seen.append(list(tokens))
        for i in range(1, V, 2):
            allowed[i] = 0

    made = table.generate([3], 8, coil.llm.Sampling(temperature=1.0, allow=only_even))
    assert all(t % 2 == 0 for t in made) and seen[0] == [3] and seen[2] == [3, *made[:2]]
    with pytest.raises(coil.InputError, match="COIL-E210: no token is allowed"):
        table.generate([3], 1, coil.llm.Sampling(allow=lambda tokens, allowed: allowed.__setitem__(slice(None), bytes(V))))
    with pytest.raises(ZeroDivisionError):
        table.generate([3], 1, coil.llm.Sampling(allow=lambda tokens, allowed: 1 // 0))


@pytest.mark.parametrize("wrong", [dict(temperature=-1), dict(temperature=float("nan")), dict(top_p=0.0), dict(top_p=1.5), dict(min_p=1.0), dict(top_k=-1),
                                   dict(repetition_penalty=0.0), dict(bias={1: float("nan")})])
def test_wrong_numbers_are_refused(table, wrong):
    with pytest.raises(coil.OptionError, match="COIL-E402"):
        table.conversation([1], coil.llm.Sampling(**wrong))


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


def test_text_with_characters_of_several_bytes(table):
    class Codec:
        """Token t is byte 190 + t of the text, whatever that is."""

        def encode(self, text):
            return [b - 190 for b in text.encode()]

        def decode(self, tokens):
            return bytes(190 + t for t in tokens).decode(errors="replace")

    generator = coil.llm.Generator(table.model, tokenizer=Codec())
    sampling = coil.llm.Sampling(temperature=2.0, seed=3)
    pieces = list(generator.stream([5, 2], 30, sampling))
    assert "".join(pieces) == Codec().decode(generator.generate([5, 2], 30, sampling)) and len(pieces) > 1


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


# The endpoint.
@pytest.fixture(scope="module")
def server(package):
    running = make_server(coil.llm.Generator(package, tokenizer="bytes"), port=0, name="tiny")
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield running.server_address[1]
    running.shutdown()
    running.server_close()


def post(port, path, body, raw=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, raw if raw is not None else json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def events(content):
    lines = [line[6:] for line in content.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_endpoint_completes(server):
    want = coil.llm.Bytes().decode(greedy(tiny(), PROMPT, 8))
    body = {"model": "tiny", "prompt": "Hello", "max_tokens": 8, "temperature": 0}
    status, content = post(server, "/v1/completions", body)
    answer = json.loads(content)
    assert status == 200 and answer["choices"][0]["text"] == want and answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 8, "total_tokens": 13} and answer["object"] == "text_completion"
    status, content = post(server, "/v1/completions", {**body, "prompt": PROMPT, "stream": True, "stream_options": {"include_usage": True}})
    parts = events(content)
    assert status == 200 and "".join(p["choices"][0]["text"] for p in parts if p["choices"]) == want
    assert parts[-1]["usage"]["completion_tokens"] == 8 and parts[-2]["choices"][0]["finish_reason"] == "length"
    # A longer prompt goes on from what is kept, with the same result.
    status, content = post(server, "/v1/completions", {**body, "prompt": PROMPT + greedy(tiny(), PROMPT, 8) + [66], "max_tokens": 4})
    assert json.loads(content)["choices"][0]["text"] == coil.llm.Bytes().decode(greedy(tiny(), PROMPT + greedy(tiny(), PROMPT, 8) + [66], 4))


def test_endpoint_chats(server):
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "temperature": 0}
    status, content = post(server, "/v1/chat/completions", body)
    message = json.loads(content)["choices"][0]["message"]
    assert status == 200 and message["role"] == "assistant" and message["content"]
    status, content = post(server, "/v1/chat/completions", {**body, "stream": True})
    assert "".join(p["choices"][0]["delta"].get("content", "") for p in events(content)) == message["content"]


def test_endpoint_lists_models(server):
    connection = http.client.HTTPConnection("127.0.0.1", server, timeout=60)
    connection.request("GET", "/v1/models")
    assert [m["id"] for m in json.loads(connection.getresponse().read())["data"]] == ["tiny"]


@pytest.mark.parametrize("body", [{}, {"prompt": ""}, {"prompt": "a", "temperature": "x"}, {"prompt": "a", "max_tokens": 0}, {"prompt": "a", "n": 2}, {"prompt": [300]},
                                  {"prompt": "a", "stop": 5}, {"prompt": "a", "logit_bias": [1]}, {"prompt": "a", "model": "other"}, {"prompt": "a" * (CONTEXT + 9)}, {"prompt": {"a": 1}}])
def test_endpoint_refuses(server, body):
    status, content = post(server, "/v1/completions", body)
    assert status == 400 and json.loads(content)["error"]["message"]


def test_endpoint_survives_nonsense(server):
    for raw in ("{", "[" * 100000, "5", b"\xff\xfe"):
        assert post(server, "/v1/completions", None, raw)[0] == 400
    assert post(server, "/v1/nothing", {"prompt": "a"})[0] == 404
    assert post(server, "/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200


def test_endpoint_serves_many_at_once(server):
    results = {}

    def ask(k):
        results[k] = json.loads(post(server, "/v1/completions", {"prompt": [k, k + 1, 65], "max_tokens": 10, "temperature": 0})[1])["choices"][0]["text"]

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {k: coil.llm.Bytes().decode(greedy(tiny(), [k, k + 1, 65], 10)) for k in range(8)}


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
