// Choices of kernels by name and number: problems that kernels share, all that a record says put into a plan.
#include <algorithm>

#include <fmt/format.h>

#include "tune/tuner.h"

namespace coil {

std::vector<TuningProblem> problems_of(const std::vector<std::string>& texts) {
  std::vector<TuningProblem> out;
  for (size_t k = 0; k < texts.size(); ++k) {
    if (texts[k].empty()) continue;
    const auto it = std::find_if(out.begin(), out.end(), [&](const TuningProblem& p) { return p.text == texts[k]; });
    if (it == out.end()) out.push_back({texts[k], {k}});
    else it->kernels.push_back(k);
  }
  return out;
}

std::vector<std::vector<Choice>> united_choices(const KernelPlan& plan, const std::vector<TuningProblem>& problems,
                                                const TuningTarget::Candidates& candidates) {
  std::vector<std::vector<Choice>> out(plan.kernels.size());
  for (const auto& row : candidates) {
    for (size_t p = 0; p < problems.size(); ++p) {
      for (const size_t k : problems[p].kernels) {
        for (const Choice& c : row[p]) {
          if (std::find(out[k].begin(), out[k].end(), c) == out[k].end()) out[k].push_back(c);
        }
      }
    }
  }
  return out;
}

tune::NamedChoice named(const ChoiceNames& names, const Choice& choice) {
  tune::NamedChoice out;
  for (size_t i = 0; i < choice.values.size(); ++i) {
    if (choice.values[i]) out[names[i]] = choice.values[i];
  }
  return out;
}

std::optional<Choice> choice_of(const ChoiceNames& names, const tune::NamedChoice& named) {
  Choice c;
  for (const auto& [name, value] : named) {
    const auto it = std::find_if(names.begin(), names.end(), [&](const char* n) { return *n && name == n; });
    if (it == names.end() || value < 0) return std::nullopt;
    c.values[static_cast<size_t>(it - names.begin())] = value;
  }
  return c;
}

Status apply_record(KernelPlan& plan, const std::vector<RecordedKernel>& kernels, const tune::Record& record) {
  for (size_t k = 0; k < kernels.size(); ++k) {
    const RecordedKernel& kernel = kernels[k];
    if (kernel.problem.empty()) continue;
    const tune::Entry* entry = record.find(kernel.problem);
    if (!entry) {
      return Error{ErrorCode::tuning_record, fmt::format("the tuning record has no entry for '{}' (kernel {})", kernel.problem, plan.kernels[k].name),
                   record.name, "tune the program again with --tune and --record, or leave --replay out"};
    }
    ChoiceTable table{kernel.key, {}};
    for (const tune::Row& row : entry->rows) {
      const std::optional<Choice> choice = choice_of(*kernel.names, row.choice);
      if (!choice || !kernel.has(*choice)) {
        return Error{ErrorCode::tuning_record, fmt::format("the tuning record's choice for '{}' is not one that this version of coil has", kernel.problem),
                     record.name, "tune the program again with --tune and --record"};
      }
      table.rows.push_back({row.up_to, *choice, kernel.text(*choice)});
    }
    const bool own_rule = table.rows.size() == 1 && table.rows[0].choice == Choice{};
    if (!own_rule) plan.kernels[k].choices = std::move(table);
  }
  return ok_status();
}

}  // namespace coil
