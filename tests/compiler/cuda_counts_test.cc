// Sizes beyond what kernels for CUDA count in 32 bits: a call is refused by name before anything is launched, a program whose sizes are known is refused
// when it is compiled. The host program is the generated one; no device is asked.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include "codegen/cuda/host_program.h"
#include "codegen/host/limits.h"
#include "compiler/build_target.h"
#include "compiler/target.h"
#include "compiler/compile.h"
#include "device/model_abi.h"
#include "tests/fuzz/renamed_program.h"
#include "tests/paths.h"

namespace coil::testing {
namespace {

// The host program of tests/fuzz/programs/counted.pt2, loaded.
const CoilModel* counted() {
  static const CoilModel* const model = []() -> const CoilModel* {
    const Graph graph = run_passes(read_program_file(COIL_SOURCE_DIR "/tests/fuzz/programs/counted.pt2").value()).value();
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
  }();
  return model;
}

struct Sizes {
  int64_t rows = 6, images = 2, height = 5, heads = 3, queries = 7;
};

// "" or "COIL-E204: ...".
std::string bind(const Sizes& s) {
  static char memory[64];
  const int64_t x[] = {s.rows, 8}, image[] = {s.images, 8, s.height, 5}, q[] = {s.heads, 2, s.queries, 16};
  const CoilTensorView views[] = {{memory, x, nullptr, 2, COIL_FLOAT32, COIL_CUDA, 0},
                                  {memory, image, nullptr, 4, COIL_FLOAT32, COIL_CUDA, 0},
                                  {memory, q, nullptr, 4, COIL_FLOAT32, COIL_CUDA, 0}};
  std::vector<int64_t> symbols(static_cast<size_t>(counted()->num_symbols));
  CoilError error = {};
  return counted()->bind(views, 3, symbols.data(), &error) ? fmt::format("COIL-E{}: {}", error.code, error.message) : "";
}

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
  const auto counts = [](const KernelPlan& plan, bool cuda) {
    const std::vector<SizeLimit> limits = size_limits(plan, cuda);
    return std::count_if(limits.begin(), limits.end(), [](const SizeLimit& l) { return l.counted; });
  };
  EXPECT_GT(counts(plan_of(graph, true).value(), true), 3);
  EXPECT_EQ(counts(plan_of(graph, false).value(), false), 0);  // the CPU's count by 64
}

TEST(CudaCounts, AreRefusedWhereTheyAreKnown) {
  const Graph graph = read_program_file(COIL_SOURCE_DIR "/tests/fuzz/programs/many_rows.pt2").value();
  CompileOptions options;
  options.targets = parse_targets("cuda:sm_90").value();
  const auto refused = compile_to_memory(graph, options);
  ASSERT_FALSE(refused.ok());
  if (refused.error().code == ErrorCode::no_nvrtc) GTEST_SKIP() << refused.error().message;
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported_feature) << refused.error().to_string();
  EXPECT_NE(refused.error().message.find("are 2147483648, of which kernels for CUDA take fewer than"), std::string::npos) << refused.error().message;
  options.targets = parse_targets("cpu:x86-64-v3").value();
  EXPECT_TRUE(compile_to_memory(graph, options).ok());
}

}  // namespace
}  // namespace coil::testing
