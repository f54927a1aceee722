// The choice of CUDA convolution kernels: what every variant must satisfy, and the choices that matter.
#include <gtest/gtest.h>

#include <set>

#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

// Bytes of shared memory that a block can have.
int64_t shared_limit(int sm) { return sm == 80 ? 166912 : sm == 86 || sm == 89 ? 101376 : 232448; }

struct Problem {
  int64_t n, ic, size, oc, kernel, stride, groups;
};

// Batch -1: a symbol.
CudaConvFacts facts_of(ExprPool& pool, const Problem& p, DType dtype) {
  CudaConvFacts f;
  f.dtype = dtype;
  const Expr n = p.n >= 0 ? pool.index(p.n) : pool.symbol(pool.add_symbol({"s0", "batch", 1, 1024}));
  f.def.x_sizes = {n, pool.index(p.ic), pool.index(p.size), pool.index(p.size)};
  f.def.kernel = {p.kernel, p.kernel};
  f.def.stride = {p.stride, p.stride};
  f.def.padding = {p.kernel / 2, p.kernel / 2};
  f.def.dilation = {1, 1};
  f.def.groups = p.groups;
  const int64_t out = (p.size + 2 * (p.kernel / 2) - p.kernel) / p.stride + 1;
  f.result_sizes = {n, pool.index(p.oc), pool.index(out), pool.index(out)};
  f.x_n = pool.index(p.ic * p.size * p.size);
  f.x_c = pool.index(1);
  f.x_h = pool.index(p.ic * p.size);
  f.x_w = pool.index(p.ic);
  return f;
}

const Problem kProblems[] = {{2, 3, 224, 64, 7, 2, 1},    {2, 64, 56, 64, 3, 1, 1},  {2, 512, 7, 512, 3, 1, 1}, {32, 256, 14, 1024, 1, 1, 1},
                             {-1, 64, 56, 64, 3, 1, 1},   {-1, 512, 7, 512, 3, 1, 1}, {1, 1, 1, 1, 1, 1, 1},     {0, 8, 8, 8, 3, 1, 1},
                             {4, 128, 14, 256, 3, 1, 32}, {-1, 96, 28, 96, 5, 1, 96}};

TEST(CudaConvVariants, LaunchableEverywhere) {
  for (int sm : {80, 86, 89, 90, 100}) {
    for (const Problem& p : kProblems) {
      for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
        ExprPool pool;
        const auto variants = cuda_conv_variants(facts_of(pool, p, dtype), sm);
        ASSERT_FALSE(variants.empty());
        std::set<std::string> names;
        for (size_t i = 0; i < variants.size(); i++) {
          const CudaVariant& v = variants[i];
          EXPECT_TRUE(names.insert(v.name).second) << v.name;
          EXPECT_EQ(v.condition.empty(), i + 1 == variants.size()) << v.name;
          EXPECT_LE(v.shared_bytes, shared_limit(sm)) << v.name;
          EXPECT_TRUE(v.threads % 32 == 0 && v.threads >= 32 && v.threads <= 1024) << v.name;
          EXPECT_TRUE(v.cluster == 1 || (sm >= 90 && v.cluster <= 8)) << v.name;
          EXPECT_FALSE(v.scratch_bytes) << v.name;
        }
      }
    }
  }
}

TEST(CudaConvVariants, DepthwiseHasItsOwn) {
  ExprPool pool;
  const auto variants = cuda_conv_variants(facts_of(pool, {-1, 96, 28, 96, 5, 1, 96}, DType::bf16), 80);
  ASSERT_EQ(variants.size(), 1u);
  EXPECT_EQ(variants[0].call, "cd::conv_depthwise<cd::bf16>(t, epilogue);");
}

// 98 pixels by 512 channels: 16 tiles of 64 x 64 for 132 multiprocessors, 4608 products each.
TEST(CudaConvVariants, SmallOutputsSplitTheirSums) {
  ExprPool pool;
  const auto hopper = cuda_conv_variants(facts_of(pool, {2, 512, 7, 512, 3, 1, 1}, DType::f32), 90);
  ASSERT_EQ(hopper.size(), 1u);
  EXPECT_GE(hopper[0].cluster, 4) << hopper[0].name;
  EXPECT_TRUE(hopper[0].hopper);
  const auto ampere = cuda_conv_variants(facts_of(pool, {2, 512, 7, 512, 3, 1, 1}, DType::f32), 80);
  EXPECT_EQ(ampere[0].cluster, 1);
}

TEST(CudaConvVariants, LargeOutputsTakeLargeTiles) {
  ExprPool pool;
  EXPECT_EQ(cuda_conv_variants(facts_of(pool, {32, 256, 28, 256, 3, 1, 1}, DType::bf16), 90)[0].cluster, 1);
  const auto dynamic = cuda_conv_variants(facts_of(pool, {-1, 256, 28, 256, 3, 1, 1}, DType::bf16), 90);
  EXPECT_NE(dynamic[0].name.find("128x"), std::string::npos) << dynamic[0].name;
}

}  // namespace
}  // namespace coil::templates
