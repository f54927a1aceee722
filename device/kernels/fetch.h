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

template <int64_t count, class T>
COIL_INLINE void fetch_row(const T* row) {
#pragma unroll
  for (int64_t i = 0; i < count * static_cast<int64_t>(sizeof(T)); i += 64) __builtin_prefetch(reinterpret_cast<const char*>(row) + i);
}

// What comes after this panel, a piece with each step: spread over all tiles of rows, it arrives from a far cache or from memory while
// there is much to compute. (The steps of one tile need four times what memory delivers.)
COIL_INLINE const char* fetch_next(const char* next, int64_t step) {
  __builtin_prefetch(next, 0, 2);
  return next + step;
}

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_FETCH_H_
