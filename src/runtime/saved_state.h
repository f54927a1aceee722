// States as bytes: a head, a table of the runs of pages that are not zero, and those pages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace coil::runtime {

constexpr int64_t kSavedPage = 4096;  // and the least page of any machine that coil runs on

struct SavedRun {
  uint64_t begin, bytes;
};

bool is_zero(const uint8_t* data, int64_t bytes);

// Neighbouring pages for which `wanted` holds are one run.
template <class F>
std::vector<SavedRun> runs_of_pages(int64_t bytes, F wanted) {
  std::vector<SavedRun> runs;
  for (int64_t at = 0; at < bytes; at += kSavedPage) {
    const int64_t n = std::min(kSavedPage, bytes - at);
    if (!wanted(at, n)) continue;
    if (!runs.empty() && runs.back().begin + runs.back().bytes == static_cast<uint64_t>(at)) {
      runs.back().bytes += static_cast<uint64_t>(n);
    } else {
      runs.push_back({static_cast<uint64_t>(at), static_cast<uint64_t>(n)});
    }
  }
  return runs;
}

// What of `parts` (rising) is not zero, as bytes. `identity` tells whose state of `size` bytes it is.
std::vector<uint8_t> save_bytes(uint64_t identity, const uint8_t* data, int64_t size, std::span<const SavedRun> parts);

// A saved state's table, checked against its bytes. COIL-E213: damaged, or of another identity or size.
struct SavedState {
  std::vector<SavedRun> runs;
  const uint8_t* bytes = nullptr;  // of the runs, one behind the other
};
Result<SavedState> read_saved(std::span<const uint8_t> saved, uint64_t identity, int64_t size);

}  // namespace coil::runtime
