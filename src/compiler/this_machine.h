// The machine at hand as the cost models see it (base/machines.h).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/machines.h"
#include "compiler/compile.h"
#include "runtime/device.h"

namespace coil {

// The folder is the kernel's; tests have one of their own. What it does not say is as of a usual CPU.
CpuMachine this_cpu(const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

// By what the driver says, and how much of it a chip keeps up under load; the rest is the architecture's.
CudaMachine machine_of(const runtime::CudaDeviceInfo& device);

struct MachinesAtHand {
  Machines machines;
  Json rows = Json::array();  // of a description, with the machines' names
  void add_cpu();
  void add_gpus(const std::vector<int>& chips);  // the first device of each
};

// Those of the targets' machines that are at hand. bad_option: none is.
Result<MachinesAtHand> machines_at_hand(const std::vector<TargetChoice>& targets);

// What --machine names: a file, or `this`. Errors of the file; bad_option where no target's machine is described.
Result<Machines> machines_named(const std::string& name, const std::vector<TargetChoice>& targets);

}  // namespace coil
