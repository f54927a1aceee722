"""The HTTP endpoint of coil.llm (`coil.llm.serve`): completions, chats, errors, nonsense, many clients at once."""

import http.client
import json
import threading

import pytest

import coil
import coil.llm
import tiny_decoder
from coil.llm._batch import Batch, Request
from coil.llm.serve import make_server
from tiny_decoder import CONTEXT, PROMPT, greedy, tiny


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    package = tiny_decoder.package_of(tmp_path_factory.mktemp("decoder"))
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


@pytest.mark.parametrize("body", [{}, {"prompt": ""}, {"prompt": "a", "temperature": "x"}, {"prompt": "a", "max_tokens": 0}, {"prompt": "a", "max_tokens": 1.5}, {"prompt": [300]},
                                  {"prompt": [2**70]}, {"prompt": "\ud800"}, {"prompt": "a", "seed": "x"}, {"prompt": "a", "seed": float("inf")}, {"prompt": "a", "seed": True},
                                  {"prompt": "a", "logit_bias": {"300": 1}}, {"prompt": "a", "logit_bias": {"-1": 1}}, {"prompt": "a", "logit_bias": {"9" * 30: 1}}, {"prompt": "a", "stream": "yes"},
                                  {"prompt": "a", "n": 0}, {"prompt": "a", "n": 2, "best_of": 3}, {"prompt": ["a"] * 40, "n": 4}, {"prompt": ["a", ""]}, {"prompt": "a", "temperature": float("nan")},
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


def test_endpoint_gives_several_choices(server):
    """Of each prompt `n`, with seeds that follow each other; the same in a stream."""
    body = {"prompt": ["Hello", "abc"], "n": 3, "max_tokens": 6, "seed": 11, "temperature": 1.5}
    answer = json.loads(post(server, "/v1/completions", body)[1])
    texts = [c["text"] for c in answer["choices"]]
    assert [c["index"] for c in answer["choices"]] == list(range(6)) and len(set(texts)) > 2
    assert answer["usage"] == {"prompt_tokens": 8, "completion_tokens": 36, "total_tokens": 44}
    for k, prompt in enumerate(["Hello", "abc"]):
        for i in range(3):
            alone = json.loads(post(server, "/v1/completions", {**body, "prompt": prompt, "n": 1, "seed": 11 + i})[1])
            assert alone["choices"][0]["text"] == texts[3 * k + i]
    parts = events(post(server, "/v1/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})[1])
    streamed = ["".join(c["text"] for p in parts for c in p["choices"] if c["index"] == i) for i in range(6)]
    assert streamed == texts and parts[-1]["usage"] == answer["usage"]
    chat = json.loads(post(server, "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "n": 2, "max_tokens": 3})[1])
    assert [c["message"]["role"] for c in chat["choices"]] == ["assistant"] * 2
    # A prompt of them that is too long ends the request.
    assert post(server, "/v1/completions", {"prompt": ["a", "a" * (CONTEXT + 9)], "max_tokens": 2})[0] == 400


def test_a_step_that_fails_ends_its_requests_alone(tmp_path, monkeypatch):
    generator = coil.llm.Generator(tiny_decoder.package_of(tmp_path), tokenizer="bytes")
    batch, step = Batch(generator), generator.step

    def failing(talks, most=0):
        monkeypatch.setattr(generator, "step", step)
        raise MemoryError("no room")

    monkeypatch.setattr(generator, "step", failing)
    with pytest.raises(MemoryError):
        list(batch.submit(Request(PROMPT, 4, coil.llm.Sampling())).pieces())
    pieces = list(batch.submit(Request(PROMPT, 4, coil.llm.Sampling())).pieces())
    batch.close()
    assert "".join(p.text for p in pieces) == coil.llm.Bytes().decode(greedy(tiny(), PROMPT, 4)) and batch.active == 0


def test_endpoint_ends_where_the_caches_are_full(server):
    status, content = post(server, "/v1/completions", {"prompt": "Hello", "max_tokens": 10 * CONTEXT, "temperature": 0})
    answer = json.loads(content)
    assert status == 200 and answer["choices"][0]["finish_reason"] == "length"
    made = answer["usage"]["completion_tokens"]
    assert made == CONTEXT - 4  # the last of them has no place any more
    assert answer["choices"][0]["text"] == coil.llm.Bytes().decode(greedy(tiny(), PROMPT, made))


def test_endpoint_tells_chances_of_the_chosen_alone(server):
    of = json.loads(post(server, "/v1/completions", {"prompt": "Hello", "max_tokens": 3, "temperature": 0, "logprobs": 0})[1])["choices"][0]["logprobs"]
    assert len(of["token_logprobs"]) == 3 and all(c < 0 for c in of["token_logprobs"]) and of["top_logprobs"] == [{}, {}, {}]


class Letters:
    """Two bytes of each letter are tokens of their own, and a stop text has parts of several tokens."""

    def decode(self, tokens):
        return bytes(tokens).decode(errors="replace")


@pytest.mark.parametrize("text,stop,want", [("\u00e4\u20ac\U0001f600x", [], "\u00e4\u20ac\U0001f600x"), ("one two three", ["o t"], "one tw"), ("aab aac", ["aac"], "aab "), ("aaab", ["aab"], "a"),
                                            ("\u20ac\u20ad", ["\u20ad"], "\u20ac")])
def test_pieces_of_split_letters_and_stops(text, stop, want):
    from coil.llm._pieces import Pieces

    pieces, made = Pieces(Letters(), 100, stop_text=stop), []
    for byte in text.encode():
        made.append(pieces.add([byte]))
        if pieces.reason:
            break
    else:
        made.append(pieces.end("length"))
    assert "".join(made) == want and "\ufffd" not in "".join(made)
