// Host code for sizes that a program reads from its data (ReadKernel).
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "codegen/interface/limits.h"
#include "schedule/read_order.h"

namespace coil {

bool reads_sizes(const KernelPlan& plan);
bool has_late_outputs(const KernelPlan& plan);

// Declarations at the head of `run`.
std::string late_declarations(const KernelPlan& plan);

// What follows a read: after `s[symbol]` has its value, what it must satisfy, then the outputs and the late memory that wait for it.
class AfterReads {
 public:
  // limits: of the target's programs (limits.h, and what a target adds); those that depend on data are looked at here.
  AfterReads(const KernelPlan& plan, std::vector<SizeLimit> limits);
  std::string text(const ReadKernel& read, const Kernel& kernel) const;

 private:
  // What is known with a symbol and not before.
  struct Due {
    std::vector<const SizeCheck*> checks;
    std::vector<Expr> sizes;
    std::vector<const SizeLimit*> limits;
    std::vector<int> outputs;
    std::vector<size_t> late;
  };
  std::string conditions(const Due& due, const ReadKernel& read) const;
  std::string range(const ReadKernel& read, const Kernel& kernel) const;
  std::string limit_check(const SizeLimit& limit) const;

  const KernelPlan& plan_;
  std::vector<SizeLimit> limits_;
  std::unordered_map<int32_t, Due> due_;  // by symbol
};

}  // namespace coil
