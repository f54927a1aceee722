"""coil compiles PyTorch programs to packages that run without PyTorch.

    model = coil.compile("model.pt2")              # a file of torch.export.save; or an ExportedProgram, or an nn.Module
    y = model(x)                                   # torch tensors, NumPy arrays, anything with DLPack
    model.save("model.coil.pt2")
    model = coil.load("model.coil.pt2", device="cuda:0")

    fast = torch.compile(module, backend="coil")   # no import needed

Importing coil does not import PyTorch.
"""

from __future__ import annotations

from typing import Any

from ._bench import do_bench
from ._compile import compile
from ._errors import (ArchiveError, AssertionFailed, Error, FileError, InputError, InternalError, KernelError, MissingFileError, OptionError,
                      OutOfMemoryError, PackageError, ProgramError, UnsupportedError)
from ._kernels import UserKernel, register_kernel
from ._model import Dim, Model, State, TensorInfo, load
from ._profile import Profile, profile
from ._report import report
from ._runtime import __version__
from ._stats import CompileStats, compile_stats, reset_compile_stats

__all__ = [
    "ArchiveError", "AssertionFailed", "CompileStats", "Dim", "Error", "FileError", "InputError", "InternalError", "KernelError",
    "MissingFileError", "Model", "OptionError", "OutOfMemoryError", "PackageError", "Profile", "ProgramError", "State", "TensorInfo",
    "UnsupportedError", "UserKernel", "__version__", "aoti_compile_and_package", "aoti_load_package", "compile", "compile_stats", "do_bench", "explain", "load", "profile",
    "register_kernel", "report", "reset_compile_stats",
]


def __getattr__(name: str) -> Any:  # what needs PyTorch
    if name in ("aoti_compile_and_package", "aoti_load_package"):
        from . import _aoti

        return getattr(_aoti, name)
    if name == "explain":
        from .dynamo._explain import explain

        return explain
    raise AttributeError(f"module 'coil' has no attribute {name!r}")
