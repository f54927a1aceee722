#include "codegen/interface/watch_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "codegen/interface/call_text.h"

namespace coil {
namespace {

std::vector<BufferId> own_results(const Kernel& kernel) {
  if (const auto* sort = std::get_if<SortKernel>(&kernel.def)) return {sort->values, sort->indices};
  if (const auto* library = std::get_if<LibraryKernel>(&kernel.def)) return library->results;
  if (const auto* copy = std::get_if<CopyKernel>(&kernel.def)) return {copy->to};
  return written_buffers(kernel);
}

}  // namespace

std::vector<BufferId> results_of(const KernelPlan& plan, size_t kernel) {
  const auto* mark = std::get_if<ControlMark>(&plan.kernels[kernel].def);
  if (!mark) return own_results(plan.kernels[kernel]);
  if (mark->kind != ControlMark::Kind::end) return {};
  std::vector<BufferId> out;
  int depth = 1;
  for (size_t k = kernel; depth > 0 && k-- > 0;) {
    if (const auto* inner = std::get_if<ControlMark>(&plan.kernels[k].def)) {
      depth += inner->kind == ControlMark::Kind::end ? 1 : inner->opens() ? -1 : 0;
      continue;
    }
    for (BufferId id : own_results(plan.kernels[k])) {
      if (plan.buffer(id).placement.kind == Placement::Kind::row) id = BufferId(plan.buffer(id).placement.index);  // of an image: all images' whole
      const PlanBuffer& b = plan.buffer(id);
      const bool has_place = b.placement.kind != Placement::Kind::part && b.placement.kind != Placement::Kind::none;
      if (has_place && std::find(out.begin(), out.end(), id) == out.end()) out.push_back(id);
    }
  }
  return out;
}

std::string watch_table() { return "extern \"C\" __attribute__((visibility(\"default\"))) CoilWatch coil_watch;\nCoilWatch coil_watch;\n\n"; }

std::string watch_call(const KernelPlan& plan, size_t kernel) {
  std::string results;
  for (BufferId id : results_of(plan, kernel)) results += buffer_address(plan, id) + ", ";
  return fmt::format("  if (coil_watch.hook) {{\n    void* const results[] = {{{}nullptr}};\n    coil_watch.hook(coil_watch.owner, {}, results, s);\n  }}\n",
                     results, kernel);
}

}  // namespace coil
