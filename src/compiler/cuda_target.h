// The parts of the CUDA target: a plan with its kernels' choices, and the code of both.
#pragma once

#include <memory>

#include "codegen/cuda/choices.h"
#include "codegen/cuda/cuda_kernels.h"
#include "compiler/build_target.h"
#include "compiler/tune_fusion.h"
#include "toolchain/nvrtc.h"

namespace coil {

struct CudaPlan {
  KernelPlan plan;
  cuda::CudaSettings settings;
};

// tuned_sm, choices: see CudaSettings. way: null for the own rules of fusion. Errors: what CUDA programs do not support yet.
Result<CudaPlan> plan_cuda(const LoopProgram& loops, const CompileOptions& options, int tuned_sm = 0,
                           std::function<std::vector<Choice>(const std::string& problem)> choices = {}, const FusionWay* way = nullptr);

// Of each kernel; empty: there is nothing to choose.
std::vector<std::string> problem_texts(const CudaPlan& plan);

// A record's choices for the plan's kernels; which of them a problem has. tuning_record, naming the problem that the record lacks.
Status apply_record(CudaPlan& plan, const tune::Record& record);
std::function<std::vector<Choice>(const std::string& problem)> choices_of(const tune::Record& record);

// "sm_90" of a record's hardware; 0: it is not of a GPU.
int record_sm(const tune::Record& record);

// Compiles and links. timed: HostOptions::timed; dump, done: as of build_cuda.
Result<TargetContents> build_plan(CudaPlan plan, const Graph& graph, const CompileOptions& options, const toolchain::Nvrtc& nvrtc, std::vector<bool> timed, const Dump& dump,
                                  const StageDone& done);

// The cubins of a plan, for their being in the cache; only those of the tuned architecture.
Status build_cubins(const CudaPlan& plan, const CompileOptions& options, const toolchain::Nvrtc& nvrtc);

}  // namespace coil
