// coil_conv2d against a double-precision loop: kernels, strides, dilations, groups, depthwise, layouts, dtypes, threads.
#include "tests/kernels/conv_support.h"

namespace coil::testing {
namespace {

TEST(Conv2d, KernelsAndChannels) {
  for (int64_t kernel : {1, 2, 3, 5}) {
    for (int64_t ic : {1, 3, 16, 40}) {
      for (int64_t oc : {1, 16, 33}) {
        for (int64_t pad : {0, 1, 2}) check_all_dtypes({1, ic, 7, 9, oc, kernel, kernel, 1, 1, pad, pad});
      }
    }
  }
}

TEST(Conv2d, StridesDilationsAndUnevenPads) {
  check_all_dtypes({2, 5, 11, 13, 20, 3, 3, 2, 2, 1, 1});
  check_all_dtypes({2, 5, 11, 13, 20, 3, 5, 2, 1, 1, 2, 1, 2});
  check_all_dtypes({1, 24, 15, 15, 40, 3, 3, 1, 1, 2, 2, 2, 2});
  check_all_dtypes({3, 8, 6, 6, 8, 3, 3, 2, 2, 0, 0, 1, 1, 1, 1});
  check_all_dtypes({1, 8, 3, 2, 8, 3, 3, 1, 1, 4, 4});  // windows wholly outside the image
  check_all_dtypes({1, 7, 5, 70, 9, 1, 9, 1, 3, 0, 4});
  check_all_dtypes({1, 7, 70, 5, 9, 9, 1, 3, 1, 4, 0});
  check_all_dtypes({1, 64, 9, 9, 70, 3, 3, 1, 1, 1, 1});  // k beyond one chunk
  check_all_dtypes({2, 100, 5, 5, 300, 3, 3, 2, 2, 1, 1});
  check_all_dtypes({1, 300, 4, 4, 64, 1, 1, 2, 2});
}

// A tile of one line skips the taps above and below the image.
TEST(Conv2d, LinesAsTiles) {
  for (int64_t size : {7, 8, 10, 12, 14}) {
    check_all_dtypes({1, 40, size, size, 33, 3, 3, 1, 1, 1, 1});
    check_all_dtypes({2, 33, size, size, 20, 5, 5, 1, 1, 2, 2});
    check_all_dtypes({1, 21, 2 * size, 2 * size, 40, 3, 3, 2, 2, 1, 1});
    check_all_dtypes({1, 130, 3, size, 20, 5, 3, 1, 1, 4, 1, 2});
  }
}

TEST(Conv2d, Groups) {
  check_all_dtypes({1, 8, 7, 7, 12, 3, 3, 1, 1, 1, 1, 1, 1, 4});
  check_all_dtypes({2, 6, 7, 7, 6, 3, 3, 1, 1, 1, 1, 1, 1, 3});
  check_all_dtypes({2, 96, 6, 6, 80, 3, 3, 2, 2, 1, 1, 1, 1, 2});
  check_all_dtypes({1, 5, 6, 6, 10, 3, 3, 1, 1, 1, 1, 1, 1, 5});  // a channel multiplier
}

// Few k: all panels of a block meet a tile of pixels before the next tile does, read in place or gathered.
TEST(Conv2d, FewChannelsToMany) {
  check_all_dtypes({2, 16, 13, 12, 64, 1, 1});
  check_all_dtypes({2, 24, 13, 12, 72, 1, 1, 2, 2});
  check_all_dtypes({1, 3, 20, 22, 70, 3, 3, 2, 2, 1, 1});
  check_all_dtypes({1, 32, 20, 22, 96, 1, 1, 1, 1, 0, 0, 1, 1, 2});
}

// Three channels by 3x3 windows: planes and pixels, lines of several pieces, images smaller than the windows.
TEST(Conv2d, ThreeChannels) {
  for (bool channels_last : {true, false}) {
    for (int64_t stride : {1, 2, 3}) {
      for (int64_t pad : {0, 1, 3}) {
        for (int64_t size : {1, 2, 3, 4, 9}) {
          if (size + 2 * pad >= 3) check_all_dtypes({2, 3, size, size + pad, 20, 3, 3, stride, stride, pad, pad, 1, 1, 1, 0, channels_last});
        }
        check_all_dtypes({1, 3, 6, 200, 33, 3, 3, stride, 1, pad, 1, 1, 1, 1, pad, channels_last});
        check_all_dtypes({3, 3, 7, 130, 128, 3, 3, 1, stride, 1, pad, 1, 1, 1, 0, channels_last});
      }
    }
    check_all_dtypes({2, 3, 40, 50, 16, 3, 3, 2, 2, 1, 1, 1, 1, 1, 0, channels_last});
    check_all_dtypes({2, 3, 20, 20, 130, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0, channels_last});
    check_all_dtypes({2, 3, 20, 21, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0, channels_last, 2});
    check_all_dtypes({1, 3, 20, 21, 16, 3, 3, 1, 1, 2, 2, 2, 2, 1, 0, channels_last});
  }
  for (bool channels_last : {true, false}) {  // too wide to be widened
    for (int64_t width : {512, 513}) check_all_dtypes({1, 3, 5, width, 20, 3, 3, 2, 2, 1, 1, 1, 1, 1, 0, channels_last});
  }
}

TEST(Conv2d, OtherLayouts) {
  for (int64_t gap : {0, 2}) {
    for (bool channels_last : {true, false}) {
      check_all_dtypes({2, 3, 20, 22, 35, 7, 7, 2, 2, 3, 3, 1, 1, 1, 0, channels_last, gap});
      check_all_dtypes({2, 40, 8, 9, 35, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0, channels_last, gap});
      check_all_dtypes({1, 12, 8, 9, 6, 3, 3, 1, 1, 1, 1, 1, 1, 2, 0, channels_last, gap});
      check_all_dtypes({2, 20, 8, 9, 20, 3, 3, 1, 1, 1, 1, 1, 1, 20, 0, channels_last, gap});
    }
  }
}

// Batches around the number of images in a tile, maps that fit one task or several, those that just fit and just do not.
TEST(Conv2d, SmallMapsBatches) {
  for (int64_t n = 1; n <= 30; n++) {
    check({n, 5, 4, 4, 32, 3, 3, 1, 1, 1, 1}, COIL_FLOAT32);
    check({n, 1, 8, 8, 16, 3, 3, 1, 1, 1, 1}, COIL_FLOAT32);
  }
  for (int64_t n : {64, 85}) check_all_dtypes({n, 16, 4, 4, 40, 3, 3, 1, 1, 1, 1});
}

TEST(Conv2d, SmallMapsShapes) {
  for (int64_t size : {1, 2, 3, 5, 8, 14, 18, 19}) {
    for (int64_t oc : {1, 9, 17, 33, 70}) {
      for (int64_t pad : {0, 1, 3}) {
        if (size + 2 * pad < 3) continue;
        check({6, 7, size, size, oc, 3, 3, 1, 1, pad, pad}, COIL_FLOAT32);
        check({15, 3, size, size + 2, oc, 3, 2, 2, 1, pad, pad, 1, 1, 1, pad}, COIL_FLOAT32);
      }
    }
  }
  check_all_dtypes({5, 4, 5, 64, 9, 3, 3, 1, 1, 1, 1});                                                     // one line of output in a task
  for (int64_t n = 4; n < 13; n++) check({n, 3, 4, 33 + 4 * (n % 3), 32, 3, 3, 1, 1, 1, 1}, COIL_FLOAT32);  // fewer images in a tile
  check_all_dtypes({4, 2, 64, 5, 9, 3, 3, 1, 1, 1, 1});
  check_all_dtypes({5, 24, 8, 8, 20, 5, 5, 1, 1, 2, 2});
  check_all_dtypes({5, 64, 8, 8, 20, 3, 3, 1, 1, 1, 1});  // three lines fill the copy
  check_all_dtypes({5, 65, 8, 8, 20, 3, 3, 1, 1, 1, 1});
  check_all_dtypes({4, 200, 2, 2, 20, 3, 3, 1, 1, 1, 1});
  check_all_dtypes({4, 300, 2, 2, 20, 3, 3, 1, 1, 1, 1});      // too many weights
  check_all_dtypes({7, 3, 9, 9, 20, 3, 3, 1, 1, 4, 4, 3, 2});  // windows wholly outside, taps apart
  check_all_dtypes({7, 6, 9, 7, 20, 3, 3, 2, 3, 2, 2, 2, 3});
  check_all_dtypes({4, 3, 2, 2, 8, 3, 3, 1, 1, 5, 5});
}

TEST(Conv2d, SmallMapsGroupsAndLayouts) {
  for (int64_t groups : {1, 2, 4}) {
    for (int64_t gap : {0, 3}) {
      for (bool channels_last : {true, false}) {
        check_all_dtypes({9, 8, 6, 5, 12, 3, 3, 1, 1, 1, 1, 1, 1, groups, 0, channels_last, gap});
        check_all_dtypes({16, 40, 4, 4, 68, 3, 3, 1, 1, 1, 1, 1, 1, groups, 0, channels_last, gap});
        check_all_dtypes({5, 4, 9, 9, 8, 4, 4, 2, 2, 1, 2, 1, 1, groups, 1, channels_last, gap});
      }
    }
    check_all_dtypes({4, groups, 8, 8, 10 * groups, 3, 3, 1, 1, 1, 1, 1, 1, groups, 0, true, groups == 1 ? 2 : 0});  // one channel each
  }
}

TEST(Conv2d, Depthwise) {
  for (int64_t channels : {2, 15, 16, 31, 33, 64, 72, 130}) {
    check_all_dtypes({1, channels, 9, 21, channels, 3, 3, 1, 1, 1, 1, 1, 1, channels});
    check_all_dtypes({2, channels, 11, 37, channels, 3, 3, 2, 2, 1, 1, 1, 1, channels});
    check_all_dtypes({1, channels, 7, 7, channels, 5, 5, 1, 1, 2, 2, 1, 1, channels});
    check_all_dtypes({1, channels, 14, 14, channels, 5, 5, 2, 2, 2, 2, 1, 1, channels});
    check_all_dtypes({1, channels, 14, 17, channels, 7, 7, 1, 1, 3, 3, 1, 1, channels});
    check_all_dtypes({1, channels, 12, 30, channels, 3, 3, 1, 1, 2, 2, 2, 2, channels});
    check_all_dtypes({1, channels, 3, 2, channels, 3, 3, 1, 1, 4, 4, 1, 1, channels});
    check_all_dtypes({1, channels, 8, 8, channels, 2, 4, 1, 3, 0, 1, 1, 1, channels, 2});
  }
}

// Strips of pixels that end exactly at the image's last column, or one before or behind.
TEST(Conv2d, DepthwiseWidths) {
  for (int64_t width = 6; width <= 26; width++) {
    for (int64_t kernel : {3, 4, 5, 7}) {
      for (int64_t stride : {1, 2, 3}) {
        for (int64_t pad : {0, 1, 2}) {
          check({1, 16, 6, width, 16, kernel, kernel, stride, stride, pad, pad, 1, 1, 16}, COIL_FLOAT32);
        }
      }
    }
  }
}

// Widths that share a vector, fill it or lie across two, whole and partial vectors and blocks of channels, lines around the strips' lengths,
// windows in the padding, pixels that collide in the cache.
TEST(Conv2d, NarrowGroups) {
  const auto narrow = [](int64_t groups, int64_t width, ConvCase c) {
    c.groups = groups, c.ic = c.oc = groups * width, c.narrow_groups = true;
    check(c, COIL_FLOAT32);
    if (COIL_NARROW_GROUPS_FIT(c.kh, c.kw, c.stride_w, c.dilation_w, width)) check(c, COIL_BFLOAT16), check(c, COIL_FLOAT16);
  };
  for (int64_t width : {2, 4, 8, 16, 24, 32, 40}) {
    for (int64_t groups : {1, 2, 3, 5, 9}) {
      narrow(groups, width, {1, 0, 6, 9, 0, 3, 3, 1, 1, 1, 1});
      narrow(groups, width, {2, 0, 9, 14, 0, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1});
    }
    narrow(3, width, {1, 0, 9, 11, 0, 3, 3, 1, 1, 2, 2, 2, 2});
    narrow(2, width, {2, 0, 5, 13, 0, 1, 1});
    narrow(2, width, {1, 0, 3, 2, 0, 3, 3, 1, 1, 4, 4});
    narrow(2, width, {1, 0, 4, 12, 0, 2, 4, 1, 3, 0, 1});
    ConvCase gaps{2, 0, 5, 8, 0, 3, 3, 1, 1, 1, 1};
    gaps.gap = 3;
    narrow(3, width, gaps);
  }
  for (int64_t columns = 1; columns <= 34; columns++) narrow(8, 4, {1, 0, 3, columns, 0, 3, 3, 1, 1, 1, 1});
  for (int64_t columns = 1; columns <= 34; columns++) narrow(2, 16, {1, 0, 3, columns, 0, 3, 3, 2, 2, 1, 1});
  narrow(64, 16, {1, 0, 4, 17, 0, 3, 3, 2, 2, 1, 1});
  narrow(32, 64, {1, 0, 3, 9, 0, 3, 3, 1, 1, 1, 1});
}

// Every number of outputs; whole vectors of input channels and parts; lines around the strips' and tiles' lengths; windows in the padding.
TEST(Conv2d, FewOutputs) {
  const auto few = [](ConvCase c) {
    c.few_outputs = true;
    check_all_dtypes(c);
  };
  for (int64_t oc = 1; oc <= COIL_FEW_OUTPUTS; oc++) {
    for (int64_t ic : {1, 16, 20, 40, 64}) {
      few({2, ic, 6, 9, oc, 3, 3, 1, 1, 1, 1});
      few({1, ic, 9, 14, oc, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1});
    }
    few({1, 32, 9, 11, oc, 3, 3, 1, 1, 2, 2, 2, 2});
    few({2, 48, 5, 13, oc, 1, 1});
    few({1, 16, 3, 2, oc, 3, 3, 1, 1, 4, 4});
    few({1, 17, 1, 150, oc, 1, 7, 1, 1, 0, 3});
    ConvCase gaps{2, 24, 5, 8, oc, 2, 4, 1, 3, 0, 1};
    gaps.gap = 3;
    few(gaps);
  }
  for (int64_t columns = 1; columns <= 20; columns++) few({1, 16, 3, columns, 1 + columns % 4, 3, 3, 1, 1, 1, 1});
  few({1, 64, 20, 130, 3, 3, 3, 1, 1, 1, 1});
}

// Images of whole and partial tiles, blocks of one and of several tile lines, padding beyond what a window covers, several chunks of
// channels, several images: both ways of cutting the work, since tests run with one worker and with three.
void check_winograd(int64_t tile) {
  const auto winograd = [tile](int64_t n, int64_t ic, int64_t ih, int64_t iw, int64_t oc, int64_t pad_h, int64_t pad_w, int64_t far_pad = 0, int64_t gap = 0) {
    ConvCase c{n, ic, ih, iw, oc, 3, 3, 1, 1, pad_h, pad_w};
    c.far_pad = far_pad, c.gap = gap, c.winograd = tile;
    check_all_dtypes(c);
  };
  for (int64_t size = 3; size <= 20; size++) winograd(1, 16, size, size + 1, 33, 1, 1);
  for (int64_t size : {1, 2, 30, 57, 60}) winograd(1, 16, size, 2 * size + 1, 16, 1, 1);
  for (int64_t pad : {0, 2, 5}) winograd(2, 32, 9, 14, 40, pad, 1);
  for (int64_t pad : {0, 2, 5}) winograd(2, 32, 9, 14, 40, 1, pad, 1, 16);
  for (int64_t ic : {48, 64, 80, 128, 144, 256, 272, 528}) winograd(1, ic, 10, 11, 20, 1, 1);
  winograd(1, 64, 56, 56, 64, 1, 1);
  winograd(9, 32, 7, 7, 70, 1, 1);  // blocks of lines of several images
  winograd(5, 272, 7, 14, 40, 1, 1);
  winograd(17, 16, 3, 4, 16, 1, 1);
  winograd(3, 16, 5, 240, 32, 1, 1);
}

TEST(Conv2d, WinogradTilesOf2) { check_winograd(2); }
TEST(Conv2d, WinogradTilesOf4) { check_winograd(4); }

TEST(Conv2d, ManyTasks) {
  for (int dtype : {COIL_FLOAT32, COIL_BFLOAT16}) {
    check({1, 32, 40, 40, 48, 3, 3, 1, 1, 1, 1}, dtype);
    check({1, 128, 60, 60, 128, 3, 3, 1, 1, 1, 1, 1, 1, 128}, dtype);
    check({2, 3, 100, 90, 64, 7, 7, 2, 2, 3, 3, 1, 1, 1, 0, false}, dtype);
  }
}

}  // namespace
}  // namespace coil::testing
