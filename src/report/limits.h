// What the machine can do at most, measured beside a model's calls with the same threads: the roof that kernels are compared with.
#pragma once

#include <string>

#include "runtime/model.h"

namespace coil::report {

struct Limits {
  double memory_gb_s = 0;  // a[i] = b[i] + 3 * c[i] over arrays far larger than the caches
  double cache_gb_s = 0;   // the same over arrays that stay in each thread's own cache; 0: not measured
  double gflop_s = 0;      // multiply-adds of float32 in registers
  double cache_bytes = 0;  // the last level's size: what a kernel moves may lie there if it is less
  std::string how;         // for readers: "measured on 2 threads" or what the driver says of the device
};

// On the CPU some 0.2 seconds. Kernels of CUDA devices: bandwidth is measured by copies, arithmetic is what clock and units allow in
// float32 without tensor cores. Zeros where nothing could be found out.
Limits measure_limits(const runtime::Model& model);

// The least time, in microseconds, that so many bytes and operations take; what bounds it: "memory", "cache", "compute", or "" without limits.
struct Roof {
  double us = 0;
  const char* bound = "";
};
Roof roof_of(const Limits& limits, double bytes, double flops);

std::string limits_json(const Limits& limits);

}  // namespace coil::report
