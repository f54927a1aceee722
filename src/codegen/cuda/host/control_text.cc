#include "codegen/cuda/host/control_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "codegen/cuda/host/routine_text.h"
#include "codegen/foreign_text.h"
#include "codegen/index_text.h"
#include "codegen/interface/read_text.h"

namespace coil::cuda {

static constexpr size_t kOptimisedCases = 256;

bool waits(const KernelPlan& plan) {
  return std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const Kernel& k) {
    const auto* mark = std::get_if<ControlMark>(&k.def);
    const bool asks = mark && (mark->kind == ControlMark::Kind::branch || mark->kind == ControlMark::Kind::stop_unless);
    const auto* library = std::get_if<LibraryKernel>(&k.def);
    return asks || std::holds_alternative<ReadKernel>(k.def) || (library && is_host_routine(*library));
  });
}

bool changes_sizes(const KernelPlan& plan) {
  return reads_sizes(plan) || std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const Kernel& k) {
           const auto* mark = std::get_if<ControlMark>(&k.def);
           return mark && mark->kind == ControlMark::Kind::loop;
         });
}

CallParameters call_parameters(const KernelPlan& plan) {
  CallParameters p{fmt::format("const cd::CudaCall* call, {}int64_t* s, CoilError* error", changes_sizes(plan) ? "" : "const "), "call, s, error",
                   "(void)call, (void)s, (void)error"};
  if (reads_sizes(plan)) {
    p.declared += ", void** made, uint8_t** late";
    p.passed += ", made, late";
    p.unused += ", (void)made, (void)late";
  }
  return p;
}

std::string call_variables(const KernelPlan& plan) {
  if (!reads_sizes(plan)) return "";
  return fmt::format("  void* made[{}] = {{}};\n  uint8_t* late[{}] = {{}};\n  (void)made, (void)late;\n", plan.outputs.size() + 1,
                     plan.late_memory.size() + 1);
}

std::string wait_text(const std::string& to, const std::string& from, const std::string& indent) {
  return fmt::format("{0}if (const int32_t failed = cd::cuda_read(call, &{1}, {2}, sizeof {1}, flag_error, error)) return failed;\n", indent, to, from);
}

std::string control_text(const ControlMark& mark, const std::string& predicate) {
  const auto asked = [&] { return "    bool holds = false;\n" + wait_text("holds", predicate, "    "); };
  switch (mark.kind) {
    case ControlMark::Kind::branch: return "  {\n" + asked() + "    if (holds) {\n";
    case ControlMark::Kind::otherwise: return "    } else {\n";
    case ControlMark::Kind::loop:
      return fmt::format("  {{\n    for (s[{0}] = 0; {1}; ++s[{0}]) {{\n", mark.step.index,
                         mark.steps ? fmt::format("s[{}] < {}", mark.step.index, host_index(mark.steps)) : "");
    case ControlMark::Kind::stop_unless: return "  {\n" + asked() + "    if (!holds) break;\n  }\n";
    case ControlMark::Kind::end: return "    }\n  }\n";
    case ControlMark::Kind::images: break;
  }
  CHECK(false, "programs for CUDA do not run image by image");
  return "";
}

std::string flag_error_text(const KernelPlan& plan, const CudaProgram& program) {
  // Clang's time grows faster than the cases of a switch: one of many is not optimised.
  const auto cases = static_cast<size_t>(std::count_if(program.calls.begin(), program.calls.end(), [](const CudaCall& c) { return c.checks_index; }));
  std::string text = cases > kOptimisedCases ? "__attribute__((noinline, optnone)) " : "";
  text += "static void flag_error(int32_t flag, CoilError* error) {\n  const char* at = \"a kernel\";\n  switch (flag) {\n";
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    if (!program.calls[k].checks_index) continue;
    const Kernel& kernel = plan.kernels[k];
    if (!kernel.assertion.empty()) {
      text += fmt::format("    case {}:\n      cd::fail(error, {}, \"%s\", {});\n      return;\n", k + 1, static_cast<int>(ErrorCode::runtime_assert),
                          message_literal(kernel.assertion));
      continue;
    }
    const std::string where = kernel.origins.empty() || kernel.origins[0].source.empty() ? "" : " (" + kernel.origins[0].source + ")";
    text += fmt::format("    case {}:\n      at = {};\n      break;\n", k + 1, message_literal(kernel.name + where));
  }
  return text + fmt::format(
                    "  }}\n  cd::fail(error, {}, \"an index is out of range in %s: the data that selects rows is negative or too large; check the ids "
                    "against the table's size\", at);\n}}\n\n",
                    static_cast<int>(ErrorCode::input_value));
}

}  // namespace coil::cuda
