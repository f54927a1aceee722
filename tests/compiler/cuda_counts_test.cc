// Sizes beyond what kernels for CUDA count in 32 bits: a call is refused by name before anything is launched, a program whose sizes are known is refused
// when it is compiled. The host program is the generated one; no device is asked.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "codegen/cuda/host/host_program.h"
#include "codegen/interface/limits.h"
#include "compiler/build_target.h"
#include "compiler/target.h"
#include "compiler/compile.h"
#include "device/model_abi.h"
#include "tests/fuzz/renamed_program.h"
#include "tests/paths.h"

namespace coil::testing {
namespace {

// The host program of a program in tests/fuzz/programs, loaded.
const CoilModel* loaded(const std::string& name) {
  const Graph graph = run_passes(read_program_file(COIL_SOURCE_DIR "/tests/fuzz/programs/" + name).value()).value();
  const KernelPlan plan = plan_of(graph, true).value();
  const cuda::CudaProgram program = cuda::generate_kernels(plan, {{90}, false, 0, {}, {}});
  const std::string text = cuda::host_program_text(plan, program, {graph.in_spec, graph.out_spec, 0, {}, "sm_90", {}, true});
  const toolchain::Bytes object = toolchain::compile_cpp(host_request(this_machine(), text)).value();
  std::vector<toolchain::LinkInput> inputs = {{"host.cc", object}};
  const std::string_view sets[] = {"any", "cuda"};
  for (const toolchain::LinkInput& o : device_library(this_machine(), sets)) inputs.push_back(o);
  const std::vector<uint8_t> code = link_model(this_machine(), std::move(inputs)).value();
  const int file = memfd_create("model", MFD_CLOEXEC);
  EXPECT_EQ(write(file, code.data(), code.size()), static_cast<ssize_t>(code.size()));
  void* const library = dlopen(fmt::format("/proc/self/fd/{}", file).c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library ? reinterpret_cast<const CoilModel* (*)()>(dlsym(library, "coil_model"))() : nullptr;
}

const CoilModel* counted() {
  static const CoilModel* const model = loaded("counted.pt2");
  return model;
}

// What bind says of inputs on a device: "" or "COIL-E204: ...".
std::string bound(const CoilModel* model, const std::vector<std::vector<int64_t>>& sizes) {
  static char memory[64];
  std::vector<CoilTensorView> views;
  for (const auto& s : sizes) views.push_back({memory, s.data(), nullptr, static_cast<int32_t>(s.size()), COIL_FLOAT32, COIL_CUDA, 0});
  std::vector<int64_t> symbols(static_cast<size_t>(model->num_symbols));
  CoilError error = {};
  return model->bind(views.data(), static_cast<int32_t>(views.size()), symbols.data(), &error) ? fmt::format("COIL-E{}: {}", error.code, error.message) : "";
}

struct Sizes {
  int64_t rows = 6, images = 2, height = 5, heads = 3, queries = 7;
};

std::string bind(const Sizes& s) { return bound(counted(), {{s.rows, 8}, {s.images, 8, s.height, 5}, {s.heads, 2, s.queries, 16}}); }

TEST(CudaCounts, AreLookedAtInEachCall) {
  ASSERT_NE(counted(), nullptr);
  EXPECT_EQ(bind({}), "");
  constexpr int64_t kMost = (int64_t{1} << 31) - (1 << 16);
  EXPECT_EQ(bind({.rows = kMost}), "");
  EXPECT_EQ(bind({.images = kMost / 25}), "");
  EXPECT_EQ(bind({.queries = kMost / 6}), "");
  const auto refused = [](const Sizes& s, const char* what) {
    const std::string text = bind(s);
    EXPECT_EQ(text.substr(0, 9), "COIL-E204") << text;
    EXPECT_NE(text.find(what), std::string::npos) << text;
    EXPECT_NE(text.find("kernels for CUDA take fewer than 21474"), std::string::npos) << text;
  };
  refused({.rows = kMost + 1}, "the rows of");
  refused({.rows = int64_t{1} << 31}, "rows");
  refused({.rows = int64_t{1} << 33}, "rows");
  refused({.rows = int64_t{1} << 40}, "rows");
  refused({.images = kMost / 25 + 1}, "the pixels of");
  refused({.height = int64_t{1} << 31}, "of '");
  refused({.heads = int64_t{1} << 31}, "the heads of");
  refused({.queries = int64_t{1} << 31}, "the ");
}

TEST(CudaCounts, AreNamedInAllPlans) {
  const Graph graph = run_passes(read_program_file(COIL_SOURCE_DIR "/tests/fuzz/programs/counted.pt2").value()).value();
  const auto counts = [](const KernelPlan& plan, const InterfaceTraits& target) {
    const std::vector<SizeLimit> limits = size_limits(plan, target);
    return std::count_if(limits.begin(), limits.end(), [](const SizeLimit& l) { return l.counted; });
  };
  EXPECT_GT(counts(plan_of(graph, true).value(), cuda::kInterface), 3);
  EXPECT_EQ(counts(plan_of(graph, false).value(), kHostInterface), 0);  // the CPU's count by 64
}

// Compiles a program for CUDA, which refuses it with this text in its message.
void expect_refused(const Graph& graph, const char* text) {
  CompileOptions options;
  options.targets = parse_targets("cuda:sm_90").value();
  const auto refused = compile_to_memory(graph, options);
  ASSERT_FALSE(refused.ok());
  if (refused.error().code == ErrorCode::no_nvrtc) GTEST_SKIP() << refused.error().message;
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported_feature) << refused.error().to_string();
  EXPECT_NE(refused.error().message.find(text), std::string::npos) << refused.error().message;
}

TEST(CudaCounts, AreRefusedWhereTheyAreKnown) {
  const Graph graph = read_program_file(COIL_SOURCE_DIR "/tests/fuzz/programs/many_rows.pt2").value();
  expect_refused(graph, "are 2147483648, of which kernels for CUDA take fewer than");
  CompileOptions options;
  options.targets = parse_targets("cpu:x86-64-v3").value();
  EXPECT_TRUE(compile_to_memory(graph, options).ok());
}

// Of loops. The others are looked at where a template, a sort or a user's kernel says what it counts.
TEST(CudaGrids, AreLookedAtBeforeAnythingIsLaunched) {
  const CoilModel* const model = loaded("grids.pt2");
  ASSERT_NE(model, nullptr);
  const std::vector<std::vector<int64_t>> usual = {{6, 8}, {9, 8}, {9, 8}, {3, 40, 70}, {6, 3}, {6, 1000}, {6, 500}, {5, 300, 40}};
  EXPECT_EQ(bound(model, usual), "");
  const auto with = [&](std::initializer_list<size_t> inputs, int64_t n) {
    std::vector<std::vector<int64_t>> sizes = usual;
    for (const size_t i : inputs) sizes[i][0] = n;
    return bound(model, sizes);
  };
  constexpr int64_t kBlocks = INT32_MAX;
  const auto border = [&](std::initializer_list<size_t> inputs, int64_t most) {
    EXPECT_EQ(with(inputs, most), "");
    const std::string text = with(inputs, most + 1);
    EXPECT_EQ(text.substr(0, 9), "COIL-E204") << text;
    EXPECT_NE(text.find("the points of '"), std::string::npos) << text;
  };
  // Three beside each other in one grid, each of which could have a block that is not full; a thread has four elements, a row eight.
  constexpr int64_t kPoints = kBlocks * 256 - 3 * 255;
  border({0}, (kPoints - 2 * 2 * 9) / 2);
  border({1, 2}, (kPoints - 2 * 6) / 4);
  border({5}, kBlocks);  // a block for a row
  border({6}, kBlocks);
  for (const size_t i : {3, 4, 7}) {
    EXPECT_EQ(with({i}, 1 << 20), "") << i;
    EXPECT_NE(with({i}, int64_t{1} << 40).find("COIL-E204: the points of '"), std::string::npos) << i << with({i}, int64_t{1} << 40);
  }
}

TEST(CudaGrids, AreRefusedWhereTheyAreKnown) {
  expect_refused(read_program_file(COIL_SOURCE_DIR "/tests/fuzz/programs/long_rows.pt2").value(),
                 "are 2147483648, of which kernels for CUDA take fewer than 2147483648");
}

}  // namespace
}  // namespace coil::testing
