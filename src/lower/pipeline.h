// Runs the passes over a program's loops in order.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "loop/loop.h"
#include "lower/lower.h"

namespace coil {

struct LoopPass {
  std::string_view name;
  bool (*wanted)(const LowerOptions& target);  // null: for every target
  Result<LoopProgram> (*run)(LoopProgram program, const LowerOptions& target);
  bool leaves_dead;  // definitions that nothing needs any more; they go before the next pass
};

// In order.
std::span<const LoopPass> loop_passes();

struct LoopPassOptions {
  LowerOptions target;            // as the program was lowered
  std::vector<std::string> skip;  // names of passes; others are no business of these
  // After each pass, for dumps. Programs inside of regions are inside of their programs.
  std::function<void(std::string_view pass, const LoopProgram& after)> observer;
};

// dead_loops() inside of regions too.
Result<LoopProgram> remove_dead(LoopProgram program);

// Every pass runs on the programs inside of regions first, then on the program. The program must verify, and so does the result of each pass (CHECK).
// Errors: those of verify() for the program as it comes, those of fold_constants().
Result<LoopProgram> run_loop_passes(LoopProgram program, const LoopPassOptions& options);

}  // namespace coil
