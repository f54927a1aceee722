#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

#include "frontend/block_rows.h"

namespace coil {
namespace {

// (from_f16() is a call where the compiler may not use instructions for it, and a large model has a scale for each 32 numbers.)
float half_at(const uint8_t* block, size_t at) {
  uint16_t bits;
  std::memcpy(&bits, block + at, sizeof(bits));
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, rest = bits & 0x7fff;
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;  // the exponent has another bias; small numbers become normal ones
  return std::bit_cast<float>(sign | (rest >= 0x7c00 ? 0x7f800000u | rest << 13 : std::bit_cast<uint32_t>(scaled)));
}

typedef uint8_t Bytes __attribute__((vector_size(16)));

// 2 * COUNT numbers of 4 bits, less LESS: the low ones of COUNT bytes, then the high ones.
template <int COUNT, int LESS>
void nibbles(const uint8_t* from, int8_t* to) {
  for (int i = 0; i < COUNT; i += static_cast<int>(sizeof(Bytes))) {
    Bytes packed;
    std::memcpy(&packed, from + i, sizeof(packed));
    const Bytes less = Bytes{} + static_cast<uint8_t>(LESS), low = (packed & 15) - less, high = (packed >> 4) - less;
    std::memcpy(to + i, &low, sizeof(low));
    std::memcpy(to + COUNT + i, &high, sizeof(high));
  }
}

// 32 numbers of 5 bits, less 16; the fifth ones are the bits of four bytes.
void fives(const uint8_t* from, const uint8_t* fifth, int8_t* to) {
  uint32_t bits;
  std::memcpy(&bits, fifth, sizeof(bits));
  nibbles<16, 16>(from, to);
  for (int i = 0; i < 32; ++i) to[i] = static_cast<int8_t>(to[i] + static_cast<int>((bits >> i & 1) << 4));
}

// q * scale + least as (q - middle - zero) * scale. A scale of 0 leaves `least` alone.
void with_least(float d, float least, float middle, float* scale, float* zero) {
  const bool flat = d == 0;
  *scale = flat ? 1.0f : d;
  *zero = flat ? -least : -least / d - middle;
}

void half_scale(const uint8_t* b, float* scale, float*) { *scale = half_at(b, 0); }

template <int MIDDLE>
void half_scale_and_least(const uint8_t* b, float* scale, float* zero) {
  with_least(half_at(b, 0), half_at(b, 2), MIDDLE, scale, zero);
}

// The eight scales and least numbers of a block of Q4_K or Q5_K: 6 bits each, in 12 bytes.
template <int MIDDLE>
void scales_of_k(const uint8_t* b, float* scale, float* zero) {
  const uint8_t* s = b + 4;
  const float d = half_at(b, 0), m = half_at(b, 2);
  for (int g = 0; g < 8; ++g) {
    const int own = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
    const int least = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
    with_least(d * static_cast<float>(own), -(m * static_cast<float>(least)), MIDDLE, scale + g, zero + g);
  }
}

void clear_flat(const float* scales_before, int groups, int size, int8_t* numbers) {
  for (int g = 0; g < groups; ++g) {
    if (scales_before[g] == 0) std::memset(numbers + g * size, 0, static_cast<size_t>(size));
  }
}

// Of those with a least number, which scales are 0 as the file has them.
void clear_flat_k(const uint8_t* b, int8_t* numbers) {
  const uint8_t* s = b + 4;
  float own[8];
  for (int g = 0; g < 8; ++g) own[g] = half_at(b, 0) * static_cast<float>(g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4);
  clear_flat(own, 8, 32, numbers);
}

void take_q4_0(const uint8_t* b, int8_t* to) { nibbles<16, 8>(b + 2, to); }

void take_q4_1(const uint8_t* b, int8_t* to) {
  nibbles<16, 8>(b + 4, to);
  const float own = half_at(b, 0);
  clear_flat(&own, 1, 32, to);
}

void take_q5_0(const uint8_t* b, int8_t* to) { fives(b + 6, b + 2, to); }

void take_q5_1(const uint8_t* b, int8_t* to) {
  fives(b + 8, b + 4, to);
  const float own = half_at(b, 0);
  clear_flat(&own, 1, 32, to);
}

void take_q8_0(const uint8_t* b, int8_t* to) { std::memcpy(to, b + 2, 32); }

void take_q4_k(const uint8_t* b, int8_t* to) {
  for (int part = 0; part < 4; ++part) nibbles<32, 8>(b + 16 + 32 * part, to + 64 * part);
  clear_flat_k(b, to);
}

void take_q5_k(const uint8_t* b, int8_t* to) {
  for (int part = 0; part < 4; ++part) nibbles<32, 16>(b + 48 + 32 * part, to + 64 * part);
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) to[32 * g + i] = static_cast<int8_t>(to[32 * g + i] + ((b[16 + i] >> g & 1) << 4));
  }
  clear_flat_k(b, to);
}

void take_q6_k(const uint8_t* b, int8_t* to) {
  for (int side = 0; side < 2; ++side) {
    int8_t* own = to + 128 * side;
    const uint8_t* high = b + 128 + 32 * side;
    nibbles<64, 32>(b + 64 * side, own);
    for (int part = 0; part < 4; ++part) {
      for (int i = 0; i < 32; ++i) own[32 * part + i] = static_cast<int8_t>(own[32 * part + i] + ((high[i] >> 2 * part & 3) << 4));
    }
  }
}

void scales_of_q6_k(const uint8_t* b, float* scale, float*) {
  const float d = half_at(b, 208);
  for (int g = 0; g < 16; ++g) scale[g] = d * static_cast<float>(static_cast<int8_t>(b[192 + g]));
}

constexpr BlockForm kForms[] = {
    {"Q4_0", 18, 32, 32, false, true, true, half_scale, take_q4_0},         {"Q4_1", 20, 32, 32, true, true, false, half_scale_and_least<8>, take_q4_1},
    {"Q5_0", 22, 32, 32, false, false, true, half_scale, take_q5_0},        {"Q5_1", 24, 32, 32, true, false, false, half_scale_and_least<16>, take_q5_1},
    {"Q8_0", 34, 32, 32, false, false, true, half_scale, take_q8_0},        {"Q4_K", 144, 256, 32, true, true, false, scales_of_k<8>, take_q4_k},
    {"Q5_K", 176, 256, 32, true, false, false, scales_of_k<16>, take_q5_k}, {"Q6_K", 210, 256, 16, false, false, false, scales_of_q6_k, take_q6_k},
};

}  // namespace

const BlockForm* block_form(std::string_view type) {
  const auto* found = std::find_if(std::begin(kForms), std::end(kForms), [&](const BlockForm& f) { return f.name == type; });
  return found == std::end(kForms) ? nullptr : found;
}

}  // namespace coil
