// The table of CUDA matrix-product kernels: what is chosen for known problems, and what every choice must keep to. The kernels
// themselves are tested on a GPU by tests/gpu/test_gemm.py.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/cuda_machine.h"
#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

class CudaGemmTest : public ::testing::Test {
 protected:
  Expr size(int64_t value) { return pool_.index(value); }
  Expr dynamic(int64_t min, int64_t max) { return pool_.symbol(pool_.add_symbol({"s", "s", min, max})); }

  // a [m, k] and a weight b [n, k], both dense, addresses multiples of 16.
  CudaGemmFacts linear(DType dtype, Expr m, Expr n, Expr k) {
    CudaGemmFacts f;
    f.dtype = dtype;
    f.batch = size(1), f.m = m, f.n = n, f.k = k;
    f.a_batch = m * k, f.a_row = k, f.a_col = size(1);
    f.b_batch = n * k, f.b_row = size(1), f.b_col = k;
    f.a_alignment = f.b_alignment = 16;
    return f;
  }
  CudaGemmFacts linear(DType dtype, int64_t m, int64_t n, int64_t k) { return linear(dtype, size(m), size(n), size(k)); }

  ExprPool pool_;
};

void expect_sound(const std::vector<CudaVariant>& variants, int sm) {
  ASSERT_FALSE(variants.empty());
  std::set<std::string> names;  // one may serve several stretches of sizes
  for (const CudaVariant& v : variants) names.insert(v.name);
  EXPECT_LE(names.size(), 7u);
  const int64_t shared = cuda_machine(sm).shared_bytes;
  for (const CudaVariant& v : variants) {
    EXPECT_EQ(v.condition.empty(), &v == &variants.back()) << v.name;
    EXPECT_LE(v.shared_bytes, shared) << v.name;
    EXPECT_EQ(v.threads % 32, 0) << v.name;
    EXPECT_LE(v.threads, 1024) << v.name;
    EXPECT_TRUE(v.cluster == 1 || v.hopper) << v.name;
    EXPECT_TRUE(!v.hopper || sm == 90) << v.name;
    EXPECT_LE(v.cluster, 8) << v.name;
    EXPECT_NE(v.call.find("(t, epilogue);"), std::string::npos) << v.call;
  }
}

TEST_F(CudaGemmTest, EveryProblemHasASoundTable) {
  for (const int sm : {80, 86, 89, 90, 100}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      for (const int64_t m : {1, 8, 9, 16, 17, 98, 560, 4096}) {
        for (const int64_t n : {1, 10, 512, 50304}) {
          for (const int64_t k : {0, 1, 27, 768, 3420}) {
            CudaGemmFacts f = linear(dtype, m, n, k);
            expect_sound(cuda_gemm_variants(f, cuda_machine(sm)), sm);
            f.a_alignment = 2;
            std::swap(f.b_row, f.b_col);
            expect_sound(cuda_gemm_variants(f, cuda_machine(sm)), sm);
          }
        }
      }
      for (const auto& [min, max] : {std::pair<int64_t, int64_t>{0, INT64_MAX}, {1, 6}, {2, 4096}, {100, 200}}) {
        CudaGemmFacts f = linear(dtype, dynamic(min, max), size(4096), size(4096));
        expect_sound(cuda_gemm_variants(f, cuda_machine(sm)), sm);
        f.b_alignment = 2;
        expect_sound(cuda_gemm_variants(f, cuda_machine(sm)), sm);
        expect_sound(cuda_gemm_variants(linear(dtype, size(4096), dynamic(min, max), dynamic(min, max)), cuda_machine(sm)), sm);
      }
    }
  }
}

TEST_F(CudaGemmTest, LargeHalfProductsUseWgmmaOnHopperAlone) {
  const auto hopper = cuda_gemm_variants(linear(DType::bf16, 4096, 4096, 4096), cuda_machine(90));
  ASSERT_EQ(hopper.size(), 1u);
  EXPECT_EQ(hopper[0].name, "wgmma_128x256");
  EXPECT_EQ(hopper[0].cluster, 1);
  EXPECT_NE(hopper[0].setup.find("&t.map_b, 15, t.b, t.n, t.k, t.b_col * 2, 256, 64, error"), std::string::npos) << hopper[0].setup;
  const auto pair = cuda_gemm_variant(linear(DType::bf16, 4096, 4096, 4096), cuda_machine(90), {kWgmmaPair, 128, 256, 1});  // each block loads half of b's box
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->name, "wgmma_128x256_2x1");
  EXPECT_EQ(pair->cluster, 2);
  EXPECT_NE(pair->setup.find("&t.map_a[0], 15, t.a, t.m, t.k, t.a_row * 2, 128, 64, error"), std::string::npos) << pair->setup;
  EXPECT_NE(pair->setup.find("&t.map_b, 15, t.b, t.n, t.k, t.b_col * 2, 128, 64, error"), std::string::npos) << pair->setup;
  for (const int sm : {80, 86, 89, 100}) EXPECT_EQ(cuda_gemm_variants(linear(DType::bf16, 4096, 4096, 4096), cuda_machine(sm))[0].name, "mma_128x128x32") << sm;
}

// 32 images of 197 tokens: 33 x 4 tiles of 192 x 192 are one turn of 132 multiprocessors, where 128 x 160 needs two.
TEST_F(CudaGemmTest, TallTilesServeWhatTheyDivideWell) {
  const CudaVariant tall = cuda_gemm_variants(linear(DType::bf16, 6304, 768, 3072), cuda_machine(90))[0];
  EXPECT_EQ(tall.name, "wgmma_192x192");
  EXPECT_EQ(tall.threads, 512);
  EXPECT_NE(tall.setup.find("&t.map_a[0], 15, t.a, t.m, t.k, t.a_row * 2, 192, 64, error"), std::string::npos) << tall.setup;
  EXPECT_EQ(cuda_gemm_variants(linear(DType::bf16, 6304, 384, 1536), cuda_machine(90))[0].name, "wgmma_192x96");
  const CudaGemmFacts odd = linear(DType::bf16, 6304, 768, 3076);  // pass through registers, of which three warpgroups have too few
  for (const CudaCandidate& c : cuda_gemm_candidates(odd, cuda_machine(90), [](Expr e) { return e->as_int(); })) EXPECT_NE(c.way.rows, 192);
}

TEST_F(CudaGemmTest, OperandsThatTmaCannotTakeHaveAnotherKernel) {
  CudaGemmFacts f = linear(DType::bf16, 2048, 4096, 4096);
  f.a_alignment = 2;  // may be aligned at run time
  const auto maybe = cuda_gemm_variants(f, cuda_machine(90));
  ASSERT_EQ(maybe.size(), 2u);
  EXPECT_NE(maybe[0].condition.find("% 16 == 0"), std::string::npos);
  EXPECT_TRUE(maybe[1].name.starts_with("wgmma_copy_")) << maybe[1].name;
  EXPECT_EQ(maybe[1].setup, "");
  const auto never = cuda_gemm_variants(linear(DType::bf16, 2048, 4096, 3420), cuda_machine(90));
  ASSERT_EQ(never.size(), 1u);
  EXPECT_TRUE(never[0].name.starts_with("wgmma_copy_")) << never[0].name;
}

TEST_F(CudaGemmTest, OddRowsAreReadInClasses) {
  for (const auto& [k, classes] : {std::pair<int64_t, int>{3416, 2}, {3420, 4}, {3418, 8}, {3417, 8}}) {
    CudaGemmFacts f = linear(DType::bf16, dynamic(1, 4096), size(1280), size(k));
    f.b_col = size(3456);  // with room between lines, as the package holds such a weight
    f.a_alignment = 2;
    const auto variants = cuda_gemm_variants(f, cuda_machine(90));
    expect_sound(variants, 90);
    EXPECT_TRUE(variants.back().name.ends_with("_rows" + std::to_string(classes))) << variants.back().name;
    EXPECT_NE(variants.back().setup.find("cuda_class_map"), std::string::npos);
    EXPECT_EQ(variants.back().condition, "");
  }
}

// Stages in shared memory are as many as fit: nothing else may want more of it.
TEST_F(CudaGemmTest, OddRowsFillSharedMemory) {
  CudaGemmFacts f = linear(DType::bf16, 2048, 1280, 3420);
  f.b_col = size(3456);
  int found = 0;
  for (const CudaCandidate& c : cuda_gemm_candidates(f, cuda_machine(90), [](Expr e) { return e->as_int(); })) {
    const auto v = cuda_gemm_variant(f, cuda_machine(90), c.way);
    ASSERT_TRUE(v);
    if (v->name.find("_rows4") == std::string::npos) continue;
    EXPECT_LE(v->shared_bytes, 232448) << v->name;
    found += v->name.starts_with("wgmma_128x160_rows4") && v->call.find("160, 6, ") != std::string::npos;
  }
  EXPECT_GE(found, 2);
}

TEST_F(CudaGemmTest, EveryCandidateIsAVariant) {
  for (const int sm : {80, 90, 100}) {
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
      for (const auto& [m, k] : {std::pair<int64_t, int64_t>{1, 4096}, {40, 768}, {560, 3420}, {4096, 4096}}) {
        const CudaGemmFacts f = linear(dtype, m, 1280, k);
        const auto candidates = cuda_gemm_candidates(f, cuda_machine(sm), [](Expr e) { return e->as_int(); });
        ASSERT_FALSE(candidates.empty());
        std::set<CudaWay> ways;
        for (const CudaCandidate& c : candidates) {
          EXPECT_TRUE(ways.insert(c.way).second) << "the same numbers twice";
          const auto v = cuda_gemm_variant(f, cuda_machine(sm), c.way);
          ASSERT_TRUE(v) << c.way.kind << ' ' << c.way.rows << ' ' << c.way.columns << ' ' << c.way.split;
          EXPECT_LE(v->shared_bytes, cuda_machine(sm).shared_bytes) << v->name;
          EXPECT_GE(c.cost, candidates[0].cost);
        }
      }
    }
  }
  const CudaGemmFacts f = linear(DType::bf16, 560, 1280, 3420);
  EXPECT_FALSE(cuda_gemm_variant(f, cuda_machine(90), {kWgmma, 128, 250, 1}));
  EXPECT_FALSE(cuda_gemm_variant(f, cuda_machine(90), {kWgmmaCopy, 128, 128, 3}));
  EXPECT_FALSE(cuda_gemm_variant(f, cuda_machine(90), {77, 128, 128, 1}));
}

TEST_F(CudaGemmTest, CopiesOfContiguousColumnsAreNarrow) {
  CudaGemmFacts f = linear(DType::bf16, 4096, 4096, 4096);
  f.b_row = size(4096), f.b_col = size(1), f.b_alignment = 2;
  for (const CudaVariant& v : cuda_gemm_variants(f, cuda_machine(90))) {
    if (!v.name.starts_with("wgmma_copy")) continue;
    EXPECT_TRUE(v.name.ends_with("x128") || v.name.ends_with("x64")) << v.name;
  }
}

TEST_F(CudaGemmTest, BatchesAreLinesOfOneMap) {
  CudaGemmFacts f = linear(DType::bf16, 512, 512, 192);
  f.batch = size(24), f.a_batch = size(512 * 192), f.b_batch = size(512 * 192);
  const auto dense = cuda_gemm_variants(f, cuda_machine(90));
  ASSERT_EQ(dense.size(), 1u);
  EXPECT_NE(dense[0].setup.find("(t.batch - 1) * (t.a_batch / t.a_row) + t.m"), std::string::npos) << dense[0].setup;
  f.b_batch = size(0);  // shared
  EXPECT_EQ(cuda_gemm_variants(f, cuda_machine(90)).size(), 1u);
  f.a_batch = size(512 * 192 + 8);  // not a whole number of lines: asked for at run time
  const auto other = cuda_gemm_variants(f, cuda_machine(90));
  ASSERT_EQ(other.size(), 2u);
  EXPECT_NE(other[0].condition.find("t.a_batch % t.a_row == 0"), std::string::npos) << other[0].condition;
  // Lines along k past the end of a batch belong to the next one.
  f = linear(DType::bf16, 512, 512, 200);
  f.batch = size(24), f.a_batch = size(512 * 200), f.b_batch = size(512 * 200);
  f.b_row = size(512), f.b_col = size(1);
  EXPECT_TRUE(cuda_gemm_variants(f, cuda_machine(90))[0].name.starts_with("wgmma_copy_"));
}

// Windows' attention, say: a stage more than there are steps is room that another block could have.
TEST_F(CudaGemmTest, ManySmallProductsShareAMultiprocessor) {
  const auto of = [&](int sm, int64_t k) {
    CudaGemmFacts f = linear(DType::bf16, 49, 49, k);
    f.batch = size(1536), f.a_batch = size(49 * k), f.b_batch = size(49 * k);
    return cuda_gemm_variants(f, cuda_machine(sm))[0];
  };
  for (const int sm : {80, 90}) {
    const CudaVariant few = of(sm, 104), many = of(sm, 4096);
    EXPECT_GE(cuda_machine(sm).shared_bytes / few.shared_bytes, 4) << few.name;
    EXPECT_EQ(few.name, many.name);
    EXPECT_GE(many.shared_bytes, few.shared_bytes * 3 / 2);
  }
}

// Scores of heads of 16 over 196 places (LeViT): 64 x 64 by wgmma takes 21 us, 128 x 256 of which a third is beyond the rows' end 40, tiles of mma.sync 19.
// Of pixels of few channels and windows of few places wgmma's take up to twice as long.
TEST_F(CudaGemmTest, ShortProductsHaveSmallTilesWithoutAPipeline) {
  const auto batched = [&](int64_t batch, int64_t m, int64_t n, int64_t k) {
    CudaGemmFacts f = linear(DType::bf16, m, n, k);
    f.batch = size(batch), f.a_batch = size(m * k), f.b_batch = size(n * k);
    return cuda_gemm_variants(f, cuda_machine(90))[0].name;
  };
  EXPECT_EQ(batched(128, 196, 196, 16), "mma_128x64x32");
  EXPECT_EQ(batched(6144, 49, 49, 32), "mma_64x64x32");
  EXPECT_EQ(batched(6144, 49, 32, 49), "mma_64x32x32");
  EXPECT_EQ(batched(1, 401408, 64, 16), "mma_128x64x32");
  EXPECT_EQ(batched(1, 401408, 16, 64), "mma_128x32x32");
  EXPECT_TRUE(batched(1, 25088, 240, 192).starts_with("wgmma"));
  EXPECT_TRUE(batched(1, 512, 512, 64).starts_with("wgmma"));
  EXPECT_TRUE(batched(1, 2048, 10001, 768).starts_with("wgmma"));
}

// TMA takes long for rows of a box that lie outside of its tensor: few rows want small boxes, and blocks whose last tile is not nearly empty (on an H200 48
// rows of 11008 columns took 44.8 us in tiles of 128 x 96, 26.9 in tiles of 64 x 96). Blocks that share loads lose more by waiting for each other than they
// gain (788 x 2304 x 768 in TF32: 12.3 us alone, 17.2 side by side): a tuner tries them.
TEST_F(CudaGemmTest, FewRowsHaveSmallBoxesAndManyRowsShareNone) {
  for (const int64_t m : {17, 24, 32, 48, 64}) {
    for (const int64_t n : {1024, 4096, 11008}) {
      const std::string name = cuda_gemm_variants(linear(DType::bf16, m, n, 4096), cuda_machine(90))[0].name;
      EXPECT_TRUE(name.starts_with("wgmma_64x")) << m << " x " << n << ": " << name;
    }
  }
  for (const int64_t m : {160, 788, 2048, 8192}) {
    for (const int64_t n : {320, 1280, 2304, 4096}) {
      CudaGemmFacts f = linear(DType::bf16, m, n, 1024);
      for (const bool tf32 : {false, true}) {
        f.tf32 = tf32, f.dtype = tf32 ? DType::f32 : DType::bf16;
        const CudaVariant v = cuda_gemm_variants(f, cuda_machine(90))[0];
        for (const char* shared : {"_2x1", "_1x2", "_2x2"}) EXPECT_EQ(v.name.find(shared), std::string::npos) << m << " x " << n << ": " << v.name;
      }
    }
  }
}

TEST_F(CudaGemmTest, DynamicRowsHaveAKernelForFewAndOneForMany) {
  const auto v = cuda_gemm_variants(linear(DType::bf16, dynamic(1, 8192), size(4096), size(4096)), cuda_machine(90));
  ASSERT_GE(v.size(), 4u);
  EXPECT_EQ(v[0].condition, "t.m <= 8");
  EXPECT_EQ(v[1].condition, "t.m <= 16");
  EXPECT_TRUE(v[2].condition.starts_with("t.batch * t.m * t.n <= ")) << v[2].condition;
  EXPECT_TRUE(v.back().name.starts_with("wgmma_128x")) << v.back().name;
}

TEST_F(CudaGemmTest, FewRowsReadTheWeightOnce) {
  EXPECT_EQ(cuda_gemm_variants(linear(DType::bf16, 1, 4096, 4096), cuda_machine(90))[0].name, "gemv_mma");
  EXPECT_EQ(cuda_gemm_variants(linear(DType::f32, 1, 4096, 4096), cuda_machine(90))[0].name, "gemv_dot");
  CudaGemmFacts f = linear(DType::bf16, 1, 768, 3072);
  f.b_row = size(768), f.b_col = size(1);
  EXPECT_EQ(cuda_gemm_variants(f, cuda_machine(90))[0].name, "gemv_axpy");
  f.m = size(4);  // tensor cores take more rows at the price of one
  EXPECT_TRUE(cuda_gemm_variants(f, cuda_machine(90))[0].name.starts_with("wgmma_")) << cuda_gemm_variants(f, cuda_machine(90))[0].name;
  EXPECT_EQ(cuda_gemm_variants(f, cuda_machine(80))[0].name, "gemv_axpy");
  const auto dynamic_rows = cuda_gemm_variants(linear(DType::bf16, dynamic(1, 4096), size(4096), size(4096)), cuda_machine(90));
  ASSERT_GE(dynamic_rows.size(), 3u);
  // A token's step, whose number of rows the call says, has the kernel that a program of one row has.
  const auto one_row = cuda_gemm_variants(linear(DType::bf16, 1, 4096, 4096), cuda_machine(90));
  EXPECT_EQ(dynamic_rows[0].call, one_row[0].call);
  EXPECT_EQ(dynamic_rows[0].cluster, one_row[0].cluster);
  EXPECT_NE(dynamic_rows[1].call, one_row[0].call);
  EXPECT_EQ(cuda_gemm_variants(linear(DType::bf16, dynamic(1, 6), size(4096), size(4096)), cuda_machine(90)).size(), 1u);
}

// 8192 columns: 512 blocks, which all run at once if they have 4 warps.
TEST_F(CudaGemmTest, BlocksOfFewRowsDoNotWaitForOthers) {
  EXPECT_NE(cuda_gemm_variants(linear(DType::bf16, 1, 8192, 2048), cuda_machine(90))[0].call.find("gemv_mma<cd::bf16, 1, 4, 1>"), std::string::npos);
  EXPECT_NE(cuda_gemm_variants(linear(DType::bf16, 1, 6144, 4096), cuda_machine(90))[0].call.find("gemv_mma<cd::bf16, 1, 8, 1>"), std::string::npos);
}

TEST_F(CudaGemmTest, SmallOutputsWithLongSumsSplitOverAClusterOnHopper) {
  const auto hopper = cuda_gemm_variants(linear(DType::f32, 98, 512, 4608), cuda_machine(90));
  ASSERT_EQ(hopper.size(), 1u);
  EXPECT_GT(hopper[0].cluster, 1);
  EXPECT_EQ(cuda_gemm_variants(linear(DType::f32, 98, 512, 4608), cuda_machine(80))[0].cluster, 1);
  EXPECT_EQ(cuda_gemm_variants(linear(DType::f32, 2048, 2048, 2048), cuda_machine(90))[0].name, "simt_128x128x16");
  // 36 tiles: by six they are one turn of blocks, by seven or eight two.
  CudaGemmFacts gradient = linear(DType::f32, 384, 1536, 6304);
  gradient.a_row = size(1), gradient.a_col = size(384);
  gradient.b_row = size(1536), gradient.b_col = size(1);
  EXPECT_EQ(cuda_gemm_variants(gradient, cuda_machine(90))[0].name, "simt_128x128x16_split6");
}

TEST_F(CudaGemmTest, LayoutsReachTheKernel) {
  CudaGemmFacts f = linear(DType::f32, 512, 512, 512);
  EXPECT_NE(cuda_gemm_variants(f, cuda_machine(80))[0].call.find("true, true"), std::string::npos);
  f.b_row = size(512), f.b_col = size(1);
  EXPECT_NE(cuda_gemm_variants(f, cuda_machine(80))[0].call.find("true, false"), std::string::npos);
  f.a_row = size(1), f.a_col = size(512);
  EXPECT_NE(cuda_gemm_variants(f, cuda_machine(80))[0].call.find("false, false"), std::string::npos);
}

TEST(CudaMachines, AnArchitectureIsItsRowOrTheOneBelow) {
  int before = 0;
  for (const CudaMachine& m : kCudaMachines) {
    EXPECT_GT(m.sm, before);
    EXPECT_EQ(cuda_machine(m.sm), m);
    EXPECT_LE(shared_bytes_anywhere(), m.shared_bytes);
    EXPECT_TRUE(m.multiprocessors > 0 && m.threads >= 1024 && m.blocks > 0 && m.f32 > 0 && m.f64 > 0 && m.half > m.f32 && m.memory > 0) << m.sm;
    EXPECT_EQ(m.clusters, m.sm >= 90) << m.sm;
    before = m.sm;
  }
  EXPECT_EQ(cuda_machine(103).multiprocessors, cuda_machine(100).multiprocessors);
  EXPECT_EQ(cuda_machine(121).memory, cuda_machine(120).memory);
  EXPECT_EQ(cuda_machine(75).sm, 80);
}

}  // namespace
}  // namespace coil::templates
