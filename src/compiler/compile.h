// The whole compiler: a program in, a package out.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/machines.h"
#include "base/result.h"
#include "cache/cache.h"
#include "codegen/replaced_text.h"
#include "frontend/program_reader.h"
#include "graph/graph.h"
#include "loop/loop.h"
#include "loop/tf32.h"
#include "ops/int4_block.h"
#include "toolchain/made_once.h"
#include "tune/options.h"
#include "tune/record.h"

namespace coil {

class Dump;
class Target;
class SharedConstants;
struct StateLayout;

// A target of a package and the architectures that it is compiled for, in the target's own order ("v3", "v4"); see compiler/target.h.
struct TargetChoice {
  const Target* target = nullptr;
  std::vector<std::string> architectures;
};
std::vector<TargetChoice> default_targets();  // the CPU with all of its levels

// The options that are on unless the user says otherwise: what each means is its line in the table.
struct CompileSwitches {
#define TEXT(...)
#define NUMBER(...)
#define LIST(...)
#define WITHOUT(field, ...) bool field = true;
#include "compiler/options.def"
#undef TEXT
#undef NUMBER
#undef LIST
#undef WITHOUT
};

struct CompileOptions : CompileSwitches {
  std::string name;                                       // the package's root folder; empty: "model"
  std::vector<TargetChoice> targets = default_targets();  // in the package's order: what stock PyTorch loads is the first
  Tf32 tf32;                                              // which factors CUDA code may round to TensorFloat-32
  bool int8_activations = false;                          // floats beside quantised weights are quantised row by row (CPU; find_quantised.h)
  Int4Block int4_block;                                   // of weights that PyTorch packed
  int threads = 0;                                        // of the compiler; 0: as many as it may use
  int opt_level = 2;
  Machines machines;  // that are described; of others the cost models take a usual one
  TuneOptions tune;
  std::shared_ptr<cache::Cache> cache;        // of compiled kernels and tuned problems; null: none
  std::shared_ptr<toolchain::MadeOnce> once;  // of compiles that run at the same time: what they have in common is compiled once; null: it is alone
  std::vector<std::string> skip_passes;
  std::vector<std::string> without;                // what the scheduler leaves out: see compiler/without.h
  std::vector<KernelReplacement> replace_kernels;  // edited kernels; each names one of some target
  Log log;
  std::string dump_folder;   // COIL_DUMP: texts of every stage; empty: none
  std::string debug_folder;  // --debug-info: where the generated texts lie that the code's line tables name; empty: no such tables
  std::function<void(std::string_view stage, size_t done, size_t total)> progress;
  std::shared_ptr<const StateLayout> states;   // of compile_programs: where the program's states lie
  std::shared_ptr<SharedConstants> constants;  // ... and the weights of the programs before it
  std::function<void()> checkpoint;            // called often, by any thread; an exception from it ends the compile and comes out of it

  toolchain::Known known() const { return {cache.get(), once.get()}; }
};

struct StageTime {
  std::string stage;
  double seconds = 0;
};

struct CompileReport {
  std::vector<StageTime> stages;
  size_t graph_nodes = 0, loops = 0, kernels = 0, functions = 0;
  uint64_t code_bytes = 0, constants_bytes = 0, package_bytes = 0;  // of all programs and targets
  uint64_t shared_bytes = 0;                                        // of weights that a later program has in common with an earlier one: not in constants_bytes
  std::vector<tune::Record> more_tunings;                           // of later programs
  std::string arena_formula;
  std::optional<tune::Record> tuning;  // what the tuner found
  std::vector<std::string> replaced;   // functions whose text --replace-kernel gave
  std::vector<std::string> hints;      // what in the program's shapes costs speed
};

// One of a package's programs, by its name there.
struct NamedProgram {
  std::string name;
  const Graph* graph = nullptr;
};
// A package of several programs, which have their weights and their states in common as far as these are the same. Names: bad_option.
Result<CompileReport> compile_programs_to_file(std::span<const NamedProgram> programs, const std::string& path, const CompileOptions& options);
Result<std::vector<uint8_t>> compile_programs_to_memory(std::span<const NamedProgram> programs, const CompileOptions& options, CompileReport* report = nullptr);

// Errors are those of the reader and the lowerings, and file_unwritable. The file appears only when it is complete.
Result<CompileReport> compile_to_file(const Graph& graph, const std::string& path, const CompileOptions& options);
// The package's bytes, for running at once.
Result<std::vector<uint8_t>> compile_to_memory(const Graph& graph, const CompileOptions& options, CompileReport* report = nullptr);

// The program after the passes of src/passes, as a compile with these options has it; and its loops for a target, as they are scheduled. The dump gets what
// each pass makes.
Result<Graph> simplified(const Graph& graph, const CompileOptions& options, const Dump& dump);
Result<Graph> simplified(const Graph& graph, const CompileOptions& options);
Result<LoopProgram> loops_of(const Graph& simplified, const Target& target, const CompileOptions& options, const Dump& dump);
Result<LoopProgram> loops_of(const Graph& simplified, const Target& target, const CompileOptions& options);
// Loops as they were lowered, or read from text, after the passes that follow, each of which the dump gets.
Result<LoopProgram> loops_after_passes(LoopProgram lowered, const Target& target, const CompileOptions& options, const Dump& dump);

// What `coil check` shows: each operator of the simplified program, whether coil has code for it, and where it stands.
struct CheckRow {
  std::string target, where;
  int count = 0;
  bool supported = false;
  bool by_host = false;  // in programs for a GPU the CPU computes it (CompileOptions::host_routines)
  std::string problem;   // of the first use that cannot be compiled
};
Result<std::vector<CheckRow>> check_program(const Graph& graph, const CompileOptions& options);

// Every node of the program that coil cannot compile, by the name that the program has for it.
struct NodeProblem {
  std::string node, target, problem;
  bool unknown_operator = false;  // coil has no code for the operator, whatever its arguments
};
Result<std::vector<NodeProblem>> node_problems(const Graph& graph, const CompileOptions& options);

}  // namespace coil
