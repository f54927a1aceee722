// The device code that calls NVIDIA's libraries (device/cuda_blas.cc, cuda_dnn.cc), on fakes of these libraries and of the driver.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "cuda_library_calls.h"
#include "fake_libraries.h"
#include "fixture.h"
#include "tests/paths.h"

namespace coil::runtime_test {

inline std::string compile(const std::string& name, const std::string& sources, const std::string& flags = "") {
  const std::string path = temp_folder() + "/" + name;
  const std::string command = "clang++-19 -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -I" COIL_SOURCE_DIR "/device " + flags +
                              " -x c++ " + sources + " -o " + path;
  if (std::system(command.c_str()) != 0) std::abort();
  return path;
}
inline const std::string kTests = COIL_SOURCE_DIR "/tests/runtime/";

inline const std::string& libraries_path() {
  static const std::string path = compile("libfakelibraries.so", kTests + "fake_libraries.cpp");
  return path;
}
// Sees no stream as captured until it is told.
inline const std::string& driver_path() {
  static const std::string path = compile("libfakecapture.so", kTests + "fake_capture.cpp -x none " + fake_driver());
  return path;
}
inline std::string device_path() {
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

class CudaLibraries : public testing::Test {
 protected:
  static void SetUpTestSuite() { driver_path(), libraries_path(); }
  void SetUp() override {
    setenv("COIL_CUDA_DRIVER", driver_path().c_str(), 1);
    name_libraries(libraries_path());
    void* fakes = dlopen(libraries_path().c_str(), RTLD_NOW);
    fake_ = reinterpret_cast<FakeLibrariesFn>(dlsym(fakes, "fake_libraries"))();
    *fake_ = {};
    driver<void(int32_t, int32_t, int64_t)>("fake_cuda_configure")(2, 90, int64_t{1} << 30);
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

}  // namespace coil::runtime_test
