// A shared library for compare.py: loops that time the kernels on the runtime's threads, the machine's FMA peak.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "device/kernels.h"
#include "runtime/thread_pool.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

// The runtime's threads, as a package's kernels see them.
class Pool {
 public:
  explicit Pool(int workers) : pool_(workers), host_{workers, &pool_, coil::runtime::ThreadPool::run_loop} {}
  const CoilHost* host() const { return &host_; }

 private:
  coil::runtime::ThreadPool pool_;
  CoilHost host_;
};

// With one thread its processor time is taken, which busy neighbours do not stretch.
double thread_time() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + t.tv_nsec * 1e-9;
}
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Seconds of one call: the lower quartile of `repeats`, as neighbours only ever add time.
template <class Args>
double quartile_time(void (*kernel)(const Args*, const CoilHost*), Args args, int64_t scratch_bytes, int repeats, int workers) {
  static std::unique_ptr<Pool> pool;
  if (!pool || pool->host()->num_workers != workers) pool = std::make_unique<Pool>(workers);
  std::vector<char> scratch(scratch_bytes + 64);
  args.scratch = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
  std::vector<double> times;
  kernel(&args, pool->host());
  for (int i = 0; i < repeats; i++) {
    const double start = workers == 1 ? thread_time() : now();
    kernel(&args, pool->host());
    times.push_back((workers == 1 ? thread_time() : now()) - start);
  }
  std::nth_element(times.begin(), times.begin() + repeats / 4, times.end());
  return times[repeats / 4];
}

}  // namespace

EXPORT double bench_gemm(int isa, const CoilGemm* args, int repeats, int workers) {
  return quartile_time(isa == 4 ? coil_gemm_v4 : coil_gemm_v3, *args, coil_gemm_scratch_bytes(args, workers), repeats, workers);
}

EXPORT double bench_conv2d(int isa, const CoilConv2d* args, int repeats, int workers) {
  const int64_t scratch = coil_conv2d_scratch_bytes(args, workers);
  return quartile_time(isa == 4 ? coil_conv2d_v4 : coil_conv2d_v3, *args, scratch, repeats, workers);
}

EXPORT double bench_attention(int isa, const CoilAttention* args, int repeats, int workers) {
  const int64_t scratch = coil_attention_scratch_bytes(args, workers);
  return quartile_time(isa == 4 ? coil_attention_v4 : coil_attention_v3, *args, scratch, repeats, workers);
}

// GFLOP/s of one core's multiply-adds, on registers alone. Compiled for the ISA of this file's flags.
EXPORT double fma_peak() {
  typedef float Vec __attribute__((vector_size(64)));
  Vec sum[16] = {};
  const Vec a = Vec{} + 1.0000001f, b = Vec{} + 0.5f;
  double best = 0;
  for (int repeat = 0; repeat < 5; repeat++) {
    const double start = thread_time();
    for (int i = 0; i < 1000000; i++) {
#pragma unroll
      for (int j = 0; j < 16; j++) sum[j] = sum[j] * a + b;
      asm volatile("" : "+v"(sum[0]));
    }
    best = std::max(best, 1e6 * 16 * 32 / (thread_time() - start) * 1e-9);
  }
  volatile float keep = 0;
  for (const Vec& v : sum) keep = keep + v[0];
  return best;
}
