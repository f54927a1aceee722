// Products with quantised weights, and products of bytes, against plain loops.
#include <gtest/gtest.h>

#include "templates/packing.h"
#include "tests/kernels/quantised_support.h"

namespace coil::testing {
namespace {

// Exactly as many bytes as the operand has, so that the address sanitizer sees what is read beyond it.
void check_integers(int64_t m, int64_t n, int64_t k, bool is_signed, int64_t a_row, int64_t a_col, bool transposed_b) {
  SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + (is_signed ? " signed" : " unsigned"));
  std::mt19937 random(7);
  const std::vector<int8_t> a = numbers(random, m > 0 ? (m - 1) * a_row + (k - 1) * a_col + 1 : 0, -128, 127), b = numbers(random, k * n, -128, 127);
  const auto packed = templates::pack_integer_b(b.data(), k, n, transposed_b ? 1 : n, transposed_b ? k : 1);
  std::vector<int32_t> want(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      int32_t sum = 0;
      for (int64_t p = 0; p < k; p++) {
        const int8_t x = a[static_cast<size_t>(i * a_row + p * a_col)];
        sum += (is_signed ? x : static_cast<uint8_t>(x)) * b[static_cast<size_t>(transposed_b ? j * k + p : p * n + j)];
      }
      want[static_cast<size_t>(i * n + j)] = sum;
    }
  }
  for (const IsaKernels& isa : runnable_kernels()) {
    for (int workers : {1, 3}) {
      std::vector<int32_t> c(static_cast<size_t>(m * n), -1);
      CoilGemm g = {};
      g.batch = 1, g.m = m, g.n = n, g.k = k;
      g.a = a.data(), g.a_row = a_row, g.a_col = a_col;
      g.b = packed.data(), g.b_packed = 1;
      g.c = c.data(), g.c_row = n;
      g.dtype = is_signed ? COIL_INT8 : COIL_UINT8;
      isa.gemm(&g, TestHost(workers).get());
      ASSERT_EQ(c, want) << isa.name;
    }
  }
}

TEST(Quantised, ProductsOfBytesAreExact) {
  for (bool is_signed : {true, false}) {
    for (int64_t m : {1, 2, 3, 5, 6, 7, 13, 14, 15, 29, 90}) check_integers(m, 40, 37, is_signed, 37, 1, true);
    for (int64_t n : {1, 16, 31, 32, 33, 100}) check_integers(9, n, 64, is_signed, 70, 1, false);
    for (int64_t k : {1, 2, 3, 4, 5, 511, 512, 513, 1030}) check_integers(17, 33, k, is_signed, k, 1, true);
    check_integers(20, 70, 100, is_signed, 1, 20, true);
    check_integers(200, 300, 600, is_signed, 600, 1, true);
    check_integers(0, 8, 8, is_signed, 8, 1, true);
  }
}

struct ByteConv {
  int64_t n, ic, ih, iw, oc, kh, kw;
  int64_t stride = 1, pad_h = 0, pad_w = 0, dilation = 1, groups = 1, gap = 0;
};

void check_conv(const ByteConv& c, bool is_signed, int32_t zero) {
  SCOPED_TRACE(std::to_string(c.ic) + "x" + std::to_string(c.ih) + "x" + std::to_string(c.iw) + " to " + std::to_string(c.oc) + ", kernel " +
               std::to_string(c.kh) + "x" + std::to_string(c.kw) + " stride " + std::to_string(c.stride) + " groups " + std::to_string(c.groups) + " zero " +
               std::to_string(zero));
  std::mt19937 random(13);
  CoilConv2d args = {};
  args.n = c.n, args.ic = c.ic, args.ih = c.ih, args.iw = c.iw, args.oc = c.oc, args.kh = c.kh, args.kw = c.kw;
  args.stride_h = args.stride_w = c.stride, args.pad_h = c.pad_h, args.pad_w = c.pad_w, args.dilation_h = args.dilation_w = c.dilation;
  args.groups = c.groups, args.x_zero = zero, args.dtype = is_signed ? COIL_INT8 : COIL_UINT8;
  args.oh = (c.ih + 2 * c.pad_h - c.dilation * (c.kh - 1) - 1) / c.stride + 1;
  args.ow = (c.iw + 2 * c.pad_w - c.dilation * (c.kw - 1) - 1) / c.stride + 1;
  args.x_c = 1, args.x_w = c.ic + c.gap, args.x_h = c.iw * args.x_w + c.gap, args.x_n = c.ih * args.x_h + c.gap;
  args.depthwise = c.groups > 1 && c.groups == c.ic && c.oc == c.ic;
  const int64_t group_ic = c.ic / c.groups, group_oc = c.oc / c.groups, k = group_ic * c.kh * c.kw;
  const std::vector<int8_t> x = numbers(random, 1 + (c.n - 1) * args.x_n + (c.ih - 1) * args.x_h + (c.iw - 1) * args.x_w + c.ic - 1, -128, 127);
  const std::vector<int8_t> w = numbers(random, c.oc * k, -128, 127);
  std::vector<int32_t> want;
  for (int64_t pixel = 0; pixel < c.n * args.oh * args.ow; pixel++) {
    for (int64_t o = 0; o < c.oc; o++) {
      int32_t sum = 0;
      for (int64_t p = 0; p < k; p++) {
        const int64_t iy = pixel / args.ow % args.oh * c.stride - c.pad_h + p / c.kw % c.kh * c.dilation,
                      ix = pixel % args.ow * c.stride - c.pad_w + p % c.kw * c.dilation;
        if (iy < 0 || ix < 0 || iy >= c.ih || ix >= c.iw) continue;
        const int64_t channel = o / group_oc * group_ic + p / c.kw / c.kh;
        const int8_t v = x[static_cast<size_t>(pixel / args.ow / args.oh * args.x_n + iy * args.x_h + ix * args.x_w + channel)];
        sum += ((is_signed ? v : static_cast<uint8_t>(v)) - zero) * w[static_cast<size_t>(o * k + p)];
      }
      want.push_back(sum);
    }
  }
  const auto packed = args.depthwise ? templates::pack_depthwise_weight(w.data(), 1, c.oc, c.kh, c.kw)
                                     : templates::pack_integer_conv_weight(w.data(), c.oc, group_ic, c.kh, c.kw, c.groups);
  args.x = x.data(), args.w = packed.data();
  for (const IsaKernels& isa : runnable_kernels()) {
    for (int workers : {1, 3}) {
      ASSERT_EQ(coil_conv2d_scratch_bytes(&args, workers), 0);
      std::vector<int32_t> y(want.size(), -1);
      args.y = y.data();
      isa.conv2d(&args, TestHost(workers).get());
      ASSERT_EQ(y, want) << isa.name;
    }
  }
}

void check_convs(const ByteConv& c) {
  check_conv(c, false, 0);
  check_conv(c, false, 131);
  check_conv(c, true, -128);
  check_conv(c, true, 5);
}

TEST(Quantised, ConvolutionsOfBytesAreExact) {
  for (int64_t kernel : {1, 2, 3, 5}) {
    for (int64_t ic : {1, 3, 16, 37}) {
      for (int64_t oc : {1, 16, 33}) {
        for (int64_t pad : {0, 2}) check_convs({2, ic, 7, 9, oc, kernel, kernel, 1, pad, pad});
      }
    }
  }
  check_convs({1, 3, 30, 29, 64, 7, 7, 2, 3, 3});
  check_convs({2, 24, 11, 13, 20, 3, 5, 2, 1, 2});
  check_convs({2, 24, 15, 15, 40, 3, 3, 1, 2, 2, 2, 1, 5});  // dilated, pixels apart
  check_convs({1, 8, 3, 2, 8, 3, 3, 1, 4, 4});               // windows wholly outside the image
  check_convs({1, 100, 14, 14, 300, 3, 3, 1, 1, 1});         // several chunks of k
  check_convs({1, 24, 10, 11, 40, 3, 3, 1, 2, 2, 1, 4});     // groups
  check_convs({2, 70, 9, 9, 140, 3, 3, 1, 1, 1, 1, 2});
}

TEST(Quantised, DepthwiseConvolutionsOfBytesAreExact) {
  for (int64_t channels : {2, 8, 19, 40, 100}) {
    for (int64_t kernel : {2, 3, 5}) {
      for (int64_t stride : {1, 2, 3})
        check_convs({2, channels, 13, 21, channels, kernel, kernel, stride, kernel / 2, kernel / 2, 1, channels, stride == 1 ? 3 : 0});
    }
  }
  check_convs({1, 24, 17, 16, 24, 3, 3, 1, 2, 4, 2, 24});
  check_convs({1, 24, 2, 2, 24, 3, 3, 1, 4, 4, 1, 24});
}

void check_weight(int64_t m, int64_t n, int64_t k, const Numbers& kind, int64_t group, bool scaled, bool shifted, int dtype) {
  SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " of " + text(kind) + " in groups of " + std::to_string(group));
  std::mt19937 random(11);
  Buffer a(dtype, m * k);
  a.fill(random);
  const std::vector<int8_t> b = numbers_of(kind, random, n * k);
  std::uniform_real_distribution<float> scales(0.5f / greatest(kind), 1.0f / greatest(kind)), zeros(-3, 3);
  std::vector<float> scale(static_cast<size_t>(k / group * n)), zero(scale.size());
  for (float& s : scale) s = scales(random);
  for (float& z : zero) z = std::nearbyint(zeros(random));
  const bool in_panels = m % 2 == 0;
  const Table scale_table(scale, n, in_panels ? COIL_FLOAT16 : COIL_FLOAT32), zero_table(zero, n, in_panels ? COIL_BFLOAT16 : COIL_FLOAT32);
  scale = scale_table.values, zero = zero_table.values;
  CoilGemm given = {};
  const auto packed = packed_numbers(given, kind, b.data(), k, n, false);
  ASSERT_EQ(static_cast<int64_t>(packed.size()) * 8, templates::packed_gemm_b_elements(k, n) * kind.bits);
  for (const IsaKernels& isa : runnable_kernels()) {
    Buffer c(dtype, m * n);
    CoilGemm g = given;
    g.batch = 1, g.m = m, g.n = n, g.k = k;
    g.a = a.data(), g.a_row = k, g.a_col = 1;
    g.b = packed.data(), g.b_group = group;
    set_tables(g, scaled ? &scale_table : nullptr, shifted ? &zero_table : nullptr, in_panels);
    g.c = c.data(), g.c_row = n;
    g.dtype = dtype;
    Scratch scratch(coil_gemm_scratch_bytes(&g, 3));
    g.scratch = scratch.data();
    isa.gemm(&g, TestHost(3).get());
    ASSERT_TRUE(c.guards_intact() && scratch.guards_intact());
    for (int64_t i = 0; i < m; i++) {
      for (int64_t j = 0; j < n; j++) {
        double sum = 0, size = 0;
        for (int64_t p = 0; p < k; p++) {
          const auto at = static_cast<size_t>(p / group * n + j);
          const double w = (b[static_cast<size_t>(j * k + p)] - (shifted ? zero[at] : 0.0f)) * (scaled ? scale[at] : 1.0f);
          sum += w * a.get(i * k + p);
          size += std::fabs(w * a.get(i * k + p));
        }
        // Dot products round scaled weights to bfloat16.
        const double rounding = dtype == COIL_BFLOAT16 && scaled ? 0x1.8p-7 / std::sqrt(static_cast<double>(k)) : 1e-6;
        ASSERT_NEAR(c.get(i * n + j), sum, tolerance(dtype, sum, k) + rounding * size) << isa.name << " " << i << "," << j;
      }
    }
  }
}

TEST(Quantised, Weights) {
  for (const Numbers& bits : kKinds) {
    for (int64_t m : {1, 2, 7, 20, 100}) check_weight(m, 70, 96, bits, 32, true, true, COIL_FLOAT32);
    for (int64_t n : {1, 8, 31, 33, 64}) check_weight(3, n, 300, bits, 300, true, false, COIL_FLOAT32);
    check_weight(5, 40, 1024, bits, 64, true, false, COIL_FLOAT32);
    check_weight(5, 40, 600, bits, 600, false, false, COIL_FLOAT32);
    check_weight(5, 40, 600, bits, 1, true, true, COIL_FLOAT32);
    for (int64_t m : {1, 14, 28, 40}) {  // groups that begin in one chunk of k and end in the next
      for (bool shifted : {true, false}) check_weight(m, 45, 960, bits, 96, true, shifted, COIL_FLOAT32);
    }
    for (int dtype : {COIL_BFLOAT16, COIL_FLOAT16}) {
      for (int64_t m : {1, 3, 4, 9, 33, 100}) check_weight(m, 40, 384, bits, 128, true, true, dtype);
      for (int64_t m : {1, 2, 5, 15, 29}) check_weight(m, 77, 1057, bits, 1057, true, false, dtype);
      for (int64_t m : {1, 6, 8, 20}) check_weight(m, 33, 1344, bits, 96, true, false, dtype);
      check_weight(16, 40, 600, bits, 600, false, true, dtype);
      check_weight(16, 40, 600, bits, 1, true, true, dtype);
    }
  }
}

// A token's row by bytes and by codes: groups that end within a visit of 16 or 32 rows, behind it, or nowhere; odd ones, where codes go two by two.
TEST(Quantised, OneRowByBytes) {
  for (const Numbers& kind : {Numbers{8}, Numbers{4, true}}) {
    for (int64_t n : {1, 33, 130, 300}) {
      for (int64_t group : {8, 12, 15, 16, 40, 480}) {
        for (bool shifted : {false, true}) check_weight(1, n, 480, kind, group, true, shifted, COIL_FLOAT32);
      }
      check_weight(1, n, 477, kind, 477, false, false, COIL_FLOAT32);
      check_weight(1, n, 480, kind, 480, false, true, COIL_FLOAT16);
      check_weight(1, n, 480, kind, 32, true, true, COIL_BFLOAT16);
    }
  }
}

// One row by 4-bit weights, the row's numbers being of very different sizes: `spread` powers of two within a block of 32, and every third block without. Each
// column is compared with what float32 allows, and columns with a single weight number by number.
void check_row(int64_t n, int64_t k, int64_t group, bool shifted, int dtype, int spread, int64_t apart = 1, const std::vector<int8_t>& codes = {}) {
  SCOPED_TRACE((codes.empty() ? "" : "codes, ") + std::to_string(n) + "x" + std::to_string(k) + " in groups of " + std::to_string(group) + ", " +
               std::to_string(spread) + " powers of two");
  std::mt19937 random(23);
  Buffer a(dtype, k * apart);
  a.fill(random);
  std::uniform_int_distribution<int> powers(-spread, 0);
  for (int64_t i = 0; i < k; i++) a.set(i * apart, std::ldexp(a.get(i * apart), i / 32 % 3 == 2 ? 0 : powers(random)) * (i % 17 == 5 ? 0 : 1));
  std::vector<int8_t> b = codes.empty() ? numbers(random, n * k, -8, 7) : numbers(random, n * k, 0, 15);
  for (int8_t& v : b) v = codes.empty() ? v : codes[static_cast<size_t>(v)];
  for (int64_t j = 0; j < n; j += 3) {  // [n][k]
    std::fill(b.begin() + j * k, b.begin() + (j + 1) * k, int8_t{0});
    b[static_cast<size_t>(j * k + j * 7 % k)] = codes.empty() ? int8_t{-7} : codes[3];
  }
  const int64_t groups = (k + group - 1) / group;
  std::uniform_real_distribution<float> scales(0.07f, 0.14f);
  std::vector<float> scale(static_cast<size_t>(groups * n)), zero(scale.size());
  for (float& s : scale) s = scales(random);
  for (float& z : zero) z = static_cast<float>(numbers(random, 1, -3, 3)[0]);
  const Table scale_table(scale, n, COIL_FLOAT16), zero_table(zero, n, COIL_FLOAT32);
  const auto packed = templates::pack_4bit_b(b.data(), k, n, 1, k, codes.empty() ? templates::with_8_added() : templates::place_in(codes));
  for (const IsaKernels& isa : runnable_kernels()) {
    for (int workers : {1, 3}) {
      Buffer c(COIL_FLOAT32, n);
      CoilGemm g = {};
      g.batch = 1, g.m = 1, g.n = n, g.k = k;
      g.a = a.data(), g.a_row = k * apart, g.a_col = apart;
      g.b = packed.data(), g.b_packed = 1, g.b_bits = 4, g.b_group = group;
      if (!codes.empty()) g.b_coded = 1, std::memcpy(g.b_codes, codes.data(), sizeof(g.b_codes));
      set_tables(g, &scale_table, shifted ? &zero_table : nullptr, true);
      g.dtype = dtype, g.c_row = n;
      Scratch scratch(coil_gemm_scratch_bytes(&g, workers));
      g.scratch = scratch.data();
      struct Tile {
        static void keep(const void* context, int64_t, int64_t row, int64_t col, int64_t rows, int64_t cols, float* tile, int64_t) {
          ASSERT_TRUE(row == 0 && rows == 1);
          Buffer& to = *static_cast<Buffer*>(const_cast<void*>(context));
          for (int64_t j = 0; j < cols; j++) to.set(col + j, tile[j]);
        }
      };
      g.epilogue = Tile::keep, g.epilogue_context = &c;
      isa.gemm(&g, TestHost(workers).get());
      ASSERT_TRUE(c.guards_intact() && scratch.guards_intact());
      for (int64_t j = 0; j < n; j++) {
        double sum = 0, size = 0;
        for (int64_t p = 0; p < k; p++) {
          const auto at = static_cast<size_t>(p / group * n + j);
          const double w = (b[static_cast<size_t>(j * k + p)] - (shifted ? zero_table.values[at] : 0.0f)) * scale_table.values[at];
          sum += w * a.get(p * apart);
          size += std::fabs(w * a.get(p * apart));
        }
        // A single number may be 2^-10 of the greatest one of its block, to 2^-24 of which it is rounded.
        ASSERT_NEAR(c.get(j), sum, size * (j % 3 == 0 ? 0x1p-13 : 2e-6)) << isa.name << " " << j;
      }
    }
  }
}

TEST(Quantised, ARowOfNumbersOfAllSizes) {
  for (int spread : {0, 3, 9, 30, 100}) {
    for (bool shifted : {false, true}) {
      check_row(70, 576, 32, shifted, COIL_FLOAT32, spread);
      check_row(33, 1120, 64, shifted, COIL_FLOAT32, spread);
      check_row(100, 1057, 1057, shifted, COIL_FLOAT32, spread);
      check_row(40, 300, 300, shifted, COIL_FLOAT32, spread, 3);
      check_row(40, 2080, 96, shifted, COIL_FLOAT32, spread);
    }
    check_row(65, 640, 128, false, COIL_BFLOAT16, spread);
    check_row(65, 640, 128, true, COIL_FLOAT16, std::min(spread, 9));
    check_row(1, 24000, 32, false, COIL_FLOAT32, spread);  // more than the scratch memory holds as digits
  }
}

// Groups of 16 (of which a block of 32 has two), or of three times as many; k that ends within a block, and within half of one.
TEST(Quantised, ARowBySmallGroups) {
  for (int spread : {0, 9, 30}) {
    for (bool shifted : {false, true}) {
      for (int64_t k : {576, 560, 572, 557, 1072}) check_row(70, k, 16, shifted, COIL_FLOAT32, spread);
      check_row(33, 1104, 48, shifted, COIL_FLOAT32, spread);
      check_row(40, 2064, 16, shifted, COIL_FLOAT32, spread, 3);
    }
    check_row(65, 640, 16, true, COIL_BFLOAT16, spread);
  }
}

// Codes: of MXFP4, with the least and greatest numbers that digits multiply, with larger ones, and with a larger range.
TEST(Quantised, ARowByCodes) {
  const std::vector<std::vector<int8_t>> lists = {{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12},
                                                  {-15, -13, -11, -9, -7, -5, -3, -1, 0, 2, 4, 6, 8, 10, 12, 15},
                                                  {-16, -13, -11, -9, -7, -5, -3, -1, 0, 2, 4, 6, 8, 10, 12, 14},
                                                  {0, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2},
                                                  {0, 43, 25, 8, -8, -25, -43, 1, 2, 3, 4, 5, 6, 7, 9, 10}};
  for (const std::vector<int8_t>& codes : lists) {
    for (int spread : {0, 9}) {
      for (bool shifted : {false, true}) {
        for (int64_t group : {16, 32, 48}) check_row(70, 576, group, shifted, COIL_FLOAT32, spread, 1, codes);
        check_row(100, 1057, 1057, shifted, COIL_FLOAT32, spread, 1, codes);
      }
      check_row(65, 572, 16, false, COIL_BFLOAT16, spread, 1, codes);
    }
  }
}

// What is infinite or NaN reaches the columns that multiply it by something as it does in a plain loop, and leaves the others of its row alone.
TEST(Quantised, ARowWithInfinities) {
  constexpr int64_t kColumns = 40, kDepth = 320;
  for (float odd : {INFINITY, -INFINITY, NAN, 3e38f, 1e-42f}) {
    Buffer a(COIL_FLOAT32, kDepth);
    for (int64_t i = 0; i < kDepth; i++) a.set(i, 1.0f + static_cast<float>(i % 5));
    a.set(70, odd);
    std::mt19937 random(3);
    std::vector<int8_t> b = numbers(random, kColumns * kDepth, -8, 7);
    for (int64_t j = 0; j < kColumns; j++) b[static_cast<size_t>(j * kDepth + 70)] = static_cast<int8_t>(j % 2 ? 3 : -8);
    const Table scale(std::vector<float>(static_cast<size_t>(kDepth / 32 * kColumns), 0.25f), kColumns, COIL_FLOAT16);
    const auto packed = templates::pack_4bit_b(b.data(), kDepth, kColumns, 1, kDepth);
    for (const IsaKernels& isa : runnable_kernels()) {
      Buffer c(COIL_FLOAT32, kColumns);
      CoilGemm g = {};
      g.batch = 1, g.m = 1, g.n = kColumns, g.k = kDepth;
      g.a = a.data(), g.a_row = kDepth, g.a_col = 1;
      g.b = packed.data(), g.b_packed = 1, g.b_bits = 4, g.b_group = 32;
      set_tables(g, &scale, nullptr, true);
      g.c = c.data(), g.c_row = kColumns, g.dtype = COIL_FLOAT32;
      Scratch scratch(coil_gemm_scratch_bytes(&g, 1));
      g.scratch = scratch.data();
      isa.gemm(&g, TestHost(1).get());
      for (int64_t j = 0; j < kColumns; j++) {
        double sum = 0;
        for (int64_t p = 0; p < kDepth; p++) sum += static_cast<double>(b[static_cast<size_t>(j * kDepth + p)]) * 0.25 * a.get(p);
        const double got = c.get(j);
        if (std::isnan(sum)) {
          ASSERT_TRUE(std::isnan(got)) << isa.name << " " << j;
        } else if (std::isinf(sum)) {
          ASSERT_EQ(got, sum) << isa.name << " " << j;
        } else if (std::fabs(sum) < 1e38) {
          ASSERT_NEAR(got, sum, 1e-3) << isa.name << " " << j;
        }
      }
    }
  }
}

struct ByteGroups {
  int64_t m, n, k;
  Numbers kind;
  int64_t group;
  bool scaled = true, shifted = false, columns = false;  // columns: A's rows lie side by side
};

void check_groups(const ByteGroups& c) {
  const auto& [m, n, k, kind, group, scaled, shifted, columns] = c;
  SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " of " + text(kind) + " in groups of " + std::to_string(group));
  std::mt19937 random(19);
  const int least = kind.coded ? -127 : kind.bits == 4 ? -8 : m % 2 == 0 ? -127 : -128;
  std::vector<int8_t> a = numbers(random, m * k, -128, 127), b = numbers_of(kind, random, n * k, least);
  if (m * k > 3 && n * k > 3) std::fill(a.begin(), a.begin() + 4, -128), std::fill(b.begin(), b.begin() + 4, static_cast<int8_t>(least));
  std::uniform_real_distribution<float> scales(0.01f, 0.02f), zeros(-3, 3);
  std::vector<float> scale(static_cast<size_t>((k + group - 1) / group * n)), zero(scale.size());
  for (float& s : scale) s = scales(random);
  for (float& z : zero) z = std::nearbyint(zeros(random) * 2) / 2;
  const int types[] = {COIL_FLOAT32, COIL_FLOAT16, COIL_BFLOAT16};
  const bool in_panels = (m + n + k) % 3 != 0;
  const Table scale_table(scale, n, in_panels ? types[(m + n) % 3] : COIL_FLOAT32), zero_table(zero, n, in_panels ? types[k % 3] : COIL_FLOAT32);
  scale = scale_table.values, zero = zero_table.values;
  CoilGemm given = {};
  const auto packed = packed_numbers(given, kind, b.data(), k, n, true);
  const int64_t a_row = columns ? 1 : k, a_col = columns ? m : 1;
  for (const IsaKernels& isa : runnable_kernels()) {
    for (int workers : {1, 3}) {
      Buffer out(COIL_FLOAT32, m * n);
      CoilGemm g = given;
      g.batch = 1, g.m = m, g.n = n, g.k = k;
      g.a = a.data(), g.a_row = a_row, g.a_col = a_col;
      g.b = packed.data(), g.b_group = group;
      set_tables(g, scaled ? &scale_table : nullptr, shifted ? &zero_table : nullptr, in_panels);
      g.c = out.data(), g.c_row = n;
      g.dtype = COIL_INT8;
      g.b_no_least = least > -128 && m % 3 != 0;
      isa.bytes(&g, TestHost(workers).get());
      ASSERT_TRUE(out.guards_intact());
      for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
          double sum = 0, size = 0;
          for (int64_t p = 0; p < k; p++) {
            const auto at = static_cast<size_t>(p / group * n + j);
            const double w = (b[static_cast<size_t>(j * k + p)] - (shifted ? zero[at] : 0.0f)) * (scaled ? scale[at] : 1.0f);
            const double x = a[static_cast<size_t>(i * a_row + p * a_col)];
            sum += w * x;
            size += std::fabs(w * x);
          }
          ASSERT_NEAR(out.get(i * n + j), sum, 1e-6 * size) << isa.name << " " << i << "," << j;
        }
      }
    }
  }
}

TEST(Quantised, ProductsOfBytesByGroups) {
  for (const Numbers& bits : kKinds) {
    for (int64_t m : {1, 2, 3, 4, 5, 7, 8, 9, 15, 33, 90, 200}) check_groups({m, 70, 96, bits, 32, true, m % 2 == 0});
    for (int64_t n : {1, 8, 15, 16, 17, 31, 32, 33, 64, 300}) check_groups({3, n, 128, bits, 64});
    for (int64_t k : {1, 2, 3, 5, 7, 33, 600, 1023}) check_groups({5, 40, k, bits, k, true, k % 2 == 1});
    for (int64_t group : {16, 20, 96, 480, 960}) check_groups({6, 45, 960, bits, group, true, true});
    check_groups({100, 40, 1920, bits, 640});   // a group is more than a chunk of that many rows
    check_groups({2, 33, 40000, bits, 40000});  // ... of these
    check_groups({1, 33, 65536, bits, 128});
    check_groups({4, 33, 64, bits, 32, false});
    check_groups({9, 33, 64, bits, 16, true, true, true});
    check_groups({0, 33, 64, bits, 16});
  }
}

}  // namespace
}  // namespace coil::testing
