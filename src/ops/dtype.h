// Element types and PyTorch's promotion rules.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace coil {

// `index` is the type of loop variables, sizes and strides: a signed 64-bit integer that never overflows by construction.
// It is not a tensor's element type.
// A complex type is one of a tensor that a program sees: buffers hold pairs of its parts (src/loop/recorder.h). So is a float8
// type: buffers hold its bytes (src/lower/float8.cc), and an unsigned type of 16 bits and more: buffers hold signed integers of its
// bits (src/lower/unsigned.cc).
enum class DType : uint8_t {
  boolean,
  u8,
  i8,
  i16,
  i32,
  i64,
  f16,
  bf16,
  f32,
  f64,
  c64,
  c128,
  f8e4m3fn,
  f8e5m2,
  f8e4m3fnuz,
  f8e5m2fnuz,
  f8e8m0fnu,
  u16,
  u32,
  u64,
  c32,
  index
};

struct DTypeInfo {
  DType dtype;
  std::string_view name;        // "f32"
  std::string_view torch_name;  // "float32"
  std::string_view c_name;      // type in generated code: "float", "cd::bf16"
  int bytes;                    // in memory
  int shim_number;              // c10::ScalarType, as in PyTorch's C shim
  int export_number;            // torch._export.serde's enum
};

const DTypeInfo& info(DType dtype);
inline int byte_size(DType dtype) { return info(dtype).bytes; }
inline std::string_view name(DType dtype) { return info(dtype).name; }

inline bool is_float(DType d) { return d == DType::f16 || d == DType::bf16 || d == DType::f32 || d == DType::f64; }
inline bool is_bool(DType d) { return d == DType::boolean; }
inline bool is_complex(DType d) { return d == DType::c64 || d == DType::c128 || d == DType::c32; }
// Numbers of 8 bits. Not is_float: there is no arithmetic on them.
inline bool is_float8(DType d) { return d >= DType::f8e4m3fn && d <= DType::f8e8m0fnu; }
// Unsigned, and not of 8 bits.
inline bool is_wide_unsigned(DType d) { return d == DType::u16 || d == DType::u32 || d == DType::u64; }
inline bool is_int(DType d) { return !is_float(d) && !is_bool(d) && !is_complex(d) && !is_float8(d); }

// What buffers hold of a type: a complex number's parts, a float8's byte, a wide unsigned's bits, any other type itself; and the complex
// type with parts of (at least) a type.
DType part_type(DType d);
inline DType complex_type(DType d) {
  if (d == DType::f64 || d == DType::c128) return DType::c128;
  return d == DType::f16 || d == DType::c32 ? DType::c32 : DType::c64;
}

// The type that values of `dtype` have in arithmetic: f32 for f16, bf16 and c32, else what buffers hold.
DType compute_type(DType dtype);

std::optional<DType> dtype_from_export_number(int number);
std::optional<DType> dtype_from_name(std::string_view name);

// torch.promote_types; float8 types have none and are not asked for.
DType promote(DType a, DType b);

}  // namespace coil
