#include "base/crc32.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace coil {
namespace {

uint32_t by_table(std::span<const uint8_t> bytes, uint32_t before) {
  return bytes.empty() ? before : static_cast<uint32_t>(crc32_z(before, bytes.data(), bytes.size()));
}

#if defined(__x86_64__)

constexpr size_t kBlock = 64;                 // bytes that are folded at a time
constexpr size_t kFewestBytes = 1024;         // below, a table is as good
constexpr uint32_t kPolynomial = 0xedb88320;  // bit 31 is x^0

// x^n modulo the polynomial, in its order of bits and one place up: products of such numbers have 127 bits, and the lowest one is left empty.
constexpr int64_t power_of_x(int n) {
  uint32_t value = uint32_t{1} << 31;
  for (int i = 0; i < n; ++i) value = value >> 1 ^ ((value & 1) != 0 ? kPolynomial : 0);
  return static_cast<int64_t>(uint64_t{value} << 1);
}

// `sum` times x^distance, congruent modulo the polynomial, plus the 16 bytes that lie so many bits behind it. factors: x^(distance + 32) and x^(distance - 32).
__attribute__((target("pclmul,sse4.1"))) inline __m128i folded(__m128i sum, __m128i factors, __m128i next) {
  return _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(sum, factors, 0x00), _mm_clmulepi64_si128(sum, factors, 0x11)), next);
}

// Four sums go on side by side, since a product takes as long as four that are begun; they become one, whose checksum is that of all.
__attribute__((target("pclmul,sse4.1"))) uint32_t by_products(std::span<const uint8_t> bytes, uint32_t before) {
  const auto at = [&](size_t place) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes.data() + place)); };
  const __m128i far = _mm_set_epi64x(power_of_x(512 - 32), power_of_x(512 + 32)), near = _mm_set_epi64x(power_of_x(128 - 32), power_of_x(128 + 32));
  __m128i sum[4] = {_mm_xor_si128(at(0), _mm_cvtsi32_si128(static_cast<int>(~before))), at(16), at(32), at(48)};
  size_t done = kBlock;
  for (; bytes.size() - done >= kBlock; done += kBlock) {
    for (size_t i = 0; i < 4; ++i) sum[i] = folded(sum[i], far, at(done + 16 * i));
  }
  for (size_t i = 1; i < 4; ++i) sum[i] = folded(sum[i - 1], near, sum[i]);
  uint8_t rest[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), sum[3]);
  return by_table(bytes.subspan(done), by_table(rest, ~uint32_t{0}));  // (zlib's checksums are inverted: this one begins at 0)
}

#endif

}  // namespace

uint32_t crc32_of(std::span<const uint8_t> bytes, uint32_t before) {
#if defined(__x86_64__)
  if (bytes.size() >= kFewestBytes && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) return by_products(bytes, before);
#endif
  return by_table(bytes, before);
}

}  // namespace coil
