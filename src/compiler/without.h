// --without: steps of the scheduler that a compile leaves out, to find the one that makes a result wrong or slow.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "schedule/target.h"

namespace coil {

struct SchedulerStep {
  std::string_view name, what;  // "epilogues", "what reads a template's result runs with it"
  void (*leave_out)(TargetTraits& traits);
};
std::span<const SchedulerStep> scheduler_steps();

// "fusion:NAME": the value of that name is stored, whatever reads it.
inline constexpr std::string_view kFusionOf = "fusion:";

// bad_option for a step that does not exist.
Status check_without(const std::vector<std::string>& steps);
void leave_out(TargetTraits& traits, const std::vector<std::string>& steps);

}  // namespace coil
