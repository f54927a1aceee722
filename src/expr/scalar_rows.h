// The values of scalar operations, made from the rows of scalar_ops.def: in T (float, double) and in int64_t. Needs no library, so that
// the tests of device/ compute with them too.
#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "ops/scalar_ops.h"

namespace coil::scalar {

inline double none() { return 0; }  // there is no value: see Row::for_floats and Row::for_integers

template <class T>
T float_remainder(T a, T b) {
  T r = std::fmod(a, b);
  if (r != 0 && (b < 0) != (r < 0)) r += b;
  return r;
}

// Python's floor division: not floor(a / b), whose quotient may round up to the next integer.
template <class T>
T float_floor_div(T a, T b) {
  if (b == 0) return a / b;
  const T r = std::fmod(a, b);
  T quotient = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(T(0), a / b);
  const T floored = std::floor(quotient);
  return quotient - floored > T(0.5) ? floored + 1 : floored;
}

// Integers wrap around.
inline int64_t add_wrap(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
inline int64_t sub_wrap(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b)); }
inline int64_t mul_wrap(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }
inline int64_t trunc_div_int(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? sub_wrap(0, a) : a / b; }
inline int64_t fmod_int(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
inline int64_t floor_div_int(int64_t a, int64_t b) {
  const int64_t quotient = trunc_div_int(a, b);
  return fmod_int(a, b) != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
inline int64_t floor_mod_int(int64_t a, int64_t b) {
  const int64_t r = fmod_int(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// ATen's steps in the type itself, whose least value has no absolute value and may leave a negative divisor.
inline int64_t gcd_wrap(int64_t a, int64_t b, int bits) {
  const int64_t least = INT64_MIN >> (64 - bits);
  const auto size = [&](int64_t v) { return v < 0 && v != least ? -v : v; };
  a = size(a), b = size(b);
  while (a != 0) {
    const int64_t rest = fmod_int(b, a);
    b = a, a = rest;
  }
  return b;
}

inline int64_t pow_int(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = mul_wrap(result, base);
    base = mul_wrap(base, base);
  }
  return result;
}

// A shift by less than 0 or by the width and more shifts everything out.
inline int64_t shift_left(int64_t a, int64_t b, int bits) { return b < 0 || b >= bits ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b); }
inline int64_t shift_right(int64_t a, int64_t b, int bits) { return a >> (b < 0 || b >= bits ? 63 : b); }

// Philox4x32-10: Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011. The words, two each.
inline std::pair<int64_t, int64_t> philox_words(int64_t key, int64_t counter, int64_t stream) {
  const auto low = [](auto x) { return static_cast<uint32_t>(x); };
  const auto high = [](auto x) { return static_cast<uint32_t>(static_cast<uint64_t>(x) >> 32); };
  uint32_t c[] = {low(counter), high(counter), low(stream), high(stream)}, k[] = {low(key), high(key)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53} * c[0], b = uint64_t{0xcd9e8d57} * c[2];
    c[0] = high(b) ^ c[1] ^ k[0], c[1] = low(b), c[2] = high(a) ^ c[3] ^ k[1], c[3] = low(a);
    k[0] += 0x9e3779b9, k[1] += 0xbb67ae85;
  }
  const auto both = [](uint32_t first, uint32_t second) { return static_cast<int64_t>(first | uint64_t{second} << 32); };
  return {both(c[0], c[1]), both(c[2], c[3])};
}

enum class Rounded { once, each };  // see scalar_ops.def

template <ScalarOp op>
struct Row;

#define OP(name, arity, result, cost, infix, header, error, rounds, in_floats, in_integers, torch)                                            \
  template <>                                                                                                                                 \
  struct Row<ScalarOp::name> {                                                                                                                \
    static constexpr ScalarOp kOp = ScalarOp::name;                                                                                           \
    static constexpr Rounded kRounded = Rounded::rounds;                                                                                      \
    static constexpr bool kForFloats = std::string_view(#in_floats) != "none()";                                                              \
    static constexpr bool kForIntegers = std::string_view(#in_integers) != "none()";                                                          \
    static constexpr std::string_view kHeader = #header, kError = #error, kTorch = torch;                                                     \
    template <class T>                                                                                                                        \
    static T of_floats([[maybe_unused]] T a, [[maybe_unused]] T b, [[maybe_unused]] T c) {                                                    \
      return static_cast<T>(in_floats);                                                                                                       \
    }                                                                                                                                         \
    /* Of a type of so many bits; the result has to be cut to it. */                                                                          \
    static int64_t of_integers([[maybe_unused]] int64_t a, [[maybe_unused]] int64_t b, [[maybe_unused]] int64_t c, [[maybe_unused]] int bits, \
                               [[maybe_unused]] bool boolean) {                                                                               \
      return static_cast<int64_t>(in_integers);                                                                                               \
    }                                                                                                                                         \
  };
#include "ops/scalar_ops.def"
#undef OP

// f(Row<op>{})
template <class F>
auto with_row(ScalarOp op, F f) {
  switch (op) {
#define OP(name, ...) \
  case ScalarOp::name: return f(Row<ScalarOp::name>{});
#include "ops/scalar_ops.def"
#undef OP
  }
  __builtin_unreachable();
}

// f(Row<op>{}) for every operation.
template <class F>
void for_each_row(F f) {
#define OP(name, ...) f(Row<ScalarOp::name>{});
#include "ops/scalar_ops.def"
#undef OP
}

}  // namespace coil::scalar
