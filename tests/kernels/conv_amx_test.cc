// Convolutions of bfloat16 by AMX that read their windows in a copy of the image's lines, on the emulated unit: all that the kernel computes, also
// where the implicit product would be chosen.
#include "templates/packing.h"
#include "tests/kernels/conv_support.h"

namespace coil_kernels_emulated {
bool can_amx_conv2d(const CoilConv2d& conv);
bool fits_amx_conv2d(const CoilConv2d& conv);
void amx_conv2d(const CoilConv2d& conv, const CoilHost* host);
CoilConv2d pack_plain_weight(const CoilConv2d& conv, const CoilHost* host);
}  // namespace coil_kernels_emulated

namespace coil::testing {
namespace {

using namespace coil_kernels_emulated;

void by_copied_lines(const CoilConv2d* args, const CoilHost* host) {
  const CoilConv2d conv = args->w_plain ? pack_plain_weight(*args, host) : *args;
  ASSERT_TRUE(can_amx_conv2d(conv));
  amx_conv2d(conv, host);
}

class ConvAmx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (runnable_kernels().back().conv2d != coil_conv2d_emulated) GTEST_SKIP() << "the machine has no AVX-512";
  }
  static void check_lines(const ConvCase& c) {
    IsaKernels kernels = runnable_kernels().back();
    kernels.conv2d = by_copied_lines;
    check(c, COIL_BFLOAT16, {kernels});
  }
};

TEST_F(ConvAmx, WindowsAndPads) {
  for (int64_t kernel : {3, 4, 5}) {
    for (int64_t pad : {0, 1, 2, 5}) check_lines({2, 32, 7, 9, 40, kernel, kernel, 1, 1, pad, pad});
  }
  check_lines({1, 64, 1, 37, 33, 1, 7, 1, 1, 0, 3});  // of one dimension
  check_lines({1, 64, 37, 1, 33, 7, 1, 1, 1, 3, 0});
  check_lines({9, 96, 1, 1, 20, 3, 3, 1, 1, 1, 1});  // images of one pixel
  check_lines({8, 288, 1, 1, 20, 1, 1});
  check_lines({1, 32, 3, 2, 8, 3, 3, 1, 1, 4, 4});  // windows wholly outside the image
  check_lines({2, 32, 6, 5, 20, 3, 3, 1, 1, 0, 1, 1, 1, 1, 2});
}

TEST_F(ConvAmx, StridesAndDilations) {
  for (int64_t stride : {1, 2, 3, 8}) {
    for (int64_t dilation : {1, 2, 3, 4}) {
      check_lines({2, 32, 23, 19, 20, 3, 3, stride, stride, 2, 2, dilation, dilation});
      check_lines({1, 64, 20, 30, 20, 2, 5, stride, 2, 0, 3, 2, dilation});
      check_lines({1, 64, 20, 30, 20, 5, 2, 2, stride, 3, 0, dilation, 1});
    }
  }
  check_lines({2, 288, 12, 13, 40, 1, 1, 2, 2});
  check_lines({1, 96, 16, 20, 40, 2, 2, 2, 2});  // windows side by side
}

TEST_F(ConvAmx, ChannelsAndGroups) {
  for (int64_t oc : {1, 15, 16, 17, 31, 32, 33, 48, 49, 100}) check_lines({1, 32, 6, 7, oc, 3, 3, 1, 1, 1, 1});
  for (int64_t ic : {1, 3, 16, 24, 65}) check_lines({2, ic, 17, 19, 20, 17, 17, 1, 1, 1, 0});
  for (int64_t ic : {11, 16, 24, 65}) check_lines({2, ic, 9, 10, 20, 5, 5, 2, 1, 1, 3, 1, 2});
  for (int64_t groups : {1, 2, 3}) {
    for (int64_t width : {31, 32, 33, 40, 64, 160}) check_lines({2, groups * width, 5, 8, groups * 20, 3, 3, 1, 1, 1, 1, 1, 1, groups});
    check_lines({2, groups * 48, 9, 8, groups * 48, 3, 3, 2, 2, 1, 1, 1, 1, groups, 0, true, 3});
  }
}

// Lines about a register of rows, and images about the rows and the bytes of a task.
TEST_F(ConvAmx, Widths) {
  for (int64_t width : {13, 14, 15, 16, 17, 29, 30, 31, 32, 33, 63, 66, 317, 318}) check_lines({1, 32, 4, width, 20, 3, 3, 1, 1, 1, 1});
  for (int64_t height : {1, 2, 7, 19, 20, 21, 45}) check_lines({1, 32, height, 14, 20, 3, 3, 1, 1, 1, 1});
  check_lines({1, 1024, 5, 9, 20, 3, 3, 1, 1, 1, 1});
  check_lines({2, 512, 7, 7, 40, 3, 3, 1, 1, 1, 1});
}

// What is beyond a line's end or in another line must not reach a sum.
TEST_F(ConvAmx, InfinitiesStayInTheirWindows) {
  const int64_t n = 2, ic = 32, size = 9, oc = 20;
  CoilConv2d args = {};
  args.n = n, args.ic = ic, args.ih = args.iw = args.oh = args.ow = size, args.oc = oc, args.kh = args.kw = 3;
  args.stride_h = args.stride_w = args.pad_h = args.pad_w = args.dilation_h = args.dilation_w = args.groups = 1;
  args.dtype = COIL_BFLOAT16, args.x_c = 1, args.x_w = ic, args.x_h = size * ic, args.x_n = size * size * ic;
  Buffer x(COIL_BFLOAT16, n * size * size * ic), w(COIL_BFLOAT16, oc * ic * 9), y(COIL_BFLOAT16, n * size * size * oc);
  std::mt19937 random(7);
  x.fill(random), w.fill(random);
  const auto packed = templates::pack_conv_weight(w.data(), 2, oc, ic, 3, 3, 1);
  const TestHost host(1);
  Scratch scratch(coil_conv2d_scratch_bytes(&args, 1));
  args.x = x.data(), args.w = packed.data(), args.y = y.data(), args.scratch = scratch.data();
  for (const auto& [py, px] : {std::pair<int64_t, int64_t>{0, 0}, {0, size - 1}, {size - 1, 0}, {4, 4}, {size - 1, size - 1}}) {
    const int64_t at = (py * size + px) * ic + 5;
    const double before = x.get(at);
    x.set(at, INFINITY);
    by_copied_lines(&args, host.get());
    for (int64_t i = 0; i < n * size * size; i++) {
      const bool sees = i / size / size == 0 && std::abs(i / size % size - py) <= 1 && std::abs(i % size - px) <= 1;
      for (int64_t o = 0; o < oc; o++) ASSERT_EQ(std::isfinite(y.get(i * oc + o)), !sees) << "pixel " << i << " beside " << py << ", " << px;
    }
    x.set(at, before);
  }
}

// Networks' layers go by the copied lines where the gathering of windows would cost more than the sums beyond the lines' ends.
TEST_F(ConvAmx, IsChosenForWideMapsOfFewChannels) {
  const auto chosen = [](int64_t channels, int64_t size, int64_t kernel, int64_t stride, int64_t groups) {
    CoilConv2d c = {};
    c.n = 4, c.ic = c.oc = channels, c.ih = c.iw = size * stride, c.oh = c.ow = size, c.kh = c.kw = kernel;
    c.stride_h = c.stride_w = stride, c.pad_h = c.pad_w = kernel / 2, c.dilation_h = c.dilation_w = 1, c.groups = groups;
    c.dtype = COIL_BFLOAT16, c.x_c = 1;
    return fits_amx_conv2d(c);
  };
  EXPECT_TRUE(chosen(64, 56, 3, 1, 1));
  EXPECT_TRUE(chosen(128, 28, 3, 1, 1));
  EXPECT_TRUE(chosen(128, 28, 3, 2, 1));
  EXPECT_TRUE(chosen(1024, 14, 3, 1, 32));
  EXPECT_FALSE(chosen(512, 7, 3, 1, 1));
  EXPECT_FALSE(chosen(512, 14, 1, 1, 1));
  EXPECT_FALSE(chosen(24, 56, 3, 1, 1));
}

}  // namespace
}  // namespace coil::testing
