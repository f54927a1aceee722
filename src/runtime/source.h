// What an encoder has read: a text in another language, for a decoder that generates text under it.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/buffer.h"

namespace coil::runtime {

// Immutable once made; conversations that fork share it.
struct Source {
  explicit Source(const Device& device) : states(device) {}

  std::vector<int64_t> tokens;
  Buffer states;  // [1, m, width], on the device, contiguous
  int64_t sizes[3] = {};
};

}  // namespace coil::runtime
