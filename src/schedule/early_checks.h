// What may fail a call while its kernels run, told before any of them has written to a state or an input.
#pragma once

#include <optional>
#include <vector>

#include "base/function_ref.h"
#include "schedule/kernel_plan.h"

namespace coil {

// All positions from data that a program's kernels check, if whether they are in range can be computed early: from what inputs, constants and states hold
// before the program writes to them, and from what kernels in front compute.
class EarlyChecks {
 public:
  // Nothing where something else may fail, or where a check counts only under a condition of its own.
  static std::optional<EarlyChecks> find(const KernelPlan& plan);

  bool empty() const { return checks_.empty(); }
  // The last kernel that computes something which the checks read; -1: none.
  int last_needed() const { return last_needed_; }
  // Kernels that compute whether all checks hold, for a place behind last_needed(), and the value itself (a load; boolean). They fail the call
  // themselves where the check was one of `silent` kernels (by their numbers) alone, which will not run where it does not hold.
  std::vector<Kernel> kernels(KernelPlan& plan, FunctionRef<bool(int)> silent, Expr* all_hold) const;

 private:
  struct Check {
    Expr position, bound;      // over variables 0, 1, ...
    std::vector<Expr> domain;  // their sizes
    std::vector<int> kernels;  // that make it
  };
  class Finder;

  std::vector<Check> checks_;  // each once
  int last_needed_ = -1;
};

}  // namespace coil
