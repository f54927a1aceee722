// Which products AMX gets, on the emulated unit. That their results are right is the business of the other tests: they run all kernels
// with it as well.
#include <gtest/gtest.h>

#include "tests/kernels/support.h"

namespace coil_kernels_emulated {
extern int64_t emulated_products;
}

namespace coil::testing {
namespace {

// Products of registers (16 rows x 16 columns x 32 of k) of a product of so many rows, 80 columns and k 100.
int64_t products_of(int64_t rows, int dtype, bool packed, int64_t a_col = 1, int workers = 1) {
  const int64_t n = 80, k = 100, panels = (n + COIL_PANEL - 1) / COIL_PANEL;
  Buffer a(dtype, rows * k * a_col), b(dtype, panels * COIL_PANEL * k), c(dtype, rows * n);
  Scratch scratch(0);
  CoilGemm g = {};
  g.batch = 1, g.m = rows, g.n = n, g.k = k, g.dtype = dtype;
  g.a = a.data(), g.a_row = k * a_col, g.a_col = a_col;
  g.b = b.data(), g.b_packed = packed, g.b_row = n, g.b_col = 1;
  g.c = c.data(), g.c_row = n, g.scratch = scratch.data();
  const int64_t before = coil_kernels_emulated::emulated_products;
  const TestHost host(workers);
  coil_gemm_emulated(&g, host.get());
  return coil_kernels_emulated::emulated_products - before;
}

// The same of bytes.
int64_t products_of_bytes(int64_t rows, int dtype) {
  const int64_t n = 80, k = 100, panels = (n + COIL_PANEL - 1) / COIL_PANEL;
  const std::vector<uint8_t> a(rows * k, 1), b(panels * COIL_INTEGER_PANEL_BYTES(k), 1);
  std::vector<int32_t> c(rows * n);
  CoilGemm g = {};
  g.batch = 1, g.m = rows, g.n = n, g.k = k, g.dtype = dtype;
  g.a = a.data(), g.a_row = k, g.a_col = 1, g.b = b.data(), g.b_packed = 1;
  g.c = c.data(), g.c_row = n;
  const int64_t before = coil_kernels_emulated::emulated_products;
  const TestHost host(1);
  coil_gemm_emulated(&g, host.get());
  return coil_kernels_emulated::emulated_products - before;
}

TEST(Amx, TakesBytesOfEnoughRows) {
  if (runnable_kernels().back().gemm != coil_gemm_emulated) GTEST_SKIP() << "the machine has no AVX-512";
  const int64_t columns = 5, steps = 2;  // 100 of k are 25 groups
  EXPECT_EQ(products_of_bytes(48, COIL_UINT8), 3 * columns * steps);
  EXPECT_EQ(products_of_bytes(16, COIL_INT8), 1 * columns * steps);
  EXPECT_EQ(products_of_bytes(11, COIL_INT8), 0);
}

TEST(Amx, TakesPackedBfloat16OfEnoughRows) {
  if (runnable_kernels().back().gemm != coil_gemm_emulated) GTEST_SKIP() << "the machine has no AVX-512";
  const int64_t columns = 5, steps = 4;  // 80 columns, 100 of k
  EXPECT_EQ(products_of(16, COIL_BFLOAT16, true), 1 * columns * steps);
  EXPECT_EQ(products_of(33, COIL_BFLOAT16, true), 3 * columns * steps);
  EXPECT_EQ(products_of(500, COIL_BFLOAT16, true), 32 * columns * steps);
  EXPECT_EQ(products_of(500, COIL_BFLOAT16, true, 1, 3), 32 * columns * steps);
  EXPECT_EQ(products_of(8, COIL_BFLOAT16, true), 1 * columns * steps);
  EXPECT_EQ(products_of(7, COIL_BFLOAT16, true), 0);
  EXPECT_EQ(products_of(64, COIL_BFLOAT16, false), 0);
  EXPECT_EQ(products_of(64, COIL_BFLOAT16, true, 2), 0);
  EXPECT_EQ(products_of(64, COIL_FLOAT16, true), 0);
  EXPECT_EQ(products_of(64, COIL_FLOAT32, true), 0);
}

}  // namespace
}  // namespace coil::testing
