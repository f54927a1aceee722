// Products and convolutions by NVIDIA's libraries (device/cuda_blas.cc, cuda_dnn.cc), against fakes of them on the fake driver:
// what is asked, what is refused, what is kept, and that every failure leaves the call to coil's own kernels.
#include "templates/cuda_library.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "device/cuda/params.h"
#include "device/model_abi.h"
#include "fake_libraries.h"
#include "fixture.h"
#include "tests/paths.h"

namespace coil::runtime_test {
namespace {

using templates::kLibraryScratchBytes;

std::string compile(const std::string& name, const std::string& sources, const std::string& flags = "") {
  const std::string path = temp_folder() + "/" + name;
  const std::string command = "clang++-19 -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -I" COIL_SOURCE_DIR "/device " + flags +
                              " -x c++ " + sources + " -o " + path;
  if (std::system(command.c_str()) != 0) std::abort();
  return path;
}
const std::string kTests = COIL_SOURCE_DIR "/tests/runtime/";

const std::string& libraries_path() {
  static const std::string path = compile("libfakelibraries.so", kTests + "fake_libraries.cpp");
  return path;
}
// Sees no stream as captured until it is told.
const std::string& driver_path() {
  static const std::string path = compile("libfakecapture.so", kTests + "fake_capture.cpp -x none " + fake_driver());
  return path;
}
std::string device_path() {
  static const std::string path = [] {
    std::string sources = kTests + "fixture_libraries.cpp";
    for (const char* name :
         {"cuda_blas", "cuda_dnn", "cuda_loader", "cuda_driver", "cuda_host", "cuda_tensor_map", "cuda_graph", "cuda_tape", "host_support", "input_errors"})
      sources += std::string(" " COIL_SOURCE_DIR "/device/") + name + ".cc";
    return compile("libfixture.so", sources, "-fno-exceptions -fno-rtti");
  }();
  static int copies = 0;
  const std::string copy = temp_folder() + "/libfixture" + std::to_string(copies++) + ".so";
  std::filesystem::copy_file(path, copy);
  return copy;
}

float value(int64_t i) { return static_cast<float>(i * 7 % 11 - 5) / 4; }  // exact in every type

// Elements of a dtype, at an address of which `offset` bytes are beyond a multiple of 256.
struct Memory {
  Memory(int64_t count, int32_t dtype, size_t offset = 0) : dtype(dtype), bytes(static_cast<size_t>(count) * size() + 512) {
    data = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(bytes.data()) + 255) / 256 * 256) + offset;
    for (int64_t i = 0; i < count; i++) set(i, value(i));
  }
  size_t size() const { return dtype == COIL_FLOAT32 ? 4 : dtype == COIL_FLOAT64 ? 8 : 2; }
  void set(int64_t i, float v) {
    uint32_t bits;
    std::memcpy(&bits, &v, 4);
    const uint16_t half = dtype == COIL_BFLOAT16 ? static_cast<uint16_t>(bits >> 16) : half_of(v);
    std::memcpy(data + static_cast<size_t>(i) * size(), size() == 2 ? static_cast<const void*>(&half) : &v, std::min<size_t>(size(), 4));
  }
  // Of the few values that value() gives.
  static uint16_t half_of(float v) {
    if (v == 0) return 0;
    int exponent;
    const float fraction = std::frexp(std::fabs(v), &exponent);
    return static_cast<uint16_t>((v < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | static_cast<int>((2 * fraction - 1) * 1024));
  }

  int32_t dtype;
  std::vector<char> bytes;
  char* data;
};

// t.scratch, with what must stay as it is before and behind it.
struct Scratch {
  explicit Scratch(int64_t result_bytes) : bytes(static_cast<size_t>(result_bytes + kLibraryScratchBytes) + 2 * kEdge + 64, 0x77) {
    base = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(bytes.data()) + kEdge + 63) / 64 * 64);
    end = base + result_bytes + kLibraryScratchBytes;
  }
  bool edges_hold() const {
    return std::all_of(bytes.data(), const_cast<const char*>(base), [](char c) { return c == 0x77; }) &&
           std::all_of(const_cast<const char*>(end), bytes.data() + bytes.size(), [](char c) { return c == 0x77; });
  }
  static constexpr size_t kEdge = 256;
  std::vector<char> bytes;
  char *base, *end;
};

struct Product {
  int64_t m = 5, n = 7, k = 9;
  int32_t dtype = COIL_FLOAT32;
  bool a_across = true, b_across = true;  // whether the last index is the contiguous one
  int64_t pad = 0;                        // elements between lines
  size_t a_offset = 0, b_offset = 0;      // bytes
};

class Call {
 public:
  explicit Call(const Product& p)
      : p_(p), a_((p.m + p.pad) * (p.k + p.pad), p.dtype, p.a_offset), b_((p.k + p.pad) * (p.n + p.pad), p.dtype, p.b_offset), scratch_(p.m * p.n * 4) {
    t.batch = 1, t.m = p.m, t.n = p.n, t.k = p.k, t.split = 1;
    t.a = a_.data, t.a_row = p.a_across ? p.k + p.pad : 1, t.a_col = p.a_across ? 1 : p.m + p.pad;
    t.b = b_.data, t.b_row = p.b_across ? p.n + p.pad : 1, t.b_col = p.b_across ? 1 : p.k + p.pad;
    t.scratch = scratch_.base;
  }
  // "" or what is wrong with the result.
  std::string wrong() const {
    if (!scratch_.edges_hold()) return "bytes beside the scratch memory changed";
    if (reinterpret_cast<uintptr_t>(t.scratch) % 256) return "the result is not aligned";
    for (int64_t i = 0; i < p_.m; i++) {
      for (int64_t j = 0; j < p_.n; j++) {
        float sum = 0;
        for (int64_t l = 0; l < p_.k; l++) sum += value(i * t.a_row + l * t.a_col) * value(l * t.b_row + j * t.b_col);
        const float got = static_cast<const float*>(t.scratch)[i * p_.n + j];
        if (got != sum) return "element " + std::to_string(i) + ", " + std::to_string(j) + " is " + std::to_string(got) + ", not " + std::to_string(sum);
      }
    }
    return "";
  }
  bool untouched() const { return t.scratch == scratch_.base; }

  CudaGemm t = {};

 private:
  Product p_;
  Memory a_, b_;
  Scratch scratch_;
};

struct Convolution {
  int64_t n = 2, ic = 8, ih = 6, iw = 5, oc = 12;
  int kernel = 3, stride = 1, pad = 1, dilation = 1;
  int32_t dtype = COIL_FLOAT32;
  int64_t gap = 0;  // elements between pixels
  size_t x_offset = 0;
};

class ConvCall {
 public:
  explicit ConvCall(const Convolution& c)
      : c_(c),
        x_(c.n * c.ih * c.iw * (c.ic + c.gap), c.dtype, c.x_offset),
        w_(c.oc * c.kernel * c.kernel * c.ic, c.dtype),
        scratch_(c.n * out(c.ih) * out(c.iw) * c.oc * static_cast<int64_t>(x_.size())) {
    t.n = c.n, t.ic = c.ic, t.ih = c.ih, t.iw = c.iw, t.oc = c.oc, t.oh = out(c.ih), t.ow = out(c.iw);
    t.kh = t.kw = c.kernel, t.stride_h = t.stride_w = c.stride, t.pad_h = t.pad_w = c.pad, t.dilation_h = t.dilation_w = c.dilation;
    t.groups = t.split = 1;
    t.x = x_.data, t.x_c = 1, t.x_w = c.ic + c.gap, t.x_h = t.x_w * c.iw, t.x_n = t.x_h * c.ih;
    t.w = w_.data, t.scratch = scratch_.base;
  }
  int64_t out(int64_t in) const { return (in + 2 * c_.pad - c_.dilation * (c_.kernel - 1) - 1) / c_.stride + 1; }
  std::string wrong() const {
    if (!scratch_.edges_hold()) return "bytes beside the scratch memory changed";
    if (reinterpret_cast<uintptr_t>(t.scratch) % 256) return "the result is not aligned";
    for (int64_t p = 0; p < t.n * t.oh * t.ow; p++) {
      for (int64_t o = 0; o < t.oc; o++) {
        const float want = at(p / (t.oh * t.ow), o, p / t.ow % t.oh, p % t.ow), got = result(p * t.oc + o);
        if (std::fabs(got - want) > (c_.dtype == COIL_FLOAT32 ? 0 : std::fabs(want) / 256))
          return "pixel " + std::to_string(p) + " is " + std::to_string(got) + ", not " + std::to_string(want);
      }
    }
    return "";
  }
  bool untouched() const { return t.scratch == scratch_.base; }

  CudaConv2d t = {};

 private:
  float at(int64_t n, int64_t o, int64_t oh, int64_t ow) const {
    float sum = 0;
    for (int64_t h = 0; h < t.kh; h++) {
      for (int64_t w = 0; w < t.kw; w++) {
        const int64_t ih = oh * t.stride_h - t.pad_h + h * t.dilation_h, iw = ow * t.stride_w - t.pad_w + w * t.dilation_w;
        if (ih < 0 || ih >= t.ih || iw < 0 || iw >= t.iw) continue;
        for (int64_t c = 0; c < t.ic; c++) sum += value(n * t.x_n + ih * t.x_h + iw * t.x_w + c) * value(((o * t.kh + h) * t.kw + w) * t.ic + c);
      }
    }
    return sum;
  }
  float result(int64_t i) const {
    if (c_.dtype == COIL_FLOAT32) return static_cast<const float*>(t.scratch)[i];
    uint16_t half;
    std::memcpy(&half, static_cast<const char*>(t.scratch) + i * 2, 2);
    if (c_.dtype == COIL_FLOAT16) {
      const float magnitude = half & 0x7fff ? std::ldexp(static_cast<float>((half & 0x3ff) | 0x400), (half >> 10 & 31) - 25) : 0;
      return half & 0x8000 ? -magnitude : magnitude;
    }
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  }

  Convolution c_;
  Memory x_, w_;
  Scratch scratch_;
};

class CudaLibraries : public testing::Test {
 protected:
  static void SetUpTestSuite() { driver_path(), libraries_path(); }
  void SetUp() override {
    setenv("COIL_CUDA_DRIVER", driver_path().c_str(), 1);
    name_libraries(libraries_path());
    void* fakes = dlopen(libraries_path().c_str(), RTLD_NOW);
    fake_ = reinterpret_cast<FakeLibrariesFn>(dlsym(fakes, "fake_libraries"))();
    *fake_ = {};
    capture(0, 0);
    device_code_ = dlopen(device_path().c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(device_code_) << dlerror();
    device_ = open(0);
    ASSERT_TRUE(device_);
    void* context = nullptr;
    driver<int32_t(void**, int32_t)>("cuDevicePrimaryCtxRetain")(&context, 0);
    driver<int32_t(void*)>("cuCtxSetCurrent")(context);
    driver<int32_t(void**, uint32_t)>("cuStreamCreate")(&stream_, 0);
  }
  void TearDown() override {
    if (device_) close(device_);
    driver<int32_t(void*)>("cuStreamDestroy_v2")(stream_);
    driver<int32_t(void*)>("cuCtxSetCurrent")(nullptr);
    driver<int32_t(int32_t)>("cuDevicePrimaryCtxRelease_v2")(0);
    EXPECT_EQ(fake_->handles, 0);
    EXPECT_EQ(fake_->objects, 0);
    setenv("COIL_CUDA_DRIVER", fake_driver().c_str(), 1);
    unsetenv("COIL_CUBLASLT"), unsetenv("COIL_CUDNN");
  }

  template <class F>
  static F* driver(const char* name) {
    return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
  }
  template <class F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(dlsym(device_code_, name));
  }
  void* open(int32_t ordinal) const { return function<void*(int32_t)>("fixture_open")(ordinal); }
  void close(void* device) const { function<void(void*)>("fixture_close")(device); }
  static void name_libraries(const std::string& path) { setenv("COIL_CUBLASLT", path.c_str(), 1), setenv("COIL_CUDNN", path.c_str(), 1); }
  static void capture(int32_t status, int32_t code) {
    static void* const driver = dlopen(driver_path().c_str(), RTLD_NOW);
    reinterpret_cast<void (*)(int32_t, int32_t)>(dlsym(driver, "fake_capture"))(status, code);
  }
  bool gemm(Call& call, int32_t dtype, void* device = nullptr) const {
    return function<bool(void*, void*, CudaGemm*, int32_t)>("fixture_gemm")(device ? device : device_, stream_, &call.t, dtype);
  }
  bool conv(ConvCall& call, int32_t dtype, void* device = nullptr) const {
    return function<bool(void*, void*, CudaConv2d*, int32_t)>("fixture_conv")(device ? device : device_, stream_, &call.t, dtype);
  }
  // "" (computed), "refused", or what is wrong.
  std::string gemm(const Product& p, void* device = nullptr) const {
    Call call(p);
    return gemm(call, p.dtype, device) ? call.wrong() : call.untouched() ? "refused" : "refused, but scratch has moved";
  }
  std::string conv(const Convolution& c, void* device = nullptr) const {
    ConvCall call(c);
    return conv(call, c.dtype, device) ? call.wrong() : call.untouched() ? "refused" : "refused, but scratch has moved";
  }
  // The test is the same for both.
  void each(const std::function<void(const std::function<std::string(int shape)>&)>& test) const {
    test([&](int shape) { return gemm({.m = 5 + shape}); });
    test([&](int shape) { return conv({.n = 1 + shape}); });
  }

  FakeLibraries* fake_ = nullptr;
  void* device_code_ = nullptr;
  void* device_ = nullptr;
  void* stream_ = nullptr;
};

TEST_F(CudaLibraries, ProductsOfEveryLayout) {
  fake_->workspace = 16 << 20;  // all of it is written
  for (int32_t dtype : {COIL_FLOAT32, COIL_BFLOAT16, COIL_FLOAT16}) {
    for (int layout = 0; layout < 8; layout++) {
      const Product p = {.dtype = dtype, .a_across = (layout & 1) != 0, .b_across = (layout & 2) != 0, .pad = layout & 4 ? 3 : 0};
      EXPECT_EQ(gemm(p), "") << dtype << ", layout " << layout;
    }
  }
  EXPECT_EQ(fake_->stream, stream_);
  EXPECT_EQ(fake_->workspace_given, 16 << 20);
  EXPECT_EQ(gemm({.m = 1, .n = 1, .k = 1}), "");
  EXPECT_EQ(gemm({.m = 1, .n = 33, .k = 2, .b_across = false}), "");
}

TEST_F(CudaLibraries, TellsTheAlignmentOfAddresses) {
  for (size_t offset : {0u, 4u, 8u}) {
    EXPECT_EQ(gemm({.a_offset = offset}), "");
    // The library's matrices are column by column: our b is its a.
    EXPECT_EQ(fake_->align_b, offset == 0 ? 16u : offset);
    EXPECT_EQ(fake_->align_a, 16u);
  }
  EXPECT_EQ(gemm({.a_offset = 48}), "");
  EXPECT_EQ(fake_->advised, 3);  // more than 16 bytes help nobody
  EXPECT_EQ(gemm({.dtype = COIL_BFLOAT16, .b_offset = 2}), "");
  EXPECT_EQ(fake_->align_a, 2u);
}

TEST_F(CudaLibraries, ProductsThatItCannotTake) {
  const std::function<void(CudaGemm&)> changes[] = {[](CudaGemm& t) { t.batch = 2; },
                                                    [](CudaGemm& t) { t.batch = 0; },
                                                    [](CudaGemm& t) { t.m = 0; },
                                                    [](CudaGemm& t) { t.n = 0; },
                                                    [](CudaGemm& t) { t.k = 0; },
                                                    [](CudaGemm& t) { t.a_row = 0; },
                                                    [](CudaGemm& t) { t.a_row = 2, t.a_col = 3; },
                                                    [](CudaGemm& t) { t.b_row = t.k - 1; },
                                                    [](CudaGemm& t) { t.b_col = 2; },
                                                    [](CudaGemm& t) { t.m = int64_t{1} << 31; },
                                                    [](CudaGemm& t) { t.a_row = -9; }};
  for (size_t i = 0; i < std::size(changes); i++) {
    Call call({.n = 11});
    changes[i](call.t);
    EXPECT_FALSE(gemm(call, COIL_FLOAT32)) << i;
    EXPECT_TRUE(call.untouched()) << i;
  }
  Call call({.dtype = COIL_FLOAT64});
  EXPECT_FALSE(gemm(call, COIL_FLOAT64));
  EXPECT_EQ(fake_->created, 0);  // it was not even started
}

TEST_F(CudaLibraries, Convolutions) {
  fake_->workspace = 16 << 20;
  for (int32_t dtype : {COIL_FLOAT32, COIL_BFLOAT16, COIL_FLOAT16}) {
    EXPECT_EQ(conv({.dtype = dtype}), "");
    EXPECT_EQ(conv({.stride = 2, .dtype = dtype}), "");
    EXPECT_EQ(conv({.pad = 2, .dilation = 2, .dtype = dtype}), "");
    EXPECT_EQ(conv({.kernel = 1, .stride = 2, .pad = 0, .dtype = dtype}), "");
    EXPECT_EQ(conv({.dtype = dtype, .gap = 8}), "");
  }
  EXPECT_EQ(fake_->stream, stream_);
}

TEST_F(CudaLibraries, ConvolutionsThatItCannotTake) {
  const std::function<void(CudaConv2d&)> changes[] = {[](CudaConv2d& t) { t.groups = 2; },
                                                      [](CudaConv2d& t) { t.n = 0; },
                                                      [](CudaConv2d& t) { t.x_c = 2; },
                                                      [](CudaConv2d& t) { t.x_w = t.ic - 1; },
                                                      [](CudaConv2d& t) { t.x_n = 0; },
                                                      [](CudaConv2d& t) { t.oh = 0; },
                                                      [](CudaConv2d& t) { t.w = static_cast<const char*>(t.w) + 4; }};
  for (size_t i = 0; i < std::size(changes); i++) {
    ConvCall call({});
    changes[i](call.t);
    EXPECT_FALSE(conv(call, COIL_FLOAT32)) << i;
    EXPECT_TRUE(call.untouched()) << i;
  }
  EXPECT_EQ(conv({.x_offset = 8}), "refused");
  ConvCall call({});
  EXPECT_FALSE(conv(call, COIL_FLOAT64));
  EXPECT_EQ(fake_->created, 0);
}

TEST_F(CudaLibraries, OnlyEnginesThatAreExact) {
  for (int inexact : {0, 1, 2}) {
    fake_->inexact = inexact;
    EXPECT_EQ(conv({.n = 1 + inexact}), "");
    EXPECT_EQ(fake_->engine, inexact);
  }
  fake_->inexact = 3;
  EXPECT_EQ(conv({.n = 4}), "refused");
}

// They are TF32's; bf16 and f16 lose nothing on them.
TEST_F(CudaLibraries, NoTensorCoresForFloat32) {
  for (int engines : {0, 1, 2}) {
    fake_->tensor_cores = engines;
    EXPECT_EQ(conv({.n = 1 + engines}), "");
    EXPECT_EQ(fake_->engine, engines);
    EXPECT_EQ(conv({.n = 1 + engines, .dtype = COIL_BFLOAT16}), "");
    EXPECT_EQ(fake_->engine, 0);
  }
  fake_->tensor_cores = 3;
  EXPECT_EQ(conv({.n = 4}), "refused");
  EXPECT_EQ(conv({.n = 4, .dtype = COIL_FLOAT16}), "");
}

TEST_F(CudaLibraries, PlansAreKept) {
  each([&](const auto& compute) {
    *fake_ = {.handles = fake_->handles, .objects = fake_->objects};
    for (int i = 0; i < 5; i++) EXPECT_EQ(compute(0), "");
    EXPECT_EQ(fake_->advised, 1);
    EXPECT_EQ(compute(1), "");
    EXPECT_EQ(compute(0), "");
    EXPECT_EQ(fake_->advised, 2);
    EXPECT_EQ(fake_->runs, 7);
    EXPECT_EQ(fake_->created, 1);
  });
}

TEST_F(CudaLibraries, WithoutTheLibrary) {
  name_libraries("/no/such/library.so");
  each([&](const auto& compute) { EXPECT_EQ(compute(0), "refused"); });
  name_libraries(libraries_path());  // it was looked for once
  each([&](const auto& compute) { EXPECT_EQ(compute(0), "refused"); });
  EXPECT_EQ(fake_->created, 0);
}

TEST_F(CudaLibraries, LibraryThatLacksFunctions) {
  name_libraries(fake_driver());
  each([&](const auto& compute) { EXPECT_EQ(compute(0), "refused"); });
}

TEST_F(CudaLibraries, LibraryThatDoesNotStart) {
  fake_->fail_create = 1;
  each([&](const auto& compute) {
    fake_->created = 0;
    EXPECT_EQ(compute(0), "refused");
    EXPECT_EQ(compute(0), "refused");
    EXPECT_EQ(fake_->created, 1);
  });
}

TEST_F(CudaLibraries, LibraryThatKnowsNoWay) {
  each([&](const auto& compute) {
    fake_->fail_advise = 15, fake_->advised = fake_->runs = 0;
    EXPECT_EQ(compute(0), "refused");
    EXPECT_EQ(compute(0), "refused");
    EXPECT_EQ(fake_->advised, 1);
    EXPECT_EQ(fake_->runs, 0);
    fake_->fail_advise = 0;
    EXPECT_EQ(compute(1), "");  // another shape
  });
}

TEST_F(CudaLibraries, TooMuchWorkspace) {
  fake_->workspace = (16 << 20) + 1;
  each([&](const auto& compute) { EXPECT_EQ(compute(0), "refused"); });
  EXPECT_EQ(fake_->runs, 0);
}

TEST_F(CudaLibraries, RunThatFails) {
  each([&](const auto& compute) {
    fake_->runs = 0;
    EXPECT_EQ(compute(0), "");
    fake_->fail_run = 13;
    EXPECT_EQ(compute(0), "refused");
    fake_->fail_run = 0;
    EXPECT_EQ(compute(0), "refused");  // it is not tried again
    EXPECT_EQ(fake_->runs, 2);
    EXPECT_EQ(compute(1), "");
  });
}

TEST_F(CudaLibraries, CapturesOnlyWhatHasRun) {
  each([&](const auto& compute) {
    fake_->advised = fake_->created = 0;
    for (int code : {0, 901}) {  // while it is captured, or when the driver cannot say
      capture(code == 0, code);
      EXPECT_EQ(compute(0), "refused");
    }
    EXPECT_EQ(fake_->created, 0);
    capture(0, 0);
    EXPECT_EQ(compute(0), "");
    capture(1, 0);
    EXPECT_EQ(compute(0), "");
    EXPECT_EQ(compute(1), "refused");
    EXPECT_EQ(fake_->advised, 1);
    capture(0, 0);
    EXPECT_EQ(compute(1), "");
  });
}

TEST_F(CudaLibraries, SeveralThreads) {
  each([&](const auto& compute) {
    fake_->advised = fake_->runs = 0;
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++) {
      threads.emplace_back([&, i] {
        for (int j = 0; j < 30; j++) wrong += compute((i + j) % 4) != "";
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(fake_->advised, 4);
    EXPECT_EQ(fake_->runs, 240);
  });
}

TEST_F(CudaLibraries, EachDeviceHasItsOwn) {
  void* second = open(1);
  void* again = open(0);  // another model's code on the first device
  for (void* device : {device_, second, again}) {
    EXPECT_EQ(gemm(Product{}, device), "");
    EXPECT_EQ(conv(Convolution{}, device), "");
  }
  EXPECT_EQ(fake_->handles, 6);
  EXPECT_EQ(fake_->advised, 6);
  close(second);
  close(again);
  EXPECT_EQ(fake_->handles, 2);
  EXPECT_EQ(gemm(Product{}), "");
  EXPECT_EQ(fake_->advised, 6);
  close(device_);
  device_ = open(0);  // and once more
  EXPECT_EQ(gemm(Product{}), "");
  EXPECT_EQ(fake_->handles, 1);
}

}  // namespace
}  // namespace coil::runtime_test
