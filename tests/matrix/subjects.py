"""The programs of the matrix: those of the zoo (tests/models/zoo.py) and the architectures (tests/models/architecture_list.py), in one form."""

import copy
import dataclasses
import pathlib
import sys
import typing

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "models"))

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

import zoo
from architecture_list import ARCHITECTURES
from case import BF16, F16, F32, F64, seeded

DTYPE = {"float32": F32, "bfloat16": BF16, "float16": F16, "autocast": F32, "float64": F64}
IMAGES = 4  # of a training step, at least: batch norms need a few values
HEAVY = {"resnet50", "mobilenet_v3_large", "vit_b_16", "gpt2_f32", "gpt2_bf16", "encoder_12", "minilm", "resnet18"}  # of the zoo: networks in full size


@dataclasses.dataclass
class Subject:
    """`sets`: the arguments of the calls that are compared, the first is the example; `dynamic`: torch.export's dynamic_shapes of args and kwargs."""

    name: str
    module: nn.Module
    sets: list
    kwargs: dict
    dynamic: typing.Any = None
    tolerance: float | None = None
    note: str = ""


def names(only=()):
    """Networks first: "arch:FAMILY/NAME", then "zoo:NAME". `only`: words, one of which the name contains."""
    found = [f"arch:{name}" for name in ARCHITECTURES] + [f"zoo:{name}" for name in zoo.programs() if name not in HEAVY]
    return [name for name in found if not only or any(word in name for word in only)]


def is_network(name):
    return name.startswith("arch:") or zoo.programs()[name.removeprefix("zoo:")].group == "model"


def _tensors(value):
    return [v for v in tree_leaves(value) if isinstance(v, torch.Tensor)]


def _batch(args, kwargs):
    """The leading size that most tensors have; None without one."""
    sizes = [t.shape[0] for t in _tensors((args, kwargs)) if t.dim()]
    return max(sizes, key=sizes.count) if sizes else None


def with_batch(args, kwargs, batch):
    """(args, kwargs) with so many rows where there was the leading size: the rows again, noise added so that they differ."""
    old = _batch(args, kwargs)

    def grow(v):
        if not isinstance(v, torch.Tensor) or not v.dim() or v.shape[0] != old:
            return v
        rows = v[torch.arange(batch) % max(old, 1)].clone(memory_format=torch.preserve_format)
        if rows.is_floating_point() and batch > old and v.dtype in (F32, F64):
            rows[old:] += 0.1 * torch.randn_like(rows[old:])
        return rows

    return tree_map(grow, args), tree_map(grow, kwargs)


def runs(module, args, kwargs):
    try:
        with torch.no_grad():
            copy.deepcopy(module)(*tree_map(_fresh, args), **tree_map(_fresh, kwargs))
        return True
    except Exception:
        return False


def _fresh(v):
    return v.clone() if isinstance(v, torch.Tensor) else v


def make(name, direction, sizes):
    """The subject as its cells of this direction and these sizes take it. Seeded: the same in every process."""
    kind, _, short = name.partition(":")
    return (_architecture if kind == "arch" else _zoo)(name, short, direction, sizes)


def _architecture(name, short, direction, sizes):
    torch.manual_seed(0)
    module, args, kwargs = ARCHITECTURES[short][1]()
    module.train(direction == "gradients")
    batch = _batch(args, kwargs)
    least = IMAGES if direction == "gradients" and any(t.dim() >= 3 and t.is_floating_point() for t in _tensors((args, kwargs))) else 1
    least = max(least, 2 if sizes == "dynamic" else 1)
    if batch is not None and batch < least:
        more = with_batch(args, kwargs, least)
        if runs(module, *more):
            (args, kwargs), batch = more, least
    subject = Subject(name, module, [(args, kwargs)], kwargs)
    if sizes == "dynamic":
        _add_size(subject, batch)
    return subject


def _zoo(name, short, direction, sizes):
    case = seeded(short, zoo.programs()[short].make)
    args = case.args
    subject = Subject(name, case.module, [(args, case.kwargs)], case.kwargs, tolerance=case.tolerance)
    if sizes == "static":
        return subject
    if case.dynamic is not None and case.inputs:
        subject.sets = [(tuple(a), case.kwargs) for a in [args, *list(case.inputs.values())[-2:]]]
        subject.dynamic = case.dynamic
    else:
        _add_size(subject, _batch(args, case.kwargs))
        if case.dynamic is not None:
            subject.dynamic = case.dynamic
    return subject


def _add_size(subject, batch):
    """One row more in a second call, where eager takes it."""
    args, kwargs = subject.sets[0]
    if batch is not None and batch >= 2:
        more = with_batch(args, kwargs, batch + 1)
        if runs(subject.module, *more):
            subject.sets.append(more)
            mark = lambda v: {0: torch.export.Dim.AUTO} if isinstance(v, torch.Tensor) and v.dim() and v.shape[0] == batch else None
            subject.dynamic = tree_map(mark, args), tree_map(mark, kwargs)
            return
    subject.note = "no other size: the module takes no other number of rows"


def in_dtype(subject, dtype):
    """(module, sets) with what is float32 in another type, or with all floating tensors in float64; the module is a copy."""
    wanted = DTYPE[dtype]
    from_types = (F32, F16, BF16) if wanted == F64 else (F32,)
    cast = lambda t: t.to(wanted) if t.dtype in from_types else t
    module = copy.deepcopy(subject.module)._apply(cast)
    return module, tree_map(lambda v: cast(v).clone() if isinstance(v, torch.Tensor) else v, subject.sets)


def has_float32(subject):
    tensors = [*_tensors(subject.sets), *subject.module.parameters(), *subject.module.buffers()]
    return any(t.dtype == F32 for t in tensors)
