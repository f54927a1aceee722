// CompileOptions from words and the environment, as the command line and Python take them.
#pragma once

#include <string>
#include <vector>

#include "compiler/compile.h"

namespace coil {

inline constexpr int kMostThreads = 4096;

// A number of 0 and an empty text leave it to the environment or a default.
struct CompileSettings : CompileSwitches {
#define TEXT(field, text, ...) std::string field = text;
#define NUMBER(field, number, ...) int field = number;
#define WITHOUT(...)
#define LIST(field, ...) std::vector<std::string> field;
#include "compiler/options.def"
#undef TEXT
#undef NUMBER
#undef WITHOUT
#undef LIST
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
