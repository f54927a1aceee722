// What in a program's own shapes keeps a GPU's kernels from their speed, in plain words.
#include "codegen/cuda/cuda_kernels.h"
#include "codegen/cuda/host/routine_text.h"
#include "codegen/cuda/templates/parts.h"
#include "loop/templates/template.h"

namespace coil::cuda {

std::vector<KernelHint> hints(const KernelPlan& plan) {
  std::vector<KernelHint> out(plan.kernels.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const auto* library = std::get_if<LibraryKernel>(&plan.kernels[i].def);
    if (library && is_host_routine(*library)) out[i].text = "the CPU computes it: its tensors are copied to the host and back, and the device waits";
    const auto* t = std::get_if<TemplateKernel>(&plan.kernels[i].def);
    if (t) visit_template(t->def, [&](const auto& def) { out[i] = hint(TemplateUse{plan, *t}, def); });
  }
  return out;
}

}  // namespace coil::cuda
