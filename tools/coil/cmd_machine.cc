// coil machine: what the cost models know of a machine, read from the one at hand, for compiling elsewhere.
#include <memory>

#include "command.h"
#include "compiler/target.h"
#include "compiler/this_machine.h"
#include "terminal.h"

namespace coil::tool {

Action add_machine(CommandLine& app) {
  auto target = std::make_shared<std::string>();
  app.add_option("--target", *target, "targets whose machines to describe, as of `coil compile`; default: all that are at hand").type_name("LIST");
  app.footer(
      "Examples:\n"
      "  coil machine > here.json                                        this CPU and its GPUs\n"
      "  coil machine --target cuda:sm_90 > gpu.json                     the GPU alone\n"
      "  coil compile model.pt2 --target cuda:sm_90 --machine gpu.json   for that GPU, on any machine");
  return [target]() -> Result<int> {
    std::vector<TargetChoice> choices;
    if (target->empty()) {
      for (const Target* each : targets()) {
        choices.push_back({each, {}});
        for (const TargetLevel& level : each->names.levels) choices.back().architectures.emplace_back(level.architecture);
      }
    } else {
      TRY(choices, parse_targets(*target));
    }
    TRY(MachinesAtHand found, machines_at_hand(choices));
    put(machines_text(std::move(found.rows)));
    return 0;
  };
}

}  // namespace coil::tool
