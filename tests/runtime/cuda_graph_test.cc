// Calls as CUDA graphs (device/cuda_graph.h) on the fake driver: which calls, with what results, how many graphs, and that a
// graph which costs more than the launches is given up.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <thread>

#include "coil/coil.hpp"
#include "fake_counts.h"
#include "fixture.h"

namespace coil::runtime_test {
namespace {

constexpr int kWarm = 4;  // calls that are enqueued one by one before the graph

template <class... A>
int32_t cu(const char* name, A... arguments) {
  return reinterpret_cast<int32_t (*)(A...)>(dlsym(RTLD_DEFAULT, name))(arguments...);
}

void set_context() {
  void* context = nullptr;
  cu("cuDevicePrimaryCtxRetain", &context, 0);
  cu("cuDevicePrimaryCtxRelease_v2", 0);
  cu("cuCtxSetCurrent", context);
}
void* make_stream() {
  set_context();
  void* stream = nullptr;
  cu("cuStreamCreate", &stream, 0u);
  cu("cuCtxSetCurrent", static_cast<void*>(nullptr));
  return stream;
}
void delete_stream(void* stream) { cu("cuStreamDestroy_v2", stream); }

std::string package_path(const std::string& flags = "") {
  return write_file("graph" + std::to_string(std::hash<std::string>()(flags)) + ".pt2", package("CUDA", flags));
}

// What COIL_CUDA_GRAPHS says is read when a model is opened.
Model open(const char* graphs, const std::string& flags = "", const char* device = "cuda:0") {
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

TEST_F(CudaGraph, RepeatedCallsAreOneLaunch) {
  const Model model = open("2");
  Context context(model);
  Tensors t(model, context, 5);
  for (int i = 0; i < kWarm; i++) t.run(context);
  EXPECT_EQ(launches(), 2 * kWarm);
  EXPECT_EQ(graph_launches(), 0);
  for (int i = 0; i < 6; i++) {
    t.fill(context, i);
    t.run(context);
    EXPECT_EQ(counts().pending, 2);  // nothing waited
    EXPECT_EQ(t.wrong(context), 0);
  }
  EXPECT_EQ(launches(), 2 * kWarm);
  EXPECT_EQ(graph_launches(), 6);
  EXPECT_EQ(changed(), 0);
}

// Kernels of sm_90 wait by themselves, in launches and in graphs; older code does not.
TEST_F(CudaGraph, KernelsStartEarlyWhereTheirCodeWaits) {
  const auto early = [&](const Model& model) {
    const FakeCounts before = counts();
    Context context(model);
    Tensors t(model, context, 5);
    for (int i = 0; i < kWarm + 2; i++) t.run(context);
    EXPECT_EQ(t.wrong(context), 0);
    return counts().early_starts - before.early_starts;
  };
  EXPECT_EQ(early(open("0")), 2 * (kWarm + 2));
  EXPECT_EQ(early(open("2")), 2 * kWarm + 1);  // one edge between two kernels
  // What another compiler made does not wait by itself, and is found in its own image only.
  EXPECT_EQ(early(open("0", "-DFOREIGN=1")), kWarm + 2);
  EXPECT_EQ(early(open("2", "-DFOREIGN=1")), kWarm);
  setenv("COIL_CUDA_EARLY", "0", 1);
  EXPECT_EQ(early(open("2")), 0);
  unsetenv("COIL_CUDA_EARLY");
  cu("fake_cuda_configure", 2, 80, int64_t{1} << 30);
  EXPECT_EQ(early(open("2", "-DSM=80")), 0);
}

TEST_F(CudaGraph, WhatTheDeviceNeedsLongerForIsLaunchedKernelByKernel) {
  const auto graph_calls = [&](const Model& model, int64_t rows) {
    const int64_t before = graph_launches();
    Context context(model);
    Tensors t(model, context, rows);
    for (int i = 0; i < kWarm + 5; i++) t.run(context);
    EXPECT_EQ(t.wrong(context), 0);
    return graph_launches() - before;
  };
  const Model model = open("1", "-DOUTLASTS=8");
  cost(20'000, 1'000, 1'000);
  EXPECT_EQ(graph_calls(model, 9), 0);
  EXPECT_EQ(graph_calls(model, 8), 5);
  EXPECT_EQ(graph_calls(open("2", "-DOUTLASTS=8"), 9), 5);  // wherever possible
  setenv("COIL_CUDA_EARLY", "0", 1);
  EXPECT_EQ(graph_calls(open("1", "-DOUTLASTS=8"), 9), 5);  // nothing starts early, so that a graph costs nothing
  unsetenv("COIL_CUDA_EARLY");
}

TEST_F(CudaGraph, OtherAddressesChangeTheNodesThatUseThem) {
  const Model model = open("2");
  Context context(model);
  Tensors first(model, context, 5), second(model, context, 5);
  for (int i = 0; i < kWarm; i++) first.run(context);
  for (int i = 0; i < 4; i++) {
    second.fill(context, i + 1);
    second.run(context);
    EXPECT_EQ(second.wrong(context), 0);
    first.run(context);
    EXPECT_EQ(first.wrong(context), 0);
  }
  EXPECT_EQ(launches(), 2 * kWarm);
  EXPECT_EQ(graph_launches(), 8);
  EXPECT_EQ(changed(), 8 * 2);  // both kernels read or write what moved
  // The output alone: of the second kernel.
  std::vector<Tensor> outputs = {Tensor(second.y.data(), COIL_DTYPE_FLOAT32, {5, 4}).on(model)};
  context.run(first.inputs(), outputs);
  second.host_x = first.host_x;
  EXPECT_EQ(second.wrong(context), 0);
  EXPECT_EQ(changed(), 8 * 2 + 1);
}

TEST_F(CudaGraph, EachSizeHasItsOwn) {
  const Model model = open("2");
  Context context(model);
  Tensors large(model, context, 900), small(model, context, 3);
  for (int i = 0; i < kWarm + 3; i++) {
    large.run(context);
    EXPECT_EQ(large.wrong(context), 0);
    small.run(context);
    EXPECT_EQ(small.wrong(context), 0);
    small.n = 5;  // a symbolic integer is a size, too
    small.run(context);
    EXPECT_EQ(small.wrong(context), 0);
    small.n = 2;
  }
  EXPECT_EQ(executables(), 3);
  EXPECT_EQ(graph_launches(), 9);
}

TEST_F(CudaGraph, ManySizesKeepFewGraphs) {
  const Model model = open("2");
  Context context(model);
  std::vector<std::unique_ptr<Tensors>> all;
  for (int64_t rows = 1; rows <= 40; rows++) all.push_back(std::make_unique<Tensors>(model, context, rows));
  for (int round = 0; round < 3; round++) {
    for (const auto& t : all) {
      for (int i = 0; i < 70; i++) t->run(context);  // so that those before are idle
      EXPECT_EQ(t->wrong(context), 0);
      EXPECT_LE(executables(), 8);
    }
  }
  EXPECT_EQ(executables(), 8);
  EXPECT_GT(graph_launches(), 40 * 3 * 50);
}

TEST_F(CudaGraph, SizesThatAlwaysDifferHaveNone) {
  const Model model = open("2");
  Context context(model);
  Tensors t(model, context, 600);
  for (int i = 0; i < 500; i++) {
    t.batch = 1 + i;
    t.run(context);
  }
  EXPECT_EQ(executables(), 0);
  EXPECT_EQ(launches(), 1000);
  context.synchronize();
}

TEST_F(CudaGraph, EachStreamHasItsOwn) {
  const Model model = open("2");
  Context context(model);
  Tensors t(model, context, 5);
  void* const streams[] = {make_stream(), make_stream(), nullptr};
  for (int i = 0; i < kWarm + 2; i++) {
    for (void* stream : streams) {
      t.fill(context, i);
      t.run(context, stream);
      EXPECT_EQ(t.wrong(context), 0);
    }
  }
  EXPECT_EQ(executables(), 3);
  EXPECT_EQ(graph_launches(), 6);
  context.synchronize();
  delete_stream(streams[0]), delete_stream(streams[1]);
}

TEST_F(CudaGraph, CapturedCallsAreEnqueuedOneByOne) {
  const Model model = open("2");
  Context context(model);
  Tensors t(model, context, 5);
  void* const stream = make_stream();
  for (int i = 0; i < kWarm + 1; i++) t.run(context, stream);
  EXPECT_EQ(graph_launches(), 1);
  cu("fake_cuda_capture", stream, 1);
  t.run(context, stream);
  EXPECT_EQ(graph_launches(), 1);
  EXPECT_EQ(launches(), 2 * kWarm + 2);
  cu("fake_cuda_capture", stream, 0);
  t.run(context, stream);
  EXPECT_EQ(graph_launches(), 2);
  EXPECT_EQ(t.wrong(context), 0);
  delete_stream(stream);
}

TEST_F(CudaGraph, StateAndFaultsAsWithout) {
  const Model model = open("2", "-DSTATE");
  Context context(model);
  Tensors t(model, context, 5);
  for (int i = 0; i < kWarm + 5; i++) {
    t.run(context);
    EXPECT_EQ(t.wrong(context, static_cast<float>(100 + i)), 0) << i;
  }
  EXPECT_EQ(graph_launches(), 5);
  t.fill(context, 0, 8);  // ids outside of the table
  t.run(context);
  try {
    context.synchronize();
    ADD_FAILURE() << "the fault is not told";
  } catch (const Exception& e) {
    EXPECT_EQ(e.code(), 210);
    EXPECT_NE(std::string(e.what()).find("gather (model.py:4)"), std::string::npos) << e.what();
  }
  t.fill(context, 0);
  t.run(context);
  EXPECT_EQ(t.wrong(context, 100 + kWarm + 6), 0);
  EXPECT_EQ(graph_launches(), 7);
}

TEST_F(CudaGraph, ThreadsContextsAndDevices) {
  const Model models[] = {open("2"), open("2", "", "cuda:1")};
  std::vector<std::thread> threads;
  int wrong[6] = {};
  for (int k = 0; k < 6; k++) {
    threads.emplace_back([&, k] {  // all on the default streams, of sizes that others use, too
      const Model& model = models[k % 2];
      Context context(model);
      Tensors a(model, context, 7), b(model, context, 7), c(model, context, 9);
      for (int i = 0; i < 60; i++) {
        Tensors& t = i % 3 == 0 ? a : i % 3 == 1 ? b : c;
        t.fill(context, i + k);
        t.run(context);
        wrong[k] += t.wrong(context);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int w : wrong) EXPECT_EQ(w, 0);
  EXPECT_GT(graph_launches(), 100);
  EXPECT_LE(executables(), 4);
}

TEST_F(CudaGraph, KeptWhereItMeasuresFaster) {
  const Model model = open("1", "-DSTATE");  // three kernels
  Context context(model);
  Tensors t(model, context, 5), other(model, context, 5);
  cost(100000, 50000, 1000);
  for (int i = 0; i < kWarm + 40; i++) (i % 2 ? t : other).run(context);
  EXPECT_EQ(graph_launches(), 40);
  EXPECT_EQ(executables(), 1);
  context.synchronize();
}

TEST_F(CudaGraph, GivenUpWhereItDoesNot) {
  const Model model = open("1", "-DSTATE");
  Context context(model);
  Tensors t(model, context, 5);
  cost(10000, 500000, 0);
  for (int i = 0; i < 60; i++) t.run(context);
  EXPECT_GT(graph_launches(), 0);
  EXPECT_LT(graph_launches(), 20);
  EXPECT_EQ(executables(), 0);
  EXPECT_EQ(t.wrong(context, 159), 0);
}

TEST_F(CudaGraph, ChangesAreGivenUpAlone) {
  const Model model = open("1", "-DSTATE");
  Context context(model);
  Tensors t(model, context, 5), other(model, context, 5);
  cost(100000, 20000, 2000000);
  for (int i = 0; i < kWarm + 30; i++) (i % 2 ? t : other).run(context);
  const int64_t changes = changed();
  EXPECT_GT(changes, 0);
  for (int i = 0; i < 30; i++) (i % 2 ? t : other).run(context);
  EXPECT_EQ(changed(), changes);
  const int64_t before = graph_launches();
  for (int i = 0; i < 10; i++) t.run(context), other.run(context);  // one of the two has the graph's addresses
  EXPECT_EQ(graph_launches(), before + 10);
  for (int i = 0; i < 70; i++) (i % 2 ? t : other).run(context);
  EXPECT_EQ(other.wrong(context, kWarm + 30 + 30 + 20 + 70 - 2 + 100), 0);
}

TEST_F(CudaGraph, NoneWhenSwitchedOff) {
  const Model model = open("0");
  Context context(model);
  Tensors t(model, context, 5);
  for (int i = 0; i < 20; i++) t.run(context);
  EXPECT_EQ(launches(), 40);
  EXPECT_EQ(counts().graphs, before_.graphs);
  EXPECT_EQ(t.wrong(context), 0);
}

TEST_F(CudaGraph, ADriverThatRefusesChangesNothing) {
  const Model model = open("2");
  Context context(model);
  Tensors t(model, context, 5), other(model, context, 6);
  setenv("FAKE_CUDA_NO_GRAPHS", "1", 1);
  for (int i = 0; i < 20; i++) t.run(context);
  EXPECT_EQ(launches(), 40);
  EXPECT_EQ(counts().graphs, before_.graphs);
  unsetenv("FAKE_CUDA_NO_GRAPHS");
  for (int i = 0; i < kWarm; i++) other.run(context);
  EXPECT_EQ(executables(), 1);
  setenv("FAKE_CUDA_GRAPHS_FAIL", "1", 1);
  for (int i = 0; i < 5; i++) other.run(context);
  unsetenv("FAKE_CUDA_GRAPHS_FAIL");
  EXPECT_EQ(launches(), 40 + 2 * (kWarm + 5));
  EXPECT_EQ(t.wrong(context), 0);
  EXPECT_EQ(other.wrong(context), 0);
}

TEST_F(CudaGraph, AKernelThatDiesIsToldAsWithout) {
  {
    const Model model = open("2", "-DBROKEN");
    Context context(model);
    Tensors t(model, context, 4);
    for (int i = 0; i < kWarm + 2; i++) t.run(context);
    EXPECT_EQ(graph_launches(), 2);
    for (int i = 0; i < 2; i++) {
      try {
        i ? t.run(context) : context.synchronize();
        ADD_FAILURE() << "the failure is not told";
      } catch (const Exception& e) {
        EXPECT_EQ(e.code(), 404);
        EXPECT_NE(std::string(e.what()).find(i ? "kernel scale (model.py:3) failed" : "COIL_CUDA_SYNC=1"), std::string::npos) << e.what();
      }
    }
  }
  cu("fake_cuda_configure", 2, 90, int64_t{1} << 30);  // forgets the failure
}

}  // namespace
}  // namespace coil::runtime_test
