// Which option of a compile makes a program wrong or slow: options are switched off one by one, then by halves.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "device/model_abi.h"

namespace coil {

// Something that a compile does and may leave out.
struct Switch {
  std::string kind, name;  // "pass", "common_subexpr"
  std::string option;      // that leaves it out: "--skip common_subexpr"
  std::function<void(CompileOptions&)> off;
};

// For a program that is compiled with these options, coarse ones first: edited kernels, a record's choices, passes, steps of the scheduler, libraries, the
// optimiser, instruction sets.
std::vector<Switch> switches_of(const CompileOptions& options);
// Storing each value that now exists only inside of a kernel.
Result<std::vector<Switch>> fusion_switches(const Graph& graph, const CompileOptions& options);

// Whether a compile with the options still shows what is looked for; nullopt: it cannot be told (they do not compile).
using Shows = std::function<std::optional<bool>(const CompileOptions& options)>;

struct Culprits {
  std::vector<Switch> switches;  // each alone makes it go; or, where none does, the fewest that do together
  bool together = false;
  int compiles = 0;
};
// The options show it. checkpoint: called before each compile, with what it switches off.
Culprits find_culprits(const CompileOptions& options, const std::vector<Switch>& switches, const Shows& shows,
                       const std::function<void(const std::string&)>& progress);

// The least time of a call, of many within some tenths of a second.
Result<double> seconds_of_call(std::span<const uint8_t> package, std::span<const CoilTensorView> inputs, int threads);

}  // namespace coil
