"""Text to tokens and back."""

from __future__ import annotations

import os
from typing import Any, Iterable, Protocol

from .._errors import make_error


class TextCodec(Protocol):
    """What a generator needs of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, tokens: Iterable[int]) -> str: ...


def check_text(text: str) -> str:
    """Raises COIL-E210 for text that is none: with halves of a surrogate pair, as JSON may have them."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise make_error(210, f"COIL-E210: the text has half of a surrogate pair at character {error.start}\n  hint: pass text that can be written in UTF-8") from None
    return text


class Bytes:
    """The tokens are the bytes of the text in UTF-8."""

    def encode(self, text: str) -> list[int]:
        return list(check_text(text).encode())

    def decode(self, tokens: Iterable[int]) -> str:
        return bytes(t for t in tokens if 0 <= t < 256).decode(errors="replace")


class Tokenizer:
    """A `tokenizer.json` of Hugging Face's tokenizers (the package `tokenizers` is needed)."""

    def __init__(self, path: str | os.PathLike):
        try:
            import tokenizers
        except ImportError:
            raise make_error(402, "COIL-E402: reading a tokenizer.json needs the package 'tokenizers'\n  hint: pip install tokenizers") from None
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(os.fspath(path))
        except Exception as error:  # the package has no class of its own for it
            raise make_error(15, f"COIL-E015: '{os.fspath(path)}' is no tokenizer: {error}") from None

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(check_text(text)).ids

    def decode(self, tokens: Iterable[int]) -> str:
        return self._tokenizer.decode(list(tokens))


def codec_of(tokenizer: Any) -> TextCodec | None:
    """A path, "bytes", None, or an object with `encode` and `decode` (a tokenizer of transformers)."""
    if tokenizer is None or (hasattr(tokenizer, "encode") and hasattr(tokenizer, "decode")):
        return tokenizer
    return Bytes() if tokenizer == "bytes" else Tokenizer(tokenizer)
