"""Products of bytes whose weights have scales by groups: programs that quantise what meets them, and `--activations int8`, by which coil does."""

import os

import numpy as np
import pytest
import torch
import torchao.quantization as q
from torch import nn

import coil
import harness

FOUR = dict(weight_dtype=torch.int4)
EIGHT = dict(weight_dtype=torch.int8)
DYNAMIC = {
    "4 bits by 32": dict(**FOUR, weight_granularity=q.PerGroup(32)),
    "4 bits by 64": dict(**FOUR, weight_granularity=q.PerGroup(64)),
    "4 bits by columns": dict(**FOUR, weight_granularity=q.PerAxis(0)),
    "8 bits by 64": dict(**EIGHT, weight_granularity=q.PerGroup(64)),
    "8 bits by columns": dict(**EIGHT, weight_granularity=q.PerAxis(0)),
    "4 bits, zero points": dict(**FOUR, weight_granularity=q.PerGroup(32), weight_mapping_type=q.MappingType.ASYMMETRIC),
    "8 bits, zero points": dict(**EIGHT, weight_granularity=q.PerGroup(32), weight_mapping_type=q.MappingType.ASYMMETRIC),
    "3 bits by 32": dict(weight_dtype=torch.int3, weight_granularity=q.PerGroup(32)),
}


def net(*widths, bias=True):
    torch.manual_seed(0)
    layers = [nn.Linear(a, b, bias=bias) for a, b in zip(widths, widths[1:])]
    return nn.Sequential(*[m for layer in layers for m in (layer, nn.SiLU())][:-1]).eval()


def export(module, x, path, dynamic=True):
    rows = torch.export.Dim("rows", min=0, max=512)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: rows},) if dynamic else None).run_decompositions({})
    torch.export.save(program, path)
    return path


def compiled(program, folder, *options):
    """The package, and the lines of its products."""
    dump = folder / f"dump{len(os.listdir(folder))}"
    package = folder / "p.coil.pt2"
    harness.coil_ok("compile", program, "-o", package, *options, env={**os.environ, "COIL_DUMP": str(dump)})
    (loops,) = dump.glob("*_loops.txt")
    return coil.load(package), [line for line in loops.read_text().splitlines() if " = gemm " in line]


def of_bytes(product):
    """A line of the dump: the sums of products of bytes have a value of their own."""
    return ".integers" in product.split(":")[0]


@pytest.mark.parametrize("kind", DYNAMIC)
def test_programs_that_quantise(kind, tmp_path):
    """torchao's dynamic quantisation: the numbers are the program's, so results agree to float32's digits but where a number lands on its neighbour."""
    module = net(256, 320, 100)
    q.quantize_(module, q.Int8DynamicActivationIntxWeightConfig(**DYNAMIC[kind]))
    x = torch.randn(7, 256)
    model, products = compiled(export(module, x, tmp_path / "p.pt2"), tmp_path)
    assert len(products) == 2 and all(of_bytes(line) for line in products), products
    by_groups = ["in groups of" in line for line in products]
    assert all(by_groups) == (kind != "8 bits by columns") and any(by_groups) == all(by_groups), products
    for rows in (1, 2, 5, 8, 33, 100):  # eager refuses none
        given = torch.randn(rows, 256) * torch.logspace(-3, 3, max(rows, 1))[:rows, None]
        want = module(given).detach()
        got = torch.as_tensor(np.asarray(model(given.numpy())))
        assert got.shape == want.shape
        scale = want.abs().amax(1, keepdim=True) if rows else 1
        assert (((got - want) / scale).abs() < 2e-2).all()
        if rows:
            assert ((got - want) / scale).abs().median() < 1e-5


def weight_only(kind):
    module = net(256, 320, 100)
    if kind == "8 bits by columns":
        q.quantize_(module, q.Int8WeightOnlyConfig())
    else:
        q.quantize_(module, q.IntxWeightOnlyConfig(weight_dtype=torch.int4 if kind.startswith("4") else torch.int8, granularity=q.PerGroup(32)))
    return module


def quantised_rows(x):
    greatest = x.abs().amax(-1, keepdim=True)
    factor = torch.where(greatest == 0, 0.0, 127 / greatest)
    return torch.round(x * factor) * (greatest / 127)


class Rounded(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        for layer in self.module:
            x = layer(quantised_rows(x) if isinstance(layer, nn.Linear) else x)
        return x


@pytest.mark.parametrize("kind", ["4 bits by 32", "8 bits by 32", "8 bits by columns"])
def test_weight_only_programs(kind, tmp_path):
    module = weight_only(kind)
    x = torch.randn(7, 256)
    program = export(module, x, tmp_path / "p.pt2")
    exact, _ = compiled(program, tmp_path)
    model, products = compiled(program, tmp_path, "--activations", "int8")
    assert len(products) == 2 and all(of_bytes(line) for line in products), products
    for rows in (0, 1, 2, 9, 64):
        given = torch.randn(rows, 256) * torch.logspace(-3, 3, max(rows, 1))[:rows, None]
        got = torch.as_tensor(np.asarray(model(given.numpy())))
        want = Rounded(module)(given).detach()
        scale = want.abs().amax(1, keepdim=True) if rows else 1
        assert (((got - want) / scale).abs() < 2e-2).all()
        if rows:
            assert ((got - want) / scale).abs().median() < 1e-5
            assert 1e-5 < ((torch.as_tensor(np.asarray(exact(given.numpy()))) - got) / scale).abs().max() < 5e-2


def test_bfloat16(tmp_path):
    module = net(256, 320, 100).to(torch.bfloat16)
    q.quantize_(module, q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=q.PerGroup(32)))
    x = torch.randn(6, 256, dtype=torch.bfloat16)
    model, products = compiled(export(module, x, tmp_path / "p.pt2"), tmp_path, "--activations", "int8")
    assert len(products) == 2 and all(of_bytes(line) for line in products), products
    want = module(x).float()
    assert (torch.from_dlpack(model(x)).float() - want).abs().max() < 5e-2 * want.abs().max()


def test_rows_that_are_no_numbers(tmp_path):
    """A NaN or an infinity stays in its row; a row of zeros gives what eager gives."""
    module = net(64, 40)
    q.quantize_(module, q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=q.PerGroup(32)))
    x = torch.randn(5, 64)
    x[1, 3], x[2, 5], x[3] = float("nan"), float("inf"), 0
    model, _ = compiled(export(module, x, tmp_path / "p.pt2"), tmp_path, "--activations", "int8")
    got, want = np.asarray(model(x.numpy())), module(x).detach().numpy()
    assert np.isnan(got[1]).all() and not np.isfinite(got[2]).any()
    np.testing.assert_array_equal(got[3], want[3])
    np.testing.assert_allclose(got[[0, 4]], want[[0, 4]], atol=3e-2)


def test_one_quantisation_for_products_of_the_same_rows(tmp_path):
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(64, n, bias=False) for n in (64, 32, 32))

        def forward(self, x):
            return self.q(x), self.k(x), self.v(x)

    module = Joined().eval()
    q.quantize_(module, q.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=q.PerGroup(32)))
    model, products = compiled(export(module, torch.randn(4, 64), tmp_path / "p.pt2"), tmp_path, "--activations", "int8")
    operands = {line.split(": ")[2].split("[")[0] for line in products}
    assert len(products) == 3 and len(operands) == 1, products
    x = torch.randn(4, 64)
    for got, want in zip(model(x.numpy()), module(x)):
        np.testing.assert_allclose(got, want.detach().numpy(), atol=3e-2)


def test_float_programs_stay(tmp_path):
    """Weights that are not quantised meet floats."""
    program = export(net(64, 40), torch.randn(3, 64), tmp_path / "p.pt2")
    _, products = compiled(program, tmp_path, "--activations", "int8")
    assert products and not any(of_bytes(line) for line in products)


def test_what_is_refused(tmp_path):
    program = export(net(64, 40), torch.randn(3, 64), tmp_path / "p.pt2")
    out = tmp_path / "x.pt2"
    harness.assert_refused(harness.coil("compile", program, "--activations", "int4", "-o", out), "activations are 'int4'", "float or int8", code=402)
    assert not out.exists()
