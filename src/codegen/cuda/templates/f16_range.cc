#include "codegen/cuda/templates/f16_range.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace coil::cuda {
namespace {

struct Patterns {
  uint32_t least = UINT32_MAX, greatest = 0;
};

// Of magnitudes as they lie there: their order is that of the numbers. Without branches, so that compilers make vectors of it.
template <class T>
Patterns patterns(std::span<const uint8_t> bytes) {
  constexpr T kMagnitude = static_cast<T>(~T{0}) >> 1;
  T least = static_cast<T>(~T{0}), greatest = 0;
  for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
    T x;
    std::memcpy(&x, bytes.data() + at, sizeof(T));
    x &= kMagnitude;
    greatest = std::max(greatest, x);
    least = std::min(least, static_cast<T>(x - 1));  // 0 becomes the greatest
  }
  return {least == static_cast<T>(~T{0}) ? UINT32_MAX : static_cast<uint32_t>(least) + 1, greatest};
}

double number(DType type, uint32_t pattern) {
  if (type == DType::f32) return static_cast<double>(std::bit_cast<float>(pattern));
  if (type == DType::bf16) return static_cast<double>(std::bit_cast<float>(pattern << 16));
  const int exponent = static_cast<int>(pattern >> 10);
  const double mantissa = static_cast<double>(pattern & 1023);
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
}

}  // namespace

std::optional<Magnitudes> magnitudes(const TensorData& table, int64_t count) {
  const bool is_wide = table.dtype == DType::f32;
  if (!is_wide && table.dtype != DType::f16 && table.dtype != DType::bf16) return std::nullopt;
  if (table.offset != 0 || static_cast<int64_t>(table.bytes.size()) != count * (is_wide ? 4 : 2)) return std::nullopt;
  const Patterns found = is_wide ? patterns<uint32_t>(table.bytes) : patterns<uint16_t>(table.bytes);
  const uint32_t infinity = is_wide ? 0x7f800000u : table.dtype == DType::f16 ? 0x7c00u : 0x7f80u;
  if (found.greatest >= infinity) return std::nullopt;
  if (found.greatest == 0) return Magnitudes{0, 0};
  return Magnitudes{number(table.dtype, found.least), number(table.dtype, found.greatest)};
}

std::optional<int> f16_shift(int64_t bits, const TensorData& scale, int64_t scales, const TensorData* zero, int64_t zeros) {
  constexpr double kMost = 32768, kLeast = 1.0 / 16384;  // float16's normal numbers, and a bit of room
  constexpr int kMostShift = 40;
  const auto of_scale = magnitudes(scale, scales);
  const auto of_zero = zero ? magnitudes(*zero, zeros) : Magnitudes{0, 0};
  if (!of_scale || !of_zero || of_zero->greatest > kMost / 2) return std::nullopt;
  if (of_scale->greatest == 0) return 0;
  const double most = of_scale->greatest * (std::ldexp(1, static_cast<int>(bits) - 1) + of_zero->greatest);
  // Scales in float16 below its normal numbers are multiples of its least one, and so are their products with whole numbers.
  const bool exact_below = scale.dtype == DType::f16 && !zero;
  if (most <= kMost && (exact_below || of_scale->least >= kLeast)) return 0;
  const int shift = static_cast<int>(std::floor(std::log2(kMost / most)));
  if (std::abs(shift) > kMostShift || std::ldexp(of_scale->least, shift) < kLeast) return std::nullopt;
  return shift;
}

}  // namespace coil::cuda
