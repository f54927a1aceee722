// A CUDA program of few launches says from which sizes on the device needs longer than launching them: by the bytes that move, and by what templates compute.
#include <gtest/gtest.h>

#include <charconv>

#include "codegen/cuda/cuda_kernels.h"
#include "codegen/cuda/host/host_program.h"
#include "schedule/schedule.h"
#include "tests/schedule/scheduled_program.h"

namespace coil {
namespace {

using OutlastsTest = ScheduledProgram;

// The number that the program compares with what launches take: bytes, or what is computed in the time of one.
int64_t bytes_of(LoopProgram loops) {
  const KernelPlan plan = schedule(std::move(loops), cuda::traits({{90}, false})).value();
  const std::string text = cuda::host_program_text(plan, cuda::generate_kernels(plan, {{90}, false}), {});
  size_t at = text.find("static bool outlasts(");
  if (at == text.npos) return -1;
  at = text.find("return ", at) + 7;
  int64_t found = -1;
  std::from_chars(text.data() + at, text.data() + text.size(), found);
  return found;
}

// Small tensors, and so much work that it counts more than they do.
TEST_F(OutlastsTest, ConvolutionsCountLikeProducts) {
  Conv2d conv;
  conv.x_sizes = sizes({1, 512, 32, 32});
  const View x = input("x", conv.x_sizes, DType::f16);
  conv.x = {BufferId(x.body->id), {pool.var(0), pool.var(1), pool.var(2), pool.var(3)}};
  conv.weight = BufferId(constant("w", {512, 512, 3, 3}, DType::f16).body->id);
  conv.kernel = {3, 3}, conv.stride = {1, 1}, conv.padding = {1, 1}, conv.dilation = {1, 1};
  output(rec.define("conv", DType::f16, sizes({1, 512, 32, 32}), conv));
  const int64_t work = int64_t{2} * 512 * 32 * 32 * 512 * 9 / 200, moved = 2 * (2 * 512 * 32 * 32 + 512 * 512 * 9);
  EXPECT_GE(bytes_of(rec.take()), work + moved);
}

TEST_F(OutlastsTest, ProductsCount) {
  const View y = gemm(input("x", sizes({2048, 2048}), DType::f16), constant("w", {2048, 2048}, DType::f16), 2048);
  output(y);
  EXPECT_GE(bytes_of(rec.take()), int64_t{2} * 2048 * 2048 * 2048 / 200);
}

TEST_F(OutlastsTest, LoopsCountWhatTheyMove) {
  const View x = input("x", sizes({1024, 1024}));
  output(rec.pointwise("exp", DType::f32, x.sizes, [&](Coordinates i) { return pool.op(ScalarOp::exp, {rec.at(x, i)}); }));
  EXPECT_EQ(bytes_of(rec.take()), 2 * 4 * 1024 * 1024);
}

}  // namespace
}  // namespace coil
