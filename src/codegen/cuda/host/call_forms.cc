#include "codegen/cuda/host/call_forms.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace coil::cuda {
namespace {

constexpr size_t kLeastRun = 64;   // fewer are readable statements
constexpr size_t kLeastUses = 4;   // of a form that is worth a function
constexpr int64_t kComputed = -1;  // FixedPlace::base of an address that sizes decide: the offset is its number

// Whether the buffer lies where sizes of inputs say, not those that only data decides: these come while the program runs.
bool lies_by_sizes(const KernelPlan& plan, BufferId id) {
  const Placement& p = plan.buffer(id).placement;
  return (p.kind == Placement::Kind::arena || p.kind == Placement::Kind::state) && !last_data_symbol(plan, {p.offset}).valid();
}

}  // namespace

std::string CallValues::function(int number) {
  const auto it = std::find(functions.begin(), functions.end(), number);
  const auto at = it - functions.begin();
  if (it == functions.end()) functions.push_back(number);
  return fmt::format("f[{}]", at);
}

std::string CallValues::address(const KernelPlan& plan, BufferId id, const std::string& otherwise) {
  std::optional<FixedPlace> place = fixed_place(plan, id);
  if (!place && lies_by_sizes(plan, id)) place = FixedPlace{kComputed, computed->try_emplace(otherwise, static_cast<int64_t>(computed->size())).first->second};
  if (!place) {
    fixed = false;
    return otherwise;
  }
  const auto it = std::find(places.begin(), places.end(), *place);
  const auto at = it - places.begin();
  if (it == places.end()) places.push_back(*place);
  return fmt::format("a[{}]", at);
}

CallForms::CallForms(size_t kernels, const std::function<std::optional<std::string>(size_t kernel, CallValues& values)>& call) {
  if (kernels < kLeastRun) return;
  rows_.resize(kernels);
  for (size_t k = 0; k < kernels; ++k) {
    Row& row = rows_[k];
    row.values.computed = &computed_;
    const std::optional<std::string> text = call(k, row.values);
    if (!text || !row.values.fixed) continue;
    if (text->empty()) {
      row.form = kNothing;
      continue;
    }
    const auto [it, added] = numbers_.try_emplace(*text, static_cast<int>(texts_.size()));
    if (added) {
      texts_.push_back(&it->first);
      uses_.push_back(0);
    }
    row.form = it->second;
    ++uses_[static_cast<size_t>(row.form)];
  }
}

bool CallForms::tabled(size_t kernel) const {
  const int form = rows_[kernel].form;
  return form == kNothing || (form >= 0 && uses_[static_cast<size_t>(form)] >= kLeastUses);
}

size_t CallForms::run_length(size_t begin) const {
  size_t at = begin;
  while (at < rows_.size() && tabled(at)) ++at;
  return at - begin < kLeastRun ? 0 : at - begin;
}

std::string CallForms::table(size_t begin, size_t count) {
  asked_ = true;
  std::string rows;
  for (size_t k = begin; k < begin + count; ++k) {
    const Row& row = rows_[k];
    if (row.form == kNothing) continue;
    rows += fmt::format("  {}, {}, {}, {},", row.form, k, row.values.functions.size(), row.values.places.size());
    for (const int f : row.values.functions) rows += fmt::format(" {},", f);
    for (const FixedPlace& p : row.values.places) rows += fmt::format(" {}, {},", p.base, p.offset);
    rows += "\n";
  }
  return fmt::format("static const int64_t kCalls_{}[] = {{  // form, kernel, how many functions and addresses, and these\n{}  -1}};\n\n", begin, rows);
}

std::string CallForms::statement(size_t begin) {
  return fmt::format("  if (const int32_t failed = call_all(call, s, error, kCalls_{})) return failed;\n", begin);
}

std::string CallForms::computed_function() const {
  std::vector<std::string> cases(computed_.size());
  for (const auto& [address, number] : computed_) cases[static_cast<size_t>(number)] = fmt::format("    case {}: return {};\n", number, address);
  return fmt::format(
      "static void* computed(const cd::CudaCall* call, const int64_t* s, int64_t number) {{\n  (void)call, (void)s;\n  switch (number) {{\n{}  }}\n"
      "  return nullptr;\n}}\n",
      fmt::join(cases, ""));
}

std::string CallForms::functions() const {
  if (!asked_) return "";
  const char* const parameters = "(const cd::CudaCall* call, const int64_t* s, CoilError* error, int32_t kernel, const int32_t* f, void* const* a)";
  std::string text = placed_function() + computed_function(), list;
  size_t most_functions = 1, most_places = 1;
  for (const Row& row : rows_) {
    most_functions = std::max(most_functions, row.values.functions.size());
    most_places = std::max(most_places, row.values.places.size());
  }
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (uses_[i] >= kLeastUses)
      text += fmt::format("static int32_t form_{}{} {{\n  (void)call, (void)s, (void)error, (void)kernel, (void)f, (void)a;\n{}  return 0;\n}}\n", i,
                          parameters, *texts_[i]);
    list += uses_[i] >= kLeastUses ? fmt::format("form_{}, ", i) : "nullptr, ";
  }
  return text + fmt::format("static int32_t (*const kForms[]){} = {{{}nullptr}};\n", parameters, list) +
         fmt::format(
             "static int32_t call_all(const cd::CudaCall* call, const int64_t* s, CoilError* error, const int64_t* row) {{\n"
             "  while (row[0] >= 0) {{\n"
             "    const int64_t form = row[0], kernel = row[1], functions = row[2], addresses = row[3];\n"
             "    int32_t f[{}];\n    void* a[{}];\n    row += 4;\n"
             "    for (int64_t i = 0; i < functions; ++i) f[i] = (int32_t)*row++;\n"
             "    for (int64_t i = 0; i < addresses; ++i, row += 2) a[i] = row[0] == {} ? computed(call, s, row[1]) : placed(call, row);\n"
             "    if (const int32_t failed = kForms[form](call, s, error, (int32_t)kernel, f, a)) return failed;\n  }}\n  return 0;\n}}\n\n",
             most_functions, most_places, kComputed);
}

}  // namespace coil::cuda
