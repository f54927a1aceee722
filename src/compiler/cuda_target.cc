// CUDA's row in the table of targets: chips by their compute capabilities, and PTX for later ones.
#include "compiler/cuda_target.h"

#include <algorithm>
#include <charconv>

#include "compiler/this_machine.h"
#include "device/cuda/shared_memory.h"

namespace coil {
namespace {

// As sm_90 and sm_100 are compiled some kernels run on one chip only: PTX is of earlier capabilities.
constexpr TargetLevel kLevels[] = {
    {"sm_121", "sm_121"},         {"sm_120", "sm_120"},         {"sm_110", "sm_110"},         {"sm_103", "sm_103"},         {"sm_100", "sm_100"},
    {"sm_90", "sm_90"},           {"sm_89", "sm_89"},           {"sm_87", "sm_87"},           {"sm_86", "sm_86"},           {"sm_80", "sm_80"},
    {"compute_89", "compute_89"}, {"compute_87", "compute_87"}, {"compute_86", "compute_86"}, {"compute_80", "compute_80"},
};
constexpr std::string_view kHelp =
    "cuda:sm_80, cuda:sm_86, cuda:sm_89, cuda:sm_90, cuda:sm_100, and cuda:compute_80, cuda:compute_86, cuda:compute_89 (PTX, for these chips and all later ones)";

// Of chips and of PTX.
std::vector<int> numbers(const std::vector<std::string>& architectures) {
  CudaArchitectures wanted = cuda_architectures(architectures);
  wanted.chips.insert(wanted.chips.end(), wanted.ptx.begin(), wanted.ptx.end());
  return std::move(wanted.chips);
}

class CudaTarget final : public Target {
 public:
  CudaTarget() : Target({"cuda", "cuda", "CUDA", "cuda", "architectures", kLevels, false, kHelp}) {}

  // To steer by what is computed on the device the host has to wait for it.
  LowerOptions lowering(const CompileOptions& options) const override {
    return {.straight_line = true,
            .library = false,
            .atomics = true,
            .any_order = !options.deterministic,
            .part_bytes = cd::kPartBytes,
            .gathers = true,
            .channel_vector = 8,
            .quantised_products = true,
            .signed_rows_only = true,
            .int8_activations = options.int8_activations,
            .split_columns = false,
            .int4_block = options.int4_block};
  }
  Status check(const LoopProgram& loops, const CompileOptions& options) const override { return check_cuda(loops, options.host_routines); }
  bool has_source(const UserKernel& kernel) const override { return kernel.cuda.has_value(); }

  Status check_tuning(const std::vector<std::string>& architectures) const override {
    if (!cuda_architectures(architectures).chips.empty()) return ok_status();
    return Error{ErrorCode::bad_option, "the tuner needs an architecture to tune for", "", "name one in --target, such as cuda:sm_90"};
  }
  Result<tune::Record> tune(const TargetJob& job) const override { return tune_cuda(job); }
  void add_machines(const std::vector<std::string>& architectures, MachinesAtHand& found) const override { found.add_gpus(numbers(architectures)); }
  bool is_described(const Machines& machines, const std::vector<std::string>& architectures) const override {
    const std::vector<int> all = numbers(architectures);
    return std::any_of(all.begin(), all.end(), [&](int sm) { return machines.gpu(sm) != nullptr; });
  }
  Result<TargetContents> build(const TargetJob& job, const tune::Record* record, const Dump& dump, const StageDone& done) const override {
    return build_cuda(job, record, dump, done);
  }
  std::vector<KernelHint> hints(const KernelPlan& plan) const override { return cuda::hints(plan); }
};

}  // namespace

const Target& cuda_target() {
  static const CudaTarget target;
  return target;
}

CudaArchitectures cuda_architectures(const std::vector<std::string>& names) {
  CudaArchitectures out;
  for (const std::string& name : names) {
    const bool chip = name.starts_with("sm_");
    const size_t digits = name.find('_') + 1;
    int capability = 0;
    std::from_chars(name.data() + digits, name.data() + name.size(), capability);
    (chip ? out.chips : out.ptx).push_back(capability);
  }
  return out;
}

}  // namespace coil
