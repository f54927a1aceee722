// Where a buffer lies, if that is known at compile time but for the call's own pointers: as two numbers of a table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "schedule/kernel_plan.h"

namespace coil {

struct FixedPlace {
  int64_t base = 0;    // which of the call's pointers: the arena, the constants, the state, an input, an output
  int64_t offset = 0;  // bytes behind it
  bool operator==(const FixedPlace&) const = default;
};

// None of those that only data or sizes decide.
std::optional<FixedPlace> fixed_place(const KernelPlan& plan, BufferId id);
// That of the operand's first element; vars: how many coordinates its offset has.
std::optional<FixedPlace> fixed_element(const KernelPlan& plan, const PlanOperand& operand, int vars);

// "static inline void* placed(call, const int64_t* place)", which makes a pointer of the two numbers.
std::string placed_function();

}  // namespace coil
