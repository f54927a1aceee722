#include "templates/cuda_joined.h"

#include <algorithm>
#include <cmath>

#include "templates/cuda_gemm_model.h"

namespace coil::templates {
namespace {

constexpr double kBytesPerNs = 25;       // that a multiprocessor draws from memory at most, on a Hopper
constexpr double kUnderWay = 40 << 10;   // bytes that it has to have asked for to get them
constexpr double kTileEnd = 500;         // ns: adding up the warps' parts and the epilogue, in which the block asks for one turn of the next tile only
constexpr int kMostWarps = 24;           // of a multiprocessor: 80 registers a thread
constexpr int64_t kRowBytes = 32 << 10;  // of shared memory for the rows: one of kJoinedDepth elements (schedule/join_products.h), and several blocks fit

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

}  // namespace

JoinedShape joined_shape(const std::vector<int64_t>& columns, bool pairs, int64_t k, int sm) {
  JoinedShape best;
  double least = INFINITY;
  for (const int halves : {2, 1}) {
    if (pairs && halves == 1) continue;
    for (const int warps : {8, 4, 16}) {
      for (int resident = 1; resident * warps <= kMostWarps; ++resident) {
        const JoinedShape shape = {halves, warps, resident, 0};
        const double time = time_of(shape, columns, pairs, k, multiprocessors(sm));
        if (time < least * 0.98) best = shape, least = time;
      }
    }
  }
  best.rows = std::clamp<int64_t>(kRowBytes / (2 * k), 1, 8);
  return best;
}

}  // namespace coil::templates
