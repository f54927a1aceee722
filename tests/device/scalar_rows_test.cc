// Every row of scalar_ops.def against its function for the CPU: for scalars, and for vectors the bits of the scalars.
#include "device/math_all.h"
#include "tests/device/scalar_rows_check.h"

#include <gtest/gtest.h>

#include <string_view>

namespace coil::device_test {
namespace {

template <class T>
struct ScalarRows : testing::Test {};
using RowTypes = testing::Types<float, double, cd::i8, cd::u8, cd::i16, cd::i32, cd::i64>;
TYPED_TEST_SUITE(ScalarRows, RowTypes);

TYPED_TEST(ScalarRows, scalars) { EXPECT_EQ(wrong_scalars<TypeParam>(typeid(TypeParam).name()), 0); }

// Out of line, and for all rows the same: an assertion for each row and type took the compiler a minute.
__attribute__((noinline)) void report(std::string_view name, double a, double b, double c, double got, double want) {
  ADD_FAILURE() << name << "(" << a << ", " << b << ", " << c << ") of a vector: " << got << ", of a scalar: " << want;
}

TYPED_TEST(ScalarRows, vectors_are_scalars) {
  using T = TypeParam;
  const std::vector<T> values = row_values<T>();
  const auto value = [&](size_t k) { return values[k % values.size()]; };
  for_each_function<T>([&](auto row, auto function) __attribute__((noinline)) {  // one function for all rows takes the compiler long
    using Row = decltype(row);
    if constexpr (info(Row::kOp).result == ResultRule::boolean || Row::kError == "logic") return;  // masks: simd_test.cc
    else {
      for (size_t first = 0; first < values.size() * values.size(); first += cd::kLanes) {
        T a[cd::kLanes], b[cd::kLanes], c[cd::kLanes], got[cd::kLanes];
        for (size_t i = 0; i < cd::kLanes; ++i) a[i] = value(first + i), b[i] = value((first + i) / values.size()), c[i] = value(i + 5);
        cd::store(got, function(cd::load(a), cd::load(b), cd::load(c)));
        for (size_t i = 0; i < cd::kLanes; ++i) {
          const T want = function(a[i], b[i], c[i]);
          if (!row_agrees<Row>(got[i], want)) {
            report(info(Row::kOp).name, static_cast<double>(a[i]), static_cast<double>(b[i]), static_cast<double>(c[i]), static_cast<double>(got[i]),
                   static_cast<double>(want));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace coil::device_test
