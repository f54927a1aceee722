#include "compiler/replace_kernels.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.h"
#include "compiler/device_files.h"

namespace coil {
namespace {

// Which function each kernel calls, as numbers that can be changed. One kernel may have several: forms, variants of a template.
using FunctionsOf = std::vector<std::vector<int*>>;

// Why a kernel has no text that could be replaced, and what can be instead.
Error without_text(const std::string& name, const KernelPlan& plan) {
  const std::vector<std::string> files = template_files(plan);
  std::string what, hint;
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const Kernel& k = plan.kernels[i];
    if (k.name != name) continue;
    const bool code = std::holds_alternative<TemplateKernel>(k.def), library = std::holds_alternative<LibraryKernel>(k.def);
    what = code ? "code of the device library" : library ? "a routine of a library" : "made by the host program";
    if (code) hint = fmt::format("replace the library's file, which `coil inspect PACKAGE --source {0}` prints: --replace-kernel {0}=FILE", files[i]);
  }
  return {ErrorCode::bad_option, fmt::format("kernel '{}' is {}: it has no text that could be replaced", shown(name), what), "", hint};
}

// The one function that the replacement is of; -1: none in this program.
template <class Functions>
Result<int> function_of(const KernelReplacement& r, const Functions& functions, const FunctionsOf& uses, const KernelPlan& plan) {
  for (size_t i = 0; i < functions.size(); ++i) {
    if (functions[i].name == r.kernel) return static_cast<int>(i);
  }
  std::set<int> found;
  bool named = false;
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    if (plan.kernels[k].name != r.kernel) continue;
    named = true;
    for (const int* f : uses[k]) {
      if (*f >= 0) found.insert(*f);
    }
  }
  if (found.size() == 1) return *found.begin();
  if (found.empty() && !named) return -1;
  if (found.empty()) return without_text(r.kernel, plan);
  std::vector<std::string> names;
  for (const int f : found) names.push_back(functions[static_cast<size_t>(f)].name);
  return Error{ErrorCode::bad_option, fmt::format("'{}' is the name of several functions", shown(r.kernel)), "",
               fmt::format("name one of them: {}", fmt::join(names, ", "))};
}

template <class Functions>
Result<std::vector<TargetContents::Replaced>> replace(Functions& functions, const FunctionsOf& uses, const KernelPlan& plan,
                                                      const std::vector<KernelReplacement>& replacements) {
  std::vector<TargetContents::Replaced> files;
  for (const KernelReplacement& r : replacements) {
    if (!r.device.empty()) continue;
    TRY(const int found, function_of(r, functions, uses, plan));
    if (found < 0) continue;
    auto changed = functions[static_cast<size_t>(found)];
    if (changed.user) return Error{ErrorCode::bad_option, fmt::format("kernel '{}' is a user's own: edit its source", shown(r.kernel)), "", ""};
    TRY(ReplacedText text, replaced_text(r, changed.name, changed.text));
    const bool whole = changed.name == r.kernel;  // a function's name: all kernels that call it
    changed.name = std::move(text.name);
    changed.text = std::move(text.text);
    changed.comment_bytes = 0;
    changed.replaced = r.file_name();
    files.resize(plan.kernels.size());
    bool used = false;
    for (size_t k = 0; k < uses.size(); ++k) {
      const bool mine = whole || plan.kernels[k].name == r.kernel;
      for (int* f : uses[k]) {
        if (*f != found) continue;
        used = used || !mine;
        if (!mine) continue;
        *f = static_cast<int>(functions.size());
        files[k].add(r.kernel, changed.replaced);
      }
    }
    if (used) {
      functions.push_back(std::move(changed));
      continue;
    }
    for (const std::vector<int*>& of : uses) {  // nobody calls the generated one any more
      for (int* f : of) {
        if (*f == static_cast<int>(functions.size())) *f = found;
      }
    }
    functions[static_cast<size_t>(found)] = std::move(changed);
  }
  return files;
}

}  // namespace

Result<std::vector<TargetContents::Replaced>> replace_kernels(cpu::CpuProgram& program, const KernelPlan& plan,
                                                              const std::vector<KernelReplacement>& replacements) {
  FunctionsOf uses(plan.kernels.size());
  for (size_t k = 0; k < uses.size(); ++k) {
    uses[k].push_back(&program.launches[k].function);
    for (cpu::CpuLaunch::Config& c : program.launches[k].configs) uses[k].push_back(&c.function);
  }
  return replace(program.functions, uses, plan, replacements);
}

Result<std::vector<TargetContents::Replaced>> replace_kernels(cuda::CudaProgram& program, const KernelPlan& plan,
                                                              const std::vector<KernelReplacement>& replacements) {
  FunctionsOf uses(plan.kernels.size());
  for (size_t k = 0; k < uses.size(); ++k) {
    for (std::vector<cuda::CudaLaunch>* list : {&program.calls[k].launches, &program.calls[k].further}) {
      for (cuda::CudaLaunch& l : *list) uses[k].push_back(&l.function);
    }
    if (!program.calls[k].together) continue;
    for (cuda::CudaLaunch& l : program.calls[k].together->launches) uses[k].push_back(&l.function);
  }
  return replace(program.functions, uses, plan, replacements);
}

Result<std::vector<std::string>> check_replacements(const std::vector<const TargetContents*>& targets, const std::vector<KernelReplacement>& replacements) {
  std::vector<std::string> names;
  for (const KernelReplacement& r : replacements) {
    bool found = false;
    std::vector<std::string> all;
    for (const TargetContents* target : targets) {
      const TargetContents& t = *target;
      for (size_t k = 0; k < t.plan.kernels.size(); ++k) {
        if (!t.functions[k].empty() && std::find(all.begin(), all.end(), t.functions[k]) == all.end()) all.push_back(t.functions[k]);
        if (t.replaced.empty() || std::count(t.replaced[k].names.begin(), t.replaced[k].names.end(), r.kernel) == 0) continue;
        found = true;
        const std::string& name = t.functions[k].empty() ? t.plan.kernels[k].name : t.functions[k];
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
    if (found) continue;
    if (!r.device.empty())
      return Error{ErrorCode::bad_option, fmt::format("--replace-kernel: no kernel of the program has code of '{}'", r.device), "",
                   "`coil inspect PACKAGE --source KERNEL` says which files a kernel's code is in"};
    if (all.size() > 12) all.resize(12);
    return Error{ErrorCode::bad_option, fmt::format("--replace-kernel: no kernel is called '{}'", shown(r.kernel)), "",
                 fmt::format("see `coil inspect PACKAGE --kernels`; among them are {}", fmt::join(all, ", "))};
  }
  return names;
}

}  // namespace coil
