#include "schedule/group_order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace coil {

std::vector<FusionGroup> in_order(std::vector<FusionGroup> groups, std::span<const std::set<int>> needs, const std::vector<bool>& late) {
  const size_t n = groups.size();
  std::vector<std::vector<size_t>> readers(n);
  std::vector<size_t> missing(n);
  for (size_t g = 0; g < n; ++g) {
    missing[g] = needs[g].size();
    for (int i : needs[g]) readers[static_cast<size_t>(i)].push_back(g);
  }
  int last = 0;
  for (const FusionGroup& g : groups) last = std::max(last, g.loops.back());
  std::priority_queue<std::pair<int, size_t>, std::vector<std::pair<int, size_t>>, std::greater<>> ready;
  const auto add_if_ready = [&](size_t g) {
    const std::vector<int>& loops = groups[g].loops;
    if (missing[g] == 0) ready.emplace(!readers[g].empty() ? loops.back() : late[g] ? last + 1 + loops.back() : loops.front(), g);
  };
  for (size_t g = 0; g < n; ++g) add_if_ready(g);
  std::vector<FusionGroup> out;
  while (!ready.empty()) {
    const size_t best = ready.top().second;
    ready.pop();
    for (size_t g : readers[best]) {
      --missing[g];
      add_if_ready(g);
    }
    out.push_back(std::move(groups[best]));
  }
  CHECK(out.size() == n, "fusion made a cycle");
  return out;
}

}  // namespace coil
