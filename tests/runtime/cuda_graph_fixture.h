// Calls as CUDA graphs on the fake driver: tensors in its memory, streams, and a fixture that counts what reaches it.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <thread>

#include "coil/coil.hpp"
#include "fake_counts.h"
#include "fixture.h"

namespace coil::runtime_test::graph_test {

inline constexpr int kWarm = 4;  // calls that are enqueued one by one before the graph

template <class... A>
inline int32_t cu(const char* name, A... arguments) {
  return reinterpret_cast<int32_t (*)(A...)>(dlsym(RTLD_DEFAULT, name))(arguments...);
}

inline void set_context() {
  void* context = nullptr;
  cu("cuDevicePrimaryCtxRetain", &context, 0);
  cu("cuDevicePrimaryCtxRelease_v2", 0);
  cu("cuCtxSetCurrent", context);
}
inline void* make_stream() {
  set_context();
  void* stream = nullptr;
  cu("cuStreamCreate", &stream, 0u);
  cu("cuCtxSetCurrent", static_cast<void*>(nullptr));
  return stream;
}
inline void delete_stream(void* stream) { cu("cuStreamDestroy_v2", stream); }

inline std::string package_path(const std::string& flags = "") {
  return write_file("graph" + std::to_string(std::hash<std::string>()(flags)) + ".pt2", package("CUDA", flags));
}

// What COIL_CUDA_GRAPHS says is read when a model is opened.
inline Model open(const char* graphs, const std::string& flags = "", const char* device = "cuda:0") {
  setenv("COIL_CUDA_GRAPHS", graphs, 1);
  Model model(package_path(flags), Options().device(device));
  unsetenv("COIL_CUDA_GRAPHS");
  return model;
}

// The tensors of calls with `rows` rows, in memory of their own.
struct Tensors {
  Tensors(const Model& m, Context& c, int64_t rows)
      : model(m), batch(rows), x(m, static_cast<size_t>(rows) * 16), ids(m, static_cast<size_t>(rows) * 8), y(m, static_cast<size_t>(rows) * 16) {
    fill(c, 0);
  }
  void fill(Context& c, int seed, int64_t id = 3) {
    host_x.clear();
    for (int64_t i = 0; i < batch * 4; i++) host_x.push_back(static_cast<float>((i + seed) % 13));
    const std::vector<int64_t> host_ids(static_cast<size_t>(batch), id);
    c.copy_to_device(x.data(), host_x.data(), host_x.size() * 4);
    c.copy_to_device(ids.data(), host_ids.data(), host_ids.size() * 8);
  }
  std::vector<Tensor> inputs() {
    return {Tensor(x.data(), COIL_DTYPE_FLOAT32, {batch, 4}).on(model), Tensor(ids.data(), COIL_DTYPE_INT64, {batch}).on(model), Tensor(&n, {})};
  }
  void run(Context& c, void* stream = nullptr) {
    std::vector<Tensor> outputs = {Tensor(y.data(), COIL_DTYPE_FLOAT32, {batch, 4}).on(model)};
    c.run(inputs(), outputs, stream);
  }
  // How many elements are wrong.
  int wrong(Context& c, float count = 0) {
    std::vector<float> got(host_x.size());
    c.copy_from_device(got.data(), y.data(), got.size() * 4);
    int bad = 0;
    for (size_t i = 0; i < got.size(); i++) bad += got[i] != host_x[i] * static_cast<float>(n) + 1 + 12 + static_cast<float>(i % 4) + count;
    return bad;
  }

  Model model;
  int64_t batch, n = 2;
  std::vector<float> host_x;
  DeviceMemory x, ids, y;
};

class CudaGraph : public testing::Test {
 protected:
  static void SetUpTestSuite() { fake_driver(); }
  void SetUp() override {
    cu("fake_cuda_configure", 2, 90, int64_t{1} << 30);
    cost(0, 0, 0);
    before_ = counts();
  }
  void TearDown() override {
    cost(0, 0, 0);
    expect_nothing_left(before_);
  }
  static void cost(int64_t launch, int64_t graph, int64_t change) { cu("fake_cuda_costs", launch, graph, change); }
  int64_t launches() const { return counts().launches - before_.launches; }
  int64_t graph_launches() const { return counts().graph_launches - before_.graph_launches; }
  int64_t changed() const { return counts().changed_nodes - before_.changed_nodes; }
  int executables() const { return counts().executables - before_.executables; }

  FakeCounts before_;
};

}  // namespace coil::runtime_test::graph_test
