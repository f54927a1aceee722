// What the scheduler asks of a target: preferences and limits, never names.
#pragma once

#include <cstdint>

namespace coil {

struct TargetTraits {
  bool convolution_channels_last = true;  // the layout that the convolution template reads and writes
  int recompute_cost = 12;                // an inner value dearer than this is kept between phases rather than recomputed
  int inline_cost = 6;                    // a pointwise producer this cheap is recomputed in each of its consumers
  int max_inlined_loads = 3;
  bool packs_constant_weights = true;
};

}  // namespace coil
