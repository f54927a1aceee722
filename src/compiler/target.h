// A target: one kind of machine code that a package can hold, with everything that the compiler asks of it. Each provides one value; the
// table of all of them is in target.cc. Nothing outside of a target's own files asks which one it is.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compiler/compile.h"
#include "compiler/dump.h"
#include "loop/loop.h"
#include "lower/lower.h"
#include "package/package_writer.h"
#include "tune/record.h"

namespace coil {

struct MachinesAtHand;

// What may stand after the target's name in --target ("x86-64-v3" of "cpu:x86-64-v3"), and what the package calls it ("v3").
struct TargetLevel {
  std::string_view name, architecture;
};

struct TargetNames {
  std::string_view name;                // "cpu": in --target, of stages, and of the target's folders in a package of several
  std::string_view device;              // "cpu", "cuda": the kind of device that runs it, as the manifest and PyTorch call it
  std::string_view label;               // "the CPU", "CUDA": in messages
  std::string_view source;              // "cpu", "cuda": the source that a user's kernel needs for it, as its registration calls it
  std::string_view architectures;       // "isas", "architectures": the manifest's word for its list of them
  std::span<const TargetLevel> levels;  // in the order that a package has them
  bool all_levels;                      // the name alone stands for all levels; otherwise one has to be named
  std::string_view help;                // "cpu (all of its levels), cpu:x86-64-v3, cpu:x86-64-v4"
};

// Called when a stage ends: "schedule", "generate", "build".
using StageDone = std::function<void(const std::string& stage)>;

// What a target compiles: a program that was lowered for it, for some of its architectures.
struct TargetJob {
  const LoopProgram& loops;
  const Graph& graph;
  const CompileOptions& options;
  const std::vector<std::string>& architectures;  // never empty
};

class Target {
 public:
  explicit Target(TargetNames names) : names(names) {}
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;
  virtual ~Target() = default;

  // How programs are lowered for it.
  virtual LowerOptions lowering(const CompileOptions& options) const = 0;
  // What programs for it do not support yet, with the operator and its source line. User kernels' sources are checked by check_user_kernels.
  virtual Status check(const LoopProgram& loops, const CompileOptions& options) const = 0;
  virtual bool has_source(const UserKernel& kernel) const = 0;

  // Whether these architectures can be tuned for. bad_option.
  virtual Status check_tuning(const std::vector<std::string>& architectures) const = 0;
  // Tunes the program on this machine (options.tune). Errors: bad_option for a --warm that the program does not have; those of a call.
  virtual Result<tune::Record> tune(const TargetJob& job) const = 0;
  // Adds the machines at hand that run code for these architectures; whether a description has one of them.
  virtual void add_machines(const std::vector<std::string>& architectures, MachinesAtHand& found) const = 0;
  virtual bool is_described(const Machines& machines, const std::vector<std::string>& architectures) const = 0;
  // From loops to code: schedule, generate, compile, link. record: the choices of a tuner; null: the kernels' own rules.
  virtual Result<TargetContents> build(const TargetJob& job, const tune::Record* record, const Dump& dump, const StageDone& done) const = 0;
  // What in each kernel's shapes costs speed.
  virtual std::vector<KernelHint> hints(const KernelPlan& plan) const = 0;

  const TargetNames names;
};

// All of them, in the order that messages list them.
std::span<const Target* const> targets();

// Contents without code yet, named as the target's.
TargetContents contents_of(const Target& target, const std::vector<std::string>& architectures);

// "cpu,cuda:sm_90": what is named first comes first in the package, each target once, its architectures in its own order. bad_option.
Result<std::vector<TargetChoice>> parse_targets(const std::string& text);
// {"cpu:x86-64-v3", "cuda:sm_90"}: each architecture as --target names it.
std::vector<std::string> target_names(const std::vector<TargetChoice>& choices);

// user_kernel where a user's kernel has no source for the target.
Status check_user_kernels(const LoopProgram& loops, const Target& target);

}  // namespace coil
