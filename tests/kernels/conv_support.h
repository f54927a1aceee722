// A convolution against a double-precision loop, by every ISA, with threads, epilogues and weights that are packed by the call.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/support.h"

namespace coil::testing {

struct ConvCase {
  int64_t n, ic, ih, iw, oc, kh, kw;
  int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1, groups = 1;
  int64_t far_pad = 0;  // more padding at the far side than at the near one
  bool channels_last = true;
  int64_t gap = 0;       // elements between pixels beyond the channels
  int64_t winograd = 0;  // outputs along a side of a tile
  bool narrow_groups = false;
  bool few_outputs = false;
  bool pairs = false;  // of k, in the packed weight
};

// A weight of bfloat16 whose channels allow it is multiplied in pairs of k too.
void check(const ConvCase& c, int dtype, const std::vector<IsaKernels>& kernels = runnable_kernels());
void check_all_dtypes(const ConvCase& c);

}  // namespace coil::testing
