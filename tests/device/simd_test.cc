// Memory access, conversions, integer arithmetic, masks and reductions of the device headers, against plain loops.
#include "device/simd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "device/math_pow.h"

namespace coil::device_test {
namespace {

using cd::kLanes;

template <class M>
M element(int i) {
  if constexpr (std::is_same_v<M, bool>) return i % 3 == 0;
  else if constexpr (std::is_same_v<M, cd::bf16>) return cd::to_bf16(static_cast<float>(i) * 1.25f - 7);
  else if constexpr (std::is_same_v<M, cd::f16>) return cd::to_f16(static_cast<float>(i) * 1.25f - 7);
  else return static_cast<M>(i * 7 - 20);
}

template <class M>
bool same(const M& a, const M& b) {
  return std::memcmp(&a, &b, sizeof(M)) == 0;
}

template <class T>
struct Memory : testing::Test {};
using MemoryTypes = testing::Types<float, double, cd::bf16, cd::f16, cd::i8, cd::i16, cd::i32, cd::i64, cd::u8, bool>;
TYPED_TEST_SUITE(Memory, MemoryTypes);

// Every tail length, in a buffer of exactly that size (sanitizers see a read beyond it), unaligned.
TYPED_TEST(Memory, contiguous_and_tails) {
  using M = TypeParam;
  for (int n = -1; n <= kLanes + 1; ++n) {
    const int count = std::clamp(n, 0, kLanes);
    std::vector<char> bytes(count * sizeof(M) + 1);
    M* p = reinterpret_cast<M*>(bytes.data() + 1);
    for (int i = 0; i < count; ++i) {
      const M e = element<M>(i);
      std::memcpy(static_cast<void*>(p + i), &e, sizeof(M));
    }
    const auto x = count == kLanes ? cd::load(p) : cd::load_tail(p, n);
    M all[kLanes];
    cd::store(all, x);
    for (int i = 0; i < kLanes; ++i) {
      const M zero{};
      const M e = element<M>(i);
      EXPECT_TRUE(same(all[i], i < count ? e : zero)) << "lane " << i << " of " << n;
    }
    M out[kLanes + 2];
    std::memset(static_cast<void*>(out), 1, sizeof out);
    M untouched = out[0];
    cd::store_tail(out, x, n);
    for (int i = 0; i < kLanes + 2; ++i) {
      const M e = element<M>(i);
      EXPECT_TRUE(same(out[i], i < count ? e : untouched)) << "lane " << i << " of " << n;
    }
  }
}

TYPED_TEST(Memory, lanes_that_count) {
  using M = TypeParam;
  M data[kLanes];
  for (int i = 0; i < kLanes; ++i) data[i] = element<M>(i);
  for (unsigned bits = 0; bits < (1u << kLanes); bits += kLanes == 8 ? 1 : 37) {
    cd::maskv counts = {};
    for (int i = 0; i < kLanes; ++i) counts[i] = bits >> i & 1 ? ~0u : 0;
    M got[kLanes];
    cd::store(got, cd::load_masked(data, counts));
    for (int i = 0; i < kLanes; ++i) EXPECT_TRUE(same(got[i], counts[i] ? data[i] : M{})) << bits << " lane " << i;
  }
  // Lanes that do not count may lie where there is no memory.
  cd::maskv none = {};
  M got[kLanes];
  cd::store(got, cd::load_masked((const M*)nullptr, none));
  EXPECT_TRUE(same(got[0], M{}));
}

TYPED_TEST(Memory, strided_and_indexed) {
  using M = TypeParam;
  constexpr int kSize = 200;
  M data[kSize];
  for (int i = 0; i < kSize; ++i) data[i] = element<M>(i % 30);
  for (const int stride : {0, 1, 3, -2}) {
    const M* base = data + 60;
    M got[kLanes], tail[kLanes];
    cd::store(got, cd::load_strided(base, stride));
    cd::store(tail, cd::load_strided_tail(base, stride, 3));
    const cd::i64v index = cd::iota() * (cd::i64)stride;
    M gathered[kLanes], gathered_tail[kLanes];
    cd::store(gathered, cd::gather(base, index));
    cd::store(gathered_tail, cd::gather_tail(base, index, 3));
    M narrow[kLanes], narrow_tail[kLanes];
    cd::store(narrow, cd::gather(base, cd::cast<cd::i32>(index)));
    cd::store(narrow_tail, cd::gather_tail(base, cd::cast<cd::i32>(index), 3));
    for (int i = 0; i < kLanes; ++i) EXPECT_TRUE(same(narrow[i], gathered[i]) && same(narrow_tail[i], gathered_tail[i]));
    for (int i = 0; i < kLanes; ++i) {
      const M zero{};
      EXPECT_TRUE(same(got[i], base[i * stride]));
      EXPECT_TRUE(same(gathered[i], base[i * stride]));
      EXPECT_TRUE(same(tail[i], i < 3 ? base[i * stride] : zero));
      EXPECT_TRUE(same(gathered_tail[i], i < 3 ? base[i * stride] : zero));
    }
    if (stride == 0) continue;
    M a[kSize], b[kSize];
    for (const int n : {0, 1, 5, kLanes}) {
      std::memset(static_cast<void*>(a), 1, sizeof a);
      std::memset(static_cast<void*>(b), 1, sizeof b);
      const auto x = cd::load(data);
      if (n == kLanes) cd::store_strided(a + 60, x, stride);
      else cd::store_strided_tail(a + 60, x, stride, n);
      for (int i = 0; i < n; ++i) b[60 + i * stride] = data[i];
      EXPECT_EQ(std::memcmp(a, b, sizeof a), 0) << stride << " " << n;
      std::memset(static_cast<void*>(a), 1, sizeof a);
      if (n == kLanes) cd::scatter(a + 60, index, x);
      else cd::scatter_tail(a + 60, index, x, n);
      EXPECT_EQ(std::memcmp(a, b, sizeof a), 0) << stride << " " << n;
    }
    EXPECT_TRUE(cd::load1(base + stride) == cd::gather(base, (cd::i64)stride));
  }
}

TYPED_TEST(Memory, streamed) {
  using M = TypeParam;
  M data[kLanes];
  for (int i = 0; i < kLanes; ++i) data[i] = element<M>(i);
  const size_t vector = sizeof(M) * kLanes;
  std::vector<char> bytes(4 * vector);
  char* const aligned = bytes.data() + (vector - reinterpret_cast<uintptr_t>(bytes.data()) % vector) % vector;
  for (const size_t offset : {size_t{0}, sizeof(M), vector}) {
    std::fill(bytes.begin(), bytes.end(), 1);
    cd::stream(reinterpret_cast<M*>(aligned + offset), cd::load(data));
    cd::end_streams();
    EXPECT_EQ(std::memcmp(aligned + offset, data, vector), 0) << offset;
    EXPECT_TRUE(std::all_of(bytes.data(), aligned + offset, [](char c) { return c == 1; }));
    EXPECT_TRUE(std::all_of(aligned + offset + vector, bytes.data() + bytes.size(), [](char c) { return c == 1; }));
  }
}

// Squares and parts of them, in a buffer of exactly the size that is read.
TYPED_TEST(Memory, turned) {
  using M = TypeParam;
  for (int rows = 1; rows <= kLanes; ++rows) {
    for (const int count : {1, 3, kLanes - 1, kLanes}) {
      for (const int stride : {count, count + 5}) {
        std::vector<char> bytes((static_cast<size_t>((rows - 1) * stride + count)) * sizeof(M) + 1);
        char* const from = bytes.data() + 1;
        for (int r = 0; r < rows; ++r) {
          for (int i = 0; i < count; ++i) {
            const M e = element<M>((r * 7 + i) % 30);
            std::memcpy(from + static_cast<size_t>(r * stride + i) * sizeof(M), &e, sizeof(M));
          }
        }
        M to[kLanes * kLanes];
        if (rows == kLanes && count == kLanes) cd::turn(reinterpret_cast<const M*>(from), stride, to);
        else cd::turn_part(reinterpret_cast<const M*>(from), stride, to, rows, count);
        for (int r = 0; r < rows; ++r) {
          for (int i = 0; i < count; ++i)
            EXPECT_TRUE(same(to[i * kLanes + r], element<M>((r * 7 + i) % 30))) << rows << " x " << count << ": " << r << ", " << i;
        }
      }
    }
  }
}

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

template <class T>
struct Integer : testing::Test {};
using IntegerTypes = testing::Types<cd::i8, cd::i16, cd::i32, cd::i64, cd::u8>;
TYPED_TEST_SUITE(Integer, IntegerTypes);

template <class E, class Fn, class Reference>
void check_binary(const char* name, const std::vector<E>& values, Fn fn, Reference reference) {
  for (const E a : values) {
    for (size_t at = 0; at < values.size(); at += kLanes) {
      const int count = static_cast<int>(std::min<size_t>(kLanes, values.size() - at));
      E out[kLanes];
      cd::store(out, fn(cd::vec(a), cd::load_tail(&values[at], count)));
      for (int i = 0; i < count; ++i) {
        const E b = values[at + i];
        const E want = static_cast<E>(reference(static_cast<__int128>(a), static_cast<__int128>(b)));
        ASSERT_EQ(+out[i], +want) << name << " " << +a << " " << +b;
        ASSERT_EQ(+static_cast<E>(fn(a, b)), +want) << "scalar " << name << " " << +a << " " << +b;
      }
    }
  }
}

TYPED_TEST(Integer, arithmetic_wraps_and_never_traps) {
  using E = TypeParam;
  using Wide = __int128;
  std::vector<E> values = {0,
                           1,
                           2,
                           3,
                           5,
                           7,
                           8,
                           31,
                           63,
                           64,
                           100,
                           std::numeric_limits<E>::min(),
                           std::numeric_limits<E>::max(),
                           static_cast<E>(-1),
                           static_cast<E>(-2),
                           static_cast<E>(-7),
                           static_cast<E>(-100)};
  std::mt19937_64 random(3);
  for (int i = 0; i < 40; ++i) values.push_back(static_cast<E>(random() >> (random() % 60)));
  const int bits = 8 * sizeof(E);
  const auto floor_div = [](Wide a, Wide b) -> Wide {
    if (b == 0) return 0;
    const Wide q = a / b;
    return a % b != 0 && (a % b < 0) != (b < 0) ? q - 1 : q;
  };
  // In the type itself, as ATen: its least value has no absolute value.
  const auto divisor = [](Wide first, Wide second) -> Wide {
    const auto size = [](Wide v) { return static_cast<Wide>(static_cast<E>(v < 0 ? -v : v)); };
    Wide a = size(first), b = size(second);
    while (a != 0) {
      const Wide rest = b % a;
      b = a, a = rest;
    }
    return b;
  };
#define CHECK_BINARY(name, ...) \
  check_binary<E>(#name, values, [](auto a, auto b) { return cd::name(a, b); }, [=](Wide a, Wide b) -> Wide { return __VA_ARGS__; })
  CHECK_BINARY(add, a + b);
  CHECK_BINARY(sub, a - b);
  CHECK_BINARY(mul, static_cast<Wide>(static_cast<E>(a)) * static_cast<E>(b));
  CHECK_BINARY(minimum, a < b ? a : b);
  CHECK_BINARY(maximum, a > b ? a : b);
  CHECK_BINARY(trunc_div, b == 0 ? 0 : a / b);
  CHECK_BINARY(fmod, b == 0 ? 0 : a % b);
  CHECK_BINARY(floor_div, floor_div(a, b));
  CHECK_BINARY(remainder, b == 0 ? 0 : a - b * floor_div(a, b));
  CHECK_BINARY(gcd, divisor(a, b));
  CHECK_BINARY(bit_and, a & b);
  CHECK_BINARY(bit_or, a | b);
  CHECK_BINARY(bit_xor, a ^ b);
  CHECK_BINARY(shl, b < 0 || b >= bits ? 0 : static_cast<Wide>(static_cast<unsigned __int128>(a) << static_cast<int>(b)));
  CHECK_BINARY(shr, b < 0 || b >= bits ? (a < 0 ? -1 : 0) : a >> static_cast<int>(b));
  const auto power = [](Wide a, Wide b) -> Wide {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    E result = 1;
    for (E base = static_cast<E>(a); b; b >>= 1, base = static_cast<E>(static_cast<Wide>(base) * base)) {
      if (b & 1) result = static_cast<E>(static_cast<Wide>(result) * base);
    }
    return result;
  };
  CHECK_BINARY(pow, power(a, b));
#undef CHECK_BINARY
  for (const E a : values) {
    EXPECT_EQ(cd::neg(a), static_cast<E>(-static_cast<Wide>(a)));
    EXPECT_EQ(cd::abs(cd::vec(a))[1], static_cast<E>(a < 0 ? -static_cast<Wide>(a) : a));
    EXPECT_EQ(cd::sign(cd::vec(a))[0], (a > 0) - (a < 0));
    EXPECT_EQ(cd::bit_not(a), static_cast<E>(~a));
  }
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
