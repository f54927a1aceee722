// The order in which kernels run.
#pragma once

#include <set>
#include <span>
#include <vector>

#include "schedule/schedule.h"

namespace coil {

// Groups in an order that respects dependences; among ready ones the one with the earliest last loop. What nobody reads is the program's: its last loop
// stands where results are, at the end, and until then its operands would be in memory, as those of all gradients of weights.
// needs: of each group, those that it reads from. late: whether a group may run behind all others if nobody reads it, since it keeps no memory of theirs.
std::vector<FusionGroup> in_order(std::vector<FusionGroup> groups, std::span<const std::set<int>> needs, const std::vector<bool>& late);

}  // namespace coil
