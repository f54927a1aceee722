// Element types: names, numbers, promotion.
#include "ops/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

#include "ops/scalar_ops.h"

namespace coil {
namespace {

constexpr const char* kNames[] = {"bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"};

// torch.promote_types of PyTorch 2.15, rows and columns as above.
constexpr const char* kPromotions[] = {
    "bool u8 i8 i16 i32 i64 f16 bf16 f32 f64",  "u8 u8 i16 i16 i32 i64 f16 bf16 f32 f64",         "i8 i16 i8 i16 i32 i64 f16 bf16 f32 f64",
    "i16 i16 i16 i16 i32 i64 f16 bf16 f32 f64", "i32 i32 i32 i32 i32 i64 f16 bf16 f32 f64",       "i64 i64 i64 i64 i64 i64 f16 bf16 f32 f64",
    "f16 f16 f16 f16 f16 f16 f16 f32 f32 f64",  "bf16 bf16 bf16 bf16 bf16 bf16 f32 bf16 f32 f64", "f32 f32 f32 f32 f32 f32 f32 f32 f32 f64",
    "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64",
};

TEST(DType, PromotionIsPyTorchs) {
  for (size_t row = 0; row < std::size(kNames); ++row) {
    std::istringstream words(kPromotions[row]);
    for (const char* column : kNames) {
      std::string expected;
      words >> expected;
      EXPECT_EQ(name(promote(*dtype_from_name(kNames[row]), *dtype_from_name(column))), expected) << kNames[row] << ", " << column;
    }
  }
}

TEST(DType, TheTableIsInOrderOfTheEnum) {
  std::set<int> shim, exported;
  for (int k = 0; k <= static_cast<int>(DType::index); ++k) {
    const DTypeInfo& row = info(static_cast<DType>(k));
    EXPECT_EQ(static_cast<int>(row.dtype), k);
    EXPECT_EQ(dtype_from_name(row.name), row.dtype);
    EXPECT_EQ(dtype_from_name(row.torch_name), row.dtype);
    if (row.dtype == DType::index) continue;
    EXPECT_TRUE(shim.insert(row.shim_number).second);
    EXPECT_TRUE(exported.insert(row.export_number).second);
    EXPECT_EQ(dtype_from_export_number(row.export_number), row.dtype);
  }
  EXPECT_FALSE(dtype_from_name("quint8"));
  EXPECT_FALSE(dtype_from_export_number(99));
}

TEST(DType, Kinds) {
  EXPECT_EQ(compute_type(DType::bf16), DType::f32);
  EXPECT_EQ(compute_type(DType::f16), DType::f32);
  EXPECT_EQ(compute_type(DType::f64), DType::f64);
  EXPECT_EQ(compute_type(DType::i8), DType::i8);
  EXPECT_TRUE(is_int(DType::index) && is_int(DType::u8) && !is_int(DType::boolean) && !is_int(DType::f16));
  EXPECT_EQ(byte_size(DType::bf16), 2);
  for (DType d : {DType::f8e4m3fn, DType::f8e5m2, DType::f8e4m3fnuz, DType::f8e5m2fnuz, DType::f8e8m0fnu}) {
    EXPECT_TRUE(is_float8(d) && !is_float(d) && !is_int(d) && !is_complex(d)) << name(d);
    EXPECT_EQ(part_type(d), DType::u8);
    EXPECT_EQ(compute_type(d), DType::u8);
  }
}

// torch.promote_types of complex32 with others.
TEST(DType, ComplexNumbersOfHalvesArePromoted) {
  for (const auto& [other, expected] : {std::pair{DType::boolean, DType::c32},
                                        {DType::i64, DType::c32},
                                        {DType::f16, DType::c32},
                                        {DType::bf16, DType::c64},
                                        {DType::f32, DType::c64},
                                        {DType::f64, DType::c128},
                                        {DType::c64, DType::c64},
                                        {DType::c128, DType::c128},
                                        {DType::c32, DType::c32}}) {
    EXPECT_EQ(promote(DType::c32, other), expected) << name(other);
    EXPECT_EQ(promote(other, DType::c32), expected) << name(other);
  }
  EXPECT_EQ(part_type(DType::c32), DType::f16);
  EXPECT_EQ(compute_type(DType::c32), DType::f32);
  EXPECT_EQ(complex_type(DType::f16), DType::c32);
}

TEST(DType, WideUnsignedNumbersLieInSignedOnesOfTheirSize) {
  for (const auto& [type, part] : {std::pair{DType::u16, DType::i16}, {DType::u32, DType::i32}, {DType::u64, DType::i64}}) {
    EXPECT_TRUE(is_wide_unsigned(type) && is_int(type) && !is_float8(type));
    EXPECT_EQ(part_type(type), part);
    EXPECT_EQ(compute_type(type), part);
    EXPECT_EQ(byte_size(type), byte_size(part));
  }
}

TEST(ScalarOps, NamesFindTheirRows) {
  for (size_t k = 0; k < kScalarOps.size(); ++k) {
    EXPECT_EQ(scalar_op_from_name(kScalarOps[k].name), static_cast<ScalarOp>(k));
    EXPECT_GE(kScalarOps[k].cost, 0);
  }
  EXPECT_FALSE(scalar_op_from_name("no_such_op"));
  EXPECT_TRUE(is_index_op(ScalarOp::iadd) && is_index_op(ScalarOp::imax) && !is_index_op(ScalarOp::cast));
}

}  // namespace
}  // namespace coil
