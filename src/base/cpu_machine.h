// What a CPU is to the cost models. A package runs on machines that the compiler does not know, so it is a usual one unless a description is given
// (base/machines.h); a tuner times the machine at hand.
#pragma once

#include <cstdint>

namespace coil {

struct CpuMachine {
  int64_t own_cache;     // bytes of the largest cache that a core has to itself
  int64_t shared_cache;  // bytes of the last cache, which threads share
  int workers;           // threads that one program usually has
  bool operator==(const CpuMachine&) const = default;
};

inline constexpr CpuMachine kUsualCpu = {512 << 10, 32 << 20, 8};

}  // namespace coil
