// Discrete Fourier transforms along one dimension, by PocketFFT.
//
// Tensors are [outer, n, inner]. A few lines at a time (as many as a vector has lanes) are gathered, transformed together and scattered;
// groups of lines go to the threads. The plan is made once a call.
// PocketFFT throws where memory runs out. All that it will take is taken before it begins instead (heap.h), in one piece: the call fails without it.
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <vector>

#include "device/library/heap.h"

#define POCKETFFT_NO_MULTITHREADING
#define throw                 \
  if (true) __builtin_trap(); \
  else (void)
#define malloc coil_heap::take
#define free coil_heap::give
#include "third_party/pocketfft/pocketfft_hdronly.h"
#undef free
#undef malloc
#undef throw

#include "device/host_support.h"
#include "device/library.h"

namespace {

namespace fft = pocketfft::detail;

template <class T>
constexpr int64_t kLanes = static_cast<int64_t>(fft::VLEN<T>::val);

// 0: none, 1: by the root of the number of points, 2: by that number; as in ATen.
template <class T>
T factor(int64_t mode, int64_t points) {
  if (mode == 0) return T(1);
  const double n = static_cast<double>(points);
  return static_cast<T>(1 / (mode == 1 ? __builtin_sqrt(n) : n));
}

struct Lines {
  int64_t outer, n, inner;  // n: of the transform
  int64_t count() const { return outer * inner; }
};

using coil_heap::arena_bytes;

// What PocketFFT takes, in bytes. A plan of n points has fewer than 2 n factors of its own, and computes them from about 3 sqrt(n) others; Bluestein's way
// (for lengths with large prime factors) is a plan of n2 points, and transforms as long.
template <class T>
struct Needs {
  static constexpr size_t kPoint = sizeof(fft::cmplx<T>), kPoints = sizeof(fft::cmplx<fft::vtype_t<T>>);  // of one line, and of the lines of a group
  size_t plan, group;

  static size_t roots(size_t n) { return arena_bytes(sizeof(fft::cmplx<double>) * (static_cast<size_t>(3 * __builtin_sqrt(static_cast<double>(n))) + 8), 2); }
  static size_t packed(size_t n) { return arena_bytes(2 * n * kPoint + 8192, 32) + roots(n); }

  explicit Needs(size_t n) : plan(packed(n)), group(arena_bytes(n * (kPoints + kPoint), 4)) {
    const size_t factor = n < 50 ? 0 : fft::util::largest_prime_factor(n);
    if (factor * factor <= n) return;
    const size_t n2 = fft::util::good_size_cmplx(2 * n - 1), blue = packed(n2) + roots(2 * n) + arena_bytes((n + 3 * n2 + 1) * kPoint, 8);
    if (blue > plan) plan = blue;
    const size_t lines = arena_bytes((n + 2 * n2) * kPoints, 4);
    if (lines > group) group = lines;
  }
};

template <class T, class Plan>
struct Job {
  const CoilLibraryCall* call;
  const Plan* plan;
  uint8_t* memory;  // a worker's: `memory_bytes` of it
  size_t memory_bytes;
  Lines lines;
  int64_t in_length, out_length;  // of a line, in elements
  T scale;
  bool flag;  // forward (c2c), one-sided (r2c)
};

// Runs `group(job, first line, number of lines, worker's scratch)` over groups of lines.
template <class T, class Plan, class Group>
void for_groups(const Job<T, Plan>& job, Group) {
  constexpr int64_t kWidth = kLanes<T>;
  auto chunk = [](void* context, int64_t begin, int64_t end, int32_t worker) {
    const auto& j = *static_cast<const Job<T, Plan>*>(context);
    uint8_t* scratch = j.call->scratch + worker * j.call->worker_bytes;
    coil_heap::Arena arena(j.memory + static_cast<size_t>(worker) * j.memory_bytes, j.memory_bytes);
    const coil_heap::Within within(arena);
    for (int64_t g = begin; g < end; ++g) {
      const int64_t first = g * kWidth, left = j.lines.count() - first;
      Group::run(j, first, left < kWidth ? left : kWidth, scratch);
    }
  };
  const int64_t groups = (job.lines.count() + kWidth - 1) / kWidth, grain = 4096 / (job.lines.n * 4 + 1) + 1;
  if (groups <= 0) return;
  const CoilHost* host = job.call->host;
  if (groups <= grain || host->num_workers == 1) return chunk(const_cast<Job<T, Plan>*>(&job), 0, groups, 0);
  host->parallel_for(host->pool, groups, grain, chunk, const_cast<Job<T, Plan>*>(&job));
}

// Where line `l` begins among lines of `length`.
int64_t start(const Lines& lines, int64_t l, int64_t length) { return l / lines.inner * length * lines.inner + l % lines.inner; }

template <class T>
struct ComplexGroup {
  using V = fft::vtype_t<T>;
  static void run(const Job<T, fft::pocketfft_c<T>>& j, int64_t first, int64_t count, uint8_t* scratch) {
    auto* buffer = reinterpret_cast<fft::cmplx<V>*>(scratch);
    const T* in = static_cast<const T*>(j.call->in[0]);
    T* out = static_cast<T*>(j.call->out[0]);
    const int64_t step = 2 * j.lines.inner;
    for (int64_t lane = 0; lane < kLanes<T>; ++lane) {
      const T* from = in + 2 * start(j.lines, first + (lane < count ? lane : 0), j.lines.n);
      for (int64_t k = 0; k < j.lines.n; ++k) buffer[k].r[lane] = from[k * step], buffer[k].i[lane] = from[k * step + 1];
    }
    j.plan->exec(buffer, j.scale, j.flag);
    for (int64_t lane = 0; lane < count; ++lane) {
      T* to = out + 2 * start(j.lines, first + lane, j.lines.n);
      for (int64_t k = 0; k < j.lines.n; ++k) to[k * step] = buffer[k].r[lane], to[k * step + 1] = buffer[k].i[lane];
    }
  }
};

// PocketFFT's order of a half spectrum: re 0, re 1, im 1, ..., and re n/2 where n is even.
template <class T>
struct ToComplexGroup {
  using V = fft::vtype_t<T>;
  static void run(const Job<T, fft::pocketfft_r<T>>& j, int64_t first, int64_t count, uint8_t* scratch) {
    V* buffer = reinterpret_cast<V*>(scratch);
    const T* in = static_cast<const T*>(j.call->in[0]);
    T* out = static_cast<T*>(j.call->out[0]);
    const int64_t n = j.lines.n, step = j.lines.inner;
    for (int64_t lane = 0; lane < kLanes<T>; ++lane) {
      const T* from = in + start(j.lines, first + (lane < count ? lane : 0), n);
      for (int64_t k = 0; k < n; ++k) buffer[k][lane] = from[k * step];
    }
    j.plan->exec(buffer, j.scale, true);
    for (int64_t lane = 0; lane < count; ++lane) {
      T* to = out + 2 * start(j.lines, first + lane, j.out_length);
      for (int64_t k = 0; k < j.out_length; ++k) {
        const int64_t m = k <= n - k ? k : n - k;  // the other half is the conjugate
        const T re = buffer[m == 0 ? 0 : 2 * m - 1][lane], im = m == 0 || 2 * m == n ? T(0) : buffer[2 * m][lane];
        to[2 * k * step] = re;
        to[2 * k * step + 1] = m == k ? im : -im;
      }
    }
  }
};

template <class T>
struct ToRealGroup {
  using V = fft::vtype_t<T>;
  static void run(const Job<T, fft::pocketfft_r<T>>& j, int64_t first, int64_t count, uint8_t* scratch) {
    V* buffer = reinterpret_cast<V*>(scratch);
    const T* in = static_cast<const T*>(j.call->in[0]);
    T* out = static_cast<T*>(j.call->out[0]);
    const int64_t n = j.lines.n, step = 2 * j.lines.inner;
    for (int64_t lane = 0; lane < kLanes<T>; ++lane) {
      const T* from = in + 2 * start(j.lines, first + (lane < count ? lane : 0), j.in_length);
      buffer[0][lane] = from[0];
      for (int64_t m = 1; 2 * m <= n; ++m) {
        buffer[2 * m - 1][lane] = from[m * step];
        if (2 * m < n) buffer[2 * m][lane] = from[m * step + 1];
      }
    }
    j.plan->exec(buffer, j.scale, false);
    for (int64_t lane = 0; lane < count; ++lane) {
      T* to = out + start(j.lines, first + lane, n);
      for (int64_t k = 0; k < n; ++k) to[k * j.lines.inner] = buffer[k][lane];
    }
  }
};

// Makes the plan of `n` points and has `group` transform the lines by it.
template <class T, class Plan, class Group>
int32_t transform(const CoilLibraryCall* call, Job<T, Plan> job, Group group) {
  const auto n = static_cast<size_t>(job.lines.n), workers = static_cast<size_t>(call->host->num_workers);
  if (job.lines.count() == 0) return 0;
  const Needs<T> needs(n);
  job.memory_bytes = (needs.group + 63) / 64 * 64;
  auto* const memory = static_cast<uint8_t*>(malloc(job.memory_bytes * workers + needs.plan));
  constexpr int32_t kOutOfMemory = 401;
  if (!memory) return cd::fail(call->error, kOutOfMemory, "%s: there is no memory for transforms of %lld points", call->subject, static_cast<long long>(n));
  job.memory = memory;
  coil_heap::Arena arena(memory + job.memory_bytes * workers, needs.plan);
  std::optional<Plan> plan;
  {
    const coil_heap::Within within(arena);
    plan.emplace(n);
  }
  job.plan = &*plan;
  for_groups(job, group);
  {
    const coil_heap::Within within(arena);
    plan.reset();
  }
  free(memory);
  return 0;
}

template <class T>
int32_t c2c(const CoilLibraryCall* call) {
  const Lines lines{call->sizes[0], call->sizes[1], call->sizes[2]};
  const Job<T, fft::pocketfft_c<T>> job{call, nullptr, nullptr, 0, lines, lines.n, lines.n, factor<T>(call->options[1], lines.n), call->options[0] != 0};
  return transform(call, job, ComplexGroup<T>());
}

template <class T, class Group>
int32_t with_reals(const CoilLibraryCall* call, int64_t in_length, int64_t out_length) {
  const Lines lines{call->sizes[0], call->sizes[1], call->sizes[2]};
  const Job<T, fft::pocketfft_r<T>> job{call, nullptr, nullptr, 0, lines, in_length, out_length, factor<T>(call->options[0], lines.n), false};
  return transform(call, job, Group());
}

}  // namespace

// sizes: outer, n, inner. options: forward, factor mode. A worker's scratch is 64 n bytes, as for the others.
COIL_LIBRARY_ROUTINE(fft_c2c) { return call->dtype == COIL_COMPLEX64 ? c2c<float>(call) : c2c<double>(call); }

// n reals to out_length (n / 2 + 1, or n) complex numbers. sizes: outer, n, inner, out_length. options: factor mode.
COIL_LIBRARY_ROUTINE(fft_r2c) {
  const int64_t n = call->sizes[1], length = call->sizes[3];
  return call->dtype == COIL_COMPLEX64 ? with_reals<float, ToComplexGroup<float>>(call, n, length)
                                       : with_reals<double, ToComplexGroup<double>>(call, n, length);
}

// in_length complex numbers (n / 2 + 1 of them count) to n reals. sizes: outer, n, inner, in_length. options: factor mode.
COIL_LIBRARY_ROUTINE(fft_c2r) {
  const int64_t n = call->sizes[1], length = call->sizes[3];
  return call->dtype == COIL_COMPLEX64 ? with_reals<float, ToRealGroup<float>>(call, length, n) : with_reals<double, ToRealGroup<double>>(call, length, n);
}
