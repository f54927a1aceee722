// The choice of CUDA attention kernels: what every variant must satisfy, and the choices that matter.
#include <gtest/gtest.h>

#include <set>

#include "base/cuda_machine.h"
#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

// A length of -1: a symbol.
CudaAttentionFacts facts_of(ExprPool& pool, DType dtype, int64_t heads, int64_t kv_heads, int64_t q_len, int64_t dim) {
  CudaAttentionFacts f;
  f.dtype = dtype;
  f.def.batch = pool.index(2);
  f.def.heads = pool.index(heads);
  f.def.kv_heads = pool.index(kv_heads);
  f.def.kv_len = pool.symbol(pool.add_symbol({"s0", "keys", 1, 4096}));
  f.def.q_len = q_len >= 0 ? pool.index(q_len) : f.def.kv_len;
  f.def.dim = f.def.v_dim = pool.index(dim);
  return f;
}

TEST(CudaAttentionVariants, LaunchableEverywhere) {
  for (const CudaMachine& machine : kCudaMachines) {
    const int sm = machine.sm;
    for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (int64_t dim : {1, 40, 64, 80, 96, 128, 200, 256}) {
        for (int64_t q_len : {-1, 1, 3, 128}) {
          ExprPool pool;
          const auto variants = cuda_attention_variants(facts_of(pool, dtype, 8, 2, q_len, dim), cuda_machine(sm));
          ASSERT_FALSE(variants.empty());
          std::set<std::string> names;
          for (size_t i = 0; i < variants.size(); i++) {
            const CudaVariant& v = variants[i];
            EXPECT_TRUE(names.insert(v.name).second) << v.name;
            EXPECT_EQ(v.condition.empty(), i + 1 == variants.size()) << v.name;
            EXPECT_LE(v.shared_bytes, cuda_machine(sm).shared_bytes) << v.name;
            EXPECT_TRUE(v.cluster == 1 || sm >= 90) << v.name;
          }
        }
      }
    }
  }
}

// All that may be timed can be launched, is named apart, and comes in the order of its cost.
TEST(CudaAttentionVariants, CandidatesAreLaunchable) {
  for (int sm : {80, 86, 90}) {
    for (DType dtype : {DType::f32, DType::bf16}) {
      for (int64_t dim : {32, 64, 96, 128, 256}) {
        for (int64_t q_len : {-1, 1, 64}) {
          ExprPool pool;
          CudaAttentionFacts f = facts_of(pool, dtype, 8, 2, q_len, dim);
          f.alignment = 16;
          const auto candidates = cuda_attention_candidates(f, cuda_machine(sm), [](Expr e) { return evaluate_index(e, [](SymbolId) { return 512; }); });
          EXPECT_GE(candidates.size(), dim == 256 ? 0u : 2u) << sm << " " << dim << " " << q_len;
          std::set<std::string> names;
          for (size_t i = 0; i < candidates.size(); ++i) {
            const auto v = cuda_attention_variant(f, cuda_machine(sm), candidates[i].way);
            ASSERT_TRUE(v.has_value());
            EXPECT_TRUE(names.insert(v->name).second) << v->name;
            EXPECT_LE(v->shared_bytes, cuda_machine(sm).shared_bytes) << v->name;
            EXPECT_TRUE(v->cluster == 1 || sm >= 90) << v->name;
            EXPECT_TRUE(!v->hopper || sm == 90) << v->name;
            EXPECT_TRUE(i == 0 || candidates[i - 1].cost <= candidates[i].cost);
          }
          EXPECT_EQ(names.contains(dim == 64 ? "attention_wgmma_64_192x128" : "attention_wgmma_128_128x64"),
                    sm == 90 && dtype == DType::bf16 && q_len != 1 && (dim == 64 || dim == 96 || dim == 128));
          EXPECT_EQ(names.contains(dtype == DType::f32 && dim == 256 ? "attention_decode_256_rows4_split4" : "attention_decode_64_rows4_split4"),
                    sm == 90 && q_len == 1 && (dim == 64 || (dim == 256 && dtype == DType::f32)));
        }
      }
    }
  }
  ExprPool pool;
  const CudaAttentionFacts f = facts_of(pool, DType::bf16, 8, 2, 64, 64);
  for (const CudaWay& way :
       {CudaWay{kMmaSync, 64, 48, 0}, CudaWay{kMmaSync, 64, 128, 0}, CudaWay{kCudaCores, 64, 32, 0}, CudaWay{kFewRows, 3, 0, 1}, CudaWay{kWgmma, 128, 64, 0}}) {
    EXPECT_FALSE(cuda_attention_variant(f, cuda_machine(80), way)) << way.kind;
  }
}

TEST(CudaAttentionVariants, OneQueryReadsKeysOnce) {
  ExprPool pool;
  const auto one = cuda_attention_variants(facts_of(pool, DType::bf16, 32, 8, 1, 128), cuda_machine(90));
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].call, "cd::attention_decode<cd::bf16, cd::NoMask, false, 128, 4, 8, 8>(t);");
  const auto many = cuda_attention_variants(facts_of(pool, DType::bf16, 32, 8, 128, 128), cuda_machine(90));
  ASSERT_EQ(many.size(), 1u);
  EXPECT_EQ(many[0].header, "cuda/attention_mma.h");
  EXPECT_EQ(cuda_attention_variants(facts_of(pool, DType::f32, 32, 8, -1, 128), cuda_machine(90)).size(), 2u);
}

TEST(CudaAttentionVariants, HopperByTensorMaps) {
  ExprPool pool;
  CudaAttentionFacts f = facts_of(pool, DType::bf16, 32, 8, 2048, 128);
  f.alignment = 16;
  const auto first = [&](int sm) { return cuda_attention_variants(f, cuda_machine(sm))[0]; };
  EXPECT_EQ(first(90).call, "cd::attention_wgmma<cd::bf16, cd::NoMask, false, 128, 128, 2, 2, true>(t);");
  EXPECT_TRUE(first(90).hopper);
  EXPECT_NE(first(90).condition.find("t.kv_len >= 128 && cd::cuda_rows_fit(cd::CudaRows{t.q, t.batch, t.heads, t.q_len, t.dim, t.q_batch, t.q_head, t.q_row})"),
            std::string::npos);
  EXPECT_EQ(first(80).header, "cuda/attention_mma.h");
  EXPECT_EQ(first(100).header, "cuda/attention_mma.h");
  f.def.dim = f.def.v_dim = pool.index(64);
  EXPECT_EQ(first(90).threads, 512);
  f.alignment = 8;
  EXPECT_EQ(first(90).header, "cuda/attention_mma.h");
  f.alignment = 16, f.def.scale = -1;  // the largest score would be the smallest product
  EXPECT_EQ(first(90).header, "cuda/attention_mma.h");
  f.def.scale = 1, f.def.kv_len = pool.index(77);
  EXPECT_EQ(first(90).header, "cuda/attention_mma.h");
}

}  // namespace
}  // namespace coil::templates
