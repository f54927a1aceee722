// One row (a token's) by a packed B, of which several panels are read side by side.
#ifndef COIL_DEVICE_KERNELS_ROW_STREAMS_H_
#define COIL_DEVICE_KERNELS_ROW_STREAMS_H_

#include "block.h"

namespace COIL_KERNELS_NAMESPACE {

// A machine's prefetching follows each stream of addresses a few lines ahead, and stops where a page ends. What a core has in flight grows with the number of
// streams: a Zen 3 reads 1.15 to 1.3 times the bytes of memory in four streams that it reads in one, if each goes on after 512 bytes at most, and less than in
// one if each goes on after 4 KB. (Not timed with AVX-512.)
constexpr int64_t kStreams = 4;
constexpr int64_t kStreamVisit = 512;  // bytes of a stream, then the next one's

// The panels of a block in even sets of at most kStreams: f(first, count).
template <class F>
COIL_INLINE void for_streams(int64_t panels, const F& f) {
  const int64_t sets = ceil_div(panels, kStreams);
  for (int64_t i = 0, first = 0; i < sets; i++) {
    const int64_t count = (panels - first) / (sets - i);
    f(first, count);
    first += count;
  }
}

// How one row by `p.n` columns is cut into tasks: of whole sets of panels, where there are enough for all workers.
void plan_row(Product& p, int32_t workers);

// True where these are made for it.
bool suits_row_streams(const CoilGemm& g);
// A's row as floats: where it is, or in scratch memory (COIL_GEMM_WORKER_BYTES).
const float* stream_row(const CoilGemm& g, void* scratch);
// One task of those that plan_row gives `p`; x: what stream_row gave.
void row_streams_task(const CoilGemm& g, const Product& p, const float* x, int64_t task);
// All of them.
void row_streams_gemm(const CoilGemm& g, CoilEpilogue epilogue, const void* epilogue_context, const CoilHost* host);

}  // namespace COIL_KERNELS_NAMESPACE

#endif  // COIL_DEVICE_KERNELS_ROW_STREAMS_H_
