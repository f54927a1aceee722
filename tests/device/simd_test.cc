// Conversions, floating-point arithmetic, masks and reductions of the device headers, against plain loops.
#include "device/simd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace coil::device_test {
namespace {

using cd::kLanes;

TEST(Convert, bf16_and_f16_match_rounding_of_all_floats) {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    float x;
    const uint32_t b = static_cast<uint32_t>(bits);
    std::memcpy(&x, &b, 4);
    values.push_back(x);
  }
  for (size_t at = 0; at + kLanes <= values.size(); at += kLanes) {
    cd::bf16 brain[kLanes];
    cd::f16 half[kLanes];
    cd::store(brain, cd::load(&values[at]));
    cd::store(half, cd::load(&values[at]));
    for (int i = 0; i < kLanes; ++i) {
      const float x = values[at + i];
      const _Float16 want_half = static_cast<_Float16>(x);
      _Float16 got_half;
      std::memcpy(&got_half, &half[i], 2);
      if (x != x) {
        EXPECT_TRUE(got_half != got_half);
        EXPECT_TRUE(std::isnan(cd::load1(&brain[i])));
        continue;
      }
      ASSERT_EQ(static_cast<float>(got_half), static_cast<float>(want_half)) << x;
      // The nearer of the two neighbours; the even one of two equally near.
      uint32_t bits;
      std::memcpy(&bits, &x, 4);
      const uint32_t rest = bits & 0xffff, low = bits >> 16;
      const uint32_t want = rest > 0x8000 || (rest == 0x8000 && (low & 1)) ? low + 1 : low;
      ASSERT_EQ(brain[i].bits, want) << x;
      ASSERT_EQ(cd::to_bf16(x).bits, want);
      ASSERT_EQ(cd::to_f16(x).bits, half[i].bits);
    }
  }
}

template <class To, class From>
void check_cast(From x, To want) {
  const To scalar = cd::cast<To>(x);
  EXPECT_EQ(scalar, want) << +x;
  To lanes[kLanes];
  cd::store(lanes, cd::cast<To>(cd::vec(x)));
  EXPECT_EQ(lanes[kLanes - 1], want) << +x;
}

TEST(Convert, casts_as_aten_on_x86) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  check_cast<cd::i32>(-1.9f, -1);
  check_cast<cd::i32>(3e9f, INT32_MIN);
  check_cast<cd::i32>(nan, INT32_MIN);
  check_cast<cd::i32>(-inf, INT32_MIN);
  check_cast<cd::i64>(3e9f, cd::i64{3000000000});
  check_cast<cd::i64>(1e20f, cd::i64{INT64_MIN});
  check_cast<cd::i64>(nan, cd::i64{INT64_MIN});
  check_cast<cd::i64>(-2.5, cd::i64{-2});
  check_cast<cd::i64>(1e300, cd::i64{INT64_MIN});
  check_cast<cd::i32>(2147483647.5, INT32_MAX);
  check_cast<cd::i8>(300.0f, cd::i8{44});
  check_cast<cd::u8>(-1.0f, cd::u8{255});
  check_cast<cd::i16>(nan, cd::i16{0});
  check_cast<cd::i8>(cd::i64{0x1ff}, cd::i8{-1});
  check_cast<float>(cd::i64{16777217}, 16777216.0f);
  check_cast<double>(cd::i64{-5}, -5.0);
  check_cast<float>(cd::u8{255}, 255.0f);
  check_cast<float>(true, 1.0f);
  check_cast<cd::i64>(true, cd::i64{1});
  check_cast<cd::u8>(false, cd::u8{0});
  check_cast<bool>(nan, true);
  check_cast<bool>(-0.0f, false);
  check_cast<bool>(cd::i8{4}, true);
  check_cast<bool>(0.5f, true);
  EXPECT_EQ(cd::cast<cd::bf16>(1.00390625f), 1.0f);
  EXPECT_EQ(cd::cast<cd::f16>(cd::vec(65520.0f))[0], inf);
}

TEST(Float, floor_div_as_python) {
  const float values[] = {0, -0.0f, 1, -1, 0.1f, 3, -7.5f, 1e30f, 2.5f, 1e-3f};
  for (const float a : values) {
    for (const float b : values) {
      const float got = cd::floor_div(cd::vec(a), cd::vec(b))[2];
      if (b == 0) {
        EXPECT_TRUE(got != got ? a == 0 : std::isinf(got));
      } else {
        const double m = std::fmod(static_cast<double>(a), b), exact = (a - m) / b - (m != 0 && (m < 0) != (b < 0));
        EXPECT_EQ(got, static_cast<float>(std::round(exact))) << a << " " << b;
      }
    }
  }
}

TEST(Float, rounding_and_signs) {
  EXPECT_EQ(cd::round(cd::vec(2.5f))[0], 2.0f);
  EXPECT_EQ(cd::round(-1.5), -2.0);
  EXPECT_EQ(cd::floor(-1.5f), -2.0f);
  EXPECT_EQ(cd::ceil(-1.5f), -1.0f);
  EXPECT_EQ(cd::trunc(-1.5f), -1.0f);
  EXPECT_EQ(cd::frac(-1.5f), -0.5f);
  EXPECT_EQ(cd::sign(std::nanf("")), 0.0f);
  EXPECT_EQ(cd::sign(cd::vec(-3.0))[0], -1.0);
  EXPECT_TRUE(std::isnan(cd::clamp(cd::vec(std::nanf("")), cd::vec(0.0f), cd::vec(1.0f))[0]));
  EXPECT_TRUE(std::isnan(cd::relu(std::nanf(""))));
  EXPECT_TRUE(cd::isinf(-INFINITY));
  EXPECT_TRUE(cd::hall(cd::isnan(cd::vec(std::nan("")))));
}

TEST(Mask, select_compare_and_memory) {
  const cd::f32v x = __builtin_convertvector(cd::iota(), cd::f32v);
  const cd::maskv m = cd::lt(x, cd::vec(3.0f));
  bool stored[kLanes];
  cd::store(stored, m);
  for (int i = 0; i < kLanes; ++i) EXPECT_EQ(stored[i], i < 3);
  EXPECT_EQ(cd::hsum(cd::select(m, cd::vec((cd::i64)2), cd::vec((cd::i64)0))), 6);
  EXPECT_EQ(cd::hsum(cd::select(cd::tail(5), cd::vec((cd::i8)2), cd::vec((cd::i8)0))), 10);
  EXPECT_TRUE(cd::hany(m));
  EXPECT_FALSE(cd::hall(m));
  EXPECT_TRUE(cd::hall(cd::logical_or(m, cd::logical_not(m))));
  EXPECT_FALSE(cd::hany(cd::logical_and(m, cd::logical_not(m))));
  EXPECT_FALSE(cd::hany(cd::eq(m, cd::logical_xor(m, cd::vec(true)))));
  EXPECT_EQ(cd::hsum(cd::cast<float>(m)), 3.0f);
  EXPECT_EQ(cd::hsum(cd::cast<double>(cd::lt(cd::cast<double>(x), cd::vec(2.0)))), 2.0);
}

TEST(Reduce, values_and_first_index) {
  float x[kLanes];
  for (int i = 0; i < kLanes; ++i) x[i] = static_cast<float>((i * 5) % 7);
  double sum = 0;
  for (const float v : x) sum += v;
  EXPECT_EQ(cd::hsum(cd::load(x)), static_cast<float>(sum));
  EXPECT_EQ(cd::hmax(cd::load(x)), 6.0f);
  EXPECT_EQ(cd::hmin(cd::load(x)), 0.0f);
  EXPECT_EQ(cd::hprod(cd::vec(2.0)), std::pow(2.0, kLanes));
  EXPECT_EQ(cd::hargmax(cd::load(x), cd::iota()), 4);  // 4 * 5 % 7 is 6
  EXPECT_EQ(cd::hargmin(cd::load(x), cd::iota() + 10l), 10);
  x[6] = x[5] = std::nanf("");
  EXPECT_EQ(cd::hargmax(cd::load(x), cd::iota()), 5);
  EXPECT_EQ(cd::hargmin(cd::load(x), cd::iota()), 5);
  EXPECT_TRUE(std::isnan(cd::hmax(cd::load(x))));
  EXPECT_TRUE(std::isnan(cd::hmin(cd::load(x))));
  EXPECT_EQ(cd::hargmax(cd::vec((cd::i32)3), cd::iota()), 0);
}

}  // namespace
}  // namespace coil::device_test
