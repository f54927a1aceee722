// The choice of CUDA convolution kernels: what every variant must satisfy, and the choices that matter.
#include <gtest/gtest.h>

#include <set>

#include <fmt/format.h>

#include "base/cuda_machine.h"
#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

// Bytes of shared memory that a block can have.
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

const Problem kProblems[] = {{2, 3, 224, 64, 7, 2, 1},    {2, 64, 56, 64, 3, 1, 1},   {2, 512, 7, 512, 3, 1, 1},    {32, 256, 14, 1024, 1, 1, 1},
                             {-1, 64, 56, 64, 3, 1, 1},   {-1, 512, 7, 512, 3, 1, 1}, {1, 1, 1, 1, 1, 1, 1},        {0, 8, 8, 8, 3, 1, 1},
                             {4, 128, 14, 256, 3, 1, 32}, {-1, 96, 28, 96, 5, 1, 96}, {32, 128, 56, 128, 3, 1, 32}, {-1, 256, 14, 256, 3, 2, 16},
                             {1, 96, 9, 96, 7, 1, 4}};

TEST(CudaConvVariants, LaunchableEverywhere) {
  for (const CudaMachine& machine : kCudaMachines) {
    const int sm = machine.sm;
    for (const Problem& p : kProblems) {
      for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
        ExprPool pool;
        const auto variants = cuda_conv_variants(facts_of(pool, p, dtype), cuda_machine(sm));
        ASSERT_FALSE(variants.empty());
        std::set<std::string> names;
        for (size_t i = 0; i < variants.size(); i++) {
          const CudaVariant& v = variants[i];
          EXPECT_TRUE(names.insert(v.name).second) << v.name;
          EXPECT_EQ(v.condition.empty(), i + 1 == variants.size()) << v.name;
          EXPECT_LE(v.shared_bytes, cuda_machine(sm).shared_bytes) << v.name;
          EXPECT_TRUE(v.threads % 32 == 0 && v.threads >= 32 && v.threads <= 1024) << v.name;
          EXPECT_TRUE(v.cluster == 1 || (sm >= 90 && v.cluster <= 8)) << v.name;
          EXPECT_FALSE(v.scratch_bytes) << v.name;
        }
      }
    }
  }
}

TEST(CudaConvVariants, EveryCandidateIsAVariant) {
  for (int sm : {80, 90, 100}) {
    for (const Problem& p : kProblems) {
      for (DType dtype : {DType::f32, DType::f64, DType::bf16}) {
        ExprPool pool;
        const CudaConvFacts f = facts_of(pool, p, dtype);
        const auto candidates = cuda_conv_candidates(f, cuda_machine(sm), [](Expr e) { return evaluate_index(e, [](SymbolId) { return int64_t{3}; }); });
        const bool own_only = (p.groups > 1 && p.groups == p.ic) || cuda_conv_variants(f, cuda_machine(sm))[0].name.starts_with("conv_groups_") ||
                              (p.ic <= 4 && dtype == DType::bf16) || p.n == 0;
        EXPECT_EQ(candidates.empty(), own_only) << p.ic << ' ' << p.oc;
        std::set<CudaWay> ways;
        for (const CudaCandidate& c : candidates) {
          EXPECT_TRUE(ways.insert(c.way).second) << "the same numbers twice";
          const auto v = cuda_conv_variant(f, cuda_machine(sm), c.way);
          ASSERT_TRUE(v) << c.way.kind << ' ' << c.way.rows << ' ' << c.way.columns << ' ' << c.way.split;
          EXPECT_LE(v->shared_bytes, cuda_machine(sm).shared_bytes) << v->name;
        }
        EXPECT_FALSE(cuda_conv_variant(f, cuda_machine(sm), {kWgmma, 128, 250, 1}));
      }
    }
  }
}

TEST(CudaConvVariants, DepthwiseHasItsOwn) {
  ExprPool pool;
  CudaConvFacts facts = facts_of(pool, {-1, 96, 28, 96, 5, 1, 96}, DType::bf16);
  facts.x_alignment = 256;
  const auto strips = cuda_conv_variants(facts, cuda_machine(80));
  ASSERT_EQ(strips.size(), 1u);
  EXPECT_NE(strips[0].call.find("cd::conv_depthwise_strip<cd::bf16, 5, 5, 1, "), std::string::npos) << strips[0].call;
  facts.x_alignment = 2;  // an input: the host looks
  const auto either = cuda_conv_variants(facts, cuda_machine(80));
  ASSERT_EQ(either.size(), 2u);
  EXPECT_EQ(either[1].call, "cd::conv_depthwise<cd::bf16>(t, epilogue);");
  facts.x_c = pool.index(28 * 28);
  EXPECT_EQ(cuda_conv_variants(facts, cuda_machine(80)).size(), 1u);
}

TEST(CudaConvVariants, GroupsOfFewChannelsHaveTheirOwn) {
  ExprPool pool;
  const auto first = [&](const Problem& p, DType dtype, int64_t alignment = 256) {
    CudaConvFacts facts = facts_of(pool, p, dtype);
    facts.x_alignment = facts.w_alignment = alignment;
    const auto variants = cuda_conv_variants(facts, cuda_machine(90));
    return variants[0].name + (variants.size() > 1 ? " or " + variants.back().name : "");
  };
  const auto square = [](int64_t channels, int64_t of_group, int64_t n = 32) { return Problem{n, channels, 28, channels, 3, 1, channels / of_group}; };
  for (const int64_t channels : {2, 4, 8, 16}) {
    EXPECT_EQ(first(square(256, channels), DType::bf16), fmt::format("conv_groups_{0}x{0}_strip4", channels));
    EXPECT_EQ(first(square(256, channels), DType::f32), fmt::format("conv_groups_{0}x{0}_strip4", channels));
  }
  EXPECT_EQ(first(square(256, 32), DType::f32), "conv_groups_32x32_strip4");  // tensor cores take those of 2 bytes
  EXPECT_TRUE(first(square(256, 32), DType::bf16).starts_with("conv_wgmma_"));
  EXPECT_EQ(first(square(64, 4, 1), DType::bf16), "conv_groups_4x4_strip1");                              // few pixels
  EXPECT_EQ(first({2, 64, 28, 32, 3, 1, 8}, DType::bf16), "conv_groups_8x4_strip1");                      // two pieces of input for one of output
  EXPECT_TRUE(first(square(256, 4), DType::bf16, 2).starts_with("conv_groups_4x4_strip4 or conv_mma_"));  // where the host looks
  for (const Problem& odd : {Problem{2, 96, 28, 96, 3, 1, 32}, {2, 64, 28, 128, 3, 1, 32}, {2, 36, 28, 36, 3, 1, 9}}) {
    EXPECT_FALSE(first(odd, DType::bf16).starts_with("conv_groups_")) << odd.ic;
  }
}

TEST(CudaConvVariants, FirstLayersHaveTheirOwn) {
  ExprPool pool;
  const auto variants = cuda_conv_variants(facts_of(pool, {-1, 3, 224, 64, 7, 2, 1}, DType::f16), cuda_machine(90));
  ASSERT_EQ(variants.size(), 1u);
  EXPECT_EQ(variants[0].call, "cd::conv_few<cd::f16, 3, 7, 7, 2, 64>(t, epilogue);");
}

TEST(CudaConvVariants, HopperTakesWgmmaWhereItCan) {
  ExprPool pool;
  CudaConvFacts facts = facts_of(pool, {32, 64, 56, 64, 3, 1, 1}, DType::bf16);
  facts.x_alignment = 256;
  const auto sure = cuda_conv_variants(facts, cuda_machine(90));
  ASSERT_EQ(sure.size(), 1u);
  EXPECT_EQ(sure[0].header, "cuda/conv_wgmma.h");
  EXPECT_NE(sure[0].setup.find("cuda_tensor_map"), std::string::npos);
  EXPECT_EQ(cuda_conv_variants(facts, cuda_machine(100))[0].header, "cuda/conv_mma.h");
  facts.x_alignment = 2;
  const auto either = cuda_conv_variants(facts, cuda_machine(90));
  ASSERT_EQ(either.size(), 2u);
  EXPECT_EQ(either[0].header, "cuda/conv_wgmma.h");
  EXPECT_EQ(either[1].header, "cuda/conv_mma.h");
  facts.x_w = pool.index(65);
  EXPECT_EQ(cuda_conv_variants(facts, cuda_machine(90)).size(), 1u);
  facts = facts_of(pool, {32, 12, 56, 64, 3, 1, 1}, DType::bf16);
  EXPECT_EQ(cuda_conv_variants(facts, cuda_machine(90))[0].header, "cuda/conv_mma.h");
}

// What was within 5 % of the fastest on an H200.
TEST(CudaConvVariants, MeasuredChoices) {
  const struct {
    Problem problem;
    DType dtype;
    int sm;
    std::set<std::string> good;
  } rows[] = {
      {{2, 3, 224, 64, 7, 2, 1}, DType::f32, 90, {"conv_simt_64x64"}},
      {{2, 64, 56, 64, 3, 1, 1}, DType::f32, 90, {"conv_simt_32x64_split2", "conv_simt_128x64_split4", "conv_simt_64x64_split4"}},
      {{2, 64, 56, 128, 3, 2, 1}, DType::f32, 90, {"conv_simt_128x64_split4", "conv_simt_64x64_split4", "conv_simt_64x64_split8"}},
      {{2, 128, 28, 128, 3, 1, 1}, DType::f32, 90, {"conv_simt_64x64_split8", "conv_simt_32x64_split8"}},
      {{2, 64, 56, 128, 1, 2, 1}, DType::f32, 90, {"conv_simt_32x32_split2", "conv_simt_32x64", "conv_simt_32x32"}},
      {{2, 128, 28, 256, 3, 2, 1}, DType::f32, 90, {"conv_simt_64x64_split8", "conv_simt_32x64_split8", "conv_simt_32x32_split8"}},
      {{2, 256, 14, 256, 3, 1, 1}, DType::f32, 90, {"conv_simt_64x64_split8", "conv_simt_32x64_split8"}},
      {{2, 128, 28, 256, 1, 2, 1}, DType::f32, 90, {"conv_simt_32x32_split4", "conv_simt_32x64_split4", "conv_simt_64x64_split4"}},
      {{2, 256, 14, 512, 3, 2, 1}, DType::f32, 90, {"conv_simt_32x64_split8", "conv_simt_32x32_split8"}},
      {{2, 512, 7, 512, 3, 1, 1}, DType::f32, 90, {"conv_simt_32x64_split8", "conv_simt_32x32_split8"}},
      {{2, 256, 14, 512, 1, 2, 1}, DType::f32, 90, {"conv_simt_32x32_split8", "conv_simt_32x64_split8"}},
  };
  for (const auto& row : rows) {
    ExprPool pool;
    CudaConvFacts facts = facts_of(pool, row.problem, row.dtype);
    facts.x_alignment = 256;
    const auto variants = cuda_conv_variants(facts, cuda_machine(row.sm));
    ASSERT_EQ(variants.size(), 1u);
    EXPECT_TRUE(row.good.contains(variants[0].name)) << row.problem.ic << " " << row.problem.size << ": " << variants[0].name;
  }
}

// 98 pixels by 512 channels: 16 tiles of 64 x 64 for 132 multiprocessors, 4608 products each.
TEST(CudaConvVariants, SmallOutputsSplitTheirSums) {
  ExprPool pool;
  const auto hopper = cuda_conv_variants(facts_of(pool, {2, 512, 7, 512, 3, 1, 1}, DType::f32), cuda_machine(90));
  ASSERT_EQ(hopper.size(), 1u);
  EXPECT_GE(hopper[0].cluster, 4) << hopper[0].name;
  EXPECT_TRUE(hopper[0].hopper);
  const auto ampere = cuda_conv_variants(facts_of(pool, {2, 512, 7, 512, 3, 1, 1}, DType::f32), cuda_machine(80));
  EXPECT_EQ(ampere[0].cluster, 1);
}

TEST(CudaConvVariants, LargeOutputsTakeLargeTiles) {
  ExprPool pool;
  EXPECT_EQ(cuda_conv_variants(facts_of(pool, {32, 256, 28, 256, 3, 1, 1}, DType::bf16), cuda_machine(90))[0].cluster, 1);
  const auto dynamic = cuda_conv_variants(facts_of(pool, {-1, 256, 28, 256, 3, 1, 1}, DType::bf16), cuda_machine(90));
  EXPECT_NE(dynamic[0].name.find("128x"), std::string::npos) << dynamic[0].name;
}

}  // namespace
}  // namespace coil::templates
