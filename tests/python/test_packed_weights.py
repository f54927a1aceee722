"""4-bit weights as PyTorch packs them: products in packages and through torch.compile, the packing itself."""

import pytest
import torch

import harness  # noqa: F401 (makes `coil` importable)
import coil

A = torch.ops.aten


def numbers(n, k):
    return torch.randint(0, 16, (n, k), dtype=torch.int32)


class Int4(torch.nn.Module):
    """A Linear's weight, packed, with a scale and a summand for each group."""

    def __init__(self, n, k, group, dtype):
        super().__init__()
        self.group = group
        self.weight = torch.nn.Buffer(A._convert_weight_to_int4pack_for_cpu(numbers(n, k), 2))
        parameters = torch.stack([torch.rand(k // group, n) * 0.1 + 0.01, torch.randn(k // group, n) * 0.2], -1)
        self.parameters_of_groups = torch.nn.Buffer(parameters.to(dtype))

    def forward(self, x):
        return A._weight_int4pack_mm_for_cpu(x * 0.5, self.weight, self.group, self.parameters_of_groups) + 1


class Packs(torch.nn.Module):
    def forward(self, x, w, parameters):
        packed = A._convert_weight_to_int4pack_for_cpu(w, 2)
        return packed, A._weight_int4pack_mm_for_cpu(x, packed, 32, parameters)


class Dynamic(torch.nn.Module):
    def __init__(self, n, k, group, bias):
        super().__init__()
        self.n, self.k, self.group = n, k, group
        q = numbers(n, k)
        packed = (q[:, ::2] | (q[:, 1::2] << 4)).to(torch.uint8)
        self.packed = torch.nn.Buffer(A._dyn_quant_pack_4bit_weight(packed, torch.rand(n, k // group) * 0.1 + 0.01, torch.randn(n) if bias else None, group, k, n))

    def forward(self, x):
        return A._dyn_quant_matmul_4bit(x, self.packed, self.group, self.k, self.n)


def package(module, inputs, dynamic=None, **options):
    return coil.compile(torch.export.export(module, inputs, dynamic_shapes=dynamic), **options)


# One block of columns, several, a part of one, blocks and a part.
@pytest.mark.parametrize("n,k,group", [(64, 64, 32), (128, 128, 64), (16, 32, 32), (48, 256, 128), (176, 96, 32)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
def test_int4_products(n, k, group, dtype):
    torch.manual_seed(n)
    module = Int4(n, k, group, dtype)
    model = package(module, (torch.randn(5, k, dtype=dtype),), ({0: torch.export.Dim("rows", min=2)},))
    for rows in (5, 33):
        x = torch.randn(rows, k, dtype=dtype)
        tolerance = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 6e-2}[dtype]
        torch.testing.assert_close(model(x), module(x), atol=tolerance * k**0.5, rtol=tolerance)


def test_int4_weights_stay_packed(tmp_path):
    torch.manual_seed(0)
    n, k = 1024, 1024
    package(Int4(n, k, 64, torch.float32), (torch.randn(1, k),), output=tmp_path / "m.pt2")
    assert (tmp_path / "m.pt2").stat().st_size < 3 * n * k // 2  # numbers of 4 bits, parameters and code; as floats they would be 4 * n * k


def test_int4_scale_of_zero():
    """Such a group is its summand alone."""
    torch.manual_seed(0)
    module = Int4(32, 64, 32, torch.float32)
    module.parameters_of_groups[0, 5, 0] = 0
    x = torch.randn(3, 64)
    torch.testing.assert_close(package(module, (x,))(x), module(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("n", [16, 64, 80])
def test_int4_packing(n):
    torch.manual_seed(0)
    inputs = (torch.randn(4, 64), numbers(n, 64), torch.rand(2, n, 2))
    for ours, theirs in zip(package(Packs(), inputs)(*inputs), Packs()(*inputs), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_int4_of_another_machine(monkeypatch):
    """The layout is that of PyTorch's own variable: read in another one, other numbers meet."""
    torch.manual_seed(0)
    w = numbers(64, 32)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    inputs = (torch.randn(4, 32), w, torch.rand(1, 64, 2))
    packed, product = package(Packs(), inputs)(*inputs)
    neighbours = (w[::2] | w[1::2] << 4).reshape(2, 16, 32).permute(0, 2, 1)  # blocks of 32 columns, rows, bytes
    assert torch.equal(packed.flatten(), neighbours.flatten().to(torch.uint8))
    torch.testing.assert_close(product, Packs()(*inputs)[1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("group,dtype", [(64, torch.float32), (32, torch.float32), (64, torch.bfloat16)], ids=["rows", "groups", "rows_bf16"])
def test_dynamic_products(group, dtype, bias):
    torch.manual_seed(0)
    module = Dynamic(24, 64, group, bias)
    inputs = [torch.randn(7, 64), torch.rand(7, 64) + 3, torch.zeros(2, 64), torch.arange(64.0)[None] - 20]
    model = package(module, (inputs[0].to(dtype),), ({0: torch.export.Dim("rows", min=1)},))
    for x in inputs:
        tolerance = 1e-4 if dtype == torch.float32 else 1e-2
        torch.testing.assert_close(model(x.to(dtype)), module(x.to(dtype)), atol=tolerance, rtol=tolerance)


def test_dynamic_packing():
    torch.manual_seed(0)
    w = torch.randint(0, 256, (24, 32), dtype=torch.uint8)

    class Pack(torch.nn.Module):
        def forward(self, w, scales, bias):
            return A._dyn_quant_pack_4bit_weight(w, scales, bias, 32, 64, 24)

    inputs = (w, torch.rand(24, 2), torch.randn(24))
    torch.testing.assert_close(package(Pack(), inputs)(*inputs), Pack()(*inputs), rtol=0, atol=0)


def test_in_torch_compile():
    torch.manual_seed(0)
    for module, k in ((Int4(64, 64, 32, torch.float32), 64), (Dynamic(24, 64, 32, True), 64)):
        torch._dynamo.reset()
        x = torch.randn(5, k)
        torch.testing.assert_close(torch.compile(module, backend="coil", fullgraph=True)(x), module(x), atol=1e-4, rtol=1e-4)
