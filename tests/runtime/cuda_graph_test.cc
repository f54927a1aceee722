// Calls as CUDA graphs (device/cuda_graph.h) on the fake driver: which calls, with what results, and how many graphs.
#include "cuda_graph_fixture.h"

namespace coil::runtime_test::graph_test {
namespace {

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

}  // namespace
}  // namespace coil::runtime_test::graph_test
