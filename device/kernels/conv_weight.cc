// Packing of weights that are known at run time only. A panel is 32 (of doubles 16) output channels of one group; its rows are (tap, channel), and
// what is contiguous in memory decides how they are filled: output channels by row copies, all of an output channel's numbers or
// its input channels by 8 x 8 transposes, anything else one by one.
#include "conv_weight.h"

#include "block.h"
#include "transpose.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kPartChannels = 64;  // of a task

template <class T>
struct WeightPacker {
  const CoilConv2d& c;
  T* out;
  int64_t groups, group_oc, group_ic, taps, panels, parts;
  bool whole_rows;  // an output channel's numbers are one run

  WeightPacker(const CoilConv2d& conv, void* to) : c(conv), out(static_cast<T*>(to)) {
    groups = c.depthwise || c.narrow_groups ? 1 : c.groups;
    group_oc = c.oc / groups;
    group_ic = c.ic / c.groups;
    taps = c.kh * c.kw;
    panels = ceil_div(group_oc, kPanel);
    whole_rows = sizeof(T) == sizeof(Real) && c.w_w == 1 && c.w_h == c.kw && (group_ic == 1 || c.w_i == taps);
    parts = max64(whole_rows ? ceil_div(group_ic, kPartChannels) : c.kh, 1);  // without channels there is nothing to pack
  }

  static void run(void* context, int64_t begin, int64_t end, int32_t) {
    const WeightPacker& self = *static_cast<WeightPacker*>(context);
    for (int64_t task = begin; task < end; task++) self.pack(task / self.parts, task % self.parts);
  }

  void pack(int64_t panel, int64_t part) const {
    const int64_t first = panel % panels * kPanel, cols = min64(kPanel, group_oc - first);
    const T* from = static_cast<const T*>(c.w) + (panel / panels * group_oc + first) * c.w_o;
    T* to = out + panel * taps * group_ic * kPanel;
    if (whole_rows) {
      const int64_t begin = part * kPartChannels, end = min64(begin + kPartChannels, group_ic);
      transpose_runs(from + begin * taps, (end - begin) * taps, cols, to, begin * taps, taps);
      return;
    }
    for (int64_t x = 0; x < c.kw; x++) {
      const T* tap = from + part * c.w_h + x * c.w_w;
      T* rows = to + (part * c.kw + x) * group_ic * kPanel;
      if (c.w_o == 1 && cols == kPanel) {
        for (int64_t i = 0; i < group_ic; i++) memcpy(rows + i * kPanel, tap + i * c.w_i, kPanel * sizeof(T));
      } else if (sizeof(T) == sizeof(Real) && c.w_i == 1) {
        transpose_runs(tap, group_ic, cols, rows, 0, 1);
      } else {
        copy_one_by_one(tap, cols, rows);
      }
    }
  }

  void copy_one_by_one(const T* tap, int64_t cols, T* rows) const {
    for (int64_t i = 0; i < group_ic; i++) {
      const T* from = tap + i * c.w_i;
#pragma clang loop unroll(disable) vectorize(disable)
      for (int64_t o = 0; o < kPanel; o++) rows[i * kPanel + o] = o < cols ? from[o * c.w_o] : T(0);
    }
  }

  // Runs of n numbers, one for each column; number j of them, (channel, tap) in row-major order from `begin` on, becomes row
  // tap * group_ic + channel.
  void transpose_runs(const T* from, int64_t n, int64_t cols, T* to, int64_t begin, int64_t run_taps) const {
    const auto row = [&](int64_t j) { return to + ((begin + j) % run_taps * group_ic + (begin + j) / run_taps) * kPanel; };
    int64_t j = 0;
    if constexpr (sizeof(T) == sizeof(Real)) {
      for (; j + 8 <= n; j += 8) {
        T* rows[8];
#pragma unroll
        for (int i = 0; i < 8; i++) rows[i] = row(j + i);
        for (int64_t o = 0; o < kPanel; o += 8) {
          Vec8 in[8];
#pragma unroll
          for (int i = 0; i < 8; i++) in[i] = o + i < cols ? load_raw<Vec8>(from + (o + i) * c.w_o + j) : Vec8(0.0f);
          Real turned[64];
          transpose8(in, turned, 8);
#pragma unroll
          for (int i = 0; i < 8; i++) store_raw(rows[i] + o, load_raw<Vec8>(turned + 8 * i));
        }
      }
    }
    for (; j < n; j++) {
#pragma clang loop unroll(disable) vectorize(disable)
      for (int64_t o = 0; o < kPanel; o++) row(j)[o] = o < cols ? from[o * c.w_o + j] : T(0);
    }
  }

  void run_all(const CoilHost* host) {
    const int64_t tasks = groups * panels * parts, work = taps * group_ic * kPanel / parts;
    const int64_t grain = max64(1, 16384 / max64(work, 1));
    if (tasks <= grain || host->num_workers <= 1) {
      run(this, 0, tasks, 0);
    } else {
      host->parallel_for(host->pool, tasks, grain, run, this);
    }
  }
};

}  // namespace

CoilConv2d pack_plain_weight(const CoilConv2d& conv, const CoilHost* host) {
  if constexpr (sizeof(Real) == 8) {
    WeightPacker<uint64_t>(conv, conv.scratch).run_all(host);
  } else if (conv.dtype == COIL_FLOAT32) {
    WeightPacker<uint32_t>(conv, conv.scratch).run_all(host);
  } else {
    WeightPacker<uint16_t>(conv, conv.scratch).run_all(host);
  }
  CoilConv2d packed = conv;
  packed.w = conv.scratch;
  packed.w_plain = 0;
  const int64_t groups = conv.depthwise || conv.narrow_groups ? 1 : conv.groups, k = conv.kh * conv.kw * (conv.ic / conv.groups);
  const int64_t bytes = groups * ceil_div(conv.oc / groups, kPanel) * kPanel * k * element_bytes(conv.dtype);
  packed.scratch = static_cast<char*>(conv.scratch) + ceil_div(bytes, 64) * 64;
  return packed;
}

}  // namespace COIL_KERNELS_NAMESPACE
