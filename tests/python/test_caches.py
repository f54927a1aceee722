"""States of which a call changes some elements: call after call beside eager, failed calls change nothing, and what is written in place is so."""

import os

import numpy as np
import pytest
import torch

import coil
import harness
import zoo

NAMES = [name for name in zoo.programs() if name.startswith("cache_")]
# New values need old ones that are written in the same call, so the state is copied.
COPIED = {"cache_put_added", "cache_moved", "cache_grown", "cache_shifted", "cache_kept", "cache_statistics_read"}


def zoo_names(name=None, **_):
    return [name] if name else []


def program(name, form="aten"):
    return zoo.make(name, form) / f"{name}.{form}.pt2"


def plan(name, folder, *options):
    harness.coil_ok("compile", program(name), "-q", "-O", "0", "-o", folder / "m.pt2", *options, env=dict(os.environ, COIL_DUMP=str(folder / "dump")))
    return next((folder / "dump").glob("*_plan*.txt")).read_text()


def steps(name, count=3):
    """Inputs of several calls: the example's, then others of their sizes and the same positions elsewhere."""
    torch.manual_seed(1)
    example = zoo.programs()[name].make().args
    yield example
    for _ in range(count):
        yield tuple(torch.randn(x.shape).to(x.dtype) if x.is_floating_point() else ~x if x.dtype == torch.bool else torch.where(x >= 0, (x - 1).clamp_min(0), x) for x in example)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["aten", "core"])
def test_call_after_call(name, form, tmp_path):
    case = zoo.programs()[name].make()
    harness.coil_ok("compile", program(name, form), "-q", "-O", "1", "-o", tmp_path / "m.pt2")
    model = coil.load(tmp_path / "m.pt2")
    for inputs in steps(name):
        want, got = case.module(*inputs), model(*inputs)
        for w, g in zip(want if isinstance(want, tuple) else [want], got if isinstance(got, tuple) else [got], strict=True):
            torch.testing.assert_close(torch.as_tensor(g), w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_written_in_place(name, tmp_path):
    """No whole new cache is made and copied where only some elements change."""
    text = plan(name, tmp_path, "--target", "cpu:x86-64-v3")
    copies = "copy " in text.split("kernel write_", 1)[1] if "kernel write_" in text else False
    assert copies == (name in COPIED), text


def test_a_row_costs_a_row(tmp_path):
    """Neither loops over the cache nor copies of it."""
    text = plan("cache_one_row", tmp_path, "--target", "cpu:x86-64-v3")
    write = text.split("kernel index_copy", 2)[2].split("kernel")[0] if text.count("kernel index_copy") > 1 else text.split("kernel index_copy")[1]
    assert "for i0<2 i2<5" in write and "where load(checks_hold" in write, text


class Decoder(torch.nn.Module):
    """Two caches, a table of words before and after them."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(11, 4)
        self.register_buffer("keys", torch.zeros(6, 4))
        self.register_buffer("values", torch.zeros(6, 4))

    def forward(self, ids, positions):
        x = self.table(ids)
        self.keys.index_copy_(0, positions, x)
        scores = torch.softmax(x @ self.keys.t(), -1)
        self.values.index_copy_(0, positions, x * 2)
        return scores @ self.values + self.table(ids + 1)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_call_that_fails_changes_nothing(rows, dynamic, tmp_path):
    torch.manual_seed(0)
    module = Decoder().eval()
    n = torch.export.Dim("n", min=1, max=6)
    example = (torch.arange(rows) + (2 if dynamic else 0), torch.arange(rows))
    if dynamic and rows == 1:
        example = tuple(torch.arange(2) for _ in example)
    saved = torch.export.export(module, example, dynamic_shapes=({0: n}, {0: n}) if dynamic else None)
    torch.export.save(saved, tmp_path / "p.pt2")
    harness.coil_ok("compile", tmp_path / "p.pt2", "-q", "-o", tmp_path / "m.pt2")
    model = coil.load(tmp_path / "m.pt2")
    assert "copy ->" not in harness.coil_ok("inspect", tmp_path / "m.pt2", "--kernels").stdout
    ids, positions = torch.arange(rows) + 3, torch.arange(rows) + 1

    def compare():
        torch.testing.assert_close(torch.as_tensor(model(ids, positions)), module(ids, positions))

    compare()
    for wrong_ids, wrong_positions in [(ids + 100, positions), (ids, positions + 5), (ids, positions - 2), (ids - 4, positions), (torch.full_like(ids, 10), positions)]:
        with pytest.raises(coil.Error, match="COIL-E210.*index is out of range"):
            model(wrong_ids, wrong_positions)
        compare()  # the rows in front and behind are read too


class Shared(torch.nn.Module):
    """Two names of one tensor, as exports of a model's own calls have them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(6, 4), persistent=False)  # a file keeps its other names only then
        self.other = [self.cache]

    def forward(self, p, x):
        self.other[0].index_copy_(0, p, x)
        return self.cache * 1 + self.other[0]


def test_two_names_of_a_cache(tmp_path):
    module = Shared()
    saved = torch.export.export(module, (torch.tensor([3]), torch.randn(1, 4)), strict=False)
    torch.export.save(saved, tmp_path / "p.pt2")
    harness.coil_ok("compile", tmp_path / "p.pt2", "-q", "-o", tmp_path / "m.pt2")
    model, eager = coil.load(tmp_path / "m.pt2"), Shared()
    for position in (3, 0, 5):
        inputs = torch.tensor([position]), torch.randn(1, 4)
        torch.testing.assert_close(torch.as_tensor(model(*inputs)), eager(*inputs))
