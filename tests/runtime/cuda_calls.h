// Calls of a model for CUDA on the fake driver: their arguments, what they compute, and what the driver counts.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coil/coil.hpp"
#include "fake_counts.h"
#include "fixture.h"

namespace coil::runtime_test {
inline void configure(int32_t devices, int32_t sm, int64_t memory) {
  static const auto set = reinterpret_cast<FakeConfigureFn>(dlsym(RTLD_DEFAULT, "fake_cuda_configure"));
  set(devices, sm, memory);
}
inline void* make_stream() {
  void* stream = nullptr;
  reinterpret_cast<int32_t (*)(void**, uint32_t)>(dlsym(RTLD_DEFAULT, "cuStreamCreate"))(&stream, 0);
  return stream;
}
// The thread's current context, as a library beside us sees it.
inline void* current_context() {
  void* context = nullptr;
  reinterpret_cast<int32_t (*)(void**)>(dlsym(RTLD_DEFAULT, "cuCtxGetCurrent"))(&context);
  return context;
}
inline void set_context(int32_t device) {
  void* context = nullptr;
  if (device >= 0) {
    reinterpret_cast<int32_t (*)(void**, int32_t)>(dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRetain"))(&context, device);
    reinterpret_cast<int32_t (*)(int32_t)>(dlsym(RTLD_DEFAULT, "cuDevicePrimaryCtxRelease_v2"))(device);
  }
  reinterpret_cast<int32_t (*)(void*)>(dlsym(RTLD_DEFAULT, "cuCtxSetCurrent"))(context);
}

inline std::string package_path(const std::string& flags = "") {
  return write_file("cuda" + std::to_string(std::hash<std::string>()(flags)) + ".pt2", package("CUDA", flags));
}

// The inputs of one call, on the CPU and on the model's device, and what it computes.
struct Call {
  Call(const Model& m, Context& c, int64_t rows, int64_t times = 2) : model(m), batch(rows), n(times), x(m, bytes()), ids(m, id_bytes()) {
    for (int64_t i = 0; i < batch * 4; i++) host_x.push_back(static_cast<float>(i % 13));
    for (int64_t i = 0; i < batch; i++) host_ids.push_back(i % 8);
    upload(c);
  }
  size_t bytes() const { return static_cast<size_t>(batch) * 16; }
  size_t id_bytes() const { return static_cast<size_t>(batch) * 8; }
  void upload(Context& c) {
    c.copy_to_device(x.data(), host_x.data(), bytes());
    c.copy_to_device(ids.data(), host_ids.data(), id_bytes());
  }
  std::vector<Tensor> tensors() {
    return {Tensor(x.data(), COIL_DTYPE_FLOAT32, {batch, 4}).on(model), Tensor(ids.data(), COIL_DTYPE_INT64, {batch}).on(model), Tensor(&n, {})};
  }
  // "" or what differs, after copying y out.
  std::string compare(Context& c, const Tensor& y, float count = 0) {
    if (y.sizes() != std::vector<int64_t>{batch, 4}) return "wrong shape";
    if (y.on_cpu() || y.device_index() != model.device_index()) return "wrong device";
    std::vector<float> got(static_cast<size_t>(batch) * 4);
    c.copy_from_device(got.data(), y.data(), bytes());
    for (size_t i = 0; i < got.size(); i++) {
      const float want = host_x[i] * static_cast<float>(n) + 1 + static_cast<float>(host_ids[i / 4] * 4 + static_cast<int64_t>(i % 4)) + count;
      if (got[i] != want) return "element " + std::to_string(i) + " is " + std::to_string(got[i]) + ", not " + std::to_string(want);
    }
    return "";
  }

  Model model;
  int64_t batch, n;
  std::vector<float> host_x;
  std::vector<int64_t> host_ids;
  DeviceMemory x, ids;
};

// Runs f and returns the error that it throws, or 0.
template <class F>
int code_of(F f, std::string* text = nullptr) {
  try {
    f();
    return 0;
  } catch (const Exception& e) {
    if (text) *text = e.what();
    return e.code();
  }
}

class Cuda : public testing::Test {
 protected:
  static void SetUpTestSuite() { fake_driver(); }
  void SetUp() override {
    configure(2, 90, int64_t{1} << 30);
    set_context(-1);
    before_ = counts();
  }
  void TearDown() override {
    const FakeCounts after = counts();
    expect_nothing_left(before_);
    EXPECT_EQ(after.host_bytes, before_.host_bytes);
    EXPECT_EQ(after.events, before_.events);
    EXPECT_EQ(current_context(), nullptr);
  }
  FakeCounts before_;
};

}  // namespace coil::runtime_test
