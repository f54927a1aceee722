// See limits.h.
#include "report/limits.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/cuda_machine.h"
#include "report/vector_loops.h"
#include "runtime/json_text.h"
#include "runtime/ticks.h"

namespace coil::report {
namespace {

constexpr int64_t kLargeFloats = int64_t{1} << 23;  // of each of three arrays: 96 MB in all
constexpr int64_t kSmallFloats = 8 << 10;           // of each of three arrays, for each thread: 96 KB
constexpr int64_t kChunk = int64_t{1} << 16;
constexpr int64_t kProducts = int64_t{1} << 22;  // vector operations of a thread in a round
constexpr int kRounds = 5;

double now_us() { return static_cast<double>(runtime::detail::system_ns()) / 1e3; }

struct Free {
  void operator()(float* data) const { std::free(data); }
};
using Floats = std::unique_ptr<float[], Free>;
Floats make_floats(int64_t count) { return Floats(static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(count) * sizeof(float)))); }

// The shortest of some rounds, in microseconds.
template <class F>
double least(F round) {
  double best = 0;
  for (int i = 0; i < kRounds; i++) {
    const double start = now_us();
    round();
    const double took = now_us() - start;
    if (i == 0 || took < best) best = took;
  }
  return std::max(best, 1e-3);
}

struct Arrays {
  float *a, *b, *c;
  int64_t repeats;
};

double memory_bandwidth(const CoilHost& host) {
  const Floats a = make_floats(kLargeFloats), b = make_floats(kLargeFloats), c = make_floats(kLargeFloats);
  if (!a || !b || !c) return 0;
  Arrays arrays = {a.get(), b.get(), c.get(), 1};
  const auto fill = [](void* context, int64_t begin, int64_t end, int32_t) {
    auto& x = *static_cast<Arrays*>(context);
    std::fill(x.a + begin, x.a + end, 0.F), std::fill(x.b + begin, x.b + end, 1.F), std::fill(x.c + begin, x.c + end, 2.F);
  };
  const auto body = [](void* context, int64_t begin, int64_t end, int32_t) {
    auto& x = *static_cast<Arrays*>(context);
    triad(x.a + begin, x.b + begin, x.c + begin, end - begin);
  };
  host.parallel_for(host.pool, kLargeFloats, kChunk, fill, &arrays);
  const double us = least([&] { host.parallel_for(host.pool, kLargeFloats, kChunk, body, &arrays); });
  return static_cast<double>(kLargeFloats) * 12 / us / 1e3;
}

double cache_bandwidth(const CoilHost& host) {
  const int64_t workers = std::max(host.num_workers, 1);
  const Floats all = make_floats(kSmallFloats * 3 * workers);
  if (!all) return 0;
  std::fill(all.get(), all.get() + kSmallFloats * 3 * workers, 1.F);
  Arrays arrays = {all.get(), nullptr, nullptr, 200};
  const auto body = [](void* context, int64_t begin, int64_t end, int32_t) {
    const auto& x = *static_cast<Arrays*>(context);
    for (int64_t w = begin; w < end; w++) {
      float* mine = x.a + w * 3 * kSmallFloats;
      for (int64_t i = 0; i < x.repeats; i++) triad(mine, mine + kSmallFloats, mine + 2 * kSmallFloats, kSmallFloats);
    }
  };
  const double us = least([&] { host.parallel_for(host.pool, workers, 1, body, &arrays); });
  return static_cast<double>(workers * kSmallFloats * arrays.repeats) * 12 / us / 1e3;
}

double arithmetic(const CoilHost& host) {
  const int64_t workers = std::max(host.num_workers, 1);
  std::vector<float> sums(static_cast<size_t>(workers) * 16);
  const auto body = [](void* context, int64_t begin, int64_t end, int32_t) {
    for (int64_t w = begin; w < end; w++) static_cast<float*>(context)[w * 16] += multiply_adds(kProducts);
  };
  const double us = least([&] { host.parallel_for(host.pool, workers, 1, body, sums.data()); });
  return static_cast<double>(workers * kProducts) * vector_floats() * 2 / us / 1e3;
}

Limits of_cpu(const runtime::Model& model) {
  const CoilHost& host = model.host();
  Limits limits;
  limits.memory_gb_s = memory_bandwidth(host);
  limits.cache_gb_s = cache_bandwidth(host);
  limits.gflop_s = arithmetic(host);
  for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (limits.cache_bytes <= 0) limits.cache_bytes = static_cast<double>(std::max(sysconf(level), 0L));
  }
  limits.how = "measured on " + std::to_string(host.num_workers) + (host.num_workers == 1 ? " thread" : " threads");
  return limits;
}

// Attributes of a device, as the driver numbers them.
constexpr int32_t kClockKilohertz = 13, kMultiprocessors = 16, kCacheBytes = 38, kMajor = 75, kMinor = 76;
constexpr int64_t kCopied = int64_t{256} << 20;

Limits of_cuda(const runtime::CudaDevice& device) {
  Limits limits;
  const cd::CudaDriver& driver = device.driver();
  int32_t clock = 0, multiprocessors = 0, cache = 0, major = 0, minor = 0;
  const int32_t ordinal = device.id().index;
  driver.device_attribute(&clock, kClockKilohertz, ordinal);
  driver.device_attribute(&multiprocessors, kMultiprocessors, ordinal);
  driver.device_attribute(&cache, kCacheBytes, ordinal);
  driver.device_attribute(&major, kMajor, ordinal);
  driver.device_attribute(&minor, kMinor, ordinal);
  limits.gflop_s = clock * 1e-6 * multiprocessors * cuda_machine(10 * major + minor).f32 * 2;
  limits.cache_bytes = cache;
  CoilError error;
  void *from = device.allocate(kCopied, &error), *to = from ? device.allocate(kCopied, &error) : nullptr;
  if (to && device.copy(to, from, kCopied, nullptr, &error) == 0) {
    const double us = least([&] { device.copy(to, from, kCopied, nullptr, &error); });
    limits.memory_gb_s = 2 * static_cast<double>(kCopied) / us / 1e3;
  }
  if (to) device.free(to);
  if (from) device.free(from);
  limits.how = "memory measured by copies on the device; arithmetic by clock and units, float32 without tensor cores";
  return limits;
}

}  // namespace

Limits measure_limits(const runtime::Model& model) { return model.cuda() ? of_cuda(*model.cuda()) : of_cpu(model); }

Roof roof_of(const Limits& limits, double bytes, double flops) {
  const bool cached = limits.cache_gb_s > limits.memory_gb_s && bytes < limits.cache_bytes;
  const double bandwidth = cached ? limits.cache_gb_s : limits.memory_gb_s;
  if (bandwidth <= 0 || limits.gflop_s <= 0) return {};
  const double moved = bytes / bandwidth / 1e3, computed = flops / limits.gflop_s / 1e3;
  return {std::max(moved, computed), computed > moved ? "compute" : cached ? "cache" : "memory"};
}

std::string limits_json(const Limits& limits) {
  return runtime::JsonMembers()
      .number("memory_gb_s", limits.memory_gb_s)
      .number("cache_gb_s", limits.cache_gb_s)
      .number("gflop_s", limits.gflop_s)
      .number("cache_bytes", limits.cache_bytes, 0)
      .text("how", limits.how)
      .object();
}

}  // namespace coil::report
