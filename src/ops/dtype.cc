#include "ops/dtype.h"

namespace coil {
namespace {

constexpr DTypeInfo kTypes[] = {
    {DType::boolean, "bool", "bool", "cd::b8", 1, 11, 12},
    {DType::u8, "u8", "uint8", "uint8_t", 1, 0, 1},
    {DType::i8, "i8", "int8", "int8_t", 1, 1, 2},
    {DType::i16, "i16", "int16", "int16_t", 2, 2, 3},
    {DType::i32, "i32", "int32", "int32_t", 4, 3, 4},
    {DType::i64, "i64", "int64", "int64_t", 8, 4, 5},
    {DType::f16, "f16", "float16", "cd::f16", 2, 5, 6},
    {DType::bf16, "bf16", "bfloat16", "cd::bf16", 2, 15, 13},
    {DType::f32, "f32", "float32", "float", 4, 6, 7},
    {DType::f64, "f64", "float64", "double", 8, 7, 8},
    {DType::c64, "c64", "complex64", "float", 8, 9, 10},
    {DType::c128, "c128", "complex128", "double", 16, 10, 11},
    {DType::f8e4m3fn, "f8e4m3fn", "float8_e4m3fn", "uint8_t", 1, 24, 29},
    {DType::f8e5m2, "f8e5m2", "float8_e5m2", "uint8_t", 1, 23, 30},
    {DType::f8e4m3fnuz, "f8e4m3fnuz", "float8_e4m3fnuz", "uint8_t", 1, 26, 31},
    {DType::f8e5m2fnuz, "f8e5m2fnuz", "float8_e5m2fnuz", "uint8_t", 1, 25, 32},
    {DType::f8e8m0fnu, "f8e8m0fnu", "float8_e8m0fnu", "uint8_t", 1, 44, 33},
    {DType::u16, "u16", "uint16", "int16_t", 2, 27, 28},
    {DType::u32, "u32", "uint32", "int32_t", 4, 28, 34},
    {DType::u64, "u64", "uint64", "int64_t", 8, 29, 35},
    {DType::c32, "c32", "complex32", "cd::f16", 4, 8, 9},
    {DType::index, "index", "index", "int64_t", 8, -1, -1},
};

}  // namespace

const DTypeInfo& info(DType dtype) { return kTypes[static_cast<int>(dtype)]; }

DType part_type(DType d) {
  switch (d) {
    case DType::c32: return DType::f16;
    case DType::c64: return DType::f32;
    case DType::c128: return DType::f64;
    case DType::u16: return DType::i16;
    case DType::u32: return DType::i32;
    case DType::u64: return DType::i64;
    default: return is_float8(d) ? DType::u8 : d;
  }
}

DType compute_type(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::c32 ? DType::f32 : part_type(dtype); }

std::optional<DType> dtype_from_export_number(int number) {
  for (const DTypeInfo& t : kTypes) {
    if (t.export_number == number) return t.dtype;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& t : kTypes) {
    if (t.name == name || t.torch_name == name) return t.dtype;
  }
  return std::nullopt;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (is_bool(a)) return b;
  if (is_bool(b)) return a;
  if (is_complex(a) || is_complex(b)) {
    if (!is_complex(a) && !is_float(a)) return b;
    if (!is_complex(b) && !is_float(b)) return a;
    return byte_size(complex_type(a)) > byte_size(complex_type(b)) ? complex_type(a) : complex_type(b);
  }
  if (is_float(a) && is_float(b)) {
    if (byte_size(a) == 2 && byte_size(b) == 2) return DType::f32;  // f16 with bf16
    return byte_size(a) > byte_size(b) ? a : b;
  }
  if (is_float(a)) return a;
  if (is_float(b)) return b;
  const bool has_u8 = a == DType::u8 || b == DType::u8;
  if (has_u8 && (a == DType::i8 || b == DType::i8)) return DType::i16;
  if (byte_size(a) == byte_size(b)) return a;
  return byte_size(a) > byte_size(b) ? a : b;
}

}  // namespace coil
