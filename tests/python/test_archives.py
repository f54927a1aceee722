"""Archives that hold several exported programs, and packages of several: --program says which one a command is about."""

import json

import numpy as np
import pytest
import torch

from harness import assert_refused, coil, coil_json, coil_ok, load_outputs


class Step(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.layer, self.scale = torch.nn.Linear(16, 16), scale

    def forward(self, x):
        return torch.tanh(self.layer(x)) * self.scale


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archives")
    torch.manual_seed(0)
    x = torch.randn(4, 16)
    np.savez(folder / "x.npz", in_0=x.numpy())
    exported = {name: torch.export.export(Step(scale).eval(), (x,)) for name, scale in (("first", 1.5), ("second", -2.25))}
    package = pytest.importorskip("torch.export.pt2_archive._package")
    package.package_pt2(str(folder / "both.pt2"), exported_programs=exported)
    for name, program in exported.items():
        torch.export.save(program, folder / f"{name}.pt2")
    coil_ok("compile", folder / "first.pt2", folder / "second.pt2", "-q", "-o", folder / "package.coil.pt2")
    return folder


COMMANDS = {
    "check": [],
    "inspect": [],
    "diff": ["-i", "x.npz", "-q"],
    "bisect": ["-i", "x.npz"],
    "run": ["-i", "x.npz"],
    "bench": ["--repeat", "2"],
    "explain": [],
    "profile": ["--calls", "2"],
    "debug": ["-o", "dump"],
    "compile": ["-q", "-o", "out.coil.pt2"],
    "reduce": ["-i", "x.npz", "-o", "small", "--test", "true", "--most", "3"],
    "report": ["--calls", "2"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_takes_the_program_that_is_named(folder, command, tmp_path):
    more = [a if a != "x.npz" else folder / "x.npz" for a in COMMANDS[command]]
    for name in ("first", "second"):
        done = coil(command, folder / "both.pt2", "--program", name, *more, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert_refused(coil(command, folder / "both.pt2", *more, cwd=tmp_path), "first, second", "--program first")
    assert_refused(coil(command, folder / "both.pt2", "--program", "third", *more, cwd=tmp_path), "no program 'third'", "first, second", code=402)
    assert_refused(coil(command, folder / "first.pt2", "--program", "third", *more, cwd=tmp_path), "no program 'third'", "leave --program out", code=402)


def test_it_is_that_program(folder, tmp_path):
    for name, scale in (("first", 1.5), ("second", -2.25)):
        coil_ok("run", folder / "both.pt2", "--program", name, "-i", folder / "x.npz", "-o", tmp_path / "out.npz")
        coil_ok("run", folder / f"{name}.pt2", "-i", folder / "x.npz", "-o", tmp_path / "single.npz")
        assert np.array_equal(load_outputs(tmp_path / "out.npz")[0], load_outputs(tmp_path / "single.npz")[0])
        coil_ok("reduce", folder / "both.pt2", "--program", name, "-i", folder / "x.npz", "--test", "true", "--most", "1", "-o", tmp_path / name)
        text = coil_json("inspect", tmp_path / name / "program.pt2")
        assert text["ops"] == coil_json("inspect", folder / f"{name}.pt2")["ops"]


def test_diff_against_a_package_of_several(folder):
    def diff(model, *arguments):
        done = coil("diff", folder / model, "-i", folder / "x.npz", "--whole", "--json", "--against", folder / "package.coil.pt2", *arguments)
        return done.returncode, json.loads(done.stdout) if done.returncode in (0, 1) else done.stderr

    assert diff("first.pt2")[0] == 0 and diff("second.pt2")[0] == 0, "by the file's name"
    assert diff("second.pt2", "--program", "first")[0] == 1 and diff("first.pt2", "--program", "first")[0] == 0
    assert diff("both.pt2", "--program", "second")[0] == 0
    code, message = diff("first.pt2", "--program", "third")
    assert code == 2 and "first, second" in message and "third" in message
