// Elements in memory as the doubles and integers that the interpreter computes with.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/result.h"
#include "ops/dtype.h"

namespace coil::interpreter {

struct Bf16 {
  uint16_t bits;
  operator double() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  static Bf16 from(double v) {
    const uint32_t u = std::bit_cast<uint32_t>(static_cast<float>(v));
    if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};  // NaN stays one
    return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};                  // half to even
  }
};

struct Half {
  uint16_t bits;
  operator double() const {
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == 31) {  // infinity, or NaN, which has a sign as well
      return std::bit_cast<double>(static_cast<uint64_t>(bits & 0x8000) << 48 | 0x7ff0000000000000ull | (fraction ? 1ull << 51 : 0));
    }
    if (exponent == 0) return sign * fraction * 0x1p-24;
    return sign * std::bit_cast<double>(static_cast<uint64_t>(exponent - 15 + 1023) << 52) * (1.0 + fraction * 0x1p-10);
  }
  static Half from(double v) {
    const uint64_t u = std::bit_cast<uint64_t>(v);
    const uint16_t sign = static_cast<uint16_t>((u >> 48) & 0x8000);
    const double size = std::bit_cast<double>(u & 0x7fffffffffffffffull);
    if (size != size) return {static_cast<uint16_t>(sign | 0x7e00)};
    if (size >= 65520.0) return {static_cast<uint16_t>(sign | 0x7c00)};
    // Adding and taking away a power of two rounds at the right bit, half to even.
    const int exponent = size < 0x1p-14 ? -14 : static_cast<int>(std::bit_cast<uint64_t>(size) >> 52) - 1023;
    const double unit = std::bit_cast<double>(static_cast<uint64_t>(exponent - 10 + 1023) << 52);
    volatile double shifted = size / unit + 0x1p52;
    const auto units = static_cast<uint32_t>(shifted - 0x1p52);
    return {static_cast<uint16_t>(sign | (units + (static_cast<uint32_t>(exponent + 14) << 10)))};
  }
};

struct Byte {  // bool: any other byte than 0 is true
  uint8_t bits;
  operator int64_t() const { return bits != 0; }
};

// Calls f with a value of the memory type: f(float()), f(Bf16())...
template <class F>
auto with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::boolean: return f(Byte{});
    case DType::u8: return f(uint8_t{});
    case DType::i8: return f(int8_t{});
    case DType::i16: return f(int16_t{});
    case DType::i32: return f(int32_t{});
    case DType::f16: return f(Half{});
    case DType::bf16: return f(Bf16{});
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    default: return f(int64_t{});
  }
}

template <class T>
T read_element(const uint8_t* base, int64_t index) {
  T v;
  std::memcpy(&v, base + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return v;
}

template <class T>
T to_memory(double v) {
  if constexpr (std::is_same_v<T, Bf16> || std::is_same_v<T, Half>) return T::from(v);
  else if constexpr (std::is_same_v<T, Byte>) return {static_cast<uint8_t>(v != 0)};
  else return static_cast<T>(v);
}

template <class T>
T to_memory(int64_t v) {
  if constexpr (std::is_same_v<T, Bf16> || std::is_same_v<T, Half>) return T::from(static_cast<double>(v));
  else if constexpr (std::is_same_v<T, Byte>) return {static_cast<uint8_t>(v != 0)};
  else return static_cast<T>(v);
}

}  // namespace coil::interpreter
