// The tuning record: what was chosen for each problem, on which machine, and what was measured. Readable, mergeable JSON; with it a
// compile makes the same choices without timing anything.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cuda_machine.h"
#include "base/result.h"

namespace coil::tune {

// What results depend on. Records of equal keys may stand in for one another.
struct Hardware {
  std::string processor;  // "AMD EPYC 9R14", "NVIDIA H200"
  std::string isa;        // the instruction set that the choices are for: "v4" (of x86-64), "sm_90"
  int units = 1;          // threads, multiprocessors
  bool operator==(const Hardware&) const = default;
  bool is_gpu() const { return isa.starts_with("sm_"); }
  std::string text() const;  // "AMD EPYC 9R14, x86-64-v4, 2 threads", "NVIDIA H200, sm_90, 132 multiprocessors"
};

// A choice by its target's names for the numbers; none: the kernel's own rule.
using NamedChoice = std::map<std::string, int32_t>;

struct Row {
  int64_t up_to = INT64_MAX;  // of Entry::key
  NamedChoice choice;
  std::string text;  // for readers
  bool operator==(const Row&) const = default;
};

struct Timing {
  std::string choice;                    // for readers
  double median = 0, low = 0, high = 0;  // microseconds; quartiles
  int samples = 0;
  std::string fault;  // why it could not win, if not for its time: "wrong result"
};

struct MeasuredPoint {
  std::map<std::string, int64_t> sizes;
  int64_t key = 0;
  std::vector<Timing> timings;  // in the candidates' order; the first is the kernel's own rule
  std::string chosen;
  std::string reason;  // "faster by 12 %", "within the noise of the default"
};

struct Entry {
  std::string problem;  // codegen's text
  std::string kernel;   // the first kernel that has it, for readers
  int kernels = 1;      // how many have it
  std::string key;      // what the rows' up_to counts, for readers
  std::vector<Row> rows;
  std::vector<MeasuredPoint> measured;
  std::vector<NamedChoice> to_time;  // of an untimed record: what was built, beside the own rule
};

// A call of the whole program with the choices and without, taking turns. Microseconds.
struct WholeProgram {
  std::map<std::string, int64_t> sizes;
  double untuned = 0, tuned = 0;
  bool kept = false;  // false: the choices were not surely faster, the own rules stay for these sizes
};

struct Record {
  std::string name;  // the file that it was read from, for messages
  Hardware hardware;
  std::optional<CudaMachine> machine;  // that the cost models went by, where it is not the usual one of its architecture
  std::vector<Entry> entries;          // in the program's order
  std::vector<WholeProgram> whole;
  double seconds = 0;        // that the tuning took
  double least_seconds = 0;  // not 0: the budget was too small for the program; so much would do
  int runs = 0;              // of the program
  bool untimed = false;      // nothing was timed for want of a device; what is to be timed is built, in the cache, and in the entries
  const Entry* find(std::string_view problem) const;
};

std::string record_text(const Record& record);
// tuning_record, with `name` as the place.
Result<Record> parse_record(std::string_view text, const std::string& name);
// The entries of `more` that `into` lacks; of a record that is not timed, none. tuning_record when the hardware differs.
Status merge(Record& into, const Record& more);

// "AUTOTUNE gemm [...]" for each problem with a line a candidate: time, percent of the best, what it is.
std::string record_tables(const Record& record);

}  // namespace coil::tune
