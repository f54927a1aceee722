// Whether scaled numbers of a weight are float16's: what shift is asked for, and that it keeps both ends of the range.
#include "codegen/cuda/templates/f16_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "ops/memory.h"

namespace coil::cuda {
namespace {

class Table {
 public:
  Table(DType type, const std::vector<double>& values) {
    for (const double v : values) add(type, v);
    data.dtype = type, data.bytes = bytes_;
    data.sizes = {static_cast<int64_t>(values.size())}, data.strides = {1};
  }
  TensorData data;

 private:
  void add(DType type, double v) {
    const auto value = static_cast<float>(v);
    if (type == DType::f32) append(value);
    if (type == DType::f16) append(interpreter::Half::from(value));
    if (type == DType::bf16) append(interpreter::Bf16::from(value));
  }
  template <class T>
  void append(const T& x) {
    bytes_.resize(bytes_.size() + sizeof(T));
    std::memcpy(bytes_.data() + bytes_.size() - sizeof(T), &x, sizeof(T));
  }
  std::vector<uint8_t> bytes_;
};

std::optional<int> shift(int64_t bits, const Table& scale, const Table* zero = nullptr) {
  return f16_shift(bits, scale.data, scale.data.sizes[0], zero ? &zero->data : nullptr, zero ? zero->data.sizes[0] : 0);
}

TEST(F16Range, MagnitudesOfEachType) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const auto found = magnitudes(Table(type, {0.5, -4, 0, 0.25, -0.0}).data, 5);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->least, 0.25);
    EXPECT_EQ(found->greatest, 4);
    EXPECT_EQ(magnitudes(Table(type, {0, -0.0}).data, 2)->greatest, 0);
    EXPECT_FALSE(magnitudes(Table(type, {1, std::numeric_limits<double>::infinity()}).data, 2).has_value());
    EXPECT_FALSE(magnitudes(Table(type, {1, std::nan("")}).data, 2).has_value());
    EXPECT_FALSE(magnitudes(Table(type, {1, 2}).data, 3).has_value()) << "another number of elements";
  }
  EXPECT_EQ(magnitudes(Table(DType::f16, {std::ldexp(3, -24)}).data, 1)->least, std::ldexp(3, -24));
}

TEST(F16Range, UsualScalesStayAsTheyAre) {
  EXPECT_EQ(shift(4, Table(DType::bf16, {0.01, 0.002, -0.3})), 0);
  EXPECT_EQ(shift(8, Table(DType::f32, {0.01, 0.0002, 0})), 0);
  EXPECT_EQ(shift(4, Table(DType::f16, {std::ldexp(1, -20), 1})), 0) << "whole numbers times float16's are float16's";
  EXPECT_EQ(shift(4, Table(DType::f32, {0, 0})), 0);
}

TEST(F16Range, OthersAreShifted) {
  EXPECT_EQ(shift(8, Table(DType::f32, {1e-6, 2e-6})).value_or(0) > 0, true);
  EXPECT_EQ(shift(8, Table(DType::f32, {1e6, 2e6})).value_or(0) < 0, true);
  EXPECT_FALSE(shift(8, Table(DType::f32, {1e-6, 1e6})).has_value());
  EXPECT_FALSE(shift(4, Table(DType::f32, {1e-30})).has_value());
  const Table zero(DType::f32, {40000});
  EXPECT_FALSE(shift(4, Table(DType::f32, {1}), &zero).has_value());
}

// All products of a number, less a zero point, and a scale are finite, and none is below float16's normal numbers unless a scale is 0.
TEST(F16Range, ShiftedProductsAreFloat16s) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-30, 30), spread(0, 24), mantissa(1, 2);
  int taken = 0;
  for (int round = 0; round < 2000; ++round) {
    const double middle = exponent(random), width = spread(random);
    std::vector<double> values;
    for (int i = 0; i < 5; ++i) values.push_back(std::ldexp(mantissa(random), static_cast<int>(middle + width * (i / 4.0 - 0.5))));
    const int64_t bits = round % 2 ? 4 : 8;
    const Table scale(DType::f32, values), zero(DType::f32, {mantissa(random) * static_cast<double>(bits)});
    const auto found = shift(bits, scale, round % 3 ? &zero : nullptr);
    if (!found) continue;
    ++taken;
    const auto range = magnitudes(scale.data, 5);
    EXPECT_GE(std::ldexp(range->least, *found), std::ldexp(1, -14));
    const double most = std::ldexp(1, static_cast<int>(bits) - 1) + (round % 3 ? magnitudes(zero.data, 1)->greatest : 0);
    EXPECT_LE(std::ldexp(range->greatest * most, *found), 65504);
  }
  EXPECT_GT(taken, 500);
}

}  // namespace
}  // namespace coil::cuda
