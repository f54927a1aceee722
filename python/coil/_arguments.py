"""What callers pass, looked at before it goes further: a value of a wrong kind is an error that names the argument."""

from __future__ import annotations

import operator
import os
from typing import Any, Mapping

from ._errors import option_error

_LARGEST = 2**31 - 1  # the compiler's and the runtime's numbers are of 32 bits


def said(value: Any) -> str:
    """A value in a message: at most a line, whatever its own `repr` does."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."


def path_of(path: Any, argument: str) -> str:
    """The name of a file, with surrogate escapes for bytes that are not UTF-8, as os.fsdecode has them."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise option_error(f"'{argument}' is {said(path)}", "a path: text, bytes or os.PathLike")
    name = os.fsdecode(path)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        raise option_error(f"'{argument}' is {said(name)}, which no file can be called") from None
    if "\0" in name:
        raise option_error(f"'{argument}' is {said(name)}: no file's name has a zero byte")
    return name


def text_of(value: Any, argument: str) -> str:
    if not isinstance(value, str):
        raise option_error(f"'{argument}' is {said(value)}", "a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise option_error(f"'{argument}' is {said(value)}, which is not Unicode text") from None
    return value


def flag_of(value: Any, argument: str) -> bool:
    if not isinstance(value, bool):
        raise option_error(f"'{argument}' is {said(value)}", "True or False")
    return value


def number_of(value: Any, argument: str, least: int = 0) -> int:
    if not hasattr(type(value), "__index__"):
        raise option_error(f"'{argument}' is {said(value)}", "a whole number")
    number = operator.index(value)
    if not least <= number <= _LARGEST:
        raise option_error(f"'{argument}' is {said(number)}", f"a whole number from {least} to {_LARGEST}")
    return number


def texts_of(value: Any, argument: str) -> list[str]:
    """Texts and paths; one alone is a list of it."""
    values = [value] if isinstance(value, (str, os.PathLike)) else listed(value, argument)
    return [text_of(os.fspath(v) if isinstance(v, os.PathLike) else v, argument) for v in values]


def listed(value: Any, argument: str) -> list[Any]:
    """What can be gone through, but for texts and bytes, whose parts nobody means."""
    if isinstance(value, (str, bytes, bytearray, memoryview)) or not (hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")):
        raise option_error(f"'{argument}' is {said(value)}", "a list")
    return list(value)


def mapping_of(value: Any, argument: str) -> dict[Any, Any]:
    if not isinstance(value, Mapping):
        raise option_error(f"'{argument}' is {said(value)}", "a dict")
    return dict(value)


def buffer_of(value: Any, argument: str) -> Any:
    """What has the buffer protocol, as bytes of one piece."""
    try:
        view = memoryview(value)
    except TypeError:
        raise option_error(f"'{argument}' is {said(value)}", "bytes") from None
    if not view.contiguous:
        raise option_error(f"'{argument}' is memory with gaps", "bytes in one piece")
    return value
