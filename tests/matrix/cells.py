"""What a cell of the matrix is: a program through a door, on a target, in a type, in a direction, with sizes of a kind."""

import dataclasses
import itertools
import random

DOORS = ("compile", "package", "stock")      # torch.compile(backend="coil"); coil.compile of an export; that package in torch._inductor.aoti_load_package
TARGETS = ("cpu", "cuda")
DTYPES = ("float32", "bfloat16", "float16", "autocast")
DIRECTIONS = ("forward", "gradients")
SIZES = ("static", "dynamic")
AXES = {"door": DOORS, "target": TARGETS, "dtype": DTYPES, "direction": DIRECTIONS, "sizes": SIZES}


@dataclasses.dataclass(frozen=True)
class Cell:
    program: str
    door: str
    target: str
    dtype: str
    direction: str
    sizes: str

    @property
    def id(self):
        return "|".join(dataclasses.astuple(self))

    @staticmethod
    def of(text):
        return Cell(*text.split("|"))

    @property
    def column(self):
        return tuple(getattr(self, axis) for axis in AXES)


def without_a_run(cell, has_gpu):
    """Why the cell is empty whatever its program is, or None."""
    if cell.target == "cuda" and cell.door != "package" and not has_gpu:
        return "needs a GPU: PyTorch has no CUDA tensors here (the emulation runs packages)"
    if cell.direction == "gradients" and cell.door != "compile" and cell.sizes == "dynamic":
        return "PyTorch exports no joint graph (aot_export_module) with dynamic sizes"
    return None


def all_cells(programs, chosen=None, has_gpu=False):
    """Cells in the order in which they are run: all of a program together. `chosen`: {axis: values that are wanted}."""
    values = [[v for v in AXES[axis] if not (chosen or {}).get(axis) or v in chosen[axis]] for axis in AXES]
    for program in programs:
        for row in itertools.product(*values):
            yield Cell(program, *row)


def sample(cells, count, seed, is_network):
    """`count` of the cells, half of them of whole networks, the same for the same seed; in their order."""
    cells = list(cells)
    source = random.Random(seed)
    networks = [c for c in cells if is_network(c.program)]
    small = [c for c in cells if not is_network(c.program)]
    half = min(len(networks), count - min(len(small), count // 2))
    chosen = {*source.sample(networks, half), *source.sample(small, min(len(small), count - half))}
    return [c for c in cells if c in chosen]
