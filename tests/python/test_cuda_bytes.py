"""Products of bytes on a GPU, emulated: `--activations int8` and programs that round their rows themselves, beside a reference in float64 and the CPU's package."""

import os
import re

import numpy as np
import pytest
import torch
from torch import nn

import emulated_cuda
import harness
from quantised_linear import QuantisedLinear

ROWS = [1, 2, 3, 8, 9, 70]
KINDS = {
    "8 bits": dict(),
    "8 bits by 16": dict(group=16),
    "8 bits by 32, 16-bit scales": dict(group=32, scale_dtype=torch.float16),
    "8 bits, zero points": dict(zeros=True),
    "8 bits by 48, zero points": dict(group=48, zeros=True),
    "4 bits": dict(bits=4),
    "4 bits by 16": dict(bits=4, group=16),
    "4 bits by 32, zero points": dict(bits=4, group=32, zeros=True, scale_dtype=torch.bfloat16),
    "4 bits by 48": dict(bits=4, group=48),
    "4 bits by 96": dict(bits=4, group=96, scale_dtype=torch.float16),
}


class Net(nn.Module):
    """Two products of the same rows with what follows them, and one behind."""

    def __init__(self, k, n, after, **kind):
        super().__init__()
        torch.manual_seed(3)
        self.gate, self.up = QuantisedLinear(k, n, bias=True, **kind), QuantisedLinear(k, n, **kind)
        self.down = QuantisedLinear(n, after, **{**kind, "group": 0})

    def forward(self, x):
        return nn.functional.silu(self.gate(x)), self.up(x) * 2, self.down(x[:, :1] + self.up(x)).relu()

    def rounded(self, x):
        up = self.up.rounded(x)
        hidden = (x[:, :1].double() + up).to(x.dtype)
        return nn.functional.silu(self.gate.rounded(x)), up * 2, self.down.rounded(hidden).relu()


def export(module, x, path):
    with torch.no_grad():
        program = torch.export.export(module.eval(), (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=0, max=512)},))
    torch.export.save(program, path)
    return path


def widened(values):
    return [torch.from_numpy(np.asarray(v)).double() for v in values]


def run(program, x):
    np.savez(program.folder / "in.npz", in_0=x.float().numpy() if x.dtype == torch.bfloat16 else x.numpy())
    done, outputs = program.run(program.folder / "in.npz")
    assert done.returncode == 0, done.stderr
    return widened(outputs)


def run_on_cpu(model, folder, *options):
    harness.coil_ok("compile", model, "-o", folder / "cpu.coil.pt2", *options)

    def call():
        harness.coil_ok("run", folder / "cpu.coil.pt2", "--input", folder / "in.npz", "--output", folder / "cpu.npz")
        return widened(harness.load_outputs(folder / "cpu.npz"))

    return call


def assert_near(found, wanted, share):
    for got, want in zip(found, wanted, strict=True):
        assert got.shape == want.shape
        if want.numel():
            assert float((got - want).abs().max()) <= share * float(want.abs().max())


@pytest.mark.parametrize("kind", KINDS)
def test_equal_the_reference_and_the_cpu(kind, tmp_path):
    """The last product's rows are the others' results: a number may land on its neighbour there."""
    module = Net(192, 50, 21, **KINDS[kind])
    model = export(module, torch.randn(5, 192), tmp_path / "m.pt2")
    program = emulated_cuda.Emulated(model, tmp_path, options=("--activations", "int8"))
    assert program.compiled.returncode == 0, program.compiled.stderr
    bits = "bytes_4bit_" if KINDS[kind].get("bits") == 4 else "bytes_"
    assert sum(bits in name for name in program.names) >= 3, program.names
    cpu = run_on_cpu(model, tmp_path, "--activations", "int8")
    for rows in ROWS:
        x = torch.randn(rows, 192) * torch.logspace(-2, 2, rows)[:, None]
        found = run(program, x)
        assert_near(found[:2], module.rounded(x)[:2], 2e-6)
        assert_near(found[2:], module.rounded(x)[2:], 1e-2)
        assert_near(found[:2], cpu()[:2], 2e-6)


@pytest.mark.parametrize("k", [7, 31, 33, 100, 4100])
@pytest.mark.parametrize("bits", [4, 8])
def test_odd_sizes(bits, k, tmp_path):
    module = Net(k, 9, 1, bits=bits)
    model = export(module, torch.randn(5, k), tmp_path / "m.pt2")
    program = emulated_cuda.Emulated(model, tmp_path, options=("--activations", "int8"))
    assert program.compiled.returncode == 0, program.compiled.stderr
    assert any("bytes_" in name for name in program.names), program.names
    for rows in (0, 1, 5, 66):
        x = torch.randn(rows, k)
        assert_near(run(program, x)[:2], module.rounded(x)[:2], 2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("bits", [4, 8])
def test_types_of_a_program(dtype, bits, tmp_path):
    module = Net(96, 40, 24, bits=bits, group=32)
    model = export(module, torch.randn(5, 96, dtype=dtype), tmp_path / "m.pt2")
    program = emulated_cuda.Emulated(model, tmp_path, options=("--activations", "int8"))
    assert program.compiled.returncode == 0, program.compiled.stderr
    assert sum("bytes_" in name for name in program.names) >= 3, program.names
    for rows in (1, 4, 20):
        x = torch.randn(rows, 96).to(dtype)
        assert_near(run(program, x), module.rounded(x), {torch.float32: 1e-2, torch.bfloat16: 2e-2, torch.float16: 1e-2}[dtype])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("kind,times", [("4 bits by 16", 1), ("4 bits by 96", 2.0**9), ("8 bits by 16", 2.0**-4)])
def test_short_groups_in_float16(kind, times, dtype, tmp_path):
    """Results in 16 bits: factors are rounded to float16, with scales that do not fit it as they are, and the error is that of the results."""
    module = Net(192, 50, 21, **KINDS[kind])
    for layer in (module.gate, module.up):
        layer.scale *= times
    model = export(module, torch.randn(5, 192, dtype=dtype), tmp_path / "m.pt2")
    program = emulated_cuda.Emulated(model, tmp_path, options=("--activations", "int8"))
    assert program.compiled.returncode == 0, program.compiled.stderr
    assert any("wgmma_f16_" in name for name in program.names), program.names
    for rows in (0, 1, 9, 70, 200):
        x = (torch.randn(rows, 192) * torch.logspace(-2, 2, rows)[:, None] / max(times, 1)).to(dtype)
        wanted = module.rounded(x)[:2]
        for found, right in zip(run(program, x)[:2], wanted, strict=True):
            if rows == 0:
                continue
            errors = (found - right).abs().amax(1) / right.abs().amax(1)  # row by row: they differ much in size
            assert float(errors.median()) <= {torch.bfloat16: 8e-3, torch.float16: 8e-4}[dtype], rows
            assert float(errors.max()) <= 1.5e-2, rows  # a number of 16 bits may lie between two of a row's steps


@pytest.mark.parametrize("kind", ["8 bits", "8 bits by 32, 16-bit scales", "4 bits", "4 bits by 32, zero points"])
def test_programs_that_round_their_rows(kind, tmp_path):
    """Without an option: the numbers are the program's."""
    module = QuantisedLinear(96, 40, dynamic=True, **KINDS[kind])
    program = emulated_cuda.Emulated(export(module, torch.randn(5, 96), tmp_path / "m.pt2"), tmp_path)
    assert program.compiled.returncode == 0, program.compiled.stderr
    assert any("bytes_" in name for name in program.names), program.names
    for rows in (0, 1, 3, 40):
        x = torch.randn(rows, 96)
        assert_near(run(program, x), [module.rounded(x)], 1e-6)


def test_torchao(tmp_path):
    """torchao's dynamic quantisation, by columns and by groups with zero points."""
    q = pytest.importorskip("torchao.quantization")
    for number, options in enumerate([dict(weight_dtype=torch.int8, weight_granularity=q.PerAxis(0)),
                                      dict(weight_dtype=torch.int4, weight_granularity=q.PerGroup(32), weight_mapping_type=q.MappingType.ASYMMETRIC)]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(64, 80), nn.SiLU(), nn.Linear(80, 24) if number == 0 else nn.Linear(80, 24).requires_grad_(False))
        if number:
            module = module[:2]
        q.quantize_(module, q.Int8DynamicActivationIntxWeightConfig(**options))
        exported = torch.export.export(module.eval(), (torch.randn(5, 64),), dynamic_shapes=({0: torch.export.Dim("rows", min=0, max=512)},)).run_decompositions({})
        torch.export.save(exported, tmp_path / "m.pt2")
        program = emulated_cuda.Emulated(tmp_path / "m.pt2", tmp_path)
        assert program.compiled.returncode == 0, program.compiled.stderr
        assert any("bytes_" in name for name in program.names), program.names
        for rows in (1, 6, 30):
            x = torch.randn(rows, 64)
            assert_near(run(program, x), [module(x).detach().double()], 1e-2)


def test_addresses_that_nothing_divides(tmp_path):
    """Rows of numbers that the call gives, at odd addresses."""

    class Given(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("numbers", torch.randint(-128, 128, (24, 64), dtype=torch.int8))

        def forward(self, x):
            return torch._int_mm(x, self.numbers.t())

    torch.manual_seed(1)
    module = Given()
    x = torch.randint(-128, 128, (32, 64), dtype=torch.int8)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "m.pt2")
    program = emulated_cuda.Emulated(tmp_path / "m.pt2", tmp_path)
    assert any("bytes_" in name for name in program.names), program.names
    np.savez(tmp_path / "in.npz", in_0=x.numpy())
    for done, outputs in (program.run(tmp_path / "in.npz"), program.run_shifted(tmp_path / "in.npz", 3)):
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(np.asarray(outputs[0]), module(x).numpy())


class Tied(nn.Module):
    """A table of numbers whose rows are looked up, and which is a product's weight too."""

    def __init__(self, n, k, bits, group=0):
        super().__init__()
        torch.manual_seed(6)
        self.head = QuantisedLinear(k, n, bits=bits, group=group, scale_dtype=torch.float16)

    def rows(self, ids):
        wide = self.head.numbers[ids].float().unflatten(1, (-1, self.head.group))
        return (wide * self.head.scale[ids][..., None]).flatten(1)

    def forward(self, ids):
        x = self.rows(ids)
        return x, self.head(x * 2 + 1)

    def rounded(self, ids):
        x = self.rows(ids)
        return x, self.head.rounded(x * 2 + 1)


@pytest.mark.parametrize("k,bits,group", [(256, 4, 0), (256, 4, 32), (250, 4, 0), (250, 8, 0), (256, 8, 64)])
def test_tied_tables_are_stored_once(k, bits, group, tmp_path):
    module, n = Tied(4001, k, bits, group), 4001
    ids = torch.tensor([5, 0, 4000, 17, 2222])
    with torch.no_grad():
        program = torch.export.export(module.eval(), (ids,), dynamic_shapes=({0: torch.export.Dim("rows", min=0, max=40)},))
    torch.export.save(program, tmp_path / "m.pt2")
    program = emulated_cuda.Emulated(tmp_path / "m.pt2", tmp_path, options=("--activations", "int8"))
    assert program.compiled.returncode == 0, program.compiled.stderr
    scales = n * (6 * k // group if group else 4)  # of 4 bytes for the lookup, and 2 for the product
    assert program.package.stat().st_size < n * -(-k // 32) * 32 * bits / 8 + scales + 200_000
    for rows in (ids, ids[:1], torch.arange(20) * 200 + 1):
        np.savez(tmp_path / "in.npz", in_0=rows.numpy())
        done, outputs = program.run(tmp_path / "in.npz")
        assert done.returncode == 0, done.stderr
        found, wanted = widened(outputs), module.rounded(rows)
        assert torch.equal(found[0].float(), wanted[0])
        assert_near(found[1:], wanted[1:], 2e-3)


class Layer(nn.Module):
    """What a decoder's layer has: q, k and v with something between them, and gate and up, of which one's epilogue reads the other's result."""

    def __init__(self, k, bits, group, zeros=False):
        super().__init__()
        torch.manual_seed(4)
        kind = dict(bits=bits, group=group, zeros=zeros, scale_dtype=torch.float16)
        self.attended = nn.ModuleList([QuantisedLinear(k, n, bias=n == 24, **kind) for n in (40, 24, 7)])
        self.gate, self.up, self.down = QuantisedLinear(k, 100, **kind), QuantisedLinear(k, 100, **kind), QuantisedLinear(100, 9, bits=bits)

    def forward(self, x):
        hidden = nn.functional.silu(self.gate(x)) * self.up(x)
        return *[part(x) * (i + 1) + x[:, :1] for i, part in enumerate(self.attended)], hidden, self.down(hidden)

    def rounded(self, x):
        hidden = nn.functional.silu(self.gate.rounded(x)) * self.up.rounded(x)
        return *[part.rounded(x) * (i + 1) + x[:, :1] for i, part in enumerate(self.attended)], hidden, self.down.rounded(hidden.float())


@pytest.mark.parametrize("rows", [None, 1], ids=["any_rows", "one_row"])
@pytest.mark.parametrize("bits,group,zeros", [(8, 0, False), (8, 32, True), (4, 32, False), (4, 0, True), (4, 48, False)])
def test_products_of_one_row_share_a_launch(bits, group, zeros, rows, tmp_path):
    module = Layer(96, bits, group, zeros)
    if rows is None:
        model = export(module, torch.randn(5, 96), tmp_path / "m.pt2")
    else:
        model = tmp_path / "m.pt2"
        torch.export.save(torch.export.export(module.eval(), (torch.randn(rows, 96),)), model)
    program = emulated_cuda.Emulated(model, tmp_path, options=("--activations", "int8"))
    assert program.compiled.returncode == 0, program.compiled.stderr
    # The rounding of x and all five products of it, with a pair among them; that of what down reads, and down.
    assert sum("_and_5_rows" in name for name in program.names) == 1 and sum("_and_1_rows" in name for name in program.names) == 1, program.names
    source, _ = emulated_cuda.kernels_of(program.package)
    assert len(re.findall(r"cd::joined_bytes<cd::ByteKind<[^;]*>, 96, 2, \d, \d, 1>\(t", source)) == 1
    for count in (1, 2, 30) if rows is None else (1,):
        x = torch.randn(count, 96)
        found, wanted = run(program, x), module.rounded(x)
        assert_near(found[:4], wanted[:4], 3e-6)
        assert_near(found[4:], wanted[4:], 1e-2)


def test_hidden_products_of_a_row_run_alone(tmp_path):
    """--without joins: each by itself."""
    model = export(Layer(96, 8, 0), torch.randn(5, 96), tmp_path / "m.pt2")
    program = emulated_cuda.Emulated(model, tmp_path, options=("--activations", "int8", "--without", "joins"))
    assert program.compiled.returncode == 0, program.compiled.stderr
    assert not any("_and_" in name for name in program.names), program.names


@pytest.mark.parametrize("sm", [80, 90, 100, 120])
def test_real_compiler_takes_the_kernels(sm, tmp_path):
    """By NVRTC, where it is: kernels of one row, of few and of many, with all that a kind has."""
    if not os.path.exists(os.environ.get("COIL_NVRTC", "")):
        pytest.skip("COIL_NVRTC names no library")
    module = Net(192, 50, 21, bits=4, group=32, zeros=True)
    model = export(module, torch.randn(5, 192), tmp_path / "m.pt2")
    harness.coil_ok("compile", model, "--target", f"cuda:sm_{sm}", "--activations", "int8", "-o", tmp_path / "m.coil.pt2")


@pytest.mark.parametrize("kind,lines", [("Q4_0", "gemm_b_lines_4bit"), ("Q4_K", "gemm_b_lines_4bit"), ("Q6_K", "in groups of 16"), ("Q8_0", "in groups of 32")])
def test_gguf_files_keep_their_numbers(kind, lines, tmp_path, monkeypatch):
    """Every product of an imported model, prompts' and single tokens', is one of bytes."""
    gguf = pytest.importorskip("gguf")
    del gguf
    import test_gguf

    monkeypatch.setenv("COIL_TORCH", os.sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(harness.PYTHON_PATH))
    test_gguf.write(tmp_path / "m.gguf", kind, "llama", False)
    env = {**os.environ, "COIL_NVRTC": str(emulated_cuda.made_tools() / "libnvrtc.so"), "COIL_DUMP": str(tmp_path / "dump")}
    harness.coil("import-gguf", tmp_path / "m.gguf", "-o", tmp_path / "m.coil.pt2", "--activations", "int8", "--target", "cuda:sm_90", env=env)
    plans = [p.read_text() for p in (tmp_path / "dump").rglob("*_plan_cuda*.txt")]
    assert len(plans) == 3  # prompts with all logits, single tokens, prompts with the last ones
    for plan in plans:
        assert plan.count("in groups of") == 15 and lines in plan
