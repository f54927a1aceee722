// What a CPU is to the cost models. A package runs on machines that the compiler does not know, so this is a usual one; a tuner times the
// machine at hand instead.
#pragma once

#include <cstdint>

namespace coil::cpu {

struct CpuMachine {
  int64_t own_cache;     // bytes of the largest cache that a core has to itself
  int64_t shared_cache;  // bytes of the last cache, which threads share
  int workers;           // threads that one program usually has
};

inline constexpr CpuMachine kUsualMachine = {512 << 10, 32 << 20, 8};

// What an item reads several times and still finds in its core's cache, beside what it writes.
constexpr int64_t near_bytes(const CpuMachine& m) { return m.own_cache / 2; }
// Of kernels that run one after the other: what the next one still finds in the last cache beside its own.
constexpr int64_t kept_bytes(const CpuMachine& m) { return m.shared_cache / 4; }
// Results of a kernel that leave the last cache before they are read, together with everything that the kernel moves.
constexpr int64_t streamed_bytes(const CpuMachine& m) { return m.shared_cache / 2; }
constexpr int64_t moved_bytes(const CpuMachine& m) { return m.shared_cache / 4 * 5; }
// Results that are out of the caches near a core when the next kernel reads them.
constexpr int64_t far_bytes(const CpuMachine& m) { return m.shared_cache / 8; }
// Pieces of work that keep the workers busy to the end.
constexpr int64_t parallel_points(const CpuMachine& m) { return int64_t{2} * m.workers; }

}  // namespace coil::cpu
