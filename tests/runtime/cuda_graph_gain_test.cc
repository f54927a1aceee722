// Calls as CUDA graphs: a graph that costs more than the launches is given up, and one that cannot be made changes nothing.
#include "cuda_graph_fixture.h"

namespace coil::runtime_test::graph_test {
namespace {

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
}  // namespace coil::runtime_test::graph_test
