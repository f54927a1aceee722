// Long runs of launches that nothing decides at run time, as rows of a table that one loop goes through. As statements each takes clang some milliseconds
// and 18 KB, and both grow faster than their number.
#pragma once

#include <functional>
#include <string>

#include "codegen/cpu/cpu_kernels.h"

namespace coil {

class LaunchTable {
 public:
  LaunchTable(const KernelPlan& plan, const cpu::CpuProgram& program) : plan_(plan), program_(program) {}

  // The kernels from `begin` on, before `end`, that are one run of a table; 0: too few to be one.
  size_t run_length(size_t begin, size_t end) const;

  struct Run {
    std::string definitions;  // of its tables
    std::string call;         // a statement of `run`
  };
  // flag: the number of the flag of a kernel that checks positions, -1 for others.
  Run run(size_t begin, size_t end, const std::function<int(size_t kernel)>& flag) const;

  // What the definitions and calls stand on; after `launch`, once.
  static std::string support();

 private:
  bool plain(size_t kernel) const;

  const KernelPlan& plan_;
  const cpu::CpuProgram& program_;
};

}  // namespace coil
