// What the kernel tests share: dtypes, buffers with guard bytes, hosts with some threads, and the choice of ISA.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "device/kernels.h"

namespace coil::testing {

inline float widen(uint16_t bits, int dtype) {
  uint32_t u = 0;
  if (dtype == COIL_BFLOAT16) {
    u = static_cast<uint32_t>(bits) << 16;
  } else {
    const uint32_t sign = (bits & 0x8000u) << 16, exponent = (bits >> 10) & 31, fraction = bits & 0x3ffu;
    if (exponent == 31) {
      u = sign | 0x7f800000u | fraction << 13;
    } else if (exponent) {
      u = sign | (exponent + 112) << 23 | fraction << 13;
    } else {
      const float tiny = static_cast<float>(fraction) * 0x1p-24f;
      return sign ? -tiny : tiny;
    }
  }
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

// To the nearest even; the test data needs no NaN and no subnormal halves here.
inline uint16_t narrow(float f, int dtype) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  if (dtype == COIL_BFLOAT16) return static_cast<uint16_t>((u + 0x7fff + ((u >> 16) & 1)) >> 16);
  const uint16_t sign = (u >> 16) & 0x8000;
  if (std::isinf(f)) return sign | 0x7c00;
  if (std::fabs(f) < 0x1p-14f) return sign | static_cast<uint16_t>(std::nearbyint(std::fabs(f) * 0x1p24f));
  const uint32_t rounded = (u & 0x7fffffffu) + 0xfff + ((u >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded >> 13) - (112u << 10));
}

// `count` elements of a dtype between guard bytes.
class Buffer {
 public:
  Buffer(int dtype, int64_t count) : dtype_(dtype), count_(count), bytes_(kGuard * 2 + count * size(), kFill) {}
  size_t size() const { return dtype_ == COIL_FLOAT64 ? 8 : dtype_ == COIL_FLOAT32 ? 4 : dtype_ == COIL_BOOL ? 1 : 2; }
  int64_t count() const { return count_; }
  void* data() { return bytes_.data() + kGuard; }
  const void* data() const { return bytes_.data() + kGuard; }
  double get(int64_t i) const {
    const uint8_t* p = bytes_.data() + kGuard + i * size();
    if (dtype_ == COIL_FLOAT64) {
      double d;
      std::memcpy(&d, p, 8);
      return d;
    }
    if (dtype_ == COIL_BOOL) return *p;
    if (dtype_ == COIL_FLOAT32) {
      float f;
      std::memcpy(&f, p, 4);
      return f;
    }
    uint16_t bits;
    std::memcpy(&bits, p, 2);
    return widen(bits, dtype_);
  }
  void set(int64_t i, double value) {
    uint8_t* p = bytes_.data() + kGuard + i * size();
    const auto f = static_cast<float>(value);
    if (dtype_ == COIL_FLOAT64) {
      std::memcpy(p, &value, 8);
    } else if (dtype_ == COIL_BOOL) {
      *p = f != 0;
    } else if (dtype_ == COIL_FLOAT32) {
      std::memcpy(p, &f, 4);
    } else {
      const uint16_t bits = narrow(f, dtype_);
      std::memcpy(p, &bits, 2);
    }
  }
  void fill(std::mt19937& random) {
    std::uniform_real_distribution<float> values(-1, 1);
    // A double has digits that no float has.
    for (int64_t i = 0; i < count_; i++) set(i, dtype_ == COIL_FLOAT64 ? values(random) * 1.000000123456789 : values(random));
  }
  bool guards_intact() const {
    for (size_t i = 0; i < kGuard; i++) {
      if (bytes_[i] != kFill || bytes_[kGuard + count_ * size() + i] != kFill) return false;
    }
    return true;
  }
  bool operator==(const Buffer& other) const { return bytes_ == other.bytes_; }

 private:
  // With the address sanitizer nothing lies behind the elements, so that it sees the first byte read too far.
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kGuard = 0;
#elif defined(__has_feature)
  static constexpr size_t kGuard = __has_feature(address_sanitizer) ? 0 : 256;
#else
  static constexpr size_t kGuard = 256;
#endif
  static constexpr uint8_t kFill = 0xA5;
  int dtype_;
  int64_t count_;
  std::vector<uint8_t> bytes_;
};

// A host whose parallel_for starts threads anew each time.
class TestHost {
 public:
  explicit TestHost(int workers) : host_{workers, this, run} {}
  const CoilHost* get() const { return &host_; }

 private:
  static void run(void* pool, int64_t count, int64_t grain, CoilChunkFn fn, void* context) {
    const int workers = static_cast<TestHost*>(pool)->host_.num_workers;
    std::atomic<int64_t> next{0};
    auto work = [&](int worker) {
      for (int64_t begin; (begin = next.fetch_add(grain)) < count;) fn(context, begin, std::min(begin + grain, count), worker);
    };
    std::vector<std::thread> threads;
    for (int worker = 1; worker < workers; worker++) threads.emplace_back(work, worker);
    work(0);
    for (std::thread& thread : threads) thread.join();
  }
  CoilHost host_;
};

// 64-byte aligned scratch with exactly the promised bytes and guards behind.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) : bytes_(bytes), memory_(bytes + 128, 0xA5) {}
  void* data() { return memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64; }
  bool guards_intact() {
    const uint8_t* end = static_cast<uint8_t*>(data()) + bytes_;
    for (const uint8_t* p = end; p < memory_.data() + memory_.size(); p++) {
      if (*p != 0xA5) return false;
    }
    return true;
  }

 private:
  int64_t bytes_;
  std::vector<uint8_t> memory_;
};

// v4 with AMX in plain C++ (emulated_tiles.h).
extern "C" {
void coil_gemm_emulated(const CoilGemm* args, const CoilHost* host);
void coil_gemm_grouped_emulated(const CoilGemm* args, const CoilHost* host);
void coil_conv2d_emulated(const CoilConv2d* args, const CoilHost* host);
void coil_attention_emulated(const CoilAttention* args, const CoilHost* host);
}

struct IsaKernels {
  const char* name;
  void (*gemm)(const CoilGemm*, const CoilHost*);
  void (*conv2d)(const CoilConv2d*, const CoilHost*);
  void (*attention)(const CoilAttention*, const CoilHost*);
  void (*gemm_f64)(const CoilGemm*, const CoilHost*);
  void (*conv2d_f64)(const CoilConv2d*, const CoilHost*);
  void (*grouped)(const CoilGemm*, const CoilHost*);
  void (*bytes)(const CoilGemm*, const CoilHost*);
  void (*grouped_bytes)(const CoilGemm*, const CoilHost*);

  void product(const CoilGemm* g, const CoilHost* host) const { (g->dtype == COIL_FLOAT64 ? gemm_f64 : gemm)(g, host); }
  void convolution(const CoilConv2d* c, const CoilHost* host) const { (c->dtype == COIL_FLOAT64 ? conv2d_f64 : conv2d)(c, host); }
};

// Those of the kernels that this machine can run.
inline std::vector<IsaKernels> runnable_kernels() {
  std::vector<IsaKernels> all;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    all.push_back({"v3", coil_gemm_v3, coil_conv2d_v3, coil_attention_v3, coil_gemm_f64_v3, coil_conv2d_f64_v3, coil_gemm_grouped_v3, coil_gemm_bytes_v3,
                   coil_gemm_grouped_bytes_v3});
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    all.push_back({"v4", coil_gemm_v4, coil_conv2d_v4, coil_attention_v4, coil_gemm_f64_v4, coil_conv2d_f64_v4, coil_gemm_grouped_v4, coil_gemm_bytes_v4,
                   coil_gemm_grouped_bytes_v4});
    all.push_back({"v4 with emulated tiles", coil_gemm_emulated, coil_conv2d_emulated, coil_attention_emulated, coil_gemm_f64_v4, coil_conv2d_f64_v4,
                   coil_gemm_grouped_emulated, coil_gemm_bytes_v4, coil_gemm_grouped_bytes_v4});
  }
  return all;
}

// |got - want| that is fine for `dtype` after a sum of k products of values around 1, float32 inside (float64 of float64).
inline double tolerance(int dtype, double want, int64_t k) {
  if (dtype == COIL_FLOAT64) return 2e-15 * (4 + std::sqrt(static_cast<double>(k)) * 4 + std::fabs(want));
  const double sum = 1e-7 * (4 + std::sqrt(static_cast<double>(k)) * 4);
  const double rounding = dtype == COIL_FLOAT32 ? 1e-6 : dtype == COIL_BFLOAT16 ? 1.0 / 256 : 1.0 / 2048;
  return sum * 4 + rounding * std::fabs(want) + (dtype == COIL_FLOAT16 ? 1e-7 : 0);
}

inline const char* dtype_name(int dtype) {
  return dtype == COIL_FLOAT64 ? "float64" : dtype == COIL_FLOAT32 ? "float32" : dtype == COIL_BFLOAT16 ? "bfloat16" : "float16";
}
constexpr int kDtypes[] = {COIL_FLOAT32, COIL_BFLOAT16, COIL_FLOAT16};
constexpr int kProductDtypes[] = {COIL_FLOAT32, COIL_BFLOAT16, COIL_FLOAT16, COIL_FLOAT64};

// Of what an epilogue sees of a tile.
inline double tile_element(const float* acc, int64_t i, int dtype) { return dtype == COIL_FLOAT64 ? reinterpret_cast<const double*>(acc)[i] : acc[i]; }
inline void spoil_element(float* acc, int64_t i, int dtype) {
  if (dtype == COIL_FLOAT64) reinterpret_cast<double*>(acc)[i] = NAN;
  else acc[i] = NAN;
}

}  // namespace coil::testing
