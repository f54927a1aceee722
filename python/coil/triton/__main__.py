"""What `coil compile --triton` runs: a program of torch.export.save with its Triton kernels compiled, for the compiler that knows no Python."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import re
import sys
import traceback
import warnings
import zipfile
from typing import Any

from .._errors import Error

_EXIT_CODES = {408: 8, 409: 9}
_UNUSABLE = 2


class Unusable(Exception):
    """What the user has to set right before anything can be compiled."""


def check_operators(path: str) -> None:
    """Raises for the first of the program's operators that nobody has defined, before PyTorch does so at length."""
    torch = importlib.import_module("torch")
    with zipfile.ZipFile(path) as archive:
        texts = [archive.read(n).decode() for n in archive.namelist() if re.search(r"models/[^/]+\.json$", n)]
    for name in dict.fromkeys(re.findall(r'"target":\s*"torch\.ops\.([\w.]+)"', "".join(texts))):
        space, _, rest = name.partition(".")
        operator, _, overload = rest.partition(".")
        if not hasattr(getattr(getattr(torch.ops, space), operator, None), overload or "default") and space != "higher_order":
            raise Unusable(f"--triton: no module defines the program's operator {name}\n  hint: name the Python file that does with --triton")


def _import_named(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's module does
        missing = isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]
        hint = "give the path of a Python file (ops.py), or set PYTHONPATH to where the module is" if missing else f"mend the module: `{sys.executable} -m {name}` has to run without an error"
        raise Unusable(f"--triton: importing '{name}' ended with {type(error).__name__}: {error}\n  hint: {hint}") from error


def load_module(path: str) -> Any:
    """A file, or the name of a module; it defines operators as it is run."""
    if not path.endswith(".py"):
        return _import_named(path)
    name = os.path.splitext(os.path.basename(path))[0]
    if not os.path.isfile(path):
        raise Unusable(f"--triton: there is no file '{path}'")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever the user's file does
        raise Unusable(f"--triton: {path} ended with {type(error).__name__}: {error}\n" + _place_and_hint(error, path)) from error
    return module


def _place_and_hint(error: BaseException, path: str) -> str:
    """The deepest line of the file that the error passed through, and what to do about it."""
    line = error.lineno if isinstance(error, SyntaxError) and error.filename and os.path.samefile(error.filename, path) else None
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename == os.path.abspath(path) or frame.filename == path:
            line = frame.lineno
    place = f"  at {path}:{line}\n" if line else ""
    if isinstance(error, ModuleNotFoundError):
        return place + f"  hint: install '{error.name}' for {sys.executable}, or let COIL_TORCH name a Python that has it"
    return place + f"  hint: mend the file: `{sys.executable} {path}` has to run without an error"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m coil.triton", description="Compile the Triton kernels of an exported program")
    parser.add_argument("model", help="a file of torch.export.save")
    parser.add_argument("--module", action="append", default=[], help="a Python file, or a module's name, that defines the program's operators")
    parser.add_argument("--target", default="cuda:sm_90", help="what to compile for, as coil compile has it")
    parser.add_argument("-o", "--output", required=True, help="the program to write, for coil compile")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    from . import save

    torch = importlib.import_module("torch")
    try:
        for module in given.module:
            load_module(module)
        check_operators(given.model)
        extra = {"coil_dims.json": ""}
        program = torch.export.load(given.model, extra_files=extra)
        save(program, given.output, given.target, extra_files={k: v for k, v in extra.items() if v})
    except Error as error:
        print(str(error).removeprefix(f"{error.code}: "), file=sys.stderr)
        return _EXIT_CODES.get(error.number, 1)
    except Unusable as error:
        print(error, file=sys.stderr)
        return _UNUSABLE
    except Exception as error:  # noqa: BLE001 - PyTorch's, and the module's own
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
