// The CPU's row in the table of targets: x86-64 at the levels v3 (AVX2) and v4 (AVX-512), chosen where the package is loaded.
#include "compiler/cpu_target.h"

namespace coil {
namespace {

constexpr TargetLevel kLevels[] = {{"x86-64-v3", "v3"}, {"x86-64-v4", "v4"}};

class CpuTarget final : public Target {
 public:
  CpuTarget() : Target({"cpu", "cpu", "the CPU", "cpu", "isas", kLevels, true, "cpu (all of its levels), cpu:x86-64-v3, cpu:x86-64-v4"}) {}

  LowerOptions lowering(const CompileOptions& options) const override {
    return {.regions = true, .library = true, .quantised_products = true, .nan_rows = true, .split_columns = true, .int4_block = options.int4_block};
  }
  Status check(const LoopProgram&) const override { return ok_status(); }
  bool has_source(const UserKernel& kernel) const override { return kernel.cpu.has_value(); }

  Status check_tuning(const std::vector<std::string>&) const override { return ok_status(); }
  Result<tune::Record> tune(const TargetJob& job) const override { return tune_cpu(job); }
  Result<TargetContents> build(const TargetJob& job, const tune::Record* record, const Dump& dump, const StageDone& done) const override {
    return build_cpu(job, record, dump, done);
  }
  std::vector<std::string> hints(const KernelPlan& plan) const override { return cpu::hints(plan); }
};

}  // namespace

const Target& cpu_target() {
  static const CpuTarget target;
  return target;
}

}  // namespace coil
