"""What a program of the zoo is, and how its inputs are made."""

import dataclasses
import typing
import zlib

import torch

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
I64, I32, I16, I8, U8, BOOL = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool

# Largest error, relative to the output's largest magnitude, that a program in this dtype may have against eager.
TOLERANCE = {F64: 1e-9, F32: 1e-4, F16: 4e-3, BF16: 2e-2}


@dataclasses.dataclass
class Case:
    """A module with the example that it is exported with and the input sets that it is tested with.

    args      the export's example arguments, tensors and plain values
    dynamic   torch.export's dynamic_shapes, or None
    inputs    {tag: args}; without any the example itself is the one input set, "example"
    tolerance None: by the least precise floating dtype among inputs, parameters and outputs
    """

    module: torch.nn.Module
    args: tuple
    kwargs: dict = dataclasses.field(default_factory=dict)
    dynamic: typing.Any = None
    inputs: dict = dataclasses.field(default_factory=dict)
    tolerance: float | None = None
    cosine: float | None = None


class Function(torch.nn.Module):
    """A plain function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@dataclasses.dataclass
class Program:
    name: str
    make: typing.Callable[[], Case]
    group: str  # "op" or "model"
    source: str  # the file whose text keys the cache
    forms: tuple = ("aten", "core")  # as exported, and after run_decompositions()


def seeded(name, make):
    """Calls make() with a seed that depends on the name only, so that adding a program leaves the others as they are."""
    torch.manual_seed(zlib.crc32(name.encode()))
    return make()


def rand(*shape, dtype=F32, low=None, high=None):
    """Normal floats, or uniform in [low, high); integers in [low, high), by default [-9, 10); random bools."""
    if dtype is BOOL:
        return torch.rand(*shape) < 0.5
    if not dtype.is_floating_point:
        return torch.randint(-9 if low is None else low, 10 if high is None else high, shape, dtype=dtype)
    if low is None:
        return torch.randn(*shape, dtype=F64).to(dtype)
    return (low + (high - low) * torch.rand(*shape, dtype=F64)).to(dtype)


def distinct(*shape, dtype=F32):
    """All values different, in random order: for sort, topk and argmax."""
    count = int(torch.tensor(shape).prod())
    return ((torch.randperm(count) - count // 2).to(F64) / 4).to(dtype).reshape(shape)


def special(dtype=F32):
    """Zeros of both signs, infinities, NaN, tiny and large values, and a few ordinary ones; 19 values, an odd tail."""
    return torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, -3.0, 1e-3, -1e-3, 88.0, -88.0, float("inf"),
                         float("-inf"), float("nan"), 10.25, -10.25], dtype=dtype)


def registry(source):
    """(list, op): op(name, function or module maker, maker of the example's inputs, ...) adds a small program to the list."""
    programs = []

    def op(name, function, inputs, dynamic=None, sets=None, tolerance=None):
        def make():
            args = tuple(inputs())
            module = function if not isinstance(function, type) else function()
            module = module if isinstance(module, torch.nn.Module) else Function(module)
            shapes = None if dynamic is None else (tuple(dynamic),)  # the modules here take *args, which export sees as one tuple
            return Case(module.eval(), args, dynamic=shapes, inputs={k: tuple(v()) for k, v in (sets or {}).items()}, tolerance=tolerance)

        programs.append(Program(name, make, "op", source))

    return programs, op


class Lazy:
    """A module that is built when the program is made (with its seed), not when the zoo is imported."""

    def __new__(cls, build):
        def init(self):
            torch.nn.Module.__init__(self)
            self.inner = build()

        return type("Net", (torch.nn.Module,), {"__init__": init, "forward": lambda self, *args: self.inner(*args)})
