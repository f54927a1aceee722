"""An endpoint that speaks OpenAI's protocol: /v1/completions, /v1/chat/completions (both with streaming), /v1/models.

    python -m coil.llm serve model.coil.pt2 --tokenizer tokenizer.json --port 8000

Requests run side by side, each on a conversation of its own, and come and go while others go on: each step makes one token of each, in one call of
programs that serve several conversations, else in turns; long prompts are read in pieces beside the others' steps. A prompt that begins as an earlier
request's text goes on from that conversation. A client that goes away ends its request. Listens on this machine only unless told otherwise; there is no
password.
"""

from __future__ import annotations

import dataclasses
import json
import select
import socket
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Iterator

from .._errors import Error, InputError, OptionError, make_error
from ._batch import Batch, Chances, Penalties, Piece, Request
from ._generator import Generator, Sampling

MOST_BODY = 16 << 20  # bytes of a request
MOST_CHANCES = 20     # tokens whose probabilities a client may ask for at each place
MOST_CHOICES = 128    # continuations of a request

# What changes the answer and is not there: refused unless it says nothing. Others (user, store, metadata, ...) are ignored.
_ABSENT: dict[str, tuple] = {"echo": (False,), "suffix": ("",), "tools": ([],), "functions": ([],),
                             "response_format": ({"type": "text"},), "modalities": (["text"],)}


class BadRequest(Exception):
    """What the client did wrong; becomes status 400."""


def _number(body: dict, name: str, default: float, low: float, high: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise BadRequest(f"'{name}' is {value!r}, expected a number from {low} to {high}")
    return value


def _whole_number(body: dict, name: str, default: int, low: int, high: int) -> int:
    value = _number(body, name, default, low, high)
    if value != int(value):
        raise BadRequest(f"'{name}' is {value!r}, expected a whole number")
    return int(value)


def _truth(body: dict, name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise BadRequest(f"'{name}' is {value!r}, expected true or false")
    return bool(value)


def _biases(body: dict, vocabulary: int) -> dict[int, float]:
    bias = body.get("logit_bias") or {}
    try:
        biases = {int(k): float(v) for k, v in bias.items()}
    except (AttributeError, TypeError, ValueError):
        raise BadRequest("'logit_bias' is an object of tokens and numbers") from None
    for token in biases:
        if not 0 <= token < vocabulary:
            raise BadRequest(f"'logit_bias' names a token that is not in the vocabulary of {vocabulary}")
    return biases


def _stops(body: dict) -> list[str]:
    stop = body.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(s, str) and s for s in stop):
        raise BadRequest("'stop' is a text, or a list of texts")
    return stop


def _chances_of(body: dict, chat: bool) -> int | None:
    """How many of the likeliest tokens the answer tells at each place, besides the chosen one; None: nothing."""
    if chat:
        wanted = body.get("logprobs") or False
        if not isinstance(wanted, bool):
            raise BadRequest("'logprobs' of a chat is true or false; 'top_logprobs' says how many")
        return _whole_number(body, "top_logprobs", 0, 0, MOST_CHANCES) if wanted else None
    wanted = body.get("logprobs")
    return None if wanted is None or wanted is False else _whole_number(body, "logprobs", 0, 0, MOST_CHANCES)


def _sampling(body: dict, vocabulary: int) -> Sampling:
    seed = body.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise BadRequest(f"'seed' is {seed!r}, expected a whole number")
    return Sampling(temperature=_number(body, "temperature", 1.0, 0, 100), top_p=max(_number(body, "top_p", 1.0, 0, 1), 1e-9),
                    top_k=_whole_number(body, "top_k", 0, 0, 1 << 40), min_p=_number(body, "min_p", 0.0, 0, 0.999),
                    repetition_penalty=_number(body, "repetition_penalty", 1.0, 1e-3, 1e3), bias=_biases(body, vocabulary),
                    seed=uuid.uuid4().int & (2**64 - 1) if seed is None else seed)


def chat_text(messages: Any) -> str:
    """Messages as plain text, for models without a template of their own: "role: content" lines."""
    if not isinstance(messages, list) or not messages:
        raise BadRequest("'messages' is no list of messages")
    lines = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequest("each of 'messages' has a 'role' and a 'content'")
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content if isinstance(part, dict) and part.get("type") == "text")
        if not isinstance(content, str):
            raise BadRequest("the 'content' of a message is text")
        lines.append(f"{message['role']}: {content}")
    return "\n".join(lines) + "\nassistant:"


class Service:
    """A generator behind the protocol; `handle` is independent of HTTP. `close` ends its thread."""

    def __init__(self, generator: Generator, name: str | None = None, chat_template: Any = chat_text, stop: tuple[int, ...] = ()):
        self.generator = generator
        self.name = name or generator.model.name
        self.chat_template = chat_template
        self.stop = stop
        self.batch = Batch(generator)

    def close(self) -> None:
        self.batch.close()

    def _prompts(self, body: dict, chat: bool) -> list[list[int]]:
        """The tokens of each text that is to be continued."""
        given = self.chat_template(body.get("messages")) if chat else body.get("prompt", "")
        texts = given if isinstance(given, list) and given and all(isinstance(t, (str, list)) for t in given) else [given]
        prompts = []
        for text in texts:
            if isinstance(text, str):
                tokens = self.generator.codec.encode(text)
            elif isinstance(text, list) and all(isinstance(t, int) and not isinstance(t, bool) for t in text):
                tokens = text
            else:
                raise BadRequest("'prompt' is text, or a list of tokens, or a list of such")
            if not tokens:
                raise BadRequest("the prompt is empty")
            prompts.append(tokens)
        return prompts

    def _requests(self, body: dict, chat: bool) -> list[Request]:
        """One for each choice of the answer: of each prompt `n`, whose seeds follow each other."""
        count = _whole_number(body, "n", 1, 1, MOST_CHOICES)
        if _whole_number(body, "best_of", count, 1, 1 << 16) != count:
            raise BadRequest("'best_of' is 'n' here: all continuations are returned")
        for name, nothing in _ABSENT.items():
            if body.get(name) is not None and body[name] not in nothing:
                raise BadRequest(f"'{name}' is not supported here")
        most = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
        tokens = _whole_number(body, most, 16 if not chat else 256, 1, 1 << 20)
        sampling, stop, chances = _sampling(body, self.generator.vocabulary), _stops(body), _chances_of(body, chat)
        penalties = Penalties(_number(body, "presence_penalty", 0.0, -2, 2), _number(body, "frequency_penalty", 0.0, -2, 2))
        prompts = self._prompts(body, chat)
        if count * len(prompts) > MOST_CHOICES:
            raise BadRequest(f"a request has at most {MOST_CHOICES} choices: prompts times 'n'")
        requests: list[Request] = []
        for prompt in prompts:
            for i in range(count):
                own = dataclasses.replace(sampling, seed=(sampling.seed + i) & (2**64 - 1))
                requests.append(Request(prompt, tokens, own, self.stop, stop, chances, penalties, twin=requests[-i] if i else None))
        return requests

    def handle(self, body: dict, chat: bool, gone: Callable[[], bool] | None = None) -> tuple[bool, Iterator[dict]]:
        """(whether it streams, the answer's objects). Raises BadRequest; errors of the model come from the iterator, which ends early where `gone()` says
        that the client has left."""
        requests, streams = self._requests(body, chat), _truth(body, "stream")
        if body.get("model") not in (None, self.name):
            raise BadRequest(f"there is no model '{body.get('model')}' here, but '{self.name}'")
        head = {"id": ("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex, "created": int(time.time()), "model": self.name,
                "object": ("chat.completion" if chat else "text_completion") + (".chunk" if chat and streams else "")}
        answer = _Answer(self, requests, chat, streams)
        for request in requests:
            self.batch.submit(request)
        options = body.get("stream_options")
        with_usage = isinstance(options, dict) and bool(options.get("include_usage"))
        return streams, answer.events(head, with_usage, gone) if streams else answer.whole(head, gone)


class _Answer:
    """What becomes of the requests of one body, in the protocol's form. They run side by side; in a stream the choices follow each other."""

    def __init__(self, service: Service, requests: list[Request], chat: bool, streams: bool):
        self.service, self.requests, self.chat, self.streams = service, requests, chat, streams

    def _pieces(self, gone: Callable[[], bool] | None) -> Iterator[tuple[int, Piece]]:
        """With the number of the choice. What is not wanted any more, be it for an error of one of them, is given up."""
        try:
            for i, request in enumerate(self.requests):
                for piece in request.pieces(gone):
                    yield i, piece
        finally:
            for request in self.requests:
                request.cancel()

    def _usage(self, count: int) -> dict:
        prompts = sum(len(p) for p in {id(r.prompt): r.prompt for r in self.requests}.values())
        return {"prompt_tokens": prompts, "completion_tokens": count, "total_tokens": prompts + count}

    def _choice(self, index: int, text: str | None, reason: str | None, chances: list[Chances], place: list[int]) -> dict:
        row: dict = {"index": index, "finish_reason": reason, "logprobs": None}
        if self.requests[index].chances is not None and (chances or reason is None):
            row["logprobs"] = self._chances(chances, place)
        if not self.chat:
            row["text"] = text or ""
        elif self.streams:
            row["delta"] = {} if text is None else {"role": "assistant", "content": text}
        else:
            row["message"] = {"role": "assistant", "content": text}
        return row

    def whole(self, head: dict, gone: Callable[[], bool] | None) -> Iterator[dict]:
        parts: list[list[Piece]] = [[] for _ in self.requests]
        for i, piece in self._pieces(gone):
            parts[i].append(piece)
        if not all(p and p[-1].reason for p in parts):
            return
        choices = [self._choice(i, "".join(p.text for p in of), of[-1].reason, [c for p in of for c in p.chances], [0]) for i, of in enumerate(parts)]
        yield {**head, "choices": choices, "usage": self._usage(sum(of[-1].tokens for of in parts))}

    def events(self, head: dict, with_usage: bool, gone: Callable[[], bool] | None) -> Iterator[dict]:
        places, count, ended = [[0] for _ in self.requests], 0, 0
        for i, piece in self._pieces(gone):
            if piece.text or piece.chances:
                yield {**head, "choices": [self._choice(i, piece.text, None, piece.chances, places[i])]}
            if piece.reason is None:
                continue
            yield {**head, "choices": [self._choice(i, None, piece.reason, [], places[i])]}
            count, ended = count + piece.tokens, ended + 1
        if with_usage and ended == len(self.requests):
            yield {**head, "choices": [], "usage": self._usage(count)}

    def _chances(self, chances: list[Chances], place: list[int]) -> dict:
        """How likely tokens were, in the form of chats or of completions. Tokens are told by their text: of those with the same one the likeliest."""
        def text(token: int) -> str:
            return self.service.generator.codec.decode([token])

        if self.chat:
            def row(token: int, chance: float) -> dict:
                return {"token": text(token), "logprob": chance, "bytes": list(text(token).encode())}

            return {"content": [{**row(*chosen), "top_logprobs": [row(*b) for b in best]} for chosen, best in chances], "refusal": None}
        offsets = []
        for (token, _), _ in chances:
            offsets.append(place[0])
            place[0] += len(text(token))
        return {"tokens": [text(t) for (t, _), _ in chances], "token_logprobs": [c for (_, c), _ in chances],
                "top_logprobs": [{text(t): c for t, c in reversed(best)} for _, best in chances], "text_offset": offsets}


class _Handler(BaseHTTPRequestHandler):
    """A connection; `service` is that of the server (_handler)."""
    service: Service
    protocol_version = "HTTP/1.1"
    timeout = 60

    def log_message(self, format: str, *args: Any) -> None:  # the command prints what it wants to
        pass

    def _send(self, status: int, value: dict) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _fail(self, status: int, message: str, kind: str = "invalid_request_error", code: str | None = None) -> None:
        self._send(status, {"error": {"message": message, "type": kind, "param": None, "code": code}})

    def do_GET(self) -> None:
        if self.path.rstrip("/") == "/v1/models":
            self._send(200, {"object": "list", "data": [{"id": self.service.name, "object": "model", "created": 0, "owned_by": "coil"}]})
        else:
            self._fail(404, f"there is nothing at {self.path[:200]}")

    def _body(self) -> dict:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MOST_BODY:
            self.close_connection = True
            raise BadRequest(f"a request has a Content-Length of at most {MOST_BODY}")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise BadRequest("the request is no JSON") from None
        if not isinstance(body, dict):
            raise BadRequest("the request is no JSON object")
        return body

    def do_POST(self) -> None:
        try:
            self._answer()
        except OSError:  # the client went away
            self.close_connection = True

    def _answer(self) -> None:
        chat = self.path.rstrip("/") == "/v1/chat/completions"
        try:
            body = self._body()
            if not chat and self.path.rstrip("/") != "/v1/completions":
                return self._fail(404, f"there is nothing at {self.path[:200]}")
            streams, answer = self.service.handle(body, chat, self._gone)
            first = next(answer, None)  # errors before the first piece have a status of their own
            if first is None:  # the client or the service has gone
                self.close_connection = True
                return None if self._gone() else self._fail(503, "the service is closed", "server_error")
        except BadRequest as error:
            return self._fail(400, str(error))
        except (InputError, OptionError) as error:
            return self._fail(400, str(error), code=error.code)
        except Error as error:
            return self._fail(500, str(error), "server_error", error.code)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault of ours, or of a chat template: the client hears of it
            return self._fail(500, f"{type(error).__name__}: {error}", "server_error")
        if not streams:
            return self._send(200, first)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self._event(first)
            for value in answer:
                self._event(value)
        except Error as error:
            self._event({"error": {"message": str(error), "type": "server_error", "param": None, "code": error.code}})
        finally:
            answer.close()  # type: ignore[attr-defined]
        self.wfile.write(b"data: [DONE]\n\n")

    def _gone(self) -> bool:
        """Whether the client has closed the connection: then there is something to read, and it is nothing."""
        try:
            return bool(select.select([self.connection], [], [], 0)[0]) and self.connection.recv(1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True

    def _event(self, value: dict) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()


def _handler(of: Service) -> type[BaseHTTPRequestHandler]:
    return type("_ServiceHandler", (_Handler,), {"service": of})


def make_server(generator: Generator, host: str = "127.0.0.1", port: int = 8000, **options: Any) -> ThreadingHTTPServer:
    """A server that is not running yet: `serve_forever()`, `shutdown()`. Port 0: any that is free (`server_address`). `options` are those of Service."""
    if generator.takes_source:
        raise make_error(105, "COIL-E105: the model has an encoder, and the protocol no place for what it reads\n  hint: call it from Python: conversation(prompt, source=...)")
    service = Service(generator, **options)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 1024  # clients that connect at once: beyond so many the system turns them away

        def server_close(self) -> None:
            super().server_close()
            service.close()

    return Server((host, port), _handler(service))
