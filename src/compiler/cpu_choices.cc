// Problems of a plan, and a record's choices in it.
#include <algorithm>

#include <fmt/format.h>

#include "compiler/cpu_target.h"

namespace coil {
namespace {

using Packing = PlanConstant::Packing;

// Null: a name that the kernel does not have.
std::optional<Choice> choice_of(const Kernel& kernel, const tune::NamedChoice& named) {
  const auto& names = cpu::value_names(kernel);
  Choice c;
  for (const auto& [name, value] : named) {
    const auto it = std::find_if(names.begin(), names.end(), [&](const char* n) { return *n && name == n; });
    if (it == names.end() || value < 0) return std::nullopt;
    c.values[static_cast<size_t>(it - names.begin())] = value;
  }
  return c;
}

int32_t method_of(const tune::NamedChoice& choice) {
  const auto it = choice.find("method");
  return it == choice.end() ? int32_t{cpu::kOwnMethod} : it->second;
}

}  // namespace

std::string CpuPlan::function_of(size_t kernel) const {
  const int row = program.launches[kernel].function;
  return row < 0 ? "" : program.functions[static_cast<size_t>(row)].name;
}

std::vector<CpuProblem> problems_of(const CpuPlan& plan) {
  std::vector<CpuProblem> out;
  for (size_t k = 0; k < plan.plan.kernels.size(); ++k) {
    const std::string text = cpu::problem_text(plan.plan, plan.plan.kernels[k], plan.function_of(k));
    if (text.empty()) continue;
    const auto it = std::find_if(out.begin(), out.end(), [&](const CpuProblem& p) { return p.text == text; });
    if (it == out.end()) out.push_back({text, {k}});
    else it->kernels.push_back(k);
  }
  return out;
}

tune::NamedChoice named(const Kernel& kernel, const Choice& choice) {
  tune::NamedChoice out;
  for (size_t i = 0; i < choice.values.size(); ++i) {
    if (choice.values[i]) out[cpu::value_names(kernel)[i]] = choice.values[i];
  }
  return out;
}

KeepPackings packings_of(const tune::Record& record) {
  return [&record](const std::string& problem, const std::vector<Packing>& possible) {
    std::vector<Packing> keep;
    const tune::Entry* entry = record.find(problem);
    for (const Packing p : possible) {
      const auto wants = [&](const tune::Row& row) {
        const int32_t method = method_of(row.choice);
        return method == cpu::kOwnMethod ? p == possible[0] : (method == cpu::kWinograd) == (p == Packing::winograd_weight);
      };
      if (entry && std::any_of(entry->rows.begin(), entry->rows.end(), wants)) keep.push_back(p);
    }
    if (keep.empty()) keep.push_back(possible[0]);
    return keep;
  };
}

Status apply_record(CpuPlan& plan, const tune::Record& record) {
  for (const CpuProblem& problem : problems_of(plan)) {
    const tune::Entry* entry = record.find(problem.text);
    if (!entry) {
      return Error{ErrorCode::tuning_record, fmt::format("the tuning record has no entry for '{}' (kernel {})", problem.text, plan.plan.kernels[problem.kernels[0]].name), "",
                   "tune the program again with --tune and --record, or leave --replay out"};
    }
    for (const size_t k : problem.kernels) {
      Kernel& kernel = plan.plan.kernels[k];
      ChoiceTable table{cpu::choice_key(plan.plan, kernel, plan.program.launches[k]), {}};
      for (const tune::Row& row : entry->rows) {
        const std::optional<Choice> choice = choice_of(kernel, row.choice);
        const auto* t = std::get_if<TemplateKernel>(&kernel.def);
        const bool has_weight = !t || !std::holds_alternative<Conv2d>(t->def) || cpu::weight_of(plan.plan, *t, method_of(row.choice));
        if (!choice || !has_weight) {
          return Error{ErrorCode::tuning_record, fmt::format("the tuning record's choice for '{}' is not one that this version of coil has", problem.text), "",
                       "tune the program again with --tune and --record"};
        }
        table.rows.push_back({row.up_to, *choice});
      }
      const bool own_rule = table.rows.size() == 1 && table.rows[0].choice == Choice{};
      if (!own_rule) kernel.choices = std::move(table);
    }
  }
  return ok_status();
}

}  // namespace coil
