// What a GPU is to the cost models and to reports. Unless a description is given (base/machines.h), it is a row of the table: one for each architecture that
// coil compiles for, of the largest chip of its kind. A package is compiled without the device, so the models cannot ask it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace coil {

inline constexpr int kMostChipParts = 32;

struct CudaMachine {
  int sm;
  int multiprocessors;
  int64_t shared_bytes;  // of a block, at most
  int threads, blocks;   // that a multiprocessor runs at once, at most
  bool clusters;         // blocks that share memory, TMA
  // Multiply-adds of a multiprocessor a clock: CUDA cores in float32 and float64, tensor cores in 16 bits (TF32: half of it).
  double f32, f64, half;
  double memory;         // bytes a nanosecond
  double clock = 1.755;  // GHz under load, of an H200 in float32; the others are taken to have the same
  // Multiprocessors of each part of the chip; the rest is 0. The blocks of a cluster lie within one, which leaves some over: an H200 runs 30 clusters of four
  // at once, not 33. What is left over differs from chip to chip.
  std::array<int, kMostChipParts> parts = {};
  bool operator==(const CudaMachine&) const = default;
};

inline constexpr CudaMachine kCudaMachines[] = {
    {80, 108, 166912, 2048, 32, false, 64, 32, 1024, 2000},
    {86, 84, 101376, 1536, 16, false, 128, 2, 512, 700},
    {87, 16, 166912, 1536, 16, false, 128, 2, 1024, 200},
    {89, 128, 101376, 1536, 24, false, 128, 2, 512, 1000},
    {90, 132, 232448, 2048, 32, true, 128, 64, 2048, 3900, 1.755, {18, 18, 18, 18, 16, 16, 14, 14}},
    {100, 148, 232448, 2048, 32, true, 128, 64, 2048, 7000},
    {110, 20, 232448, 1536, 24, true, 128, 2, 2048, 270},
    {120, 170, 101376, 1536, 24, true, 128, 2, 512, 1800},
};

// The row of an architecture; of one between two rows, the lower one's.
constexpr CudaMachine cuda_machine(int sm) {
  CudaMachine found = kCudaMachines[0];
  for (const CudaMachine& m : kCudaMachines) {
    if (m.sm <= sm) found = m;
  }
  found.sm = std::max(sm, kCudaMachines[0].sm);
  return found;
}

inline constexpr int kCudaRegisters = 65536;  // of a multiprocessor of every architecture

// The same architecture with so many multiprocessors. Where its parts are not known they are of nearly the same size, at most 18, in pairs as far as that goes.
constexpr CudaMachine with_multiprocessors(CudaMachine m, int count) {
  constexpr int kMostOfPart = 18;
  if (count == m.multiprocessors) return m;
  m.multiprocessors = count;
  m.parts = {};
  const int parts = std::clamp((count + kMostOfPart - 1) / kMostOfPart, 1, kMostChipParts);
  const int pairs = count / 2;
  for (int i = 0; i < parts; ++i) m.parts[static_cast<size_t>(i)] = 2 * (pairs / parts + (i < pairs % parts));
  m.parts[static_cast<size_t>(parts - 1)] += count % 2;
  return m;
}

// Blocks of clusters that run at once, where a multiprocessor holds `resident`; at least one cluster.
constexpr int64_t cluster_blocks_at_once(const CudaMachine& m, int cluster, int64_t resident) {
  int64_t clusters = 0;
  for (const int part : m.parts) clusters += part * resident / cluster;
  return std::max<int64_t>(clusters, 1) * cluster;
}

// What a block of every architecture has.
constexpr int64_t shared_bytes_anywhere() {
  int64_t least = kCudaMachines[0].shared_bytes;
  for (const CudaMachine& m : kCudaMachines) least = std::min(least, m.shared_bytes);
  return least;
}

}  // namespace coil
