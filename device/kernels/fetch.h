// What micro-kernels ask for before they read it.
#ifndef COIL_DEVICE_KERNELS_FETCH_H_
#define COIL_DEVICE_KERNELS_FETCH_H_

#include "block.h"

namespace COIL_KERNELS_NAMESPACE {

// Rows of B that are on their way into the first cache: a panel's first tile of rows finds them in the last one or in memory. One row
// lasts as long as its multiply-adds, at least 28 cycles for a full tile. With few rows of A reading B is all that there is to do, and the
// machine's own prefetching does it better.
constexpr int64_t kAhead = 16;
constexpr bool fetches_ahead(int rows) { return 2 * rows >= kTileRows; }

// But a single row (a token's) reads packed panels in one run from the first byte to the last, across pages, where the machine's prefetching stops: with
// AVX2 a Zen 3 gets 1.2 to 1.3 times the bytes when they are asked for so far ahead. (Not timed with AVX-512.)
constexpr bool fetches_stream(int rows) { return kVectorBytes == 32 && rows <= 2; }
constexpr int64_t kStreamAhead = 2048;

template <int64_t count, class T>
COIL_INLINE void fetch_row(const T* row) {
#pragma unroll
  for (int64_t i = 0; i < count * static_cast<int64_t>(sizeof(T)); i += 64) __builtin_prefetch(reinterpret_cast<const char*>(row) + i);
}

// `count` bytes of a stream that is read from `at` on.
template <int64_t count>
COIL_INLINE void fetch_stream(const void* at) {
  fetch_row<count>(static_cast<const char*>(at) + kStreamAhead);
}

// What comes after this panel, a piece with each step: spread over all tiles of rows, it arrives from a far cache or from memory while
// there is much to compute. (The steps of one tile need four times what memory delivers.)
COIL_INLINE const char* fetch_next(const char* next, int64_t step) {
  __builtin_prefetch(next, 0, 2);
  return next + step;
}

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_FETCH_H_
