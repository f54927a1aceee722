// How a program is tuned.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tune/record.h"

namespace coil {

// Choosing how kernels run by timing them on this machine.
struct TuneOptions {
  enum class Mode : uint8_t { off, fast, max };
  Mode mode = Mode::off;
  double seconds = 0;                                // 0: 10 (fast), 60 (max)
  int threads = 0;                                   // of the timed calls; 0: as many as the process may use
  uint64_t memory = 0;                               // bytes of scratch above which ways that need more of it are left out; 0: no bound
  std::map<std::string, std::vector<int64_t>> warm;  // sizes of dynamic dimensions that matter, by the user's names
  std::optional<tune::Record> known;                 // its entries are taken as they are, if it is of this machine
  std::optional<tune::Record> replay;                // all choices come from here, nothing is timed; not with a mode
  bool time = true;                                  // false: what neither `known` nor the cache has keeps its own rules, nothing is timed
  std::function<void(double done)> progress;         // 0 to 1
};

}  // namespace coil
