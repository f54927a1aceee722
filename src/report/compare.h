// Which kernels of two reports correspond: versions of one program may call theirs otherwise, fuse more or less, or have other modules around
// them; different programs have few in common, and are compared by what they have.
#pragma once

#include "base/json.h"
#include <string>
#include <vector>

namespace coil::report {

// Kernels of the first report that do what those of the second one do. One side is empty where the other program has nothing like it.
struct Counterparts {
  std::vector<int> a, b;
};
struct Comparison {
  bool one_program = true;              // most of both programs' time has a counterpart
  double matched_a = 0, matched_b = 0;  // parts of the kernels' time that have one
  std::vector<Counterparts> rows;       // of kernels that ran, in the first program's order, then the second one's
};
Comparison compare_reports(const Json& a, const Json& b);

// {"one_program", "matched_a", "matched_b", "rows": [[[0], [0, 1]], ...]}
Json to_json(const Comparison& comparison);

}  // namespace coil::report
