#include "codegen/cuda/grids.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "device/cuda/limits.h"
#include "schedule/schedule.h"

namespace coil::cuda {
namespace {

constexpr int64_t kMostBlocks = cd::kMostGridX;  // in the direction in which loops' grids extend
constexpr size_t kComparedWith = 24;             // limits that a new one is compared with; more than programs have in practice

}  // namespace

std::vector<SizeLimit> grid_limits(const KernelPlan& plan, const CudaProgram& program) {
  std::vector<SizeLimit> found, kept;
  std::set<std::tuple<const ExprNode*, int64_t, std::string>> seen;
  for (size_t k = 0; k < program.calls.size(); ++k) {
    for (const std::vector<CudaLaunch>* list : {&program.calls[k].launches, &program.calls[k].further}) {
      for (const CudaLaunch& l : *list) {
        if (!l.work.amount) continue;
        const int64_t most = kMostBlocks * l.work.per_block;
        const std::optional<int64_t> top = upper_bound(l.work.amount);
        if ((top && *top <= most) || !seen.insert({l.work.amount.node(), most, l.condition}).second) continue;
        found.push_back({fmt::format("the points of '{}'", plan.kernels[k].name), l.work.amount, static_cast<double>(most) + 1, true, true, l.condition});
      }
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const SizeLimit& a, const SizeLimit& b) { return typical(a.amount) / a.most > typical(b.amount) / b.most; });
  for (SizeLimit& limit : found) {
    const auto covers = [&](const SizeLimit& other) {
      return depends_on_data(other.amount) == depends_on_data(limit.amount) && (other.condition.empty() || other.condition == limit.condition) &&
             other.most <= limit.most && provably_nonnegative(other.amount - limit.amount);
    };
    const auto end = kept.begin() + static_cast<std::ptrdiff_t>(std::min(kept.size(), kComparedWith));
    if (std::none_of(kept.begin(), end, covers)) kept.push_back(std::move(limit));
  }
  return kept;
}

}  // namespace coil::cuda
