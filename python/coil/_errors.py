"""coil's errors as Python exceptions: one class for each kind of fault, the same codes and texts as the command line's."""

from __future__ import annotations

from typing import Sequence


class Error(Exception):
    """Whatever coil refuses or fails at. `str()` is the text that the command line prints."""

    code: str = "COIL-E901"
    """The stable code, "COIL-E204"; docs/errors.md lists them."""
    number: int = 901
    """The number in the code, 204."""
    reason: str = ""
    """What is wrong, without the code, the place and the hint."""
    node: str = ""
    """The node or value of the program that is at fault, by the program's name for it ("add_3"); empty if it is none in particular."""


class FileError(Error, OSError):
    """A file that cannot be found, read or written (COIL-E0xx)."""

    __str__ = Exception.__str__


class MissingFileError(FileError, FileNotFoundError):
    """A file that does not exist or cannot be opened (COIL-E001)."""


class ArchiveError(Error, ValueError):
    """A file that is no program, package or array that coil reads, or a broken one (COIL-E010 to E015)."""


class UnsupportedError(Error, NotImplementedError):
    """A program that coil has no code for: an operator, a dtype, a feature, a schema (COIL-E101, E102, E103, E105)."""


class ProgramError(Error, ValueError):
    """A program that contradicts itself, or a dimension that it does not have (COIL-E104, E106)."""


class InputError(Error, ValueError):
    """An input of a call that the program was not compiled for (COIL-E201 to E210)."""


    input: int | None = None
    """Which of the flattened inputs of the call is at fault; None if it is none in particular."""
    expected_strides: tuple[int, ...] | None = None
    """The strides that the program expects of this input, for the sizes of the call, where its own are at fault (COIL-E205)."""


class AssertionFailed(Error, AssertionError):
    """An assertion of the program did not hold (COIL-E211)."""


class PackageError(Error, RuntimeError):
    """A package that cannot be loaded here: damaged, of another version, for another machine (COIL-E3xx, E404 to E406)."""


class OutOfMemoryError(Error, MemoryError):
    """Memory for a call could not be allocated (COIL-E401)."""


class OptionError(Error, ValueError):
    """An option or an environment variable that is wrong (COIL-E402)."""


class KernelError(Error, ValueError):
    """A user's kernel: its registration (COIL-E408), or its source (COIL-E409)."""


class InternalError(Error, RuntimeError):
    """A bug in coil (COIL-E901)."""


def _kind(number: int) -> type[Error]:
    exact = {1: MissingFileError, 104: ProgramError, 106: ProgramError, 211: AssertionFailed, 401: OutOfMemoryError,
             402: OptionError, 406: OptionError, 408: KernelError, 409: KernelError, 901: InternalError}
    if number in exact:
        return exact[number]
    ranges = [(1, 9, FileError), (10, 19, ArchiveError), (101, 199, UnsupportedError), (201, 299, InputError),
              (301, 499, PackageError)]
    return next((kind for low, high, kind in ranges if low <= number <= high), Error)


def _shown(text: str) -> str:
    """With control characters written out: names in it are of files that anyone wrote (src/base/text.h)."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    import unicodedata

    hidden = ("Cc", "Cf", "Zl", "Zp", "Cs")
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in hidden else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def make_error(number: int, text: str, reason: str = "", node: str = "", input: int = -1, expected_strides: Sequence[int] = ()) -> Error:
    """The exception for a code; the extension modules call it. `input` -1: none in particular."""
    error = _kind(number)(_shown(text))
    error.number = number
    error.code = f"COIL-E{number:03d}"
    error.reason = _shown(reason)
    error.node = node
    if isinstance(error, InputError) and input >= 0:
        error.input = input
        error.expected_strides = tuple(expected_strides) if expected_strides else None
    return error


def option_error(message: str, hint: str = "") -> Error:
    return make_error(402, f"COIL-E402: {message}" + (f"\n  hint: {hint}" if hint else ""))
