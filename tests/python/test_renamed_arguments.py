"""Arguments that other versions of PyTorch call otherwise."""

import json
import zipfile

import pytest
import torch

import coil
from damaged_programs import write_zip




@pytest.fixture
def program(tmp_path):
    torch.manual_seed(0)
    a, b, grad = torch.randn(4, 3), torch.randn(5, 3), torch.randn(4, 5)
    args = (grad, a, b, torch.cdist(a, b))
    module = type("Module", (torch.nn.Module,), {"forward": lambda self, g, a, b, d: torch.ops.aten._cdist_backward(g, a, b, 2.0, d)})()
    path = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(module, args), path)
    return path, args, module(*args)


def changed(path, change):
    """The program whose operator has other arguments."""
    with zipfile.ZipFile(path) as archive:
        contents = {info.filename: archive.read(info) for info in archive.infolist()}
    name = next(n for n in contents if n.endswith("models/model.json"))
    model = json.loads(contents[name])
    change(next(n for n in model["graph_module"]["graph"]["nodes"] if "_cdist_backward" in n["target"])["inputs"])
    contents[name] = json.dumps(model).encode()
    return write_zip(path.with_name("changed.pt2"), contents)


@pytest.mark.parametrize("names", [{}, {"grad_output": "grad"}])
def test_a_renamed_argument_is_known(program, names):
    path, args, expected = program

    def rename(arguments):
        for argument in arguments:
            argument["name"] = names.get(argument["name"], argument["name"])

    torch.testing.assert_close(coil.compile(changed(path, rename))(*args), expected)


def test_an_argument_that_nobody_knows_is_named(program):
    path, _, _ = program
    with pytest.raises(coil.Error, match="argument 'x1' is missing"):
        coil.compile(changed(path, lambda arguments: arguments[1].update(name="left")))
    with pytest.raises(coil.Error, match="no argument 'weights'"):
        coil.compile(changed(path, lambda arguments: arguments.append(dict(arguments[0], name="weights"))))
