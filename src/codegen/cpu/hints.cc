// What in a program's own shapes keeps the CPU's kernels from their speed, in plain words.
#include <algorithm>

#include "codegen/cpu/choices.h"
#include "loop/templates/template.h"

namespace coil::cpu {

std::vector<std::string> hints(const KernelPlan& plan) {
  std::vector<std::string> out;
  for (const Kernel& k : plan.kernels) {
    const auto* t = std::get_if<TemplateKernel>(&k.def);
    if (!t) continue;
    std::string text;
    visit_template(t->def, [&](const auto& def) { text = hint(TemplateUse{plan, *t}, def); });
    if (text.empty()) continue;
    text = k.name + ": " + text;
    if (!k.origins.empty() && !k.origins[0].source.empty()) text += " (" + k.origins[0].source.substr(0, k.origins[0].source.find(": ")) + ")";
    if (std::find(out.begin(), out.end(), text) == out.end()) out.push_back(std::move(text));
  }
  return out;
}

}  // namespace coil::cpu
