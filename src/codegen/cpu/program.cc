// All kernels of a plan: names, head comments, and one function for equal texts.
#include <map>

#include <fmt/format.h>

#include "base/hash.h"
#include "codegen/cpu/cpu_kernels.h"
#include "codegen/kernel_text.h"

namespace coil::cpu {
CpuProgram generate_kernels(const KernelPlan& plan) {
  CpuProgram program;
  std::map<std::string, int> known;
  for (const Kernel& k : plan.kernels) {
    CpuLaunch launch;
    KernelText t;
    if (const auto* loop = std::get_if<LoopKernel>(&k.def)) {
      t = loop_kernel_text(plan, *loop);
    } else if (const auto* sort = std::get_if<SortKernel>(&k.def)) {
      t = sort_kernel_text(plan, *sort);
    } else if (const auto* call = std::get_if<TemplateKernel>(&k.def); call && !call->epilogue.empty()) {
      t = epilogue_text(plan, *call);
    } else {
      program.launches.push_back(std::move(launch));
      continue;
    }
    launch.buffers = t.buffers;
    launch.items = t.items;
    launch.work = t.work;
    const auto [it, fresh] = known.try_emplace(t.body, static_cast<int>(program.functions.size()));
    launch.function = it->second;
    program.launches.push_back(launch);
    if (!fresh) continue;
    CpuFunction f;
    f.name = fmt::format("{}_{:08x}", k.name, static_cast<uint32_t>(hash64(std::string_view(t.body))));
    f.text = head_comment(k) + t.body;
    replace_all(f.text, "@NAME@", "COIL_NAME(" + f.name + ")");
    f.headers = t.headers;
    f.buffers = t.buffers;
    program.functions.push_back(std::move(f));
  }
  return program;
}

}  // namespace coil::cpu
