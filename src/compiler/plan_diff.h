// Compares each kernel of a plan's code with the plan's interpreter (schedule/interpret_plan.h), which begins each kernel with what the code left in memory,
// so that errors do not pile up. Of plans that no loop program is known of: those that parse_plan reads.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/kernel_diff.h"

namespace coil {

struct PlanDifference {
  size_t kernel = 0;
  std::string value;  // the buffer's name
  std::vector<int64_t> index;
  double found = 0, expected = 0;
};

struct PlanDiff {
  std::vector<KernelVerdict> kernels;
  std::optional<PlanDifference> first;
};

// inputs: of the call; they are not changed. Allowed is a part of the largest number that a kernel writes, by its type; integers are equal. Errors: those of
// a call, and bad_program where the plan reads or writes what is not there: its code does not run then.
Result<PlanDiff> diff_plan(const WatchedBuild& build, std::span<const CoilTensorView> inputs, const std::string& path);

}  // namespace coil
