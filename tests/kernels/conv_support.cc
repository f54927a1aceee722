#include "tests/kernels/conv_support.h"

#include <cmath>
#include <functional>
#include <string>

#include "templates/packing.h"

namespace coil::testing {
namespace {

std::string describe(const ConvCase& c, int dtype) {
  std::string s = dtype_name(dtype);
  for (int64_t v : {c.n,
                    c.ic,
                    c.ih,
                    c.iw,
                    c.oc,
                    c.kh,
                    c.kw,
                    c.stride_h,
                    c.stride_w,
                    c.pad_h,
                    c.pad_w,
                    c.dilation_h,
                    c.dilation_w,
                    c.groups,
                    c.far_pad,
                    static_cast<int64_t>(c.channels_last),
                    c.gap,
                    c.winograd,
                    static_cast<int64_t>(c.narrow_groups),
                    static_cast<int64_t>(c.few_outputs),
                    static_cast<int64_t>(c.pairs)}) {
    s += " " + std::to_string(v);
  }
  return s;
}

struct Recorded {
  std::vector<double> y;
  std::vector<std::atomic<int>> seen;
  int64_t oc, group_oc;
  int dtype;
  std::atomic<bool> in_bounds{true};
};

void record_epilogue(const void* context, int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols, float* acc, int64_t ld) {
  Recorded& to = *static_cast<Recorded*>(const_cast<void*>(context));
  if (batch != 0 || rows < 1 || rows > COIL_TILE_ROWS || cols < 1 || cols > COIL_TILE_COLS || ld % 16 || ld < cols ||
      col % to.group_oc % COIL_PANEL_COLUMNS(to.dtype == COIL_FLOAT64 ? 8 : 4) || col + cols > to.oc ||
      (row + rows) * to.oc > static_cast<int64_t>(to.y.size()) || reinterpret_cast<uintptr_t>(acc) % 64) {
    to.in_bounds = false;
    return;
  }
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < cols; j++) {
      to.y[(row + r) * to.oc + col + j] = tile_element(acc, r * ld + j, to.dtype) * 2;
      to.seen[(row + r) * to.oc + col + j]++;
    }
    for (int64_t j = 0; j < ld; j++) spoil_element(acc, r * ld + j, to.dtype);
  }
}

// The weight [oc][ic / groups][kh][kw] in other orders of memory, slowest dimension first; plain weights of any strides must give
// what packed ones give: to the bit, but for what is transformed, by a call in float32.
constexpr int kOrders[][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}, {1, 2, 3, 0}, {3, 0, 2, 1}};

void check_plain_weights(const ConvCase& c, CoilConv2d args, const Buffer& w, const Buffer& want, const IsaKernels& isa,
                         const std::function<double(double)>& allowed) {
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
    isa.convolution(&args, host.get());
    ASSERT_TRUE(scratch.guards_intact());
    double most = 0;
    for (int64_t i = 0; i < want.count(); i++) most = std::max(most, std::fabs(result.get(i) - want.get(i)) - allowed(want.get(i)));
    ASSERT_TRUE(c.winograd ? most <= 0 : result == want) << "plain weights in the order " << order[0] << order[1] << order[2] << order[3];
    ASSERT_TRUE(result.guards_intact());
  }
}

// Plain weights beside transformed ones: taken, with the same bits, where the machine has a matrix unit; else of no effect.
void check_direct_weights(const ConvCase& c, CoilConv2d args, const Buffer& w, const Buffer& filtered, const IsaKernels& isa) {
  auto packed = templates::pack_conv_weight(w.data(), w.size(), c.oc, c.ic, c.kh, c.kw, c.groups);
  args.w_pairs = c.ic % COIL_PAIRED_K == 0;
  if (args.w_pairs) packed = templates::in_pairs(packed, c.ic * c.kh * c.kw);
  TestHost host(3);
  Buffer both(args.dtype, filtered.count()), plain(args.dtype, filtered.count());
  const auto run = [&](Buffer& y) {
    Scratch scratch(coil_conv2d_scratch_bytes(&args, 3));
    args.y = y.data(), args.scratch = scratch.data(), args.epilogue = nullptr;
    isa.convolution(&args, host.get());
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

// A weight of bfloat16 whose channels allow it comes in pairs of k too.
bool may_have_pairs(const ConvCase& c, int dtype) {
  const bool plain_sums = !c.winograd && !c.narrow_groups && !c.few_outputs && !(c.groups > 1 && c.groups == c.ic && c.oc == c.ic);
  return dtype == COIL_BFLOAT16 && plain_sums && c.channels_last && c.ic / c.groups % COIL_PAIRED_K == 0;
}

// The call, but for its memory of results.
CoilConv2d arguments(const ConvCase& c, int dtype) {
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
  args.depthwise = c.groups > 1 && c.groups == c.ic && c.oc == c.ic;
  args.winograd = static_cast<int32_t>(c.winograd);
  args.narrow_groups = c.narrow_groups;
  args.few_outputs = c.few_outputs;
  args.w_pairs = c.pairs;
  return args;
}

// One sum of the convolution.
double element(const ConvCase& c, const CoilConv2d& args, const Buffer& x, const Buffer& w, int64_t n, int64_t oy, int64_t ox, int64_t o) {
  const int64_t group_ic = c.ic / c.groups, group_oc = c.oc / c.groups;
  double sum = 0;
  for (int64_t i = 0; i < group_ic; i++) {
    for (int64_t ty = 0; ty < c.kh; ty++) {
      for (int64_t tx = 0; tx < c.kw; tx++) {
        const int64_t iy = oy * c.stride_h - c.pad_h + ty * c.dilation_h;
        const int64_t ix = ox * c.stride_w - c.pad_w + tx * c.dilation_w;
        if (iy < 0 || ix < 0 || iy >= c.ih || ix >= c.iw) continue;
        const int64_t channel = o / group_oc * group_ic + i;
        sum +=
            static_cast<double>(x.get(n * args.x_n + channel * args.x_c + iy * args.x_h + ix * args.x_w)) * w.get(((o * group_ic + i) * c.kh + ty) * c.kw + tx);
      }
    }
  }
  return sum;
}

std::vector<double> expected(const ConvCase& c, const CoilConv2d& args, const Buffer& x, const Buffer& w) {
  std::vector<double> want;
  for (int64_t n = 0; n < c.n; n++) {
    for (int64_t oy = 0; oy < args.oh; oy++) {
      for (int64_t ox = 0; ox < args.ow; ox++) {
        for (int64_t o = 0; o < c.oc; o++) want.push_back(element(c, args, x, w, n, oy, ox, o));
      }
    }
  }
  return want;
}

std::vector<std::byte> packed_weight(const ConvCase& c, const CoilConv2d& args, const Buffer& w) {
  const int64_t group_ic = c.ic / c.groups, k = group_ic * c.kh * c.kw;
  std::vector<float> floats;
  for (int64_t i = 0; i < c.oc * k; i++) floats.push_back(static_cast<float>(w.get(i)));
  auto packed = c.few_outputs    ? innermost_channels(w, c)
                : c.winograd     ? templates::pack_winograd_weight(floats.data(), c.oc, c.ic, c.winograd)
                : args.depthwise ? templates::pack_depthwise_weight(w.data(), w.size(), c.oc, c.kh, c.kw)
                                 : templates::pack_conv_weight(w.data(), w.size(), c.oc, group_ic, c.kh, c.kw, c.narrow_groups ? 1 : c.groups);
  return c.pairs ? templates::in_pairs(packed, k) : packed;
}

// What an epilogue gets.
void check_epilogue(const ConvCase& c, CoilConv2d args, const std::vector<double>& want, const IsaKernels& isa, const TestHost& host,
                    const std::function<double(double)>& allowed) {
  Recorded recorded{std::vector<double>(want.size()), std::vector<std::atomic<int>>(want.size()), c.oc, c.oc / c.groups, args.dtype};
  if (args.depthwise || c.narrow_groups) recorded.group_oc = c.oc;
  args.epilogue = record_epilogue, args.epilogue_context = &recorded;
  isa.convolution(&args, host.get());
  ASSERT_TRUE(recorded.in_bounds);
  for (size_t i = 0; i < want.size(); i++) {
    ASSERT_EQ(recorded.seen[i], 1) << i;
    ASSERT_NEAR(recorded.y[i], want[i] * 2, 2 * allowed(want[i]));
  }
}

void check_results(const ConvCase& c, const Buffer& y, const std::vector<double>& want, const std::function<double(double)>& allowed) {
  int wrong = 0;
  for (size_t i = 0; i < want.size(); i++) {
    if (!(std::fabs(y.get(i) - want[i]) <= allowed(want[i])) && wrong++ < 3) {
      ADD_FAILURE() << "pixel " << i / c.oc << " channel " << i % c.oc << " is " << y.get(i) << ", should be " << want[i];
    }
  }
  ASSERT_EQ(wrong, 0);
  ASSERT_TRUE(y.guards_intact());
}

}  // namespace

void check(const ConvCase& c, int dtype, const std::vector<IsaKernels>& kernels) {
  if (!c.pairs && may_have_pairs(c, dtype)) {
    ConvCase in_pairs = c;
    in_pairs.pairs = true;
    check(in_pairs, dtype, kernels);
  }
  SCOPED_TRACE(describe(c, dtype));
  std::mt19937 random(99);
  CoilConv2d args = arguments(c, dtype);
  const int64_t k = c.ic / c.groups * c.kh * c.kw;
  Buffer x(dtype, 1 + (c.n - 1) * args.x_n + (c.ic - 1) * args.x_c + (c.ih - 1) * args.x_h + (c.iw - 1) * args.x_w), w(dtype, c.oc * k);
  x.fill(random);
  w.fill(random);
  const std::vector<double> want = expected(c, args, x, w);
  const std::vector<std::byte> packed = packed_weight(c, args, w);
  args.x = x.data(), args.w = packed.data();
  // The transforms add up to 16 terms beside the sum's.
  const auto allowed = [&](int type) { return [&c, type, k](double value) { return tolerance(type, value, k) * (c.winograd ? 4 : 1); }; };
  for (const IsaKernels& isa : kernels) {
    SCOPED_TRACE(isa.name);
    Buffer first(dtype, want.size());
    for (int workers : {1, 3}) {
      TestHost host(workers);
      Buffer y(dtype, want.size());
      Scratch scratch(coil_conv2d_scratch_bytes(&args, workers));
      args.y = y.data(), args.scratch = scratch.data(), args.epilogue = nullptr;
      isa.convolution(&args, host.get());
      ASSERT_NO_FATAL_FAILURE(check_results(c, y, want, allowed(dtype)));
      ASSERT_TRUE(scratch.guards_intact());
      if (workers == 1) {
        first = y;
        // (Weights of other types are transformed for the package alone.)
        if ((!c.winograd || dtype == COIL_FLOAT32) && !c.few_outputs && !c.pairs) check_plain_weights(c, args, w, y, isa, allowed(dtype));
        if (c.winograd && dtype == COIL_BFLOAT16) check_direct_weights(c, args, w, y, isa);
      }
      ASSERT_TRUE(y == first) << "threads changed the result";
      ASSERT_NO_FATAL_FAILURE(check_epilogue(c, args, want, isa, host, allowed(dtype == COIL_FLOAT64 ? COIL_FLOAT64 : COIL_FLOAT32)));
    }
  }
}

void check_all_dtypes(const ConvCase& c) {
  const bool floats = c.winograd || c.narrow_groups || c.few_outputs;  // float64 has no such forms
  for (int dtype : kProductDtypes) {
    if (dtype != COIL_FLOAT64 || !floats) check(c, dtype);
  }
}

}  // namespace coil::testing
