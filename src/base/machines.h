// Descriptions of machines, which the cost models go by instead of their usual ones: a file that `coil machine` writes, or that a person writes to compile for
// a machine that is not at hand.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_machine.h"
#include "base/cuda_machine.h"
#include "base/result.h"

namespace coil {

class Json;
class JsonValue;

struct Machines {
  std::map<std::string, CpuMachine, std::less<>> cpus;  // by the name of base/host_machine.h: "x86-64"
  std::vector<CudaMachine> gpus;                        // one of an architecture
  bool empty() const { return cpus.empty() && gpus.empty(); }
  const CpuMachine* cpu(std::string_view name) const;  // null: not described
  const CudaMachine* gpu(int sm) const;
};

// name: for readers.
Json machine_json(std::string_view architecture, const CpuMachine& machine, const std::string& name);
Json machine_json(const CudaMachine& machine, const std::string& name);
// The description of all of them: the elements are what machine_json makes.
std::string machines_text(Json machines);

// One GPU: what the object leaves out is as the table has it. bad_json.
Result<CudaMachine> read_cuda_machine(const JsonValue& object);
// A whole description. bad_option, with `name` as the place.
Result<Machines> parse_machines(std::string_view text, const std::string& name);

}  // namespace coil
