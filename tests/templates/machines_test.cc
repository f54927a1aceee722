// The cost models go by the machine that they are given: the same problem for chips with other numbers of multiprocessors, clocks and bandwidths.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "base/cuda_machine.h"
#include "templates/cuda_gemm_model.h"
#include "templates/cuda_joined.h"
#include "templates/cuda_library.h"
#include "templates/cuda_variants.h"

namespace coil::templates {
namespace {

const CudaMachine kUsual = cuda_machine(90), kFewer = with_multiprocessors(kUsual, 78);  // an H20 has 78

class MachinesTest : public ::testing::Test {
 protected:
  CudaGemmFacts linear(DType dtype, int64_t m, int64_t n, int64_t k) {
    CudaGemmFacts f;
    f.dtype = dtype;
    f.batch = pool_.index(1), f.m = pool_.index(m), f.n = pool_.index(n), f.k = pool_.index(k);
    f.a_batch = pool_.index(m * k), f.a_row = f.k, f.a_col = pool_.index(1);
    f.b_batch = pool_.index(n * k), f.b_row = pool_.index(1), f.b_col = f.k;
    f.a_alignment = f.b_alignment = 16;
    return f;
  }
  // How many of a grid of products get another kernel.
  int changed(DType dtype, const CudaMachine& a, const CudaMachine& b) {
    int count = 0;
    for (const int64_t m : {64, 256, 1024, 2048, 4096}) {
      for (const int64_t n : {512, 1024, 1536, 4096}) {
        for (const int64_t k : {512, 2048, 8192}) {
          const CudaGemmFacts f = linear(dtype, m, n, k);
          count += cuda_gemm_variants(f, a)[0].name != cuda_gemm_variants(f, b)[0].name;
        }
      }
    }
    return count;
  }

  ExprPool pool_;
};

TEST_F(MachinesTest, TilesAndPartsOfProductsFollowTheMultiprocessors) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    EXPECT_GT(changed(dtype, kUsual, kFewer), 5);
    EXPECT_EQ(changed(dtype, kFewer, kFewer), 0);
  }
  // A result of 96 tiles fills 78 multiprocessors: only more of them need its sum in parts.
  const CudaGemmFacts f = linear(DType::f32, 512, 1536, 8192);
  const auto parts = [&](const CudaMachine& m) { return cuda_gemm_variants(f, m)[0].cluster; };
  EXPECT_LE(parts(with_multiprocessors(kUsual, 16)), parts(kUsual));
  EXPECT_EQ(parts(with_multiprocessors(kUsual, 16)), 1);
}

TEST_F(MachinesTest, TimesFollowTheMachine) {
  const CudaGemmFacts f = linear(DType::bf16, 8192, 8192, 8192);
  const auto time = [&](const CudaMachine& m) {
    const GemmProblem p(f, m, int64_t{512});
    double least = INFINITY;
    for (const GemmTile* t : possible_tiles(p, true)) least = std::min(least, time_of(p, TileChoice{t}));
    return least;
  };
  EXPECT_NEAR(time(kFewer) / time(kUsual), 132.0 / 78, 0.1);
  CudaMachine slow = kUsual;
  slow.half /= 4;
  EXPECT_GT(time(slow), 2 * time(kUsual));
  slow = kUsual;
  slow.clock /= 2;
  EXPECT_GT(time(slow), 1.5 * time(kUsual));
}

TEST_F(MachinesTest, ConvolutionsFollowTheMultiprocessors) {
  std::set<std::string> names;
  for (const int count : {16, 78, 132, 400}) {
    CudaConvFacts f;
    f.dtype = DType::f32;
    f.def.x_sizes = {pool_.index(2), pool_.index(128), pool_.index(28), pool_.index(28)};
    f.def.kernel = {3, 3}, f.def.stride = {1, 1}, f.def.padding = {1, 1}, f.def.dilation = {1, 1}, f.def.groups = 1;
    f.result_sizes = f.def.x_sizes;
    f.x_n = pool_.index(128 * 28 * 28), f.x_c = pool_.index(1), f.x_h = pool_.index(128 * 28), f.x_w = pool_.index(128);
    f.x_alignment = 256;
    names.insert(cuda_conv_variants(f, with_multiprocessors(kUsual, count))[0].name);
  }
  EXPECT_GE(names.size(), 2u);
}

TEST_F(MachinesTest, TheLibraryIsWorthItsSecondPassEarlierOnASlowerChip) {
  CudaGemmFacts f = linear(DType::f32, 512, 1024, 1024);
  EXPECT_FALSE(cuda_gemm_library(f, kUsual));
  EXPECT_TRUE(cuda_gemm_library(f, with_multiprocessors(kUsual, 16)));
  CudaMachine narrow = kUsual;
  narrow.memory = 100;
  f = linear(DType::f32, 4096, 4096, 4096);
  EXPECT_TRUE(cuda_gemm_library(f, kUsual));
  EXPECT_FALSE(cuda_gemm_library(f, narrow));
}

TEST_F(MachinesTest, JoinedProductsAndGroupsFollowTheMultiprocessors) {
  int joined = 0;
  for (int64_t columns = 512; columns <= 16384; columns *= 2) {
    const JoinedShape a = joined_shape({columns, columns / 4}, false, 2048, kUsual), b = joined_shape({columns, columns / 4}, false, 2048, kFewer);
    joined += a.halves != b.halves || a.warps != b.warps || a.resident != b.resident;
  }
  EXPECT_GE(joined, 1);
}

// Whatever the machine: each problem has a kernel, within what a block has.
TEST_F(MachinesTest, EveryMachineHasSoundTables) {
  for (const int sm : {80, 86, 90, 100}) {
    for (const int count : {1, 2, 7, 1024}) {
      const CudaMachine machine = with_multiprocessors(cuda_machine(sm), count);
      for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
        for (const int64_t m : {0, 1, 17, 4096}) {
          for (const CudaVariant& v : cuda_gemm_variants(linear(dtype, m, 1000, 3420), machine)) EXPECT_LE(v.shared_bytes, machine.shared_bytes) << v.name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace coil::templates
