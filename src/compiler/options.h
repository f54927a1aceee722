// CompileOptions from words and the environment, as the command line and Python take them.
#pragma once

#include <string>
#include <vector>

#include "compiler/compile.h"

namespace coil {

inline constexpr int kMostThreads = 4096;

struct CompileSettings {
  std::string target = "cpu";     // "cpu,cuda:sm_90"; see parse_targets in compiler/target.h
  std::vector<std::string> skip;  // passes
  std::vector<std::string> without;          // steps of the scheduler: see compiler/without.h
  std::vector<std::string> replace_kernels;  // "NAME=file.cc"
  int threads = 0;                // 0: COIL_THREADS, or as many as the process may use
  int opt_level = 2;
  bool libraries = true;
  bool winograd = true;  // 3x3 convolutions on the CPU by Winograd's filtering, where that is faster
  bool graphs = true;  // CUDA graphs of repeated calls
  std::string tf32 = "no";         // float32 arithmetic in CUDA code on tensor cores: "no", "products", "convolutions", "all"
  std::string tune = "off";        // off, fast, max
  std::string tune_budget;         // "30s", "2m", "500ms"; empty: the mode's own
  std::string tune_memory;         // "64MB", "1GiB", bytes; empty: no bound
  int tune_threads = 0;            // of the timed calls; 0: as many as the process may use
  std::vector<std::string> warm;   // "batch=1,8,64"
  std::string record;              // a tuning record to take known choices from, if the file exists; the caller writes it afterwards
  std::string replay;              // a tuning record that has all choices
  std::string dump;                // a folder for the texts of every stage; empty: COIL_DUMP
  std::string debug_folder;        // a folder for the texts that line tables of the code name; empty: COIL_DEBUG_INFO
};

// With COIL_DEBUG, COIL_DUMP, COIL_SKIP and COIL_THREADS. bad_option.
Result<CompileOptions> compile_options(const CompileSettings& settings);

// User kernels for ReadOptions: registrations in the form of parse_user_kernels, then those of files or folders. user_kernel, file_*.
Result<UserKernels> user_kernels(const std::vector<std::string>& registrations, const std::vector<std::string>& paths);

// Writes a tuning record for --record: with the entries for other problems that the file has already. tuning_record, file_unwritable.
Status save_record(const std::string& path, tune::Record record);

// The parts of a list in one text, without empty ones.
std::vector<std::string> split(const std::string& text, char separator);

// "64MB", "1GiB", "4096": bytes. bad_option.
Result<uint64_t> memory_size(const std::string& text);

}  // namespace coil
