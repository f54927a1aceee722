// See token_choice.h.
#include "codegen/cuda/token_choice.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "codegen/kernel_text.h"
#include "device/cuda/sample_rules.h"

namespace coil::cuda {
namespace {

bool is_logits(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

// The tensor of logits: the first result of floats whose last dimension is fixed, as the runtime has it.
const BufferInfo* logits_of(const KernelPlan& plan) {
  for (const LoopOutput& o : plan.outputs) {
    if (o.kind != LoopOutput::Kind::user) continue;
    const BufferInfo& info = plan.buffer(o.source).info;
    if (is_logits(info.dtype) && !info.pairs && !info.meant && !info.sizes.empty() && info.sizes.size() <= 3 && info.sizes.back()->is_constant()) return &info;
  }
  return nullptr;
}

// Tokens, perhaps their places, perhaps what an encoder has made: nothing else.
bool takes_tokens(const KernelPlan& plan) {
  size_t numbers = 0, sources = 0, rows = 0;
  for (const LoopInput& in : plan.inputs) {
    ++numbers;
    if (!in.buffer.valid()) continue;
    const BufferInfo& info = plan.buffer(in.buffer).info;
    const bool integers = info.dtype == DType::i64 || info.dtype == DType::i32, source = is_logits(info.dtype) && info.sizes.size() == 3;
    if (!source && !(integers && info.sizes.size() <= 2)) return false;
    sources += source;
    rows += integers && !info.sizes.empty();
  }
  return sources <= 1 && rows > 0 && numbers - sources <= 2;
}

CudaFunction function_of(const std::string& name, const std::string& parameters, const std::string& call, const CudaSettings& settings) {
  CudaFunction f;
  f.name = "coil_sample_" + name;
  f.label = "the choice of a token";
  f.text = fmt::format("// {}\n", f.label);
  f.comment_bytes = f.text.size();
  f.text += fmt::format(
      "COIL_KERNEL void __launch_bounds__({}) {}(const __grid_constant__ CudaSampleRows rows, const long long vocabulary{}) {{\n"
      "  cd::begin_small_kernel();\n  {};\n}}\n",
      int{cd::kSampleThreads}, f.name, parameters, call);
  f.headers = {"cuda/sample_chances.h"};
  f.threads = cd::kSampleThreads;
  f.sms.insert(settings.sms.begin(), settings.sms.end());
  return f;
}

}  // namespace

void add_token_choice(const KernelPlan& plan, const CudaSettings& settings, CudaProgram& program) {
  if (plan.state_bytes == 0 || !takes_tokens(plan)) return;
  const BufferInfo* logits = logits_of(plan);
  const int64_t vocabulary = logits ? logits->sizes.back()->as_int() : 0;
  if (vocabulary < 1 || vocabulary > cd::kMostSampleTokens) return;
  program.choice = TokenChoice{static_cast<int>(program.functions.size()), vocabulary};
  const std::string row = "rows.row[blockIdx.y], vocabulary";
  const std::string type = logits->dtype == DType::f32 ? "f32" : logits->dtype == DType::bf16 ? "bf16" : "f16";
  program.functions.push_back(function_of("begin_" + type, "", fmt::format("cd::sample_begin<{}>({})", memory_type(logits->dtype), row), settings));
  program.functions.push_back(
      function_of("select", ", const cd::SamplePass pass", fmt::format("cd::sample_select({}, pass.by_share, pass.number)", row), settings));
  program.functions.push_back(function_of("choose", "", fmt::format("cd::sample_choose({})", row), settings));
  for (const char* name : {"best", "shares"})
    program.functions.push_back(
        function_of(fmt::format("{}_{}", name, type), "", fmt::format("cd::sample_{}<{}>({})", name, memory_type(logits->dtype), row), settings));
}

}  // namespace coil::cuda
