// device/sort.h against the standard library's stable sort, and its first elements against the whole.
#include "device/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

namespace coil::device_test {
namespace {

double value_of(float x) { return x; }
double value_of(double x) { return x; }
double value_of(cd::bf16 x) { return cd::to_f32(x); }
double value_of(cd::f16 x) { return cd::to_f32(x); }
template <class T>
double value_of(T x) {
  return static_cast<double>(x);
}

template <class T>
T make(std::mt19937& random) {
  const int r = static_cast<int>(random() % 41) - 20;  // few values: many ties
  const float f = r == 20                  ? std::numeric_limits<float>::quiet_NaN()
                  : r == -20               ? -std::numeric_limits<float>::infinity()
                  : r == 0 && random() % 2 ? -0.0f
                                           : static_cast<float>(r) / 4;
  if constexpr (std::is_same_v<T, cd::bf16>) return cd::to_bf16(f);
  else if constexpr (std::is_same_v<T, cd::f16>) return cd::to_f16(f);
  else if constexpr (std::is_floating_point_v<T>) return f;
  else if constexpr (std::is_same_v<T, bool>) return r > 0;
  else return static_cast<T>(r);
}

// Any bits: all bytes count, NaNs have payloads.
template <class T>
T make_any(std::mt19937& random) {
  if constexpr (std::is_same_v<T, bool>) return random() % 2;
  const uint64_t bits = uint64_t{random()} << 32 | random();
  T x;
  std::memcpy(static_cast<void*>(&x), &bits, sizeof(T));
  return x;
}

template <class T>
struct SortTest : testing::Test {};
using Types = testing::Types<float, double, cd::bf16, cd::f16, cd::i8, cd::i16, cd::i32, cd::i64, cd::u8, bool>;
TYPED_TEST_SUITE(SortTest, Types);

TYPED_TEST(SortTest, equals_std_stable_sort) {
  using T = TypeParam;
  std::mt19937 random(7);
  for (cd::i64 n : {0, 1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 95, 96, 100, 192, 257, 1000, 3001}) {
    for (bool descending : {false, true}) {
      const bool any = n % 2;
      const size_t size = static_cast<size_t>(n);
      std::unique_ptr<T[]> v(new T[size]), original(new T[size]), tmp(new T[size]);
      std::vector<cd::i64> o(size), tmp_o(size), expected(size);
      for (size_t i = 0; i < size; ++i) v[i] = original[i] = any ? make_any<T>(random) : make<T>(random);
      std::iota(o.begin(), o.end(), 0);
      expected = o;
      auto less = [&](cd::i64 a, cd::i64 b) {
        const T x = original[static_cast<size_t>(a)], y = original[static_cast<size_t>(b)];
        if constexpr (std::is_integral_v<T>) return x < y;  // 64 bits are more than a double has
        else return std::isnan(value_of(y)) ? !std::isnan(value_of(x)) : value_of(x) < value_of(y);
      };
      std::sort(expected.begin(), expected.end(), [&](cd::i64 a, cd::i64 b) {
        const bool before = descending ? less(b, a) : less(a, b), after = descending ? less(a, b) : less(b, a);
        return before || (!after && a < b);  // ties keep their order
      });
      cd::stable_sort(v.get(), o.data(), tmp.get(), tmp_o.data(), n, descending);
      EXPECT_EQ(o, expected) << n << " elements, descending " << descending;
      for (size_t i = 0; i < size; ++i) {
        EXPECT_EQ(0, std::memcmp(&v[i], &original[static_cast<size_t>(expected[i])], sizeof(T))) << i << " of " << n;
      }
    }
  }
}

TYPED_TEST(SortTest, the_first_are_those_of_the_whole_order) {
  using T = TypeParam;
  std::mt19937 random(9);
  for (cd::i64 n : {0, 1, 40, 255, 256, 257, 1000, 5003}) {
    for (cd::i64 kept : {0, 1, 2, 31, 50, 120, 700}) {
      for (int kind = 0; kind < 6 && kept <= n; ++kind) {  // as they come, ascending, falling; both orders
        const bool descending = kind % 2;
        const size_t size = static_cast<size_t>(n), some = static_cast<size_t>(kept);
        std::unique_ptr<T[]> v(new T[size]), whole(new T[size]), tmp(new T[size]);
        std::vector<cd::i64> o(size), order(size), tmp_o(size);
        for (size_t i = 0; i < size; ++i) v[i] = make<T>(random);
        if (kind >= 2) cd::stable_sort(v.get(), o.data(), tmp.get(), tmp_o.data(), n, kind >= 4);
        std::memcpy(static_cast<void*>(whole.get()), v.get(), size * sizeof(T));
        std::iota(o.begin(), o.end(), 0);
        order = o;
        cd::stable_sort(whole.get(), order.data(), tmp.get(), tmp_o.data(), n, descending);
        cd::sort_first(v.get(), o.data(), tmp.get(), tmp_o.data(), n, kept, descending);
        EXPECT_TRUE(std::equal(o.begin(), o.begin() + kept, order.begin())) << kept << " of " << n << ", kind " << kind;
        EXPECT_EQ(0, std::memcmp(v.get(), whole.get(), some * sizeof(T))) << kept << " of " << n << ", kind " << kind;
      }
    }
  }
}

}  // namespace
}  // namespace coil::device_test
