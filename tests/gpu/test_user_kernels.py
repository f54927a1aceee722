"""Kernels that users write, on a GPU: as operators, in programs with any batch, with writes, and as a CUDA graph. About half a minute."""

import os
import sys

import pytest
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from paths import COIL  # noqa: E402

sys.path.insert(0, str(COIL.parent / "python"))
coil = pytest.importorskip("coil")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU", allow_module_level=True)

SCALE = """
template <class T>
__global__ void __launch_bounds__(BLOCK) scale(coil::Tensor<const T, 2> x, coil::Tensor<const T, 1> w, double by, coil::Tensor<T, 2> out) {
  const int64_t i = blockIdx.y, j = blockIdx.x * BLOCK + threadIdx.x;
  if (j < x.size(1)) out(i, j) = float(x(i, j)) * float(by) * float(w[j]);
}
"""
# Sums of rows through dynamic shared memory, added to a running total in place.
ADD = """
__global__ void add_rows_(coil::Tensor<float, 1> total, coil::Tensor<const float, 2> x) {
  extern __shared__ float sums[];
  float sum = 0;
  for (int64_t j = threadIdx.x; j < x.size(1); j += THREADS) sum += x(blockIdx.x, j);
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int t = 1; t < THREADS; ++t) sum += sums[t];
    total[blockIdx.x] += sum;
  }
}
"""
scale = coil.register_kernel("gputest::scale", signature="(Tensor x, Tensor w, float by=1.0) -> Tensor", cuda=SCALE, grid=["cdiv(x.size(1), BLOCK)", "x.size(0)"], block="BLOCK",
                             configs=[{"BLOCK": 64}, {"BLOCK": 128}, {"BLOCK": 256}], reference=lambda x, w, by=1.0: (x.float() * by * w.float()).to(x.dtype))
add_rows = coil.register_kernel("gputest::add_rows_", signature="(Tensor(a!) total, Tensor x) -> ()", cuda=ADD, grid="x.size(0)", block="THREADS", shared="THREADS * 4",
                                configs=[{"THREADS": 128}, {"THREADS": 32}])


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.w = torch.nn.Parameter(torch.randn(300))

    def forward(self, x):
        y = scale(x.relu() + 1, self.w, 0.5)
        total = torch.zeros(x.shape[0], device=x.device)
        add_rows(total, y * 2)
        return scale(y.t().contiguous().t(), self.w), total + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_operator(dtype):
    x, w = torch.randn(37, 300, device="cuda", dtype=dtype), torch.randn(300, device="cuda", dtype=dtype)
    scale.check(x, w, 0.25)
    torch.testing.assert_close(scale(x, w), (x.double() * w.double()).to(dtype), rtol=2e-2 if dtype.itemsize == 2 else 1e-6, atol=2e-2 if dtype.itemsize == 2 else 1e-6)


def test_writes():
    total, x = torch.ones(9, device="cuda"), torch.randn(9, 1000, device="cuda")
    add_rows.check(total, x, rtol=1e-4, atol=1e-3)
    add_rows(total, x)
    torch.testing.assert_close(total, 1 + x.sum(1), rtol=1e-4, atol=1e-3)


def test_program():
    module = Network().cuda().eval()
    exported = torch.export.export(module, (torch.randn(5, 300, device="cuda"),), dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=4096)},))
    model = coil.compile(exported, device="cuda")
    with torch.no_grad():
        for batch in (5, 2, 4096, *[64] * 12):  # the last ones become a CUDA graph
            x = torch.randn(batch, 300, device="cuda")
            for actual, expected in zip(model(x), module(x)):
                torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-3)


def test_torch_compile():
    module = Network().cuda().eval()
    compiled = torch.compile(module, backend="coil")
    with torch.no_grad():
        x = torch.randn(6, 300, device="cuda")
        for actual, expected in zip(compiled(x), module(x)):
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-3)


def test_example(tmp_path):
    rows = scale.benchmark(torch.randn(4096, 300, device="cuda"), torch.randn(300, device="cuda"), warmup=1, rep=5)
    assert [config for config, _ in rows] == scale.configs
    print(rows)
