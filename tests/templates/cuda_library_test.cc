// Which problems go to NVIDIA's libraries, under which conditions, and the scratch memory that this takes.
#include "templates/cuda_library.h"

#include <gtest/gtest.h>

namespace coil::templates {
namespace {

struct Product {
  int64_t m, n, k;
  DType dtype = DType::f32;
  bool weight = true;  // b is [n, k]
  int64_t batch = 1;
};

// Size -1: a symbol, 1 to 100000.
class CudaLibrary : public testing::Test {
 protected:
  Expr size(int64_t value) {
    if (value >= 0) return pool_.index(value);
    return pool_.symbol(pool_.add_symbol({"s" + std::to_string(symbols_++), "rows", 1, 100000}));
  }
  CudaGemmFacts facts(const Product& p) {
    CudaGemmFacts f;
    f.dtype = p.dtype;
    f.batch = size(p.batch), f.m = size(p.m), f.n = size(p.n), f.k = size(p.k);
    f.a_batch = f.b_batch = pool_.index(0);
    f.a_row = f.k, f.a_col = pool_.index(1);
    f.b_row = p.weight ? pool_.index(1) : f.n, f.b_col = p.weight ? f.k : pool_.index(1);
    return f;
  }
  std::optional<CudaVariant> product(const Product& p, int sm = 90) { return cuda_gemm_library(facts(p), cuda_machine(sm)); }

  CudaConvFacts conv_facts(DType dtype, int64_t n, int64_t ic, int64_t side, int64_t oc, int64_t kernel, int64_t stride = 1) {
    CudaConvFacts f;
    f.dtype = dtype;
    f.def.x_sizes = {size(n), pool_.index(ic), pool_.index(side), pool_.index(side)};
    f.def.kernel = {kernel, kernel};
    f.def.stride = {stride, stride};
    f.def.padding = {kernel / 2, kernel / 2};
    f.def.dilation = {1, 1};
    f.def.groups = 1;
    const int64_t out = (side + 2 * (kernel / 2) - kernel) / stride + 1;
    f.result_sizes = {f.def.x_sizes[0], pool_.index(oc), pool_.index(out), pool_.index(out)};
    f.x_n = pool_.index(ic * side * side), f.x_c = pool_.index(1), f.x_h = pool_.index(ic * side), f.x_w = pool_.index(ic);
    return f;
  }
  static int64_t bytes(const CudaVariant& v) { return v.scratch_bytes->is_constant() ? v.scratch_bytes->as_int() : -1; }

  ExprPool pool_;
  int symbols_ = 0;
};

TEST_F(CudaLibrary, ProductsThatGain) {
  for (bool weight : {true, false}) {
    const auto v = product({4096, 768, 8192, DType::f32, weight});
    ASSERT_TRUE(v);
    EXPECT_EQ(v->library, "libcublasLt");
    EXPECT_EQ(v->condition, "cd::cublas_gemm(call, &t, 6)");  // the sizes are known
    EXPECT_EQ(v->call, "cd::apply_epilogue<float, 4>(t, epilogue);");
    EXPECT_EQ(bytes(*v), 4096 * 768 * 4 + kLibraryScratchBytes);
  }
  EXPECT_TRUE(product({2048, 2048, 2048}));
  EXPECT_TRUE(product({4096, 4096, 4096}));
  EXPECT_TRUE(product({4096, 3072, 768}));
  EXPECT_TRUE(product({4096, 768, 3072}));
}

TEST_F(CudaLibrary, ProductsThatStay) {
  const Product table = {2048, 2048, 2048};
  for (int sm : {80, 86, 89, 100}) EXPECT_FALSE(product(table, sm)) << sm;
  for (DType dtype : {DType::f64, DType::bf16, DType::f16}) EXPECT_FALSE(product({2048, 2048, 2048, dtype}));
  EXPECT_FALSE(product({2048, 2048, 2048, DType::f32, true, 2}));
  EXPECT_FALSE(product({98, 512, 4608}));
  EXPECT_FALSE(product({0, 2048, 2048}));
  EXPECT_FALSE(product({511, 4096, 4096}));  // few rows
  EXPECT_FALSE(product({4096, 511, 4096}));  // and columns
  EXPECT_FALSE(product({4096, 768, 768}));   // the pass over the result takes what is saved
  EXPECT_FALSE(product({25088, 512, 128}));  // and more
  EXPECT_FALSE(product({4096, 3072, 768, DType::f32, false}));
  EXPECT_FALSE(product({1 << 20, 1024, 1024}));  // much scratch memory
  EXPECT_FALSE(product({2048, -1, 2048}));       // the result has any number of columns
}

TEST_F(CudaLibrary, DynamicSizes) {
  const auto v = product({-1, 2048, 2048});
  ASSERT_TRUE(v);
  EXPECT_TRUE(v->condition.starts_with("t.m >= 590 && t.m <= 32768 && cd::cublas_gemm(")) << v->condition;
  // No more scratch memory than what it serves needs, however many rows there are.
  const auto most = upper_bound(v->scratch_bytes);
  ASSERT_TRUE(most);
  EXPECT_EQ(*most, int64_t{32768} * 2048 * 4 + kLibraryScratchBytes);
  const auto at = [&](int64_t rows) { return evaluate_index(v->scratch_bytes, [&](SymbolId) { return rows; }); };
  EXPECT_EQ(at(589), 0) << "what is not served needs none";
  EXPECT_EQ(at(590), 590 * 2048 * 4 + kLibraryScratchBytes);
  EXPECT_FALSE(product({-1, 100, 2048}));
}

TEST_F(CudaLibrary, Convolutions) {
  const auto v = cuda_conv_library(conv_facts(DType::f32, 32, 128, 28, 128, 3));
  ASSERT_TRUE(v);
  EXPECT_EQ(v->library, "libcudnn");
  EXPECT_EQ(v->condition, "cd::cudnn_conv(call, &t, 6)");
  EXPECT_EQ(v->call, "cd::apply_epilogue<float, 4>(t, epilogue);");
  EXPECT_EQ(bytes(*v), 32 * 28 * 28 * 128 * 4 + kLibraryScratchBytes);
}

TEST_F(CudaLibrary, ConvolutionsThatStay) {
  for (DType dtype : {DType::f64, DType::bf16, DType::f16}) EXPECT_FALSE(cuda_conv_library(conv_facts(dtype, 32, 128, 28, 128, 3)));
  EXPECT_FALSE(cuda_conv_library(conv_facts(DType::f32, 32, 126, 28, 128, 3)));  // pixels are not whole 16 bytes
  EXPECT_FALSE(cuda_conv_library(conv_facts(DType::f32, 32, 128, 28, 126, 3)));
  CudaConvFacts f = conv_facts(DType::f32, 32, 128, 28, 128, 3);
  f.x_c = pool_.index(28 * 28);
  EXPECT_FALSE(cuda_conv_library(f));
  f = conv_facts(DType::f32, 32, 128, 28, 128, 3);
  f.def.groups = 4;
  EXPECT_FALSE(cuda_conv_library(f));
  f = conv_facts(DType::f32, 32, 128, 28, 128, 3);
  f.w_alignment = 4;
  EXPECT_FALSE(cuda_conv_library(f));
}

}  // namespace
}  // namespace coil::templates
