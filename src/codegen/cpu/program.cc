// All kernels of a plan: names, head comments, and one function for equal texts.
#include <map>

#include <fmt/format.h>

#include "base/hash.h"
#include "codegen/cpu/cpu_kernels.h"

namespace coil::cpu {
namespace {

std::string head_comment(const Kernel& k) {
  std::string text = "// ";
  for (size_t i = 0; i < k.ops.size(); ++i) text += (i ? " -> " : "") + k.ops[i];
  text += "\n";
  for (const Origin& o : k.origins) {
    if (o.source.empty() && o.module_path.empty()) continue;
    text += "//   " + o.source + (o.module_path.empty() ? "" : " [" + o.module_path + "]") + (o.source_line.empty() ? "" : ": " + o.source_line) + "\n";
  }
  std::string clean;
  for (char c : text) clean += c == '\\' ? '/' : c;  // a backslash at a line's end would swallow the next line
  return clean;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
}

}  // namespace

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
