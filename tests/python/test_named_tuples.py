"""Named tuples and classes of the user's as arguments and results of packages."""

import collections
import dataclasses
import os
import subprocess
import sys
import typing

import torch
from torch.utils import _pytree

import coil


class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: typing.Any


class Model(torch.nn.Module):
    class Result(typing.NamedTuple):  # a class inside of another one
        pair: Pair
        largest: typing.Any

    def forward(self, pair):
        return {"found": self.Result(Pair(pair.first + 1, [pair.second * 2]), pair.first.max(0))}


def local():
    return collections.namedtuple("Local", "x y")


def program(made):
    class Program(torch.nn.Module):
        def forward(self, x):
            return made(x + 1, x * 2)

    return torch.export.export(Program(), (torch.ones(3),))


def test_arguments_and_results(tmp_path):
    pair = Pair(torch.rand(4, 3), torch.rand(2))
    model = coil.compile(torch.export.export(Model(), (pair,)))
    model.save(tmp_path / "model.coil.pt2")
    for opened in (model, coil.load(tmp_path / "model.coil.pt2")):
        found, wanted = opened(pair), Model()(pair)
        assert _pytree.tree_structure(found) == _pytree.tree_structure(wanted) and isinstance(found["found"], Model.Result)
        for ours, eagers in zip(_pytree.tree_leaves(found), _pytree.tree_leaves(wanted)):
            torch.testing.assert_close(ours, eagers)


def test_registered_by_the_user():
    made = collections.namedtuple("Registered", "x y")
    _pytree._register_namedtuple(made, serialized_type_name="test_named_tuples.under_another_name")
    assert isinstance(coil.compile(program(made))(torch.ones(3)), made)


def test_classes_of_a_function_keep_their_kinds():
    """Each call of the function defines another class of the same name."""
    kinds = [local(), local()]
    models = [coil.compile(program(kind)) for kind in kinds]
    for model, kind in zip(models, kinds):
        assert type(model(torch.ones(3))) is kind


@dataclasses.dataclass
class Record:
    x: torch.Tensor
    y: torch.Tensor


ANOTHER_PROCESS = """
import sys, torch, coil
sys.path.insert(0, {folder!r})
for name in ("record", "local"):
    try:
        coil.load({where!r} + f"/{{name}}.coil.pt2")
    except coil.Error as error:
        print(name, str(error).replace(chr(10), " "))
import test_named_tuples
torch.export.register_dataclass(test_named_tuples.Record)
print(type(coil.load({where!r} + "/record.coil.pt2")(torch.ones(3))))
"""


def test_another_process(tmp_path):
    torch.export.register_dataclass(Record)
    for name, made in (("record", Record), ("local", local())):
        coil.compile(program(made), tmp_path / f"{name}.coil.pt2")
    found = coil.load(tmp_path / "record.coil.pt2")(torch.ones(3))
    assert isinstance(found, Record) and torch.equal(found.y, torch.full((3,), 2.0))
    script = ANOTHER_PROCESS.format(folder=os.path.dirname(__file__), where=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(coil.__file__))))
    *errors, known = done.stdout.splitlines()
    assert "test_named_tuples.Record" in known, done.stderr
    for name, error in zip(("record", "local"), errors, strict=True):
        assert error.startswith(f"{name} COIL-E201") and name in error[10:].lower() and "import the module" in error, error
