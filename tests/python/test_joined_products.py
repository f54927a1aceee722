"""Products of the same few rows as one launch on a GPU (docs/design/cuda.md), with the norm in front of them: emulated, beside eager PyTorch."""

import re
import zipfile

import numpy as np
import pytest
import torch
from torch import nn

import emulated_cuda
import harness

ROWS = [1, 3, 8, 9, 33]


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width) * 0.2 + 1)

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


class Attended(nn.Module):
    """q, k and v of any widths, each with what follows it before the next one."""

    def __init__(self, width, columns, norm, bias=False):
        super().__init__()
        self.norm = norm(width) if norm else nn.Identity()
        self.parts = nn.ModuleList([nn.Linear(width, n, bias=bias) for n in columns])

    def forward(self, x):
        rows = self.norm(x)
        return tuple(part(rows) * (i + 1) + x[:, :1] for i, part in enumerate(self.parts))


class Gated(nn.Module):
    def __init__(self, width, inner, activation=nn.functional.silu):
        super().__init__()
        self.norm, self.activation = nn.LayerNorm(width), activation
        self.gate, self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(width, inner), nn.Linear(inner, width, bias=False)

    def forward(self, x):
        rows = self.norm(x)
        return x + self.down(self.activation(self.gate(rows)) * self.up(rows))


class Tied(nn.Module):
    """One weight for two products, one of which is the program's result as well as what the other one's epilogue reads elsewhere."""

    def __init__(self, width):
        super().__init__()
        self.norm, self.a, self.b = RMSNorm(width), nn.Linear(width, 40), nn.Linear(width, 40)
        self.b.weight = self.a.weight

    def forward(self, x):
        rows = self.norm(x)
        a = self.a(rows)
        return a, self.b(rows) + a.flip(-1), self.b(rows) * a


class Given(nn.Module):
    """Weights that the call gives, and rows that others need too."""

    def forward(self, x, w, v):
        rows = x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5).to(x.dtype)
        return rows @ w.t(), (rows @ v.t()).relu(), rows


def module(name):
    widths = {"odd": (136, (24, 7, 50)), "long": (1096, (8, 33)), "wide": (64, (300, 5, 16, 1, 9, 40, 3))}
    if name in widths:
        return Attended(*widths[name], RMSNorm if name != "long" else nn.LayerNorm, bias=name == "odd")
    return {"plain": lambda: Attended(96, (17, 40), None), "gated": lambda: Gated(72, 130), "gelu": lambda: Gated(256, 24, nn.functional.gelu), "tied": lambda: Tied(104),
            "given": Given}[name]()


def built(name, dtype, folder, rows=None):
    """The program with any number of rows, or with so many; inputs for a number of rows; and the module."""
    torch.manual_seed(5)
    model = module(name).to(dtype).eval()
    width = {"odd": 136, "long": 1096, "wide": 64, "plain": 96, "gated": 72, "gelu": 256, "tied": 104, "given": 80}[name]
    weights = [torch.randn(n, width).to(dtype) for n in (23, 48)] if name == "given" else []

    def inputs(m):
        return (torch.randn(m, width).to(dtype), *weights)

    shapes = (({0: torch.export.Dim("m", min=0, max=500)}, *[None] * len(weights)),) if rows is None else None
    shapes = shapes and (shapes[0] if weights else shapes[0])
    with torch.no_grad():
        program = torch.export.export(model, inputs(rows or 5), dynamic_shapes=shapes)
    torch.export.save(program, folder / "m.pt2")
    return emulated_cuda.Emulated(folder / "m.pt2", folder, 80, level="-O0"), inputs, model


def check(program, inputs, model, m, dtype):
    values = inputs(m)
    np.savez(program.folder / "in.npz", **{f"in_{i}": (v.float() if dtype == torch.bfloat16 else v).numpy() for i, v in enumerate(values)})
    done, outputs = program.run(program.folder / "in.npz")
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        expected = model(*values)
        exact = model.double()(*[v.double() for v in values])
        model.to(dtype)
    expected, exact = [e if isinstance(e, tuple) else (e,) for e in (expected, exact)]
    for found, eager, right in zip(outputs, expected, exact, strict=True):
        found, eager = torch.from_numpy(np.asarray(found)).double(), eager.double()
        scale = float(right.abs().max()) if right.numel() else 1.0
        spread = float((eager - right).abs().max()) if right.numel() else 0.0
        assert float((found - right).abs().max() if right.numel() else 0) <= 2 * spread + {torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype] * scale, f"{m} rows"


def host_text(program):
    with zipfile.ZipFile(program.package) as archive:
        return next(archive.read(n).decode() for n in archive.namelist() if n.endswith("host.cc"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("name", ["odd", "long", "wide", "plain", "gated", "gelu", "tied", "given"])
def test_few_rows_equal_eager(name, dtype, tmp_path):
    program, inputs, model = built(name, dtype, tmp_path)
    assert program.compiled.returncode == 0, program.compiled.stderr
    assert any("_rows_" in kernel for kernel in program.names), program.names
    assert "together" in host_text(program)
    for m in [0, *ROWS]:
        check(program, inputs, model, m, dtype)


@pytest.mark.parametrize("name", ["odd", "gated", "plain"])
@pytest.mark.parametrize("rows", [1, 7])
def test_rows_of_a_program(name, rows, tmp_path):
    program, inputs, model = built(name, torch.bfloat16, tmp_path, rows)
    check(program, inputs, model, rows, torch.bfloat16)
    assert any("_rows_" in kernel for kernel in program.names)


def test_many_rows_and_float32_have_kernels_of_their_own(tmp_path):
    (tmp_path / "many").mkdir()
    for folder, dtype, rows in [(tmp_path / "many", torch.bfloat16, 40), (tmp_path, torch.float32, 1)]:
        program, _, _ = built("odd", dtype, folder, rows)
        assert program.compiled.returncode == 0, program.compiled.stderr
        assert not any("_rows_" in kernel for kernel in program.names)


@pytest.mark.parametrize("depth,joins", [(16384, True), (16392, False)])
def test_rows_fit_the_shared_memory_that_every_kernel_has(depth, joins, tmp_path):
    linear = nn.Linear(depth, 8, bias=False).bfloat16()
    with torch.no_grad():
        torch.export.save(torch.export.export(linear, (torch.randn(1, depth).bfloat16(),)), tmp_path / "m.pt2")
    program = emulated_cuda.Emulated(tmp_path / "m.pt2", tmp_path, 80)
    assert any("_rows_" in kernel for kernel in program.names) == joins


def exported_decoder(dtype, layers=2, dynamic=True):
    import small_decoders
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    module = TorchExportableModuleWithStaticCache(small_decoders.decoder("llama", num_hidden_layers=layers).to(dtype))
    count = 5 if dynamic else 1
    example = {"input_ids": torch.zeros(1, count, dtype=torch.int64), "cache_position": torch.arange(count)}
    n = torch.export.Dim("n", min=1, max=small_decoders.ROWS - 1)
    shapes = {"input_ids": {1: n}, "cache_position": {0: n}} if dynamic else None
    with torch.no_grad():
        return module, torch.export.export(module, (), example, dynamic_shapes=shapes, strict=False)


def launches_of_a_step(dynamic, layers, folder):
    _, exported = exported_decoder(torch.bfloat16, layers, dynamic)
    folder.mkdir()
    torch.export.save(exported, folder / "m.pt2")
    env = {**emulated_cuda.environment(), "COIL_NVRTC": str(emulated_cuda.made_tools() / "libnvrtc.so"), "COIL_DUMP": str(folder)}
    done = harness.coil("compile", folder / "m.pt2", "-q", "--target", "cuda:sm_90", "-o", folder / "m.coil.pt2", env=env)
    assert done.returncode == 0, done.stderr
    plan = next(folder.glob("*_plan_cuda.txt")).read_text()
    return sum(line.startswith("kernel ") and "the one before" not in line for line in plan.splitlines())


@pytest.mark.parametrize("dynamic", [False, True], ids=["one_row", "any_rows"])
def test_launches_of_a_layer(dynamic, tmp_path):
    """Norm with q, k and v; rotary embeddings with both caches' rows; attention; o; norm with gate and up; down."""
    assert launches_of_a_step(dynamic, 3, tmp_path / "three") - launches_of_a_step(dynamic, 2, tmp_path / "two") == 6


@pytest.mark.parametrize("dynamic", [False, True], ids=["one_row", "any_rows"])
def test_small_kernels_let_the_next_start_where_rows_are_few(dynamic, tmp_path):
    """Attention and loops between the products of a step: always in a program of one row, else if the call has few."""
    _, exported = exported_decoder(torch.bfloat16, 1, dynamic)
    torch.export.save(exported, tmp_path / "m.pt2")
    program = emulated_cuda.Emulated(tmp_path / "m.pt2", tmp_path)
    assert program.compiled.returncode == 0, program.compiled.stderr
    source, _ = emulated_cuda.kernels_of(program.package)
    rules = set(re.findall(r"cd::begin_small_kernel\((.*)\);", source))
    if dynamic:
        rules.discard("")  # of the kernels that choose a token
        assert "t.batch * t.q_len <= 8" in rules and all(rule.endswith("<= 8") for rule in rules), rules
        assert any(re.fullmatch(r".*a\.(m0\.)?s\[\d+\].* <= 8", rule) for rule in rules), rules
    else:
        assert rules == {""}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
def test_steps_of_a_decoder(dtype):
    """A prompt of five tokens, steps of one, and one of three, with caches that are written in place: logits beside eager's."""
    module, exported = exported_decoder(dtype)
    program = emulated_cuda.StatefulProgram(exported)
    start = 0
    for count in (5, 1, 1, 3, 1):
        tokens, places = torch.arange(count)[None] * 7 + start + 3, torch.arange(start, start + count)
        with torch.no_grad():
            expected = module(input_ids=tokens, cache_position=places).double()
        found = program(tokens, places)[0]
        found = (found.to(torch.int32).to(torch.int16).view(torch.bfloat16) if dtype == torch.bfloat16 else found).double().reshape(expected.shape)
        assert float((found - expected).abs().max()) <= {torch.bfloat16: 4e-2, torch.float32: 1e-4}[dtype] * float(expected.abs().max()), (start, count)
        start += count
