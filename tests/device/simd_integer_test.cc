// Integer arithmetic of the device headers, against numbers of 128 bits.
#include "device/simd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "device/math_pow.h"

namespace coil::device_test {
namespace {

using cd::kLanes;

template <class T>
struct Integer : testing::Test {};
using IntegerTypes = testing::Types<cd::i8, cd::i16, cd::i32, cd::i64, cd::u8>;
TYPED_TEST_SUITE(Integer, IntegerTypes);

// Out of line, and for all types the same: assertions inside of loops over lanes took the compiler most of a minute.
__attribute__((noinline)) void expect_result(const char* name, int64_t a, int64_t b, int64_t lane, int64_t scalar, int64_t want) {
  EXPECT_EQ(lane, want) << name << " " << a << " " << b;
  EXPECT_EQ(scalar, want) << "scalar " << name << " " << a << " " << b;
}

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
        expect_result(name, a, b, out[i], static_cast<E>(fn(a, b)), want);
      }
    }
  }
}

using Wide = __int128;

// The ends of the type, small numbers, and others of all lengths.
template <class E>
std::vector<E> values_of() {
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
  return values;
}

// As device functions and their meaning in numbers of any length.
#define CHECK_BINARY(name, ...) \
  check_binary<E>(#name, values, [](auto a, auto b) { return cd::name(a, b); }, [=](Wide a, Wide b) -> Wide { return __VA_ARGS__; })

TYPED_TEST(Integer, sums_and_products_wrap) {
  using E = TypeParam;
  const std::vector<E> values = values_of<E>();
  CHECK_BINARY(add, a + b);
  CHECK_BINARY(sub, a - b);
  CHECK_BINARY(mul, static_cast<Wide>(static_cast<E>(a)) * static_cast<E>(b));
  CHECK_BINARY(minimum, a < b ? a : b);
  CHECK_BINARY(maximum, a > b ? a : b);
  for (const E a : values) {
    EXPECT_EQ(cd::neg(a), static_cast<E>(-static_cast<Wide>(a)));
    EXPECT_EQ(cd::abs(cd::vec(a))[1], static_cast<E>(a < 0 ? -static_cast<Wide>(a) : a));
    EXPECT_EQ(cd::sign(cd::vec(a))[0], (a > 0) - (a < 0));
    EXPECT_EQ(cd::bit_not(a), static_cast<E>(~a));
  }
}

TYPED_TEST(Integer, quotients_never_trap) {
  using E = TypeParam;
  const std::vector<E> values = values_of<E>();
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
  CHECK_BINARY(trunc_div, b == 0 ? 0 : a / b);
  CHECK_BINARY(fmod, b == 0 ? 0 : a % b);
  CHECK_BINARY(floor_div, floor_div(a, b));
  CHECK_BINARY(remainder, b == 0 ? 0 : a - b * floor_div(a, b));
  CHECK_BINARY(gcd, divisor(a, b));
}

TYPED_TEST(Integer, bits_and_powers) {
  using E = TypeParam;
  const std::vector<E> values = values_of<E>();
  const int bits = 8 * sizeof(E);
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
}
#undef CHECK_BINARY

}  // namespace
}  // namespace coil::device_test
