"""Mixtures of experts whose weights are quantised: grouped products that read the numbers as they are stored, beside eager's of the dequantised weights."""

import json

import pytest
import torch
from torch import nn

import coil
import harness

EXPERTS, ROWS, COLUMNS, DEPTH = 5, 23, 72, 128  # eager takes lines of multiples of 16 bytes
CODES = torch.tensor([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=torch.int8)
ENDS = [(0, 1, 2, 2, 19), (23, 23, 23, 23, 23), (4, 9, 10, 16, 23), (0, 0, 0, 0, 0)]


def numbers_of(kind, *sizes):
    if kind == "codes":
        return CODES[torch.randint(0, 16, sizes)]
    low, high = (-8, 7) if kind == "int4" else (-127, 127)
    made = torch.randint(low, high + 1, sizes, dtype=torch.int8)
    made.flatten()[0] = -8 if kind == "int4" else 127
    return made


class Experts(nn.Module):
    """`group`: numbers of k that share a scale; all of k: those of a column. `turned`: the weight is [experts, k, n]."""

    def __init__(self, kind, group, zeros=False, turned=False, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(1)
        sizes = (EXPERTS, DEPTH, COLUMNS) if turned else (EXPERTS, COLUMNS, DEPTH)
        self.turned, self.dtype, self.group = turned, dtype, group
        self.register_buffer("numbers", numbers_of(kind, *sizes))
        tables = (EXPERTS, DEPTH // group, COLUMNS) if turned else (EXPERTS, COLUMNS, DEPTH // group)
        self.register_buffer("scale", (torch.rand(tables) + 0.5) / (8 if kind == "int4" else 128))
        self.register_buffer("zero", torch.randint(-3, 4, tables).float() if zeros else None)

    def weight(self):
        dim = 1 if self.turned else 2
        q = self.numbers.unflatten(dim, (-1, self.group)).float()
        if self.zero is not None:
            q = q - self.zero.unsqueeze(dim + 1)
        return (q * self.scale.unsqueeze(dim + 1)).flatten(dim, dim + 1).to(self.dtype)

    def forward(self, x, ends):
        w = self.weight()
        return torch._grouped_mm(x, w if self.turned else w.transpose(1, 2), offs=ends)


def by_hand(model, x, ends):
    w, out, begin = model.weight().double(), torch.zeros(len(x), COLUMNS, dtype=torch.double), 0
    for e, end in enumerate(ends):
        out[begin:end] = x[begin:end].double() @ (w[e] if model.turned else w[e].T)
        begin = end
    return out


CASES = [("int8", 32, {}), ("int8", DEPTH, {}), ("int4", 32, {}), ("int4", 32, dict(zeros=True)), ("codes", 32, {}), ("codes", 16, dict(zeros=True)), ("int4", 64, dict(turned=True)),
         ("int8", 16, dict(turned=True, zeros=True)), ("codes", 32, dict(dtype=torch.bfloat16)), ("int8", 32, dict(dtype=torch.bfloat16))]


def package_of(model, path, **options):
    rows = torch.export.Dim("rows", min=1, max=512)
    example = (torch.randn(ROWS, DEPTH).to(model.dtype), torch.tensor(ENDS[0], dtype=torch.int32))
    program = torch.export.export(model, example, dynamic_shapes=({0: rows}, None))
    coil.compile(program, path, options={"opt_level": 1, **options})
    constants = json.loads(harness.coil_ok("inspect", path, "--json").stdout)["memory"]["constants_bytes"]
    return coil.load(path), constants


def bytes_of(kind, group, zeros):
    """Numbers, and tables of which scales are float32 here; columns are padded to whole panels."""
    numbers = EXPERTS * 96 * DEPTH
    return numbers * (1 if kind == "int8" else 0.5) + numbers / group * (8 if zeros else 4)


@pytest.mark.parametrize("kind,group,form", CASES)
@pytest.mark.parametrize("activations", ["float", "int8"])
def test_grouped_products_read_what_is_stored(kind, group, form, activations, tmp_path):
    model = Experts(kind, group, **form)
    options = {"activations": "int8"} if activations == "int8" else {}
    package, constants = package_of(model, tmp_path / "m.coil.pt2", **options)
    assert constants <= bytes_of(kind, group, form.get("zeros")) * 1.03, "the experts became something larger"
    tolerance = 2e-2 if activations == "int8" or model.dtype == torch.bfloat16 else 2e-5
    for rows, ends in [(ROWS, e) for e in ENDS] + [(2, (0, 1, 1, 1, 2)), (1, (0, 0, 1, 1, 1)), (200, (90, 91, 100, 190, 199))]:
        x = torch.randn(rows, DEPTH).to(model.dtype)
        want = by_hand(model, x, ends)
        found = package(x, torch.tensor(ends, dtype=torch.int32)).double()
        assert (found - want).abs().max() <= tolerance * max(want.abs().max().item(), 1), ends
        assert not found[ends[-1]:].any()


def test_ends_that_are_wrong_are_refused(tmp_path):
    package, _ = package_of(Experts("int4", 32), tmp_path / "m.coil.pt2")
    for ends in ((3, 2, 5, 6, 7), (0, 0, 0, 0, 24), (-1, 0, 0, 0, 0)):
        with pytest.raises(coil.InputError, match="COIL-E210"):
            package(torch.randn(ROWS, DEPTH), torch.tensor(ends, dtype=torch.int32))


def test_rows_with_nan_leave_the_others_alone(tmp_path):
    for options in ({}, {"activations": "int8"}):
        package, _ = package_of(Experts("codes", 32), tmp_path / "m.coil.pt2", **options)
        x = torch.randn(ROWS, DEPTH)
        plain = package(x, torch.tensor(ENDS[2], dtype=torch.int32))
        x[7, 3], x[10, 5] = torch.nan, torch.inf
        found = package(x, torch.tensor(ENDS[2], dtype=torch.int32))
        others = [i for i in range(ROWS) if i not in (7, 10)]
        assert torch.equal(found[others], plain[others]) and not found[[7, 10]].isfinite().any()


class Tied(nn.Module):
    """A table of few numbers that is a product's weight and is looked up, too."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.register_buffer("numbers", CODES[torch.randint(0, 16, (500, DEPTH))])
        self.register_buffer("scale", (torch.rand(500, DEPTH // 32) + 0.5) / 128)

    def rows(self, numbers, scale):
        return (numbers.unflatten(-1, (-1, 32)).float() * scale.unsqueeze(-1)).flatten(-2)

    def forward(self, ids):
        x = self.rows(self.numbers[ids], self.scale[ids])
        return x, nn.functional.linear(x, self.rows(self.numbers, self.scale))


@pytest.mark.parametrize("activations", ["float", "int8"])
def test_tables_of_few_numbers_are_stored_once(activations, tmp_path):
    model, ids = Tied(), torch.tensor([0, 499, 33, 31, 32, 7])
    program = torch.export.export(model, (ids,))
    coil.compile(program, tmp_path / "m.coil.pt2", options={"opt_level": 1, **({"activations": "int8"} if activations == "int8" else {})})
    package = coil.load(tmp_path / "m.coil.pt2")
    (rows, found), (want_rows, want) = package(ids), model(ids)
    assert torch.equal(rows, want_rows)
    assert (found - want).abs().max() <= (2e-2 if activations == "int8" else 1e-5) * want.abs().max()
    constants = json.loads(harness.coil_ok("inspect", tmp_path / "m.coil.pt2", "--json").stdout)["memory"]["constants_bytes"]
    assert constants <= 512 * DEPTH * 0.5 + 512 * DEPTH / 32 * 8 + 256, "the table is there more than once"
