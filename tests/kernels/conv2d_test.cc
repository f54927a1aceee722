// coil_conv2d against a double-precision loop: kernels, strides, dilations, groups, depthwise, layouts, dtypes, threads.
#include <gtest/gtest.h>

#include "templates/packing.h"
#include "tests/kernels/support.h"

namespace coil::testing {
namespace {

struct ConvCase {
  int64_t n, ic, ih, iw, oc, kh, kw;
  int64_t stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1, groups = 1;
  int64_t far_pad = 0;       // more padding at the far side than at the near one
  bool channels_last = true;
  int64_t gap = 0;           // elements between pixels beyond the channels
  bool winograd = false;
  bool narrow_groups = false;
  bool few_outputs = false;
};

std::string describe(const ConvCase& c, int dtype) {
  std::string s = dtype_name(dtype);
  for (int64_t v : {c.n, c.ic, c.ih, c.iw, c.oc, c.kh, c.kw, c.stride_h, c.stride_w, c.pad_h, c.pad_w, c.dilation_h,
                    c.dilation_w, c.groups, c.far_pad, static_cast<int64_t>(c.channels_last), c.gap, static_cast<int64_t>(c.winograd), static_cast<int64_t>(c.narrow_groups), static_cast<int64_t>(c.few_outputs)}) {
    s += " " + std::to_string(v);
  }
  return s;
}

struct Recorded {
  std::vector<float> y;
  std::vector<std::atomic<int>> seen;
  int64_t oc, group_oc;
  std::atomic<bool> in_bounds{true};
};

void record_epilogue(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols, float* acc,
                     int64_t ld) {
  Recorded& to = *static_cast<Recorded*>(const_cast<void*>(context));
  if (batch != 0 || rows < 1 || rows > COIL_TILE_ROWS || cols < 1 || cols > COIL_TILE_COLS || ld % 16 || ld < cols ||
      col % to.group_oc % 32 || col + cols > to.oc || (row + rows) * to.oc > static_cast<int64_t>(to.y.size()) ||
      reinterpret_cast<uintptr_t>(acc) % 64) {
    to.in_bounds = false;
    return;
  }
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < cols; j++) {
      to.y[(row + r) * to.oc + col + j] = acc[r * ld + j] * 2;
      to.seen[(row + r) * to.oc + col + j]++;
    }
    for (int64_t j = 0; j < ld; j++) acc[r * ld + j] = NAN;
  }
}

// The weight [oc][ic / groups][kh][kw] in other orders of memory, slowest dimension first; plain weights of any strides must give
// what packed ones give, to the bit.
constexpr int kOrders[][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}, {1, 2, 3, 0}, {3, 0, 2, 1}};

void check_plain_weights(const ConvCase& c, CoilConv2d args, const Buffer& w, const Buffer& want, const IsaKernels& isa) {
  const int64_t sizes[4] = {c.oc, c.ic / c.groups, c.kh, c.kw};
  int64_t* strides[4] = {&args.w_o, &args.w_i, &args.w_h, &args.w_w};
  args.w_plain = 1;
  for (const auto& order : kOrders) {
    int64_t stride = 1;
    for (int d = 3; d >= 0; d--) {
      *strides[order[d]] = stride;
      stride *= sizes[order[d]];
    }
    Buffer turned(args.dtype, w.count());
    for (int64_t i = 0; i < w.count(); i++) {
      const int64_t x = i % c.kw, y = i / c.kw % c.kh, channel = i / c.kw / c.kh % sizes[1], o = i / c.kw / c.kh / sizes[1];
      turned.set(o * args.w_o + channel * args.w_i + y * args.w_h + x * args.w_w, w.get(i));
    }
    TestHost host(3);
    Buffer result(args.dtype, want.count());
    Scratch scratch(coil_conv2d_scratch_bytes(&args, 3));
    args.w = turned.data(), args.y = result.data(), args.scratch = scratch.data(), args.epilogue = nullptr;
    isa.conv2d(&args, host.get());
    ASSERT_TRUE(scratch.guards_intact());
    ASSERT_TRUE(result == want) << "plain weights in the order " << order[0] << order[1] << order[2] << order[3];
  }
}

// Plain weights beside transformed ones: taken, with the same bits, where the machine has a matrix unit; else of no effect.
void check_direct_weights(const ConvCase& c, CoilConv2d args, const Buffer& w, const Buffer& filtered, const IsaKernels& isa) {
  const auto packed = templates::pack_conv_weight(w.data(), w.size(), c.oc, c.ic, c.kh, c.kw, c.groups);
  TestHost host(3);
  Buffer both(args.dtype, filtered.count()), plain(args.dtype, filtered.count());
  const auto run = [&](Buffer& y) {
    Scratch scratch(coil_conv2d_scratch_bytes(&args, 3));
    args.y = y.data(), args.scratch = scratch.data(), args.epilogue = nullptr;
    isa.conv2d(&args, host.get());
    ASSERT_TRUE(scratch.guards_intact());
  };
  args.w_direct = packed.data();
  run(both);
  args.winograd = 0, args.w = packed.data(), args.w_direct = nullptr;
  run(plain);
  const bool emulated = std::string(isa.name).find("emulated") != std::string::npos && c.n * args.oh * args.ow >= 8;
  ASSERT_TRUE(both == plain || (!emulated && both == filtered));
}

// The weight as [oc][kh][kw][ic].
std::vector<std::byte> innermost_channels(const Buffer& w, const ConvCase& c) {
  std::vector<std::byte> out(static_cast<size_t>(w.count()) * w.size());
  const int64_t taps = c.kh * c.kw;
  for (int64_t i = 0; i < w.count(); i++) {
    const int64_t tap = i % taps, channel = i / taps % c.ic, o = i / taps / c.ic;
    std::memcpy(out.data() + ((o * taps + tap) * c.ic + channel) * w.size(), static_cast<const std::byte*>(w.data()) + i * w.size(), w.size());
  }
  return out;
}

void check(const ConvCase& c, int dtype) {
  SCOPED_TRACE(describe(c, dtype));
  std::mt19937 random(99);
  CoilConv2d args = {};
  args.n = c.n, args.ic = c.ic, args.ih = c.ih, args.iw = c.iw, args.oc = c.oc, args.kh = c.kh, args.kw = c.kw;
  args.stride_h = c.stride_h, args.stride_w = c.stride_w, args.pad_h = c.pad_h, args.pad_w = c.pad_w;
  args.dilation_h = c.dilation_h, args.dilation_w = c.dilation_w, args.groups = c.groups, args.dtype = dtype;
  args.oh = (c.ih + 2 * c.pad_h + c.far_pad - c.dilation_h * (c.kh - 1) - 1) / c.stride_h + 1;
  args.ow = (c.iw + 2 * c.pad_w + c.far_pad - c.dilation_w * (c.kw - 1) - 1) / c.stride_w + 1;
  if (c.channels_last) {
    args.x_c = 1, args.x_w = c.ic + c.gap, args.x_h = c.iw * args.x_w + c.gap, args.x_n = c.ih * args.x_h + c.gap;
  } else {
    args.x_w = 1 + c.gap, args.x_h = c.iw * args.x_w, args.x_c = c.ih * args.x_h + c.gap, args.x_n = c.ic * args.x_c;
  }
  Buffer x(dtype, 1 + (c.n - 1) * args.x_n + (c.ic - 1) * args.x_c + (c.ih - 1) * args.x_h + (c.iw - 1) * args.x_w);
  const int64_t group_ic = c.ic / c.groups, group_oc = c.oc / c.groups, k = group_ic * c.kh * c.kw;
  Buffer w(dtype, c.oc * k);
  x.fill(random);
  w.fill(random);
  args.depthwise = c.groups > 1 && c.groups == c.ic && c.oc == c.ic;
  std::vector<double> want;
  for (int64_t n = 0; n < c.n; n++) {
    for (int64_t oy = 0; oy < args.oh; oy++) {
      for (int64_t ox = 0; ox < args.ow; ox++) {
        for (int64_t o = 0; o < c.oc; o++) {
          double sum = 0;
          for (int64_t i = 0; i < group_ic; i++) {
            for (int64_t ty = 0; ty < c.kh; ty++) {
              for (int64_t tx = 0; tx < c.kw; tx++) {
                const int64_t iy = oy * c.stride_h - c.pad_h + ty * c.dilation_h;
                const int64_t ix = ox * c.stride_w - c.pad_w + tx * c.dilation_w;
                if (iy < 0 || ix < 0 || iy >= c.ih || ix >= c.iw) continue;
                const int64_t channel = o / group_oc * group_ic + i;
                sum += static_cast<double>(x.get(n * args.x_n + channel * args.x_c + iy * args.x_h + ix * args.x_w)) *
                       w.get(((o * group_ic + i) * c.kh + ty) * c.kw + tx);
              }
            }
          }
          want.push_back(sum);
        }
      }
    }
  }
  args.winograd = c.winograd;
  args.narrow_groups = c.narrow_groups;
  args.few_outputs = c.few_outputs;
  std::vector<float> floats;
  for (int64_t i = 0; i < c.oc * k; i++) floats.push_back(static_cast<float>(w.get(i)));
  const auto packed = c.few_outputs    ? innermost_channels(w, c)
                      : c.winograd     ? templates::pack_winograd_weight(floats.data(), c.oc, c.ic)
                      : args.depthwise ? templates::pack_depthwise_weight(w.data(), w.size(), c.oc, c.kh, c.kw)
                                       : templates::pack_conv_weight(w.data(), w.size(), c.oc, group_ic, c.kh, c.kw, c.narrow_groups ? 1 : c.groups);
  args.x = x.data(), args.w = packed.data();
  // The transforms add up to 16 terms beside the sum's.
  const auto allowed = [&](int type, double value) { return tolerance(type, value, k) * (c.winograd ? 4 : 1); };
  for (const IsaKernels& isa : runnable_kernels()) {
    SCOPED_TRACE(isa.name);
    Buffer first(dtype, want.size());
    for (int workers : {1, 3}) {
      TestHost host(workers);
      Buffer y(dtype, want.size());
      Scratch scratch(coil_conv2d_scratch_bytes(&args, workers));
      args.y = y.data(), args.scratch = scratch.data(), args.epilogue = nullptr;
      isa.conv2d(&args, host.get());
      int wrong = 0;
      for (size_t i = 0; i < want.size(); i++) {
        if (!(std::fabs(y.get(i) - want[i]) <= allowed(dtype, want[i])) && wrong++ < 3) {
          ADD_FAILURE() << "pixel " << i / c.oc << " channel " << i % c.oc << " is " << y.get(i) << ", should be " << want[i];
        }
      }
      ASSERT_EQ(wrong, 0);
      ASSERT_TRUE(y.guards_intact());
      ASSERT_TRUE(scratch.guards_intact());
      if (workers == 1) {
        first = y;
        if (!c.winograd && !c.few_outputs) check_plain_weights(c, args, w, y, isa);  // transformed weights are constants
        if (c.winograd && dtype == COIL_BFLOAT16) check_direct_weights(c, args, w, y, isa);
      }
      ASSERT_TRUE(y == first) << "threads changed the result";
      Recorded recorded{std::vector<float>(want.size()), std::vector<std::atomic<int>>(want.size()), c.oc, group_oc};
      if (args.depthwise || c.narrow_groups) recorded.group_oc = c.oc;
      args.epilogue = record_epilogue, args.epilogue_context = &recorded;
      isa.conv2d(&args, host.get());
      ASSERT_TRUE(recorded.in_bounds);
      for (size_t i = 0; i < want.size(); i++) {
        ASSERT_EQ(recorded.seen[i], 1) << i;
        ASSERT_NEAR(recorded.y[i], want[i] * 2, 2 * allowed(COIL_FLOAT32, want[i]));
      }
    }
  }
}

void check_all_dtypes(const ConvCase& c) {
  for (int dtype : kDtypes) check(c, dtype);
}

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
  check_all_dtypes({1, 8, 3, 2, 8, 3, 3, 1, 1, 4, 4});     // windows wholly outside the image
  check_all_dtypes({1, 7, 5, 70, 9, 1, 9, 1, 3, 0, 4});
  check_all_dtypes({1, 7, 70, 5, 9, 9, 1, 3, 1, 4, 0});
  check_all_dtypes({1, 64, 9, 9, 70, 3, 3, 1, 1, 1, 1});   // k beyond one chunk
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
  check_all_dtypes({5, 4, 5, 64, 9, 3, 3, 1, 1, 1, 1});            // one line of output in a task
  for (int64_t n = 4; n < 13; n++) check({n, 3, 4, 33 + 4 * (n % 3), 32, 3, 3, 1, 1, 1, 1}, COIL_FLOAT32);   // fewer images in a tile
  check_all_dtypes({4, 2, 64, 5, 9, 3, 3, 1, 1, 1, 1});
  check_all_dtypes({5, 24, 8, 8, 20, 5, 5, 1, 1, 2, 2});
  check_all_dtypes({5, 64, 8, 8, 20, 3, 3, 1, 1, 1, 1});           // three lines fill the copy
  check_all_dtypes({5, 65, 8, 8, 20, 3, 3, 1, 1, 1, 1});
  check_all_dtypes({4, 200, 2, 2, 20, 3, 3, 1, 1, 1, 1});
  check_all_dtypes({4, 300, 2, 2, 20, 3, 3, 1, 1, 1, 1});          // too many weights
  check_all_dtypes({7, 3, 9, 9, 20, 3, 3, 1, 1, 4, 4, 3, 2});      // windows wholly outside, taps apart
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
    check_all_dtypes({4, groups, 8, 8, 10 * groups, 3, 3, 1, 1, 1, 1, 1, 1, groups, 0, true, groups == 1 ? 2 : 0});   // one channel each
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
TEST(Conv2d, Winograd) {
  const auto winograd = [](int64_t n, int64_t ic, int64_t ih, int64_t iw, int64_t oc, int64_t pad_h, int64_t pad_w, int64_t far_pad = 0, int64_t gap = 0) {
    ConvCase c{n, ic, ih, iw, oc, 3, 3, 1, 1, pad_h, pad_w};
    c.far_pad = far_pad, c.gap = gap, c.winograd = true;
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

TEST(Conv2d, ManyTasks) {
  for (int dtype : {COIL_FLOAT32, COIL_BFLOAT16}) {
    check({1, 32, 40, 40, 48, 3, 3, 1, 1, 1, 1}, dtype);
    check({1, 128, 60, 60, 128, 3, 3, 1, 1, 1, 1, 1, 1, 128}, dtype);
    check({2, 3, 100, 90, 64, 7, 7, 2, 2, 3, 3, 1, 1, 1, 0, false}, dtype);
  }
}

}  // namespace
}  // namespace coil::testing
