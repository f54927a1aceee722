// KernelPlan -> C++ text for the CPU. Each kernel is a function of the type CoilChunkFn or CoilEpilogue (device/), generic over
// the instruction set: the same text is compiled once for each.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu_machine.h"
#include "codegen/cpu/loop_form.h"
#include "schedule/kernel_plan.h"
#include "schedule/target.h"

namespace coil::cpu {

// One generated function. Kernels with the same text (but for the head comment) are one function.
struct CpuFunction {
  std::string name;                  // "add_layer_norm_1f3a9c02"
  std::string text;                  // head comment and definition
  size_t comment_bytes = 0;          // of the head comment; the rest does not depend on what the program calls its things
  std::vector<std::string> headers;  // device headers that it needs
  std::vector<BufferId> buffers;     // of the first kernel that uses it
  // Of a user's kernel, whose text is a unit by itself: what wrote it, and how coil calls it.
  std::shared_ptr<const UserKernel> user;
  std::string user_call;
  std::string replaced;  // the file of --replace-kernel that the text is from
};

// How the host program calls a function for one kernel.
struct CpuLaunch {
  int function = -1;              // row of CpuProgram::functions; -1: none (a template without epilogue, a copy)
  std::vector<BufferId> buffers;  // args.p
  std::vector<int> symbols;       // args.s, where a function has numbers of its own for them; empty: all of the program's
  Expr items;                     // parallel_for's count (loop kernels, sorts)
  Expr work;                      // rough cost of one item, in vector operations
  // The same for each configuration of a user's kernel, or for each form of a loop that was asked for; what is above is the first's, the own
  // rule's. function: -1 where the program has no use for it.
  struct Config {
    Choice choice;  // what asks for it
    int function = -1;
    Expr items, work;
  };
  std::vector<Config> configs;
};

struct CpuProgram {
  std::vector<CpuFunction> functions;
  std::vector<CpuLaunch> launches;  // one per kernel of the plan
};

struct CpuSettings {
  bool winograd = true;  // 3x3 convolutions may be computed by Winograd's filtering
  // Which packings of a convolution's weight the package holds, of those that make sense (the one of the target's own rule first), for
  // the problem of that text (choices.h). Empty: the first alone.
  std::function<std::vector<Packing>(const std::string& problem, const std::vector<Packing>& possible)> keep_packings;
  std::optional<CpuMachine> machine = std::nullopt;  // that is given; nullopt: a usual one
};
TargetTraits traits(const CpuSettings& settings = {});

// Loops are written as their own rules say, as the plan's choices say, and as those of `timed` do: for each kernel, what a tuner's build can be told to run.
CpuProgram generate_kernels(const KernelPlan& plan, const std::vector<std::vector<Choice>>& timed = {});
// Drops the functions of users' configurations that no kernel's choices name. timed: kernels of which all are kept.
void drop_configs(CpuProgram& program, const KernelPlan& plan, const std::vector<bool>& timed);

// --- parts
struct KernelText {
  std::string body;  // function body with @NAME@ in place of its name
  std::vector<std::string> headers;
  std::vector<BufferId> buffers;
  std::vector<int> symbols;  // as CpuLaunch::symbols
  Expr items, work;
};
// buffers: in whose order the arguments shall be; empty: as they come. symbols: those that the text has numbers of its own for (kernel_symbols); empty: the
// program's serve.
KernelText loop_kernel_text(const KernelPlan& plan, const LoopKernel& kernel, const LoopForm& form, const std::vector<BufferId>& buffers = {},
                            const std::vector<int>& symbols = {});
KernelText epilogue_text(const KernelPlan& plan, const TemplateKernel& kernel, const std::vector<int>& symbols = {});
KernelText sort_kernel_text(const KernelPlan& plan, const SortKernel& kernel, const std::vector<int>& symbols = {});
KernelText user_kernel_text(const KernelPlan& plan, const UserCallKernel& kernel, size_t config);

// "  const float* p0 = (const float*)a.p[0];" for each buffer; written ones without const.
std::string pointer_declarations(const KernelPlan& plan, const std::vector<BufferId>& buffers, const std::vector<BufferId>& written, bool restrict);

}  // namespace coil::cpu
