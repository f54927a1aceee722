"""coil.llm.serve as OpenAI's own client sees it, on a program of one conversation and on one of several."""

import threading
import time

import openai
import pytest
import torch

import batched_decoder
import coil
import coil.llm
import harness
from coil.llm.serve import make_server
from tiny_decoder import CONTEXT, decoder, greedy, tiny


@pytest.fixture(scope="module", params=["one", "several"])
def service(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "one":
        decoder.export(tiny(), folder / "m.export.pt2")
    else:
        batched_decoder.export(tiny(), folder / "m.export.pt2", slots=3)
    harness.coil_ok("compile", folder / "m.export.pt2", "-q", "-o", folder / "m.pt2")
    server = make_server(coil.llm.Generator(folder / "m.pt2", tokenizer="bytes"), port=0, name="tiny")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def client(service):
    with openai.OpenAI(base_url=f"http://127.0.0.1:{service.server_address[1]}/v1", api_key="none", max_retries=0, timeout=60) as made:
        yield made


def text_of(prompt, count):
    return coil.llm.Bytes().decode(greedy(tiny(), prompt, count))


HELLO = list(b"Hello")


def test_models(client):
    assert [m.id for m in client.models.list()] == ["tiny"]


def test_completions(client):
    made = client.completions.create(model="tiny", prompt="Hello", max_tokens=8, temperature=0)
    assert made.choices[0].text == text_of(HELLO, 8) and made.choices[0].finish_reason == "length"
    assert (made.usage.prompt_tokens, made.usage.completion_tokens, made.usage.total_tokens) == (5, 8, 13)
    tokens = client.completions.create(model="tiny", prompt=HELLO, max_tokens=8, temperature=0)
    assert tokens.choices[0].text == made.choices[0].text


def test_completions_stream(client):
    parts = list(client.completions.create(model="tiny", prompt="Hello", max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}))
    assert "".join(p.choices[0].text for p in parts if p.choices) == text_of(HELLO, 8)
    assert parts[-1].usage.completion_tokens == 8 and [p.choices[0].finish_reason for p in parts if p.choices][-1] == "length"


def test_chat(client):
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}]
    prompt = list(b"system: s\nuser: a\nassistant:")[:CONTEXT]
    with pytest.raises(openai.BadRequestError, match="caches are full"):
        client.chat.completions.create(model="tiny", messages=messages, max_tokens=3, temperature=0)
    messages = [{"role": "u", "content": "a"}]
    prompt = list(b"u: a\nassistant:")
    made = client.chat.completions.create(model="tiny", messages=messages, max_completion_tokens=5, temperature=0)
    assert made.choices[0].message.role == "assistant" and made.choices[0].message.content == text_of(prompt, 5)
    parts = list(client.chat.completions.create(model="tiny", messages=messages, max_tokens=5, temperature=0, stream=True))
    assert "".join(p.choices[0].delta.content or "" for p in parts) == made.choices[0].message.content
    assert parts[-1].choices[0].finish_reason == "length"


def test_stop(client):
    whole = text_of(HELLO, 8)
    stop = whole[3:5]
    for stream in (False, True):
        made = client.completions.create(model="tiny", prompt="Hello", max_tokens=8, temperature=0, stop=["nothing like it", stop], stream=stream)
        parts = list(made) if stream else [made]
        assert "".join(p.choices[0].text for p in parts) == whole[: whole.index(stop)] and parts[-1].choices[0].finish_reason == "stop"


def test_logprobs(client):
    with torch.no_grad():
        want = tiny()(torch.tensor([HELLO]))[0, -1].log_softmax(-1)
    first = greedy(tiny(), HELLO, 1)[0]
    made = client.completions.create(model="tiny", prompt="Hello", max_tokens=3, temperature=0, logprobs=2).choices[0].logprobs
    assert len(made.tokens) == 3 and made.tokens[0] == coil.llm.Bytes().decode([first]) and made.text_offset[0] == 0
    assert abs(made.token_logprobs[0] - float(want[first])) < 1e-4 and made.token_logprobs[0] == max(made.top_logprobs[0].values())
    rows = client.chat.completions.create(model="tiny", messages=[{"role": "u", "content": "a"}], max_tokens=3, temperature=0, logprobs=True, top_logprobs=4).choices[0].logprobs.content
    assert len(rows) == 3 and all(len(r.top_logprobs) == 4 and r.top_logprobs[0].logprob == r.logprob for r in rows)
    streamed = client.chat.completions.create(model="tiny", messages=[{"role": "u", "content": "a"}], max_tokens=3, temperature=0, logprobs=True, stream=True)
    assert [r.token for p in streamed if p.choices[0].logprobs for r in p.choices[0].logprobs.content] == [r.token for r in rows]


def penalised(count, presence, frequency, bias):
    """What eager chooses where logits of tokens that the continuation has are lowered."""
    tokens = list(HELLO)
    with torch.no_grad():
        for _ in range(count):
            logits = tiny()(torch.tensor([tokens]))[0, -1]
            for token, more in bias.items():
                logits[token] += more
            for token in set(tokens[len(HELLO):]):
                logits[token] -= presence + frequency * tokens[len(HELLO):].count(token)
            tokens.append(int(logits.argmax()))
    return coil.llm.Bytes().decode(tokens[len(HELLO):])


@pytest.mark.parametrize("presence,frequency", [(2.0, 0.0), (0.0, 2.0), (1.5, 0.5), (-2.0, -2.0), (0.0, 0.0)])
def test_penalties(client, presence, frequency):
    bias = {greedy(tiny(), HELLO, 3)[2]: 1.0}
    made = client.completions.create(model="tiny", prompt="Hello", max_tokens=15, temperature=0, presence_penalty=presence, frequency_penalty=frequency,
                                     logit_bias={str(t): v for t, v in bias.items()})
    assert made.choices[0].text == penalised(15, presence, frequency, bias)


def test_penalties_change_something(client):
    assert len({penalised(15, *of, {}) for of in ((0.0, 0.0), (2.0, 2.0), (-2.0, -2.0))}) > 1


def test_choices_read_their_prompt_once(client, service):
    """Choices of a prompt go on from what the first one has read; each is what a request with its seed gets."""
    generator, begun = service.RequestHandlerClass.service.generator, []
    prompt = [ord(c) for c in "Unlike others"]
    whole = generator.conversation
    generator.conversation = lambda *of: begun.append(of[0]) or whole(*of)
    try:
        made = client.completions.create(model="tiny", prompt=prompt, max_tokens=6, temperature=1.5, seed=40, n=4).choices
    finally:
        del generator.conversation
    assert begun == [prompt] * (4 if generator.conversations_per_call > 1 else 1)
    for i, choice in enumerate(made):
        alone = client.completions.create(model="tiny", prompt=prompt, max_tokens=6, temperature=1.5, seed=40 + i).choices[0].text
        assert (choice.index, choice.text) == (i, alone)


def test_seeds_repeat(client):
    def ask(seed):
        return client.completions.create(model="tiny", prompt="Hello", max_tokens=8, temperature=2.0, seed=seed).choices[0].text

    assert ask(3) == ask(3) and len({ask(s) for s in range(5)}) > 1


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"max_tokens": 0}, {"n": 1000}, {"presence_penalty": 2.5}, {"frequency_penalty": -3}, {"frequency_penalty": "x"}, {"echo": True}, {"suffix": "x"}, {"logprobs": 1000}, {"prompt": ""},
                                   {"prompt": [1000]}, {"prompt": "a" * (CONTEXT + 9)}, {"model": "another"}])
def test_errors_are_the_clients(client, wrong):
    with pytest.raises(openai.BadRequestError):
        client.completions.create(**{"model": "tiny", "prompt": "Hello", "max_tokens": 2, **wrong})
    assert client.completions.create(model="tiny", prompt="Hello", max_tokens=2, temperature=0).choices[0].text == text_of(HELLO, 2)


def test_full_caches_end_the_text(client):
    """The caches become full while a client reads: it gets the text until then, as one of the greatest length."""
    parts = list(client.completions.create(model="tiny", prompt="Hello", max_tokens=100, temperature=0, stream=True))
    text = "".join(p.choices[0].text for p in parts)
    assert parts[-1].choices[0].finish_reason == "length" and text == text_of(HELLO, CONTEXT - len(HELLO) + 1)
    assert client.completions.create(model="tiny", prompt="Hello", max_tokens=2, temperature=0).choices[0].text == text_of(HELLO, 2)


def test_cancelled_requests_end(client, service):
    """A client that goes away leaves its place to others: streaming, and waiting for the whole."""
    batch = service.RequestHandlerClass.service.batch
    slow, original = threading.Event(), batch.generator.step

    def step(*arguments):  # long enough to see whether the request is still there
        time.sleep(0.05)
        slow.set()
        return [None] * len(arguments[0]) if endless else original(*arguments)

    endless = True
    batch.generator.step = step
    try:
        for stream in (True, False):
            slow.clear()
            with pytest.raises((openai.APITimeoutError, openai.APIConnectionError)):
                client.with_options(timeout=0.5).completions.create(model="tiny", prompt="Hello", max_tokens=8, temperature=0, stream=stream)
            assert slow.is_set()
            end = time.time() + 20
            while batch.active and time.time() < end:
                time.sleep(0.05)
            assert not batch.active, "nobody waits for it"
    finally:
        endless = False
        batch.generator.step = original
    stream = client.completions.create(model="tiny", prompt="Hello", max_tokens=8, temperature=0, stream=True)
    next(iter(stream))
    stream.close()
    assert client.completions.create(model="tiny", prompt="Hello", max_tokens=2, temperature=0).choices[0].text == text_of(HELLO, 2)


def test_many_clients_of_different_lengths(client):
    results, prompts = {}, {k: [65 + j for j in range(1 + k)] for k in range(10)}

    def ask(k):
        results[k] = client.completions.create(model="tiny", prompt=prompts[k], max_tokens=3 + k % 4, temperature=0).choices[0].text

    threads = [threading.Thread(target=ask, args=(k,)) for k in prompts]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {k: text_of(prompts[k], 3 + k % 4) for k in prompts}
