// The parts of the CPU target: a plan with its kernels' texts, the problems in it that a tuner can decide, and the code of both.
#pragma once

#include <string>
#include <vector>

#include "codegen/cpu/choices.h"
#include "codegen/cpu/host/host_program.h"
#include "compiler/build_target.h"
#include "compiler/target.h"
#include "compiler/tune_fusion.h"
#include "tune/record.h"

namespace coil {

const Target& cpu_target();  // x86-64
const Target& aarch64_target();
const Target& target_for(const HostMachine& machine);

Result<tune::Record> tune_cpu(const TargetJob& job);
Result<TargetContents> build_cpu(const HostMachine& machine, const TargetJob& job, const tune::Record* record, const Dump& dump, const StageDone& done);

struct CpuPlan {
  KernelPlan plan;
  cpu::CpuProgram program;
  std::string function_of(size_t kernel) const;  // empty: none
};

// For each problem's text, the packings of a convolution's weight to keep; see cpu::CpuSettings.
using KeepPackings = std::function<std::vector<Packing>(const std::string& problem, const std::vector<Packing>& possible)>;
// way: null for the own rules of fusion.
TargetTraits cpu_traits(const HostMachine& machine, const CompileOptions& options, const KeepPackings& keep = {}, const FusionWay* way = nullptr);
Result<CpuPlan> plan_cpu(const HostMachine& machine, const LoopProgram& loops, const CompileOptions& options, const KeepPackings& keep = {},
                         const FusionWay* way = nullptr);

// Of each kernel; empty: there is nothing to choose.
std::vector<std::string> problem_texts(const CpuPlan& plan);

// The packings that a record's choices want, and its choices in a plan that has them. tuning_record, naming the problem that it lacks.
KeepPackings packings_of(const tune::Record& record);
Status apply_record(CpuPlan& plan, const tune::Record& record);

// Compiles and links. host: machine, timed and tuned_isa are the caller's business. dump, done: as of Target::build.
Result<TargetContents> build_plan(CpuPlan plan, const TargetJob& job, HostOptions host, const Dump& dump, const StageDone& done);

}  // namespace coil
