// The rows of processors in the table of targets: one kind of code, for each machine of base/host_machine.h. Its levels are chosen where a package is loaded.
#include "compiler/cpu_target.h"

#include <fmt/format.h>

#include "base/host_machine.h"
#include "compiler/this_machine.h"

namespace coil {
namespace {

class CpuTarget final : public Target {
 public:
  CpuTarget(const HostMachine& machine, const TargetNames& names) : Target(names), machine_(machine) {}

  LowerOptions lowering(const CompileOptions& options) const override {
    return {.library = true, .quantised_products = true, .int8_activations = options.int8_activations, .split_columns = true, .int4_block = options.int4_block};
  }
  Status check(const LoopProgram&, const CompileOptions&) const override { return ok_status(); }
  bool has_source(const UserKernel& kernel) const override { return kernel.cpu.has_value(); }

  Status check_tuning(const std::vector<std::string>&) const override {
    if (&machine_ == &this_machine()) return ok_status();
    return Error{ErrorCode::bad_option, fmt::format("the tuner times programs on this machine, which is {}, not {}", this_machine().name, machine_.name), "",
                 fmt::format("compile for {} without --tune", machine_.name)};
  }
  Result<tune::Record> tune(const TargetJob& job) const override { return tune_cpu(job); }
  void add_machines(const std::vector<std::string>&, MachinesAtHand& found) const override {
    if (&machine_ == &this_machine()) found.add_cpu();
  }
  bool is_described(const Machines& machines, const std::vector<std::string>&) const override { return machines.cpu(machine_.name) != nullptr; }
  Result<TargetContents> build(const TargetJob& job, const tune::Record* record, const Dump& dump, const StageDone& done) const override {
    return build_cpu(machine_, job, record, dump, done);
  }
  std::vector<KernelHint> hints(const KernelPlan& plan) const override { return cpu::hints(plan); }

 private:
  const HostMachine& machine_;
};

constexpr TargetLevel kX86Levels[] = {{"x86-64-v3", "v3"}, {"x86-64-v4", "v4"}};
constexpr TargetLevel kArmLevels[] = {{"neon", "neon"}, {"i8mm", "i8mm"}};

}  // namespace

const Target& cpu_target() {
  static const CpuTarget target(*machine_named("x86-64"),
                                {"cpu", "cpu", "the CPU", "cpu", "isas", kX86Levels, true, "cpu (all of its levels), cpu:x86-64-v3, cpu:x86-64-v4"});
  return target;
}

const Target& aarch64_target() {
  static const CpuTarget target(*machine_named("aarch64"),
                                {"aarch64", "cpu", "64-bit ARM", "cpu", "isas", kArmLevels, true, "aarch64 (all of its levels), aarch64:neon, aarch64:i8mm"});
  return target;
}

const Target& target_for(const HostMachine& machine) { return machine.name == "aarch64" ? aarch64_target() : cpu_target(); }

}  // namespace coil
