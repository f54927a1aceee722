// The table of CUDA kernels for products of bytes: what is chosen for known problems, and what every choice must keep to. The kernels themselves are tested
// emulated (tests/python/test_cuda_bytes.py) and on a GPU (tests/gpu/test_bytes.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "templates/cuda_joined.h"
#include "base/cuda_machine.h"
#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

class CudaBytesTest : public ::testing::Test {
 protected:
  // Rows of k numbers, dense, at addresses that are multiples of 64; m: any number where it is 0.
  CudaByteFacts facts(int64_t m, int64_t n, int64_t k, int64_t bits = 8, int64_t group = 0, std::optional<DType> zero = std::nullopt) {
    CudaByteFacts f;
    f.m = m ? pool_.index(m) : pool_.symbol(pool_.add_symbol({"rows", "rows", 0, 1 << 20}));
    f.n = n, f.k = k, f.bits = bits, f.group = group, f.scale = group ? DType::f16 : DType::f32, f.zero = zero;
    f.a_row = pool_.index(k), f.a_col = pool_.index(1);
    f.a_alignment = f.b_alignment = 64;
    return f;
  }
  static bool is_wgmma(const CudaVariant& v) { return v.name.find("wgmma") != std::string::npos; }
  static bool any_wgmma(const std::vector<CudaVariant>& variants) { return std::any_of(variants.begin(), variants.end(), is_wgmma); }

  ExprPool pool_;
};

bool is_f16(const CudaVariant& v) { return v.call.find("cd::byte_f16<") != std::string::npos; }
bool any_f16(const std::vector<CudaVariant>& variants) { return std::any_of(variants.begin(), variants.end(), is_f16); }

void expect_sound_bytes(const std::vector<CudaVariant>& variants, int sm) {
  ASSERT_FALSE(variants.empty());
  std::set<std::string> names;
  for (const CudaVariant& v : variants) {
    names.insert(v.name);
    EXPECT_EQ(v.condition.empty(), &v == &variants.back()) << v.name << ": " << v.condition;
    EXPECT_LE(v.shared_bytes, cuda_machine(sm).shared_bytes) << v.name;
    EXPECT_TRUE(v.threads % 32 == 0 && v.threads <= (is_f16(v) ? 384 : 256)) << v.name;
    EXPECT_TRUE(!v.hopper || sm == 90) << v.name;
    EXPECT_TRUE(v.cluster == 1 || v.hopper) << v.name;
    EXPECT_NE(v.call.find("(t, epilogue);"), std::string::npos) << v.call;
  }
  EXPECT_LE(names.size(), 8u);
}

TEST_F(CudaBytesTest, EveryProblemHasASoundTable) {
  for (const int sm : {80, 89, 90, 100}) {
    for (const int64_t m : {0, 1, 2, 9, 17, 130, 4096}) {
      for (const int64_t n : {1, 67, 2048, 128256}) {
        for (const auto& [k, group] :
             {std::pair<int64_t, int64_t>{7, 0}, {1541, 0}, {1536, 32}, {1536, 48}, {1536, 64}, {2048, 128}, {2048, 256}, {1536, 16}, {1536, 768}}) {
          for (const int64_t bits : {4, 8}) {
            for (const int kind : {0, 1, 2, 3}) {
              CudaByteFacts f = facts(m, n, k, bits, group, kind % 2 ? std::optional(DType::f16) : std::nullopt);
              if (kind / 2) f.f16_shift = -3;
              expect_sound_bytes(cuda_byte_variants(f, cuda_machine(sm)), sm);
            }
          }
        }
      }
    }
  }
}

TEST_F(CudaBytesTest, ManyRowsAreWgmmasOnAHopper) {
  for (const int64_t group : {0, 32, 64, 128, 256, 512}) {
    for (const int64_t bits : {4, 8}) {
      const CudaByteFacts f = facts(1024, 2048, 2048, bits, group);
      EXPECT_TRUE(any_wgmma(cuda_byte_variants(f, cuda_machine(90)))) << bits << " " << group;
      EXPECT_FALSE(any_wgmma(cuda_byte_variants(f, cuda_machine(80)))) << bits << " " << group;
      EXPECT_FALSE(any_wgmma(cuda_byte_variants(f, cuda_machine(100)))) << bits << " " << group;
    }
  }
  // Few rows are dot products; groups that neither end within steps nor are several of them, and rows that TMA cannot read, are mma.sync's.
  EXPECT_FALSE(any_wgmma(cuda_byte_variants(facts(8, 2048, 2048), cuda_machine(90))));
  EXPECT_FALSE(any_wgmma(cuda_byte_variants(facts(1024, 2048, 1536, 8, 48), cuda_machine(90))));
  EXPECT_FALSE(any_wgmma(cuda_byte_variants(facts(1024, 2048, 1536, 4, 384), cuda_machine(90))));
  EXPECT_TRUE(any_wgmma(cuda_byte_variants(facts(1024, 2048, 1536, 8, 384), cuda_machine(90))));
  EXPECT_FALSE(any_wgmma(cuda_byte_variants(facts(1024, 2048, 1541), cuda_machine(90))));
  CudaByteFacts turned = facts(1024, 2048, 2048);
  std::swap(turned.a_row, turned.a_col);
  EXPECT_FALSE(any_wgmma(cuda_byte_variants(turned, cuda_machine(90))));
}

// Short groups, where factors in float16 will do: also of lengths that the kernels with sums of integers do not take.
TEST_F(CudaBytesTest, ShortGroupsAreMultipliedInFloat16) {
  for (const auto& [bits, group] : {std::pair<int64_t, int64_t>{4, 32}, {8, 32}, {4, 16}, {8, 16}, {4, 96}, {4, 384}}) {
    CudaByteFacts f = facts(512, 2048, 1536, bits, group);
    EXPECT_FALSE(any_f16(cuda_byte_variants(f, cuda_machine(90)))) << bits << " " << group;
    f.f16_shift = 0;
    EXPECT_TRUE(any_f16(cuda_byte_variants(f, cuda_machine(90)))) << bits << " " << group;
    EXPECT_FALSE(any_f16(cuda_byte_variants(f, cuda_machine(80)))) << bits << " " << group;
  }
  for (const int64_t group : {0, 48}) {
    CudaByteFacts f = facts(512, 2048, 1536, 4, group);
    f.f16_shift = 0;
    EXPECT_FALSE(any_f16(cuda_byte_variants(f, cuda_machine(90)))) << group;
  }
}

TEST_F(CudaBytesTest, WhatIsNotKnownIsAsked) {
  CudaByteFacts f = facts(0, 2048, 2048);
  f.a_alignment = 1;
  std::vector<CudaVariant> variants = cuda_byte_variants(f, cuda_machine(90));
  for (const CudaVariant& v : variants) EXPECT_EQ(is_wgmma(v), v.condition.find("(unsigned long long)t.a % 16 == 0") != std::string::npos) << v.name;
  EXPECT_EQ(variants.back().name, "bytes_128x128");
  f = facts(0, 2048, 2048);
  f.a_row = pool_.symbol(pool_.add_symbol({"row", "row", 0, 1 << 20}));
  variants = cuda_byte_variants(f, cuda_machine(90));
  for (const CudaVariant& v : variants) EXPECT_EQ(is_wgmma(v), v.condition.find("t.a_row > 0 && t.a_row % 16 == 0") != std::string::npos) << v.name;
}

TEST_F(CudaBytesTest, RowsDecideInOrder) {
  int64_t last = 0;
  for (const CudaVariant& v : cuda_byte_variants(facts(0, 8192, 2048), cuda_machine(90))) {
    const size_t at = v.condition.rfind("t.m <= ");
    const int64_t limit = v.condition.empty() ? INT64_MAX : std::stoll(v.condition.substr(at + 7));
    EXPECT_GT(limit, last);
    last = limit;
  }
}

TEST_F(CudaBytesTest, EveryCandidateIsAVariant) {
  for (const int64_t m : {1, 9, 200, 4096}) {
    for (const int64_t group : {0, 16, 32, 128}) {
      for (const int64_t bits : {4, 8}) {
        CudaByteFacts f = facts(m, 1024, 2048, bits, group, DType::f16);
        if (m > 100) f.f16_shift = 1;
        const auto candidates = cuda_byte_candidates(f, cuda_machine(90), [](Expr e) { return e->as_int(); });
        ASSERT_GE(candidates.size(), 2u);
        EXPECT_TRUE(std::is_sorted(candidates.begin(), candidates.end(), [](const CudaCandidate& a, const CudaCandidate& b) { return a.cost < b.cost; }));
        std::set<std::string> calls;
        for (const CudaCandidate& c : candidates) {
          const auto v = cuda_byte_variant(f, cuda_machine(90), c.way);
          ASSERT_TRUE(v.has_value()) << c.way.kind << " " << c.way.rows << " " << c.way.columns << " " << c.way.split;
          EXPECT_TRUE(calls.insert(v->call).second) << v->call;
          EXPECT_LE(v->shared_bytes, cuda_machine(90).shared_bytes) << v->name;
        }
      }
    }
  }
  EXPECT_FALSE(cuda_byte_variant(facts(100, 64, 256), cuda_machine(90), {kWgmmaTile, 128, 128, 16}).has_value());
  EXPECT_FALSE(cuda_byte_variant(facts(100, 64, 256), cuda_machine(80), {kWgmmaTile, 128, 128, 1}).has_value());
  EXPECT_FALSE(cuda_byte_variant(facts(100, 64, 256, 8, 32), cuda_machine(90), {kWgmmaTile, 256, 128, 1}).has_value()) << "no registers";
}

// Warps that share a tile's k for a single row: as many as have a piece of each line at least, or as are needed for enough bytes to be under way. Those that
// were the best on an H200 (tests/gpu/test_byte_rows.py --bench).
TEST(JoinedBytes, ShapesOfATokensProducts) {
  struct Case {
    std::vector<int64_t> tiles;
    bool pairs;
    int64_t k;
    int bits, split;
  };
  const std::vector<Case> cases = {{{256}, false, 2048, 4, 2}, {{256, 64, 64}, false, 2048, 4, 2}, {{1024}, true, 2048, 4, 2},
                                   {{256}, false, 8192, 4, 8}, {{256}, false, 2048, 8, 4},         {{256, 64, 64}, false, 2048, 8, 4},
                                   {{1024}, true, 2048, 8, 2}, {{256}, false, 8192, 8, 8},         {{1}, false, 64, 4, 1}};
  for (const Case& c : cases) {
    const JoinedBytesShape shape = joined_bytes_shape(c.tiles, c.pairs, c.k, c.bits, cuda_machine(90));
    EXPECT_EQ(shape.split, c.split) << c.tiles[0] << " tiles, k " << c.k << ", " << c.bits << " bits";
    EXPECT_TRUE(shape.warps % shape.split == 0 && shape.warps * shape.resident <= 16 && shape.resident >= 1);
  }
}

}  // namespace
}  // namespace coil::templates
