// Quantised weights for the tests of kernels: numbers, how they are packed, and their tables of scales and zero points.
#pragma once

#include "templates/packing.h"
#include "tests/kernels/support.h"

namespace coil::testing {

inline std::vector<int8_t> numbers(std::mt19937& random, int64_t count, int low, int high) {
  std::uniform_int_distribution<int> values(low, high);
  std::vector<int8_t> out(static_cast<size_t>(count));
  for (int8_t& v : out) v = static_cast<int8_t>(values(random));
  return out;
}

// Scales or zero points [groups, n] in panels, in 16 bits or 32: a kernel sees what they are rounded to.
struct Table {
  std::vector<float> values;
  std::vector<std::byte> packed;
  int dtype;

  Table(std::vector<float> numbers, int64_t n, int type) : values(std::move(numbers)), dtype(type) {
    const auto groups = static_cast<int64_t>(values.size()) / std::max<int64_t>(n, 1);
    Buffer narrow(type, static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      narrow.set(static_cast<int64_t>(i), values[i]);
      values[i] = static_cast<float>(narrow.get(static_cast<int64_t>(i)));
    }
    packed = templates::pack_gemm_b(narrow.data(), type == COIL_FLOAT32 ? 4 : 2, groups, n, n, 1);
  }
};

// Sets g's tables: as they are (`packed` false), or in panels.
inline void set_tables(CoilGemm& g, const Table* scale, const Table* zero, bool packed) {
  const auto data = [&](const Table* t) -> const void* { return !t ? nullptr : packed ? static_cast<const void*>(t->packed.data()) : t->values.data(); };
  g.b_scale = data(scale), g.b_zero = data(zero);
  g.b_tables_packed = packed;
  if (packed && scale) g.b_scale_dtype = scale->dtype;
  if (packed && zero) g.b_zero_dtype = zero->dtype;
}

// What a weight's numbers are: of 8 or 4 bits, or codes of 4 bits.
struct Numbers {
  int bits = 8;
  bool coded = false;
};
inline constexpr Numbers kKinds[] = {{8}, {4}, {4, true}};
inline const std::vector<int8_t> kCodes = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

inline std::string text(const Numbers& kind) { return kind.coded ? "codes" : std::to_string(kind.bits) + " bits"; }
// As large as they come; `least`: of 8 bits.
inline float greatest(const Numbers& kind) { return kind.bits == 4 && !kind.coded ? 8.0f : 128.0f; }
inline std::vector<int8_t> numbers_of(const Numbers& kind, std::mt19937& random, int64_t count, int least = -128) {
  if (!kind.coded) return kind.bits == 4 ? numbers(random, count, -8, 7) : numbers(random, count, least, 127);
  std::vector<int8_t> out = numbers(random, count, 0, 15);
  for (int8_t& v : out) v = kCodes[static_cast<size_t>(v)];
  return out;
}

// [n][k] as panels, or as panels of quads for products of bytes; sets the fields that say what they are.
inline std::vector<std::byte> packed_numbers(CoilGemm& g, const Numbers& kind, const int8_t* b, int64_t k, int64_t n, bool quads) {
  g.b_packed = 1, g.b_bits = kind.bits, g.b_coded = kind.coded;
  if (kind.coded) std::memcpy(g.b_codes, kCodes.data(), sizeof(g.b_codes));
  const templates::HalfByteOf half = kind.coded ? templates::place_in(kCodes) : templates::with_8_added();
  if (quads) return templates::pack_quads_b(b, kind.bits, k, n, 1, k, half);
  return kind.bits == 4 ? templates::pack_4bit_b(b, k, n, 1, k, half) : templates::pack_gemm_b(b, 1, k, n, 1, k);
}

}  // namespace coil::testing
