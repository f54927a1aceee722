// --require "time(batch=1) <= 1.2 * record" and "time <= 5 ms": requirements that calls made here have to meet.
//
// A record is a JSON file of medians, each with the machine, the threads and the sizes that it is of:
//   {"times": [{"machine": "AMD EPYC 9R14, x86-64-v4, 2 threads", "program": "decode", "sizes": {"batch": 1}, "us": 812.4, "low_us": .., "high_us": ..}]}
// `program` only of a package of several. It is compared with on the same machine only.
#pragma once

#include <string>
#include <vector>

#include "decisions.h"
#include "measured.h"

namespace coil::tool {

// Whether a requirement is one about time.
bool is_about_time(const std::string& requirement);
// Those of the texts that are, apart from the others.
struct Parted {
  std::vector<std::string> times, others;
};
Parted part_requirements(const std::vector<std::string>& texts);

struct TimeRecord {
  std::string path;     // empty: beside the model, MODEL.times.json
  bool update = false;  // measured times become the record's, and meet it by that
};

// Calls `model` at the sizes that each requirement names, on `arguments`' inputs for the rest, for at most some seconds each. bad_option for what is no
// requirement, where the record has no such time, or is of another machine.
Result<std::vector<Requirement>> check_times(const std::string& model, const MeasureArguments& arguments, const std::vector<std::string>& texts,
                                             const TimeRecord& record);

}  // namespace coil::tool
