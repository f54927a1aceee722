// One trial of `coil reduce`: whether a program fails, and how. Each one runs in a process of its own, with limits of time and memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace coil::tool {

struct TrialOptions {
  std::string test;               // a shell command that ends with 0 where the program fails; empty: coil itself
  bool crash = false;             // fails: coil crashes; else: `coil diff` finds a difference
  std::vector<std::string> with;  // options for coil
  double seconds = 60;
  uint64_t bytes = 0;  // of address space; 0: as many as there are
};

// How program.pt2 with inputs.npz in the folder fails: "signal 11", "wrong", "failed"; empty: it does not. Out of time, or out of memory without a crash: it
// does not either.
Result<std::string> how_it_fails(const TrialOptions& options, const std::string& folder);

// Whether `coil check` takes the program in the folder, by the code with which it ends: 0, that of an error, 128 + a signal's number.
Result<int> exit_of_check(const TrialOptions& options, const std::string& folder);

}  // namespace coil::tool
