"""Many requests on one generator at a time: a thread steps all conversations together, so that requests come and go while others go on."""

from __future__ import annotations

import collections
import dataclasses
import queue
import threading
from typing import Any, Iterator, Sequence

from .._errors import Error, InputError
from ._generator import Conversation, Generator, Sampling
from ._pieces import Pieces

MOST_ACTIVE = 64  # conversations that are stepped at a time, where calls serve one each
KEPT = 16         # conversations that later prompts may go on from
CHUNK = 64        # tokens of a prompt in a step, where others wait for theirs

Chances = tuple[tuple[int, float], list[tuple[int, float]]]


@dataclasses.dataclass
class Piece:
    """A part of a continuation: text, and how likely its tokens were if that is asked for."""

    text: str
    chances: list[Chances]
    reason: str | None
    """Why it is the last one: "stop", "length"; None: it is not."""
    tokens: int
    """So many there are until here."""


@dataclasses.dataclass(frozen=True)
class Penalties:
    """What logits of tokens lose that the continuation has already: once, and for each time."""

    presence: float = 0.0
    frequency: float = 0.0


class Request:
    """A prompt whose continuation is asked for."""

    def __init__(self, prompt: list[int], tokens: int, sampling: Sampling, stop: Sequence[int] = (), stop_text: Sequence[str] = (), chances: int | None = None,
                 penalties: Penalties = Penalties(), twin: Request | None = None):
        self.prompt, self.tokens, self.sampling, self.stop, self.stop_text, self.chances = prompt, tokens, sampling, stop, stop_text, chances
        self.penalties = penalties
        self.twin = twin
        """An earlier request of the same prompt, which it need not read again (where calls serve one conversation each; else they read it together)."""
        self.has_twins = False
        self.read: Conversation | None = None
        """The prompt, read, for the twins."""
        if twin is not None:
            twin.has_twins = True
        self._answers: queue.SimpleQueue[Piece | BaseException | None] = queue.SimpleQueue()
        self.cancelled = False

    def cancel(self) -> None:
        """Nobody wants the rest: the conversation is given up before the next step."""
        self.cancelled = True

    def pieces(self, gone: Any = None) -> Iterator[Piece]:
        """As they come; the last one has a reason. Raises what the conversation raises. `gone()`: whether nobody waits any more; asked now and then."""
        try:
            while True:
                try:
                    answer = self._answers.get(timeout=None if gone is None else 0.25)
                except queue.Empty:
                    if gone():
                        return
                    continue
                if answer is None:
                    return
                if isinstance(answer, BaseException):
                    raise answer
                yield answer
                if answer.reason:
                    return
        finally:
            self.cancel()


class _Active:
    def __init__(self, request: Request, talk: Conversation, generator: Generator):
        self.request, self.talk, self.begin = request, talk, len(request.prompt)
        self.pieces = Pieces(generator.codec, request.tokens, request.stop, request.stop_text)
        self.chances: list[Chances] = []
        self._counts: collections.Counter[int] = collections.Counter()

    def penalise(self, token: int) -> None:
        """The continuation has it once more: the sampling of the next token is another one."""
        penalties, sampling = self.request.penalties, self.request.sampling
        if penalties == Penalties():
            return
        self._counts[token] += 1
        bias = dict(sampling.bias)
        for known, count in self._counts.items():
            bias[known] = bias.get(known, 0.0) - penalties.presence - penalties.frequency * count
        self.talk.set_sampling(dataclasses.replace(sampling, bias=bias))


class Batch:
    """Serves requests until `close`. Any thread may submit. As many conversations are stepped at a time as a call serves (others wait their turn), or
    MOST_ACTIVE where calls serve one each. A prompt that begins as an earlier text goes on from that conversation."""

    def __init__(self, generator: Generator):
        self.generator = generator
        self._slots = generator.conversations_per_call if generator.conversations_per_call > 1 else 0
        self._waiting: collections.deque[Request] = collections.deque()
        self._wake = threading.Condition()
        self._closed = False
        self._active: list[_Active] = []
        self._kept: collections.OrderedDict[tuple[int, ...], Conversation] = collections.OrderedDict()
        self._thread = threading.Thread(target=self._serve, name="coil.llm", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> Request:
        with self._wake:
            if self._closed:
                request._answers.put(None)
            self._waiting.append(request)
            self._wake.notify()
        return request

    def close(self) -> None:
        """Ends requests that are under way."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    @property
    def active(self) -> int:
        """Conversations that are being stepped."""
        return len(self._active)

    def _serve(self) -> None:
        while True:
            with self._wake:
                while not (self._closed or self._waiting or self._active):
                    self._wake.wait()
                if self._closed:
                    break
            self._admit()
            self._step()
        for request in [a.request for a in self._active] + list(self._waiting):
            request._answers.put(None)
        self._active.clear()
        self._kept.clear()

    def _next(self) -> Request | None:
        """The first of those who wait and whose twin has read the prompt, or never will."""
        reading = {id(a.request) for a in self._active if a.request.has_twins and not a.pieces.tokens and not self._slots}
        with self._wake:
            found = next((r for r in self._waiting if r.cancelled or id(r.twin) not in reading), None)
            if found is not None:
                self._waiting.remove(found)
        return found

    def _admit(self) -> None:
        while len(self._active) < (self._slots or MOST_ACTIVE):
            request = self._next()
            if request is None:
                return
            if request.cancelled:
                continue
            try:
                self._active.append(_Active(request, self._begin(request), self.generator))
            except Exception as error:  # of this request alone
                request._answers.put(error)

    def _begin(self, request: Request) -> Conversation:
        """A conversation of the prompt, from the longest kept one that it begins with."""
        tokens = request.prompt
        if request.twin is not None and request.twin.read is not None:
            talk = request.twin.read.fork()
            talk.set_sampling(request.sampling)
            talk.watch(request.chances)
            return talk
        best = max((known for known in self._kept if len(known) < len(tokens) and tuple(tokens[: len(known)]) == known), key=len, default=None)
        if best is None:
            while self._slots and self._kept and len(self._active) + len(self._kept) >= self._slots:
                self._kept.popitem(last=False)
            talk = self.generator.conversation(tokens, request.sampling)
        else:  # slots are few: the kept conversation itself goes on
            talk = self._kept.pop(best) if self._slots else self._kept[best].fork()
            talk.set_sampling(request.sampling)
            talk.append(tokens[len(best):])
        talk.watch(request.chances)
        return talk

    def _step(self) -> None:
        self._active = [a for a in self._active if not a.request.cancelled]
        if not self._active:
            return
        try:
            results = self.generator.step([a.talk for a in self._active], CHUNK if len(self._active) > 1 else 0)
        except Exception as error:  # of none of them: no memory, say. Those who wait hear of it, and later requests are served
            for one in self._active:
                one.request._answers.put(error)
            self._active = []
            return
        left = []
        for one, result in zip(self._active, results):
            try:
                if isinstance(result, InputError) and one.pieces.tokens:  # the caches are full: what there is by then is the answer
                    self._answer(one, one.pieces.end("length"))
                    continue
                if isinstance(result, Error):
                    raise result
                over = result is not None and self._give(one, result)
            except Exception as error:
                one.request._answers.put(error)
                over = True
            if not over:
                left.append(one)
        self._active = left

    def _give(self, one: _Active, token: int) -> bool:
        """Whether the request is over."""
        one.chances += one.talk.chances
        if one.request.has_twins and one.pieces.tokens == 0 and not self._slots:
            one.request.read = self._read(one)
        self._answer(one, one.pieces.add([token]))
        if one.pieces.reason is None:
            one.penalise(token)
            return False
        one.talk.watch(None)
        self._kept[tuple(one.talk.tokens)] = one.talk
        while len(self._kept) > (min(KEPT, self._slots // 2) if self._slots else KEPT):
            self._kept.popitem(last=False)
        return True

    @staticmethod
    def _read(one: _Active) -> Conversation | None:
        """The prompt's conversation as it was before its first token; None for states that cannot go back."""
        try:
            talk = one.talk.fork()
            talk.truncate(one.begin)
            return talk
        except Error:
            return None

    @staticmethod
    def _answer(one: _Active, text: str) -> None:
        if text or one.pieces.reason:
            one.request._answers.put(Piece(text, one.chances, one.pieces.reason, one.pieces.tokens))
            one.chances = []
