#include "expr/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/result.h"

namespace coil {
namespace {

// Round to nearest even with the upper 16 bits kept; NaN stays NaN.
double round_to_bf16(float f) {
  if (std::isnan(f)) return std::numeric_limits<double>::quiet_NaN();
  uint32_t bits = std::bit_cast<uint32_t>(f);
  bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  return std::bit_cast<float>(bits);
}

// Round to nearest even with 11 significant bits, fewer below 2^-14; more than 65504 and a half step is infinity.
double round_to_f16(float f) {
  if (std::isnan(f) || std::isinf(f) || f == 0) return f;
  const double x = f;
  const int exponent = std::max(std::ilogb(x), -14);
  const double step = std::ldexp(1.0, exponent - 10);
  const double rounded = std::copysign(std::nearbyint(std::fabs(x) / step) * step, x);
  return std::fabs(rounded) > 65504 ? std::copysign(std::numeric_limits<double>::infinity(), x) : rounded;
}

}  // namespace

int64_t wrap(int64_t v, DType dtype) {
  switch (dtype) {
    case DType::boolean: return v != 0;
    case DType::u8: return static_cast<uint8_t>(v);
    case DType::i8: return static_cast<int8_t>(v);
    case DType::i16: return static_cast<int16_t>(v);
    case DType::i32: return static_cast<int32_t>(v);
    default: return v;
  }
}

double round_to(double x, DType to) {
  switch (to) {
    case DType::f64: return x;
    case DType::f32: return static_cast<float>(x);
    case DType::bf16: return round_to_bf16(static_cast<float>(x));
    case DType::f16: return round_to_f16(static_cast<float>(x));
    default: break;
  }
  CHECK(false, "not a floating type");
  return 0;
}

namespace {

// Towards zero. What does not fit, and NaN, gives the least number, as x86's conversions do; narrow types take the low bits of
// the int32, as ATen on x86 does.
int64_t float_to_int(double x, DType to) {
  if (to == DType::i64 || to == DType::index) {
    return x >= -0x1p63 && x < 0x1p63 ? static_cast<int64_t>(x) : INT64_MIN;
  }
  const double t = std::trunc(x);
  return wrap(t >= -0x1p31 && t < 0x1p31 ? static_cast<int64_t>(t) : INT32_MIN, to);
}

}  // namespace

Value convert(Value v, DType from, DType to) {
  if (is_float(from)) {
    if (is_float(to)) return {.f = round_to(v.f, to)};
    if (is_bool(to)) return {.i = v.f != 0};
    return {.i = float_to_int(v.f, to)};
  }
  if (to == DType::f64) return {.f = static_cast<double>(v.i)};
  if (is_float(to)) return {.f = round_to(static_cast<float>(v.i), to)};  // once from the integer, not through double
  return {.i = wrap(v.i, to)};
}

}  // namespace coil
