// What a program's dynamic sizes may add up to: the amounts that could pass 2^62 (for CUDA some 2^31) for sizes in their ranges, which bind measures
// in floating point before any integer arithmetic relies on them.
#pragma once

#include <string>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

struct SizeLimit {
  std::string what;       // "output 'y'", "the scratch space"
  Expr amount;            // bytes or elements
  double most;            // it must stay below
  bool counted;           // not an amount of memory, but what kernels count in 32 bits, or a grid of blocks
  bool exact = false;     // what it is made of stays below 2^62 where the limits before it are kept: integers measure it
  std::string condition;  // C++ text over s[i]: it holds only then; empty: always
};

// Each amount once, without those that another is never less than. cuda: what the kernels for CUDA count in 32 bits is among them.
std::vector<SizeLimit> size_limits(const KernelPlan& plan, bool cuda);

// The amount as C++ text of type double over s[i]: not less than the exact value or any intermediate one. `workers` is counted
// with its greatest value.
std::string measure_text(const KernelPlan& plan, Expr amount);
std::string most_function();  // the definition of what that text calls

}  // namespace coil
