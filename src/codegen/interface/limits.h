// What a program's dynamic sizes may add up to: the amounts that could pass 2^62 (on some targets 2^31) for sizes in their ranges, which bind measures
// in floating point before any integer arithmetic relies on them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

// What a target says for its programs' interface.
struct InterfaceTraits {
  std::string_view device;         // of the tensors, as coil.h calls it
  bool counts_in_32_bits = false;  // kernels count elements, terms and blocks so
};
inline constexpr InterfaceTraits kHostInterface{"COIL_CPU"};

struct SizeLimit {
  std::string what;       // "output 'y'", "the scratch space"
  Expr amount;            // bytes or elements
  double most;            // it must stay below
  bool counted;           // not an amount of memory, but what kernels count in 32 bits, or a grid of blocks
  bool exact = false;     // what it is made of stays below 2^62 where the limits before it are kept: integers measure it
  std::string condition;  // C++ text over s[i]: it holds only then; empty: always
};

// Each amount once, without those that another is never less than. What kernels count in 32 bits is among them, where they do.
std::vector<SizeLimit> size_limits(const KernelPlan& plan, const InterfaceTraits& target);

// The amount as C++ text of type double over s[i]: not less than the exact value or any intermediate one. `workers` is counted
// with its greatest value.
std::string measure_text(const KernelPlan& plan, Expr amount);
std::string most_function();  // the definition of what that text calls

}  // namespace coil
