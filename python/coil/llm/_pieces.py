"""Tokens to pieces of text as they come."""

from __future__ import annotations

from typing import Sequence

from ._tokenizer import TextCodec


class Pieces:
    """The text of one continuation of at most `most` tokens, without what ends it: a token of `stop`, or a text of `stop_text`."""

    def __init__(self, codec: TextCodec, most: int, stop: Sequence[int] = (), stop_text: Sequence[str] = ()):
        self._codec, self._most, self._stop, self._stop_text = codec, most, stop, [t for t in stop_text if t]
        self._held = max((len(t) for t in self._stop_text), default=1) - 1
        self._text: list[int] = []
        self._given = 0
        self.tokens = 0
        """So many there were, with the one that ended it."""
        self.reason: str | None = None
        """Why it is over: "stop", "length"; None: it is not."""

    def add(self, tokens: Sequence[int]) -> str:
        """The next piece; often "". The last of the tokens may be one that ends the text."""
        self.tokens += len(tokens)
        if tokens and tokens[-1] in self._stop:
            self.reason, tokens = "stop", tokens[:-1]
        elif self.tokens >= self._most:
            self.reason = "length"
        self._text += tokens
        text = self._codec.decode(self._text)
        at = min((i for i in (text.find(t, max(0, self._given - self._held)) for t in self._stop_text) if i >= 0), default=-1)
        if at >= 0:
            text, self.reason = text[:at], "stop"
        # A character whose bytes are not all there yet is not given, nor what may be the beginning of a text that ends it.
        ready = len(text) if self.reason else max(self._given, len(text.rstrip("\ufffd")) - self._held)
        piece, self._given = text[self._given : ready], max(ready, self._given)
        return piece

    def end(self, reason: str) -> str:
        """The last piece, where no more tokens can come."""
        self.reason = reason
        text = self._codec.decode(self._text)
        piece, self._given = text[self._given :], len(text)
        return piece
