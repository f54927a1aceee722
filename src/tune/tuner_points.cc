// Sizes at which a program is tuned.
#include <algorithm>

#include <fmt/format.h>

#include "tune/tuner.h"

namespace coil {
namespace {

constexpr size_t kFastPoints = 6, kMaxPoints = 16;
constexpr int64_t kMostUnbounded = 512;  // sizes to try of a dimension without a bound

// Sizes of one dimension to try: its least, its greatest and powers of two between; what the user named comes first.
std::vector<int64_t> sizes_to_try(const Symbol& s, const std::vector<int64_t>& warm) {
  const int64_t low = std::max<int64_t>(s.min, 1), high = s.max == INT64_MAX ? std::max(kMostUnbounded, low) : std::max(s.max, low);
  std::vector<int64_t> out = warm;
  const auto add = [&](int64_t v) {
    if (std::find(out.begin(), out.end(), v) == out.end()) out.push_back(v);
  };
  add(low);
  for (int64_t v = 2; v < high && v <= kMostUnbounded * 16; v *= 2) {
    if (v > low) add(v);
  }
  add(high);
  return out;
}

}  // namespace

bool allowed_at(const KernelPlan& plan, const SymbolValues& values) {
  for (const SizeCheck& c : plan.checks) {
    if (depends_on_data(c.condition)) continue;
    if (evaluate_index(holds(*plan.pool, c.condition), [&](SymbolId id) { return id == plan.workers ? 1 : values[static_cast<size_t>(id.index)]; }) != 1)
      return false;
  }
  return true;
}

std::vector<SymbolId> free_symbols(const KernelPlan& plan) {
  std::vector<SymbolId> out;
  for (size_t i = 0; i < plan.pool->num_symbols(); ++i) {
    const SymbolId id(i);
    if (id != plan.workers && !plan.pool->symbol_info(id).from_data) out.push_back(id);
  }
  return out;
}

static std::string dimension_names(const KernelPlan& plan) {
  std::string text;
  for (const SymbolId id : free_symbols(plan)) text += (text.empty() ? "" : ", ") + plan.pool->symbol_info(id).label;
  return text.empty() ? "it has none" : "it has: " + text;
}

Status check_warm(const KernelPlan& plan, const TuneOptions& options) {
  for (const auto& [name, values] : options.warm) {
    const std::vector<SymbolId> symbols = free_symbols(plan);
    const auto it = std::find_if(symbols.begin(), symbols.end(), [&, &wanted = name](SymbolId id) { return plan.pool->symbol_info(id).label == wanted; });
    if (it == symbols.end())
      return Error{ErrorCode::bad_option, fmt::format("--warm names '{}', which is no dynamic dimension of the program", name), "", dimension_names(plan)};
    const Symbol& s = plan.pool->symbol_info(*it);
    for (const int64_t v : values) {
      if (v < s.min || v > s.max)
        return Error{ErrorCode::bad_option, fmt::format("--warm {}={} is not in the dimension's range, {} to {}", name, v, s.min, s.max), "", ""};
    }
  }
  return ok_status();
}

// Up to so many points as the mode has: each dimension through its sizes, the others at a middle one; sizes that matter to the user before others.
std::vector<SymbolValues> points_of(const KernelPlan& plan, const TuneOptions& options) {
  const size_t most = options.mode == TuneOptions::Mode::fast ? kFastPoints : kMaxPoints;
  const std::vector<SymbolId> symbols = free_symbols(plan);
  SymbolValues middle(plan.pool->num_symbols(), 1);
  std::vector<std::vector<int64_t>> sizes;
  for (const SymbolId id : symbols) {
    const Symbol& s = plan.pool->symbol_info(id);
    const auto warm = options.warm.find(s.label);
    sizes.push_back(sizes_to_try(s, warm == options.warm.end() ? std::vector<int64_t>() : warm->second));
    std::vector<int64_t> sorted = sizes.back();
    std::sort(sorted.begin(), sorted.end());
    middle[static_cast<size_t>(id.index)] = warm == options.warm.end() ? sorted[sorted.size() / 2] : warm->second[0];
  }
  std::vector<SymbolValues> out;
  const auto add = [&](const SymbolValues& v) {
    if (out.size() < most && allowed_at(plan, v) && std::find(out.begin(), out.end(), v) == out.end()) out.push_back(v);
  };
  add(middle);
  const auto along = [&](size_t i, int64_t value) {
    SymbolValues v = middle;
    v[static_cast<size_t>(symbols[i].index)] = value;
    add(v);
  };
  for (size_t i = 0; i < symbols.size(); ++i) {
    const auto warm = options.warm.find(plan.pool->symbol_info(symbols[i]).label);
    for (size_t k = 0; warm != options.warm.end() && k < warm->second.size(); ++k) along(i, warm->second[k]);
  }
  // Ends first, then between.
  size_t longest = 0;
  for (const auto& s : sizes) longest = std::max(longest, s.size());
  for (size_t k = 0; k < longest; ++k) {
    for (size_t i = 0; i < symbols.size(); ++i) {
      const size_t n = sizes[i].size();
      if (k < n) along(i, sizes[i][k % 2 == 0 ? k / 2 : n - 1 - k / 2]);
    }
  }
  return out;
}

int64_t last_key_of(const TuningTarget& target, size_t kernel, const Chosen& low, const Chosen& high) {
  const KernelPlan& plan = target.plan();
  const auto at = [&](const SymbolValues& values) { return lookup(plan, values, target.workers()); };
  const auto key = [&](const SymbolValues& values) { return evaluate_index(target.choice_key(kernel), at(values)); };
  const std::vector<SymbolId> symbols = free_symbols(plan);
  if (symbols.size() != 1 || low.choice == high.choice) return key(low.values);
  // Which of the two comes first there; nothing where the target would not try both.
  const auto low_first = [&](const SymbolValues& values) {
    const std::vector<Choice> order = target.candidates(kernel, at(values), SIZE_MAX);
    const auto a = std::find(order.begin(), order.end(), low.choice), b = std::find(order.begin(), order.end(), high.choice);
    return a == order.end() || b == order.end() ? std::optional<bool>() : a < b;
  };
  if (low_first(low.values) != true || low_first(high.values) != false) return key(low.values);
  const auto dimension = static_cast<size_t>(symbols[0].index);
  SymbolValues last = low.values, middle = last;
  for (int64_t end = high.values[dimension]; end - last[dimension] > 1;) {
    middle[dimension] = last[dimension] + (end - last[dimension]) / 2;
    if (low_first(middle) == true) last = middle;
    else end = middle[dimension];
  }
  return std::clamp(key(last), key(low.values), key(high.values) - 1);  // keys need not grow with the dimension: n * (c - n)
}

std::map<std::string, int64_t> names_of(const KernelPlan& plan, const SymbolValues& values) {
  std::map<std::string, int64_t> out;
  for (const SymbolId id : free_symbols(plan)) out[plan.pool->symbol_info(id).label] = values[static_cast<size_t>(id.index)];
  return out;
}

std::function<int64_t(SymbolId)> lookup(const KernelPlan& plan, const SymbolValues& values, int64_t workers) {
  return [&plan, &values, workers](SymbolId id) { return id == plan.workers ? workers : values[static_cast<size_t>(id.index)]; };
}

uint64_t most_scratch(const KernelPlan& plan, const TuneOptions& options, int64_t workers) {
  uint64_t most = 0;
  for (const SymbolValues& point : points_of(plan, options)) {
    most = std::max(most, static_cast<uint64_t>(evaluate_index(plan.arena_bytes, lookup(plan, point, workers))));
  }
  return most;
}

}  // namespace coil
