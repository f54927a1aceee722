// float <-> float16 and bfloat16, rounded to nearest even.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace coil {

inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline uint16_t to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);  // rounding could make it an infinity
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

#if defined(__aarch64__)
typedef __fp16 Half;  // g++ 12 has no _Float16 in C++ there
#else
typedef _Float16 Half;
#endif
inline float from_f16(uint16_t bits) { return static_cast<float>(std::bit_cast<Half>(bits)); }
inline uint16_t to_f16(float value) { return std::bit_cast<uint16_t>(static_cast<Half>(value)); }

}  // namespace coil
