from typing import Any, Mapping

class ByteSource:
    """Bytes of a tensor that are made when they are read."""

    def __len__(self) -> int: ...
    def read(self, begin: int, count: int) -> bytes: ...

Weight = tuple[int, int, str, list[int], list[int], ByteSource | None]
"""Address, bytes from there, dtype, sizes, strides, and what the bytes are read from in place of the memory."""

def has_block_form(type: str) -> bool:
    """Whether block_parts knows a type of GGUF files."""

def block_parts(type: str, address: int, bytes: int, mapped: bool, columns: int, order: list[int]) -> tuple[ByteSource, ByteSource, ByteSource | None]:
    """Numbers (int8), scales and zeros (float32) of a matrix in a GGUF file's blocks. order: of its rows; empty: as they are."""

class Package:
    """A package in memory; read it by the buffer protocol."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Batch:
    """Of compiles that run at the same time, in settings["batch"]: what they have in common is compiled once. It keeps that as long as it lives."""

    def __init__(self) -> None: ...

def compile_file(path: str, output: str | None, settings: dict[str, Any]) -> tuple[Package | None, dict[str, Any]]: ...
def compile_archive(archive: Any, output: str | None, settings: dict[str, Any]) -> tuple[Package | None, dict[str, Any]]: ...
def compile_json(json: str, weights: Mapping[str, Weight], output: str | None,
                 settings: dict[str, Any]) -> tuple[Package | None, dict[str, Any]]: ...
def compile_programs(programs: list[tuple[str, Any]], output: str | None,
                     settings: dict[str, Any]) -> tuple[Package | None, dict[str, Any]]:
    """A package of several: (name, and a path, the bytes of a .pt2, or a program's JSON with its weights) of each."""
def unsupported(json: str, settings: dict[str, Any]) -> list[tuple[str, str, str, bool]]:
    """(node, operator, problem) of each node that cannot be compiled."""

def option_defaults() -> dict[str, Any]:
    """The options that the command line has too, by name, with their defaults."""

def check_kernel(registration: str) -> None:
    """Raises what is wrong with a user kernel's registration, as JSON."""

def has_lowering(target: str) -> bool:
    """Whether coil has code for an operator, "aten.add.Tensor"."""
