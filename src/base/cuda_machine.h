// What a GPU is to the cost models and to reports: one row for each architecture that coil compiles for, of the largest chip of its kind. A package is compiled
// without the device, so the models cannot ask it.
#pragma once

#include <bit>
#include <cstdint>

namespace coil {

struct CudaMachine {
  int sm;
  int multiprocessors;
  int64_t shared_bytes;  // of a block, at most
  int threads, blocks;   // that a multiprocessor runs at once, at most
  bool clusters;         // blocks that share memory, TMA
  // Multiply-adds of a multiprocessor a clock: CUDA cores in float32 and float64, tensor cores in 16 bits (TF32: half of it).
  double f32, f64, half;
  double memory;  // bytes a nanosecond
};

inline constexpr CudaMachine kCudaMachines[] = {
    {80, 108, 166912, 2048, 32, false, 64, 32, 1024, 2000}, {86, 84, 101376, 1536, 16, false, 128, 2, 512, 700},
    {87, 16, 166912, 1536, 16, false, 128, 2, 1024, 200},   {89, 128, 101376, 1536, 24, false, 128, 2, 512, 1000},
    {90, 132, 232448, 2048, 32, true, 128, 64, 2048, 3900}, {100, 148, 232448, 2048, 32, true, 128, 64, 2048, 7000},
    {110, 20, 232448, 1536, 24, true, 128, 2, 2048, 270},   {120, 170, 101376, 1536, 24, true, 128, 2, 512, 1800},
};

// Of an architecture between two rows, the lower one's.
constexpr const CudaMachine& cuda_machine(int sm) {
  const CudaMachine* found = &kCudaMachines[0];
  for (const CudaMachine& m : kCudaMachines) {
    if (m.sm <= sm) found = &m;
  }
  return *found;
}

inline constexpr int kCudaRegisters = 65536;  // of a multiprocessor of every architecture

// Multiprocessors of each part of a Hopper chip. The blocks of a cluster lie within one, which leaves some over: an H200 runs 30 clusters of four at once, not
// 33. What is left over differs from chip to chip.
inline constexpr int kHopperParts[] = {18, 18, 18, 18, 16, 16, 14, 14};

// Blocks of clusters that run at once, where a multiprocessor holds `resident`.
constexpr int64_t hopper_blocks_at_once(int cluster, int64_t resident) {
  int64_t clusters = 0;
  for (const int part : kHopperParts) clusters += part * resident / cluster;
  return clusters * cluster;
}

// GHz under load, of an H200 in float32; the others are taken to have the same.
inline constexpr double kCudaClock = 1.755;

// Threads that the largest chip runs at once, and bytes that the fastest memory moves while a kernel is launched, as powers of two.
constexpr int64_t threads_at_once() {
  int64_t most = 0;
  for (const CudaMachine& m : kCudaMachines) most = int64_t{m.multiprocessors} * m.threads > most ? int64_t{m.multiprocessors} * m.threads : most;
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most)));
}
constexpr int64_t bytes_of_a_launch() {
  constexpr double kLaunch = 3300;  // ns
  double most = 0;
  for (const CudaMachine& m : kCudaMachines) most = m.memory > most ? m.memory : most;
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(most * kLaunch)));
}

// What a block of every architecture has.
constexpr int64_t shared_bytes_anywhere() {
  int64_t least = kCudaMachines[0].shared_bytes;
  for (const CudaMachine& m : kCudaMachines) least = m.shared_bytes < least ? m.shared_bytes : least;
  return least;
}

}  // namespace coil
