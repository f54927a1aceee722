"""Kernels of a user's that tests register, for CPU and CUDA, and a module that calls them."""

import torch

import coil


SWISH = """
#include <cmath>

template <class T>
void swish(coil::Tensor<const T, 2> x, auto w, double alpha, coil::Tensor<T, 2> out, coil::Range range) {
  for (int64_t i = range.begin; i < range.end; ++i) {
    for (int64_t j = 0; j < x.size(1); ++j) {
      const float v = x(i, j);
      float scale = 1;
      if constexpr (decltype(w)::dim() == 1) scale = w[j];
      out(i, j) = v / (1 + std::exp(-float(alpha) * v)) * scale;
    }
  }
}
"""


SWISH_CUDA = """
template <class T>
__global__ void __launch_bounds__(BLOCK) swish(coil::Tensor<const T, 2> x, coil::Tensor<const T, 1> w, double alpha, coil::Tensor<T, 2> out) {
  const int64_t i = blockIdx.y, j = blockIdx.x * BLOCK + threadIdx.x;
  if (j >= x.size(1)) return;
  const float v = x(i, j);
  out(i, j) = v / (1 + expf(-float(alpha) * v)) * float(w[j]);
}
"""


ADD = """
void add_times_(coil::Tensor<float, 1> x, coil::Tensor<const float, 1> y, int64_t times, bool twice, coil::IntList<2> more, coil::Range r) {
  for (int64_t i = r.begin; i < r.end; ++i) x[i] += (times * (twice ? 2 : 1) + more[0] - more[1]) * y[i];
}
"""


ADD_CUDA = """
__device__ void add_times_(coil::Tensor<float, 1> x, coil::Tensor<const float, 1> y, int64_t times, bool twice, coil::IntList<2> more) {
  const int64_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < x.numel()) x[i] += (times * (twice ? 2 : 1) + more[0] - more[1]) * y[i];
}
"""


def swish_reference(x, w, alpha=1.0):
    return (x.float() * torch.sigmoid(alpha * x.float()) * w.float()).to(x.dtype)


swish = coil.register_kernel(
    "usertest::swish", signature="(Tensor x, Tensor w, float alpha=1.0) -> Tensor", cpu=SWISH, range="x.size(0)", cuda=SWISH_CUDA,
    grid=["cdiv(x.size(1), BLOCK)", "x.size(0)"], block="BLOCK", configs=[{"BLOCK": 64}, {"BLOCK": 32}, {"BLOCK": 128}], reference=swish_reference)


add_times = coil.register_kernel(
    "usertest::add_times_", signature="(Tensor(a!) x, Tensor y, int times, bool twice=False, int[] more=[3, 3]) -> ()", cpu=ADD, range="x.numel()",
    cuda=ADD_CUDA, grid="cdiv(x.numel(), 128)", block=128)


# Two results, a tensor that may be missing, strides as they are, an integer in formulas.
split_rows = coil.register_kernel(
    "usertest::split_rows", signature="(Tensor x, SymInt at, Tensor? add=None) -> (Tensor, Tensor)", contiguous=False,
    out=[{"size": ["at", "x.size(1)"]}, {"size": ["x.size(0) - at", "x.size(1)"], "dtype": "float64"}], range="x.size(0)", work="x.size(1) * 2", cpu="""
void split_rows(coil::Tensor<const float, 2> x, int64_t at, auto add, coil::Tensor<float, 2> out0, coil::Tensor<double, 2> out1, coil::Range r) {
  for (int64_t i = r.begin; i < r.end; ++i) {
    for (int64_t j = 0; j < x.size(1); ++j) {
      float v = x(i, j);
      if constexpr (sizeof(add) > sizeof(coil::NoTensor)) v += add(j);
      if (i < at) out0(i, j) = v; else out1(i - at, j) = v;
    }
  }
}
""")


# Right results whatever STEPS is, but for those of WRONG; the more, the slower.
STEPS = """
void steps(coil::Tensor<const int32_t, 1> x, coil::Tensor<int32_t, 1> out, coil::Range r) {
  for (int64_t i = r.begin; i < r.end; ++i) {
    volatile int32_t v = x[i];
    for (int j = 0; j < STEPS; ++j) v = v + 1;
    out[i] = WRONG ? i : v - STEPS;
  }
}
"""


steps = coil.register_kernel("usertest::steps", signature="(Tensor x) -> Tensor", cpu=STEPS, range="out.numel()", key="x.size(0)",
                             configs=[{"STEPS": 2000, "WRONG": 0}, {"STEPS": 1, "WRONG": 1}, {"STEPS": 1, "WRONG": 0}])


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.w = torch.nn.Parameter(torch.randn(33))
        self.register_buffer("seen", torch.zeros(33))

    def forward(self, x):
        y = torch.ops.usertest.swish(x.relu() + 1, self.w, 0.5)
        torch.ops.usertest.add_times_(self.seen, y[0], 2)
        z = y.t().contiguous().t()  # not row-major: a copy is made
        return torch.ops.usertest.swish(z, self.w) + self.seen, y.sum()


def program(decomposed=False):
    made = torch.export.export(Network(), (torch.randn(5, 33),), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},))
    return made.run_decompositions() if decomposed else made
