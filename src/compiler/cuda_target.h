// The parts of the CUDA target: a plan with its kernels' choices, and the code of both.
#pragma once

#include <memory>

#include "codegen/cuda/choices.h"
#include "codegen/cuda/cuda_kernels.h"
#include "compiler/build_target.h"
#include "compiler/target.h"
#include "compiler/tune_fusion.h"
#include "toolchain/nvrtc.h"

namespace coil {

const Target& cuda_target();

// What a package has for CUDA: code for chips (90, 80), and PTX, which the driver compiles for chips of this and any later compute capability.
struct CudaArchitectures {
  std::vector<int> chips, ptx;  // falling
};
CudaArchitectures cuda_architectures(const std::vector<std::string>& names);  // "sm_90", "compute_80"

// What programs for CUDA do not support yet, with the operator and its source line: library routines, sizes from data.
Status check_cuda(const LoopProgram& loops, bool host_routines);
// Tunes the program on the first device that a target has code for. On a machine without a device all candidates are built (they are in the cache then)
// and nothing is timed: Record::untimed. Errors: as of Target::tune; wrong_machine for a device of another architecture than the targets.
Result<tune::Record> tune_cuda(const TargetJob& job);
// A record is of one device; kernels for other architectures follow their own rules.
Result<TargetContents> build_cuda(const TargetJob& job, const tune::Record* record, const Dump& dump, const StageDone& done);

struct CudaPlan {
  KernelPlan plan;
  cuda::CudaSettings settings;
};

// tuned: the machine that choices are for, unless the options describe that architecture. choices: see CudaSettings. way: null for the default of fusion.
// Errors: what CUDA programs do not support yet.
Result<CudaPlan> plan_cuda(const TargetJob& job, const std::optional<CudaMachine>& tuned = {},
                           std::function<std::vector<Choice>(const std::string& problem)> choices = {}, const FusionWay* way = nullptr);

// Of each kernel; empty: there is nothing to choose.
std::vector<std::string> problem_texts(const CudaPlan& plan);

// A record's choices for the plan's kernels; which of them a problem has. tuning_record, naming the problem that the record lacks.
Status apply_record(CudaPlan& plan, const tune::Record& record);
std::function<std::vector<Choice>(const std::string& problem)> choices_of(const tune::Record& record);

// The GPU that a record is of; nullopt: it is of a CPU.
std::optional<CudaMachine> record_machine(const tune::Record& record);

// The scheduler's traits of such a plan; way: as of plan_cuda.
TargetTraits cuda_traits(const cuda::CudaSettings& settings, const CompileOptions& options, const FusionWay* way);

// Builds that are not for packages.
struct CudaHooks {
  std::vector<bool> timed;                       // a tuner's: HostOptions::timed
  std::vector<size_t>* launched_with = nullptr;  // a watched one: becomes WatchedBuild::launched_with
  cuda::CudaProgram* program = nullptr;          // a watched one: becomes WatchedBuild::cuda_program
  bool any() const { return !timed.empty() || launched_with; }
};

// Compiles and links. dump, done: as of Target::build.
Result<TargetContents> build_plan(CudaPlan plan, const TargetJob& job, const toolchain::Nvrtc& nvrtc, CudaHooks hooks, const Dump& dump, const StageDone& done);

// The cubins of a plan, for their being in the cache.
Status build_cubins(const CudaPlan& plan, const TargetJob& job, const toolchain::Nvrtc& nvrtc);

}  // namespace coil
