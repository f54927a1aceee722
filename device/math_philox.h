// Random bits as a function of a counter, for integers, scalars and vectors.
#ifndef COIL_DEVICE_MATH_PHILOX_H_
#define COIL_DEVICE_MATH_PHILOX_H_

#include "simd.h"

namespace cd {

template <class U>
struct PhiloxWords {
  U first, second, third, fourth;  // each of 32 bits
};

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011), whose counter is `stream` above `counter`. U: u64 or u64v.
template <class U>
CD_FN PhiloxWords<U> philox(U key, U counter, U stream) {
  const U word = (U)0xfffffffful;
  U c0 = counter & word, c1 = counter >> 32, c2 = stream & word, c3 = stream >> 32, k0 = key & word, k1 = key >> 32;
#pragma clang loop unroll(full)
  for (int round = 0; round < 10; ++round) {
    const U a = c0 * (U)0xd2511f53ul, b = c2 * (U)0xcd9e8d57ul;
    c0 = (b >> 32) ^ c1 ^ k0, c1 = b & word, c2 = (a >> 32) ^ c3 ^ k1, c3 = a & word;
    k0 = (k0 + (U)0x9e3779b9ul) & word, k1 = (k1 + (U)0xbb67ae85ul) & word;
  }
  return {c0, c1, c2, c3};
}

template <class T>
CD_FN auto philox_of(T key, T counter, T stream) {
  if constexpr (kIsVec<T>) return philox(__builtin_convertvector(key, u64v), __builtin_convertvector(counter, u64v), __builtin_convertvector(stream, u64v));
  else return philox((u64)key, (u64)counter, (u64)stream);
}

// The first two of the four words, the first one below; the last two.
template <class T>
CD_FN T philox_low(T key, T counter, T stream) {
  const auto words = philox_of(key, counter, stream);
  if constexpr (kIsVec<T>) return __builtin_convertvector(words.first | words.second << 32, T);
  else return (T)(words.first | words.second << 32);
}
template <class T>
CD_FN T philox_high(T key, T counter, T stream) {
  const auto words = philox_of(key, counter, stream);
  if constexpr (kIsVec<T>) return __builtin_convertvector(words.third | words.fourth << 32, T);
  else return (T)(words.third | words.fourth << 32);
}

}  // namespace cd

#endif  // COIL_DEVICE_MATH_PHILOX_H_
