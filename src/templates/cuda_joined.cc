#include "templates/cuda_joined.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "device/cuda/limits.h"
#include "templates/cuda_gemm_model.h"

namespace coil::templates {
namespace {

constexpr double kBytesPerNs = 25;           // that a multiprocessor draws from memory at most, on a Hopper
constexpr double kUnderWay = 40 << 10;       // bytes that it has to have asked for to get them
constexpr double kTileEnd = 500;             // ns: adding up the warps' parts and the epilogue, in which the block asks for one turn of the next tile only
constexpr int kMostWarps = 24;               // of a multiprocessor: 80 registers a thread
constexpr int kMostByteWarps = 16;           // of products of bytes: 128 registers a thread
constexpr double kBytesUnderWay = 72 << 10;  // as kUnderWay; of products of bytes on an H200
constexpr double kByteTileEnd = 700, kSharedTileEnd = 900;  // ns: adding up the lanes' sums, and those of warps that share k, and the epilogue
constexpr int64_t kRowBytes = 2 * cd::kJoinedDepth;         // of shared memory for the rows: one of the most elements, and several blocks fit

// Nanoseconds of the busiest multiprocessor.
double time_of(const JoinedShape& s, const std::vector<int64_t>& columns, bool pairs, int64_t k, int sms) {
  const int64_t step = pairs ? 8 : 8 * s.halves;
  int64_t tiles = 0;
  for (const int64_t n : columns) tiles += (n + step - 1) / step;
  const int64_t slots = int64_t{sms} * s.resident, turns = (tiles + slots - 1) / slots, blocks = std::min(tiles, slots);
  const int64_t resident = (blocks + sms - 1) / sms, most = turns == 1 ? resident : turns * s.resident;
  const double tile_bytes = 2.0 * static_cast<double>(k) * 8 * s.halves, asked = std::min(tile_bytes, s.warps * 32.0 * 128);
  const double rate = kBytesPerNs * std::min(1.0, asked * static_cast<double>(resident) / kUnderWay);
  return static_cast<double>(most) * tile_bytes / rate + kTileEnd * static_cast<double>(turns) / std::sqrt(static_cast<double>(resident));
}

// Of products of bytes: nanoseconds of the busiest multiprocessor for its bytes, as far as its warps have asked for them, and for the end of a last tile; those
// before it end while other warps wait for memory. On an H200 (tests/gpu/test_byte_rows.py --bench) the least of it is the best of some ten shapes, or up to
// 5 % slower, for the products of a 1B model in int8 and int4.
double time_of(const JoinedBytesShape& s, int64_t tiles, int halves, int64_t k, int bits, int sms) {
  const int64_t groups = s.warps / s.split, line = (k * bits / 8 + 15) / 16, steps = (line + 32 * s.split - 1) / (32 * s.split);
  const int64_t most = (tiles + sms - 1) / sms, busy = std::min(most, s.resident * groups);
  const double tile_bytes = 16.0 * static_cast<double>(line * 8 * halves), asked = tile_bytes / static_cast<double>(steps * halves);
  const double rate = kBytesPerNs * std::min(1.0, asked * static_cast<double>(busy) / kBytesUnderWay);
  return static_cast<double>(most) * tile_bytes / rate + (s.split > 1 ? kSharedTileEnd : kByteTileEnd);
}

}  // namespace

JoinedBytesShape joined_bytes_shape(const std::vector<int64_t>& tiles, bool pairs, int64_t k, int bits, const CudaMachine& machine) {
  const int64_t all = std::accumulate(tiles.begin(), tiles.end(), int64_t{0});
  JoinedBytesShape best;
  double least = INFINITY;
  for (const int warps : {4, 8}) {
    for (int split = 1; split <= warps; split *= 2) {
      for (int resident = 1; resident * warps <= kMostByteWarps; ++resident) {
        const JoinedBytesShape shape = {split, warps, resident};
        const double time = time_of(shape, all, pairs ? 2 : 1, k, bits, machine.multiprocessors);
        if (time < least * 0.98) best = shape, least = time;
      }
    }
  }
  return best;
}

JoinedShape joined_shape(const std::vector<int64_t>& columns, bool pairs, int64_t k, const CudaMachine& machine) {
  JoinedShape best;
  double least = INFINITY;
  for (const int halves : {2, 1}) {
    if (pairs && halves == 1) continue;
    for (const int warps : {8, 4, 16}) {
      for (int resident = 1; resident * warps <= kMostWarps; ++resident) {
        const JoinedShape shape = {halves, warps, resident, 0};
        const double time = time_of(shape, columns, pairs, k, machine.multiprocessors);
        if (time < least * 0.98) best = shape, least = time;
      }
    }
  }
  best.rows = std::clamp<int64_t>(kRowBytes / (2 * k), 1, cd::kJoinedRows);
  return best;
}

}  // namespace coil::templates
