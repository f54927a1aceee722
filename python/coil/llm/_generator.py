"""Generators, conversations and sampling over the runtime's."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Iterator, Mapping, Sequence

from .. import _runtime
from .._errors import Error, make_error
from .._model import Model, load
from ._pieces import Pieces
from ._tokenizer import TextCodec, codec_of


def _bounded(count: int) -> int:
    """A number of which more than 64 bits say no more."""
    return max(-(2**63), min(count, 2**63 - 1)) if isinstance(count, int) else count


def _possible(token: int) -> bool:
    return not isinstance(token, int) or -(2**63) <= token < 2**63


@dataclasses.dataclass
class Sampling:
    """How the next token is chosen; the rules apply in the order of the fields, as transformers has them.

    The same seed gives the same text; of larger ones the lowest 64 bits count. Biases of tokens that the vocabulary does not have do nothing. `allow(tokens, allowed)` constrains it: `allowed` is a writable memoryview of a byte for each token of the
    vocabulary, 1 on entry; those set to 0 do not come next.
    """

    bias: Mapping[int, float] = dataclasses.field(default_factory=dict)
    repetition_penalty: float = 1.0
    allow: Callable[[list[int], memoryview], None] | None = None
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def _made(self) -> "_runtime.Sampling":
        return _runtime.make_sampling(self.temperature, _bounded(self.top_k), self.top_p, self.min_p, self.repetition_penalty, self.seed & (2**64 - 1),
                                      [(token, bias) for token, bias in self.bias.items() if _possible(token)], self.allow)


class Generator:
    """A language model's package, and how its program is called.

    Takes programs of tokens [1, n] or [n] (int64 or int32), and perhaps their places, to logits [1, n, V], [n, V], [1, V] or [V], where n is 1 or
    dynamic, with caches as buffers or without any; or of several conversations in a call, tokens [slots, n], places [slots, n] and caches [slots, ...] to
    logits [slots, n, V]. Raises COIL-E105 for others, with what is in the way.

    `model`: a path, or a `coil.Model`. `tokenizer`: a tokenizer.json, "bytes", or an object with `encode` and `decode`; None: tokens only.
    """

    def __init__(self, model: Model | str | os.PathLike, tokenizer: Any = None, *, device: Any = None, num_threads: int = 0):
        self.model = model if isinstance(model, Model) else load(model, device, num_threads=num_threads)
        self._generator = _runtime.make_generator(self.model._runtime)
        self._codec = codec_of(tokenizer)

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return self._generator.vocabulary

    @property
    def tokens_per_call(self) -> int:
        """Tokens that one call of the program takes at most."""
        return self._generator.tokens_per_call

    @property
    def conversations_per_call(self) -> int:
        """Conversations that one call of the program serves: 1, or the slots of a program with tokens [slots, n] and caches [slots, ...]."""
        return self._generator.conversations_per_call

    def step(self, conversations: Sequence["Conversation"], most: int = 0) -> list[int | None | Error]:
        """One more token for each of several conversations of any lengths, in as few calls of the program as its slots allow; the same tokens as each
        gets alone. Of each, at most `most` tokens that are not processed yet are (0: as many as a call takes), so that a long prompt does not hold up
        the others: None for one that has some left. What a conversation raises alone is its entry."""
        made = _runtime.step_conversations([c._conversation for c in conversations], _bounded(most))
        return [None if token == -1 else token for token in made]  # type: ignore[misc]

    @property
    def codec(self) -> TextCodec:
        """The tokenizer. Raises COIL-E402 without one."""
        if self._codec is None:
            raise make_error(402, "COIL-E402: the generator has no tokenizer: it takes and gives tokens\n  hint: Generator(model, tokenizer=\"tokenizer.json\")")
        return self._codec

    @property
    def takes_source(self) -> bool:
        """Whether the package has an encoder, and conversations a source that it reads."""
        return self._generator.takes_source

    def _ids(self, text: str | Sequence[int]) -> list[int]:
        ids = self.codec.encode(text) if isinstance(text, str) else [int(t) for t in text]
        for token in ids:
            if not -(2**63) <= token < 2**63:
                raise make_error(210, f"COIL-E210: token {token} is not in the vocabulary of {self.vocabulary}\n  hint: use the tokenizer that the model was trained with")
        return ids

    def conversation(self, prompt: str | Sequence[int] = (), sampling: Sampling | None = None, *, source: str | Sequence[int] | None = None) -> "Conversation":
        """A conversation that begins with the prompt, text or tokens. `source`: what the encoder reads, for models that have one; the prompt is then what
        the decoder begins with."""
        talk = Conversation(self, _runtime.make_conversation(self._generator, (sampling or Sampling())._made()))
        if source is not None:
            talk.set_source(source)
        talk.append(prompt)
        return talk

    def stream(self, prompt: str | Sequence[int], tokens: int = 100, sampling: Sampling | None = None, *, source: str | Sequence[int] | None = None, **options: Any) -> Iterator[str]:
        """Pieces of text as they come; `options` are those of `Conversation.stream`."""
        return self.conversation(prompt, sampling, source=source).stream(tokens, **options)

    def generate(self, prompt: str | Sequence[int], tokens: int = 100, sampling: Sampling | None = None, *, source: str | Sequence[int] | None = None, **options: Any) -> Any:
        """The continuation: text for a prompt that is text, else tokens."""
        talk = self.conversation(prompt, sampling, source=source)
        return "".join(talk.stream(tokens, **options)) if isinstance(prompt, str) else talk.generate(tokens, **options)


class Conversation:
    """The tokens so far and the model's state after them. What fails leaves the tokens as they were. Calls from several threads take turns."""

    def __init__(self, generator: Generator, conversation: "_runtime.Conversation"):
        self.generator = generator
        self._conversation = conversation

    @property
    def tokens(self) -> list[int]:
        """All tokens: the prompt's, what was appended, what was generated."""
        return self._conversation.tokens

    @property
    def text(self) -> str:
        """The tokens as text."""
        return self.generator.codec.decode(self.tokens)

    def append(self, more: str | Sequence[int]) -> None:
        """Adds text or tokens of the caller's; the next step processes them. Raises COIL-E210 for tokens outside of the vocabulary."""
        self._conversation.append(self.generator._ids(more))

    @property
    def source(self) -> list[int]:
        """The tokens that the encoder has read; empty before it has, and for models without one."""
        return self._conversation.source

    def set_source(self, source: str | Sequence[int]) -> None:
        """Has the encoder read text or tokens: everything is generated under them from now on. Raises COIL-E210 for tokens that it does not take, COIL-E402
        for models without an encoder."""
        self._conversation.set_source(self.generator._ids(source))

    def generate(self, tokens: int = 1, *, stop: Sequence[int] = (), draft: int = 0, steps: int = 0) -> list[int]:
        """At most so many new tokens, up to one of `stop`. `draft`: so many tokens of an earlier repetition are tried in one call; the same tokens
        in fewer calls. `steps`: how many a GPU makes before the first one is looked at; the same tokens with less waiting. 0: as many as there can be
        without `stop`, else 1; more than 1 with `stop` is for models whose state is caches by place."""
        return self._conversation.generate(_bounded(tokens), [t for t in stop if _possible(t)], _bounded(draft), _bounded(steps))

    def stream(self, tokens: int = 100, *, stop: Sequence[int] = (), stop_text: Sequence[str] = (), draft: int = 0, steps: int = 1) -> Iterator[str]:
        """Pieces of text as they come, without what ends it: a token of `stop`, or a text of `stop_text`. `steps`: tokens of a piece."""
        pieces = Pieces(self.generator.codec, tokens, stop, stop_text)
        while pieces.reason is None and pieces.tokens < tokens:
            piece = pieces.add(self.generate(min(max(draft + 1, steps), tokens - pieces.tokens), stop=stop, draft=draft, steps=steps))
            if piece:
                yield piece

    def watch(self, count: int | None) -> None:
        """From now on `chances` tells of each new token how likely it was, and which `count` tokens were the most likely ones. None: no longer."""
        self._conversation.watch(-1 if count is None else _bounded(count))

    @property
    def chances(self) -> list[tuple[tuple[int, float], list[tuple[int, float]]]]:
        """Of each token that the last call added, if it is watched: (token, logarithm of its probability), and the same of the most likely ones, by the
        model's own logits (no temperature, no bias)."""
        return self._conversation.chances

    def fork(self) -> "Conversation":
        """Another conversation that goes on from here."""
        return Conversation(self.generator, self._conversation.fork())

    def truncate(self, count: int) -> None:
        """Forgets all but the first `count` tokens. For models whose state is caches by place."""
        self._conversation.truncate(_bounded(count))

    def set_sampling(self, sampling: Sampling) -> None:
        """From the next token on."""
        self._conversation.set_sampling(sampling._made())

    def save(self) -> bytes:
        """Tokens and state, for `restore` with the same package in any process."""
        return self._conversation.save()

    def restore(self, saved: bytes) -> None:
        """Raises COIL-E213 for damaged bytes and those of another model; then nothing changes."""
        self._conversation.restore(saved)
