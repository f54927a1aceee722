// The text of CUDA kernels against checked-in goldens (COIL_GOLDEN_UPDATE=1 rewrites them).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "codegen/kernel_text.h"
#include "tests/codegen/aten_net.h"
#include "tests/paths.h"

namespace coil::testing {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Of a template only what is generated: its arguments and its epilogue, once for all of its variants.
std::string kernel_text(const cuda::CudaFunction& f, const std::string& name, bool is_template) {
  std::string text = f.text;
  replace_all(text, f.name, name);
  return is_template ? text.substr(0, text.find("COIL_KERNEL")) : text;
}

std::string launch_text(const cuda::CudaLaunch& l, const cuda::CudaFunction& f) {
  std::string text =
      "grid (" + (l.grid_x.empty() ? "of its parts" : l.grid_x) + ", " + l.grid_y + ", " + l.grid_z + ") of " + std::to_string(f.threads) + " threads";
  if (f.shared_bytes) text += ", " + std::to_string(f.shared_bytes) + " bytes of shared memory";
  for (const cuda::CudaArgs& a : l.args) {
    if (!a.blocks.empty()) text += "; " + a.blocks + " for a part";
    for (const auto& [buffer, bytes] : a.aligned) text += "; wide if buffer " + std::to_string(buffer.index) + " is aligned to " + std::to_string(bytes);
    for (const std::string& e : a.divisible) text += "; wide if " + e + " is 0";
  }
  return text + "\n";
}

std::string program_text(const KernelPlan& plan) {
  const cuda::CudaProgram program = cuda::generate_kernels(plan, {{80}, false});
  std::string text = to_string(plan) + "----\n";
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    if (program.calls[i].launches.empty()) continue;
    const cuda::CudaLaunch& l = program.calls[i].launches[0];
    const cuda::CudaFunction& f = program.functions[static_cast<size_t>(l.function)];
    const bool is_template = std::holds_alternative<TemplateKernel>(plan.kernels[i].def);
    if (!is_template) text += launch_text(l, f);
    text += kernel_text(f, plan.kernels[i].name, is_template);
  }
  return text;
}

class CudaGolden : public ::testing::TestWithParam<int> {};

TEST_P(CudaGolden, Text) {
  const NamedNet named = golden_nets()[static_cast<size_t>(GetParam())];
  const auto plan = named.net.plan({80});
  ASSERT_TRUE(plan.ok()) << plan.error().to_string();
  const std::string text = program_text(plan.value()), path = std::string(COIL_SOURCE_DIR) + "/tests/codegen/golden_cuda/" + named.name + ".txt";
  if (std::getenv("COIL_GOLDEN_UPDATE")) std::ofstream(path) << text;
  EXPECT_EQ(text, read(path)) << "make golden-update, then read the diff";
}

INSTANTIATE_TEST_SUITE_P(All, CudaGolden, ::testing::Range(0, static_cast<int>(golden_nets().size())),
                         [](const auto& at) { return golden_nets()[static_cast<size_t>(at.param)].name; });

}  // namespace
}  // namespace coil::testing
