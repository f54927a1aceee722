// Problems of a CPU plan, and a record's choices in it.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/packings.h"
#include "compiler/cpu_target.h"

namespace coil {
namespace {

int32_t method_of(const tune::NamedChoice& choice) {
  const auto it = choice.find("method");
  return it == choice.end() ? int32_t{cpu::kOwnMethod} : it->second;
}

}  // namespace

std::string CpuPlan::function_of(size_t kernel) const {
  const int row = program.launches[kernel].function;
  return row < 0 ? "" : program.functions[static_cast<size_t>(row)].name;
}

std::vector<std::string> problem_texts(const CpuPlan& plan) {
  std::vector<std::string> out;
  for (size_t k = 0; k < plan.plan.kernels.size(); ++k) out.push_back(cpu::problem_text(plan.plan, plan.plan.kernels[k], plan.function_of(k)));
  return out;
}

KeepPackings packings_of(const tune::Record& record) {
  return [&record](const std::string& problem, const std::vector<Packing>& possible) {
    std::vector<Packing> keep;
    const tune::Entry* entry = record.find(problem);
    for (const Packing p : possible) {
      const auto wants = [&](const tune::Row& row) {
        const int32_t method = method_of(row.choice);
        return method == cpu::kOwnMethod ? p == possible[0] : (method == cpu::kWinograd) == (winograd_tile(p) != 0);
      };
      if (entry && std::any_of(entry->rows.begin(), entry->rows.end(), wants)) keep.push_back(p);
    }
    if (keep.empty()) keep.push_back(possible[0]);
    return keep;
  };
}

Status apply_record(CpuPlan& plan, const tune::Record& record) {
  std::vector<RecordedKernel> kernels;
  const std::vector<std::string> texts = problem_texts(plan);
  for (size_t k = 0; k < texts.size(); ++k) {
    const Kernel& kernel = plan.plan.kernels[k];
    if (texts[k].empty()) {
      kernels.emplace_back();
      continue;
    }
    kernels.push_back({texts[k], cpu::choice_key(plan.plan, kernel, plan.program.launches[k]), &cpu::value_names(kernel),
                       [&plan, &kernel](const Choice& c) { return cpu::can_run(plan.plan, kernel, c); },
                       [&kernel](const Choice& c) { return cpu::choice_text(kernel, c); }});
  }
  return apply_record(plan.plan, kernels, record);
}

}  // namespace coil
