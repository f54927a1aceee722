"""An endpoint that speaks OpenAI's protocol: /v1/completions, /v1/chat/completions (both with streaming), /v1/models.

    python -m coil.llm serve model.coil.pt2 --tokenizer tokenizer.json --port 8000

Requests run side by side, each on a conversation of its own; the model's calls take turns, one token of each conversation after the other. A prompt that
begins as an earlier request's text goes on from a copy of that conversation. Listens on this machine only unless told otherwise; there is no password.
"""

from __future__ import annotations

import collections
import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Iterator

from .._errors import Error, InputError, OptionError
from ._generator import Conversation, Generator, Sampling

MOST_BODY = 16 << 20  # bytes of a request
KEPT = 16             # conversations that later prompts may go on from


class BadRequest(Exception):
    """What the client did wrong; becomes status 400."""


def _number(body: dict, name: str, default: float, low: float, high: float) -> float:
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise BadRequest(f"'{name}' is {value!r}, expected a number from {low} to {high}")
    return value


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
    """A generator behind the protocol; `handle` is independent of HTTP."""

    def __init__(self, generator: Generator, name: str | None = None, chat_template: Any = chat_text, stop: tuple[int, ...] = ()):
        self.generator = generator
        self.name = name or generator.model.name
        self.chat_template = chat_template
        self.stop = stop
        self._turn = threading.Lock()  # of the model: a step of each conversation after the other
        self._kept: collections.OrderedDict[tuple[int, ...], Conversation] = collections.OrderedDict()
        self._kept_lock = threading.Lock()

    def _begin(self, tokens: list[int], sampling: Sampling) -> Conversation:
        """A conversation of these tokens, from the longest kept one that they begin with."""
        with self._kept_lock:
            best = max((known for known in self._kept if len(known) < len(tokens) and tuple(tokens[: len(known)]) == known), key=len, default=None)
            found = self._kept[best] if best else None
        if found is None:
            return self.generator.conversation(tokens, sampling)
        with self._turn:
            talk = found.fork()
        talk.set_sampling(sampling)
        talk.append(tokens[len(best):])  # type: ignore[arg-type]
        return talk

    def _keep(self, talk: Conversation) -> None:
        with self._kept_lock:
            self._kept[tuple(talk.tokens)] = talk
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)

    def _request(self, body: dict, chat: bool) -> tuple[list[int], int, Sampling, list[str]]:
        codec = self.generator.codec
        if chat:
            text = self.chat_template(body.get("messages"))
        else:
            text = body.get("prompt", "")
            if isinstance(text, list) and len(text) == 1 and isinstance(text[0], (str, list)):
                text = text[0]
        if isinstance(text, str):
            tokens = codec.encode(text)
        elif isinstance(text, list) and all(isinstance(t, int) and not isinstance(t, bool) for t in text):
            tokens = text
        else:
            raise BadRequest("'prompt' is text, or a list of tokens; one prompt a request")
        if not tokens:
            raise BadRequest("the prompt is empty")
        if _number(body, "n", 1, 1, 1 << 16) != 1 or _number(body, "best_of", 1, 1, 1 << 16) != 1:
            raise BadRequest("'n' and 'best_of' are 1 here: send several requests")
        most = body.get("max_completion_tokens", body.get("max_tokens"))
        count = int(_number({"max_tokens": most}, "max_tokens", 16 if not chat else 256, 1, 1 << 20))
        stop = body.get("stop") or []
        stop = [stop] if isinstance(stop, str) else stop
        if not isinstance(stop, list) or not all(isinstance(s, str) and s for s in stop):
            raise BadRequest("'stop' is a text, or a list of texts")
        bias = body.get("logit_bias") or {}
        if not isinstance(bias, dict):
            raise BadRequest("'logit_bias' is an object of tokens and numbers")
        try:
            biases = {int(k): float(v) for k, v in bias.items()}
        except (TypeError, ValueError):
            raise BadRequest("'logit_bias' is an object of tokens and numbers") from None
        seed = body.get("seed")
        sampling = Sampling(temperature=_number(body, "temperature", 1.0, 0, 100), top_p=max(_number(body, "top_p", 1.0, 0, 1), 1e-9),
                            top_k=int(_number(body, "top_k", 0, 0, 1 << 40)), min_p=_number(body, "min_p", 0.0, 0, 0.999),
                            repetition_penalty=_number(body, "repetition_penalty", 1.0, 1e-3, 1e3), bias=biases,
                            seed=int(seed) if isinstance(seed, (int, float)) else uuid.uuid4().int & (2**64 - 1))
        return tokens, count, sampling, stop

    def _pieces(self, talk: Conversation, count: int, stop: list[str], end: dict) -> Iterator[str]:
        """Text as it comes; the lock of the model is taken for each step, so that conversations take turns."""
        begin = len(talk.tokens)
        original = talk.generate

        def step(tokens: int = 1, **options: Any) -> list[int]:
            with self._turn:
                return original(tokens, **options)

        talk.generate = step  # type: ignore[method-assign]
        made = 0
        for piece in talk.stream(count, stop=self.stop, stop_text=stop):
            made += len(piece)
            yield piece
        tokens = talk.tokens
        end["tokens"] = len(tokens) - begin
        end["reason"] = "length" if end["tokens"] >= count and tokens[-1] not in self.stop else "stop"
        del talk.generate
        self._keep(talk)

    def handle(self, body: dict, chat: bool) -> tuple[bool, Iterator[dict]]:
        """(whether it streams, the answer's objects). Raises BadRequest; errors of the model come from the iterator."""
        tokens, count, sampling, stop = self._request(body, chat)
        streams = bool(body.get("stream"))
        if body.get("model") not in (None, self.name):
            raise BadRequest(f"there is no model '{body.get('model')}' here, but '{self.name}'")
        head = {"id": ("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex, "created": int(time.time()), "model": self.name,
                "object": ("chat.completion" if chat else "text_completion") + (".chunk" if chat and streams else "")}
        talk = self._begin(tokens, sampling)
        end: dict = {}
        pieces = self._pieces(talk, count, stop, end)

        def usage() -> dict:
            return {"prompt_tokens": len(tokens), "completion_tokens": end["tokens"], "total_tokens": len(tokens) + end["tokens"]}

        def choice(text: str | None, reason: str | None) -> dict:
            row: dict = {"index": 0, "finish_reason": reason, "logprobs": None}
            if not chat:
                row["text"] = text or ""
            elif streams:
                row["delta"] = {} if text is None else {"role": "assistant", "content": text}
            else:
                row["message"] = {"role": "assistant", "content": text}
            return row

        def whole() -> Iterator[dict]:
            text = "".join(pieces)
            yield {**head, "choices": [choice(text, end["reason"])], "usage": usage()}

        def parts() -> Iterator[dict]:
            for piece in pieces:
                yield {**head, "choices": [choice(piece, None)]}
            yield {**head, "choices": [choice(None, end["reason"])]}
            options = body.get("stream_options")
            if isinstance(options, dict) and options.get("include_usage"):
                yield {**head, "choices": [], "usage": usage()}

        return streams, parts() if streams else whole()


def _handler(service: Service) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
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
                self._send(200, {"object": "list", "data": [{"id": service.name, "object": "model", "created": 0, "owned_by": "coil"}]})
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
            chat = self.path.rstrip("/") == "/v1/chat/completions"
            try:
                body = self._body()
                if not chat and self.path.rstrip("/") != "/v1/completions":
                    return self._fail(404, f"there is nothing at {self.path[:200]}")
                streams, answer = service.handle(body, chat)
                first = next(answer)  # errors before the first piece have a status of their own
            except BadRequest as error:
                return self._fail(400, str(error))
            except (InputError, OptionError) as error:
                return self._fail(400, str(error), code=error.code)
            except Error as error:
                return self._fail(500, str(error), "server_error", error.code)
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
            except OSError:
                return  # the client went away
            self.wfile.write(b"data: [DONE]\n\n")

        def _event(self, value: dict) -> None:
            self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")
            self.wfile.flush()

    return Handler


def make_server(generator: Generator, host: str = "127.0.0.1", port: int = 8000, **options: Any) -> ThreadingHTTPServer:
    """A server that is not running yet: `serve_forever()`, `shutdown()`. Port 0: any that is free (`server_address`). `options` are those of Service."""
    server = ThreadingHTTPServer((host, port), _handler(Service(generator, **options)))
    server.daemon_threads = True
    return server
