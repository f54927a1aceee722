// What a CPU package's host program begins and ends with: headers, the kernels and routines that it calls, a row an instruction set.
#pragma once

#include <set>
#include <string>

#include "codegen/cpu/host/host_files.h"
#include "codegen/cpu/host/host_program.h"

namespace coil {

struct PrologueWay {
  int64_t chunk_work;  // vector operations of the smallest chunk that another thread gets
  bool tuning;         // kernels have choices
  HostFile file = HostFile::alone;
  const std::set<int>* offsets = nullptr;  // of the arena's, the numbers of those that a file names which is not alone
};
std::string prologue_text(const KernelPlan& plan, const cpu::CpuProgram& program, const HostOptions& options, const PrologueWay& way);

// The table that the package's shared object exports, at the program's end.
std::string model_text(const KernelPlan& plan, const HostOptions& options);

// The object with a template's code, and the table of its functions, one an instruction set: "gemm_f64", "kGemm_f64".
std::string function_table(std::string object);
// Whether kernel `k` has a place for oneDNN.
bool asks_onednn(const KernelPlan& plan, const HostOptions& options, size_t k);

}  // namespace coil
