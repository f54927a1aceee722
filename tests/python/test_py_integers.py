"""Dynamic integers that are no sizes: negative ones, under torch.compile and in exported programs."""

import json
import zipfile

import pytest
import torch
import torch.nn.functional as F

import harness  # first: it puts the package on the path

import coil
from case import Function

FUNCTIONS = {
    "value": (lambda x, n: x * n + n, [3, -1, -7, 0, 1 << 40, -(1 << 61)]),
    "division": (lambda x, n: x * (n // 2) + n % 3, [5, -5, -4]),
    "size": (lambda x, n: x.new_zeros(n + 5) + x.sum(), [3, -2, -5]),
    "reflection": (lambda x, n: F.pad(x[None], (n, n), mode="reflect"), [3, -1, -2]),
    "range": (lambda x, n: torch.arange(n, n + 6) + x, [3, -4, -9]),
    "diagonals": (lambda x, n: x.tril(n) + x.roll(n, 1), [1, -1, -3]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_under_torch_compile(name):
    function, numbers = FUNCTIONS[name]
    torch._dynamo.reset()
    coil.reset_compile_stats()
    compiled, x = torch.compile(function, backend="coil", dynamic=True), torch.randn(4, 6)
    for n in numbers:
        torch.testing.assert_close(compiled(x, n), function(x, n))
    assert 1 <= coil.compile_stats().packages <= 2, "one program for all but empty results"


def test_an_exported_program(tmp_path):
    """torch.export gives integers the range of sizes; what says that there is none may be negative. What becomes a size is checked."""
    x = torch.randn(4, 6)
    function = lambda x, n: (x * n, x.new_ones(n + 5))
    torch.export.save(torch.export.export(Function(function), (x, 3), dynamic_shapes={"args": (None, torch.export.Dim.DYNAMIC)}), tmp_path / "sizes.pt2")
    with zipfile.ZipFile(tmp_path / "sizes.pt2") as source, zipfile.ZipFile(tmp_path / "any.pt2", "w") as target:
        for entry in source.namelist():
            data = source.read(entry)
            if entry.endswith("models/model.json"):
                program = json.loads(data)
                program["range_constraints"] = {name: {"min_val": None, "max_val": None} for name in program["range_constraints"]}
                data = json.dumps(program | {"guards_code": []})
            target.writestr(entry, data)
    with pytest.raises(coil.Error, match="COIL-E210"):
        coil.compile(tmp_path / "sizes.pt2")(x, -1)
    model = coil.compile(tmp_path / "any.pt2")
    for n in (3, 0, -1, -4, -5):
        for got, want in zip(model(x, n), function(x, n)):
            torch.testing.assert_close(got, want)
    for n in (-6, -8):
        with pytest.raises(coil.Error, match="COIL-E204"):
            model(x, n)
