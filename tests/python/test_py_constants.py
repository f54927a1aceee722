"""The twins of AOTInductor's functions, and weights that can be replaced."""

import os

import pytest
import torch

import coil
from api_modules import python
from test_py_api import linear, linear_program  # noqa: F401 (fixtures)


class Weights(torch.nn.Module):
    """A parameter that is used twice, a buffer, and a buffer that is written to."""

    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.register_buffer("shift", torch.arange(4.0))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x, scale=None):
        self.calls.add_(1)
        return {"y": self.a(self.b(x).relu()) + self.shift, "calls": self.calls.clone()}


def test_aoti_twins(tmp_path, linear, linear_program):
    path = coil.aoti_compile_and_package(linear_program, package_path=str(tmp_path / "model.pt2"), inductor_configs={"max_autotune": True, "opt_level": 1})
    model, x = coil.aoti_load_package(path), torch.randn(3, 16)
    torch.testing.assert_close(model(x), linear(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch._inductor.aoti_load_package(path)(x), linear(x), atol=1e-5, rtol=1e-5)
    stock = torch._inductor.aoti_load_package(path)
    assert model.get_metadata()["AOTI_DEVICE_KEY"] == stock.get_metadata()["AOTI_DEVICE_KEY"] == "cpu"
    assert model.loader.get_call_spec() == stock.loader.get_call_spec()
    assert {n for n in dir(stock) if not n.startswith("_")} <= set(dir(model))
    assert torch.equal(model.loader.run([x])[0], model(x))
    assert model.get_constant_fqns() == []
    with pytest.raises(coil.UnsupportedError, match="replaceable_constants"):
        model.load_constants({}, check_full_update=True)
    with pytest.raises(coil.OptionError, match="pt2"):
        coil.aoti_compile_and_package(linear_program, package_path=str(tmp_path / "model.bin"))
    assert os.path.exists(coil.aoti_compile_and_package(linear_program))


def test_constants_are_listed_replaced_and_swapped(tmp_path):
    torch.manual_seed(0)
    first, second, x = Weights(), Weights(), torch.randn(3, 4)
    program = torch.export.export(first, (x,))
    path = coil.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"),
                                         inductor_configs={"aot_inductor.use_runtime_constant_folding": True})
    model = coil.aoti_load_package(path)
    names = ["a.weight", "a.bias", "b.weight", "b.bias", "shift"]
    assert sorted(model.get_constant_fqns()) == sorted(names)  # what the program writes to is its state

    def expect(module):
        torch.testing.assert_close(model(x)["y"], module(x)["y"], atol=1e-5, rtol=1e-5)

    expect(first)
    others = {name: tensor for name, tensor in second.state_dict().items() if name != "calls"}
    model.load_constants(others, check_full_update=True)
    expect(second)
    model.load_constants({"shift": torch.ones(4)}, check_full_update=False)
    second.shift = torch.ones(4)
    expect(second)
    with pytest.raises(coil.InputError, match="lacks the constant"):
        model.load_constants({"shift": torch.ones(4)}, check_full_update=True)
    with pytest.raises(coil.InputError, match="no constant 'c.weight'"):
        model.load_constants({"c.weight": torch.ones(4)}, check_full_update=False)
    with pytest.raises(coil.InputError, match="float32"):
        model.load_constants({"shift": torch.ones(5)}, check_full_update=False)
    expect(second)
    # The second set still has the compiled weights.
    model.loader.swap_constant_buffer()
    expect(first)
    model.loader.load_constants({"a.bias": torch.zeros(4)}, True, False)
    expect(first)
    mine = torch.zeros(4)
    model.load_constants({"shift": mine}, check_full_update=False, user_managed=True)
    mine += 3
    first.shift = torch.full((4,), 3.0)
    expect(first)
    # Without PyTorch, too.
    done = python(f"import numpy as np, coil\nm = coil.load({path!r})\nprint(m(np.zeros((3, 4), np.float32))['y'].shape, len(m.constant_names()))")
    assert done.stdout == "(3, 4) 5\n", done.stdout + done.stderr
