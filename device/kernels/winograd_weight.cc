// Weights that come with a call, transformed for Winograd's filtering (winograd.cc has the points, templates/packing.cc the same for constants): the plain
// panels first, [tap][ic][kPanel], and of these each place of G w G^T.
#include "block.h"
#include "conv_weight.h"
#include "winograd.h"

namespace COIL_KERNELS_NAMESPACE {
namespace {

constexpr int64_t kPartChannels = 8;              // of a task
constexpr int64_t kRun = kPartChannels * kPanel;  // floats of a place that a task makes
constexpr int64_t kLine = kRun + 16;              // a cache line more: runs of a power of two would all be in a few of the cache's sets

// y = G x of three taps.
template <int64_t tile>
struct Taps;

template <>
struct Taps<2> {
  COIL_INLINE_MEMBER static void transform(const Vec* x, Vec* y) {
    const Vec ends = 0.5f * (x[0] + x[2]), middle = 0.5f * x[1];
    y[0] = -x[0];
    y[1] = ends + middle;
    y[2] = ends - middle;
    y[3] = x[2];
  }
};

// Points 0, +-a, +-b and infinity with a^2 = 1/2, b^2 = 2; divided by the products of a point's differences to the others: 1, -3/2, 6.
template <>
struct Taps<4> {
  static constexpr float kA = -0.47140452079103168f;  // a / -(3/2)
  static constexpr float kB = 0.23570226039551584f;   // b / 6

  COIL_INLINE_MEMBER static void transform(const Vec* x, Vec* y) {
    const Vec even_a = (-2.0f / 3) * x[0] + (-1.0f / 3) * x[2], odd_a = kA * x[1];
    const Vec even_b = (1.0f / 6) * x[0] + (1.0f / 3) * x[2], odd_b = kB * x[1];
    y[0] = x[0];
    y[1] = even_a + odd_a;
    y[2] = even_a - odd_a;
    y[3] = even_b + odd_b;
    y[4] = even_b - odd_b;
    y[5] = x[2];
  }
};

template <int64_t kTile>
struct Transform {
  static constexpr int64_t kWindow = kTile + 2, kPlaces = kWindow * kWindow;

  const CoilConv2d& c;
  const float* from;
  float* to;
  int64_t parts;

  static void run(void* context, int64_t begin, int64_t end, int32_t) {
    const Transform& self = *static_cast<Transform*>(context);
    alignas(64) float runs[kPlaces * kLine];
    for (int64_t task = begin; task < end; task++) {
      const int64_t panel = task / self.parts, first = task % self.parts * kPartChannels, step = self.c.ic * kPanel;
      const int64_t count = min64(kPartChannels, self.c.ic - first) * kPanel;
      for (int64_t j = 0; j < count; j += kLanes) places(self.from + panel * 9 * step + first * kPanel + j, step, runs + j);
      // Run by run: the places of one channel are a power of two apart, and so in few of the cache's sets.
      float* out = self.to + panel * kPlaces * step + first * kPanel;
      for (int64_t place = 0; place < kPlaces; place++) memcpy(out + place * step, runs + place * kLine, count * 4);
    }
  }

  // kLanes columns of one channel: of its taps, `step` floats apart.
  static void places(const float* from, int64_t step, float* to) {
    Vec down[kWindow][3];
#pragma unroll
    for (int64_t x = 0; x < 3; x++) {
      Vec taps[3], column[kWindow];
#pragma unroll
      for (int64_t y = 0; y < 3; y++) taps[y] = load(from + (y * 3 + x) * step);
      Taps<kTile>::transform(taps, column);
#pragma unroll
      for (int64_t y = 0; y < kWindow; y++) down[y][x] = column[y];
    }
#pragma unroll
    for (int64_t y = 0; y < kWindow; y++) {
      Vec line[kWindow];
      Taps<kTile>::transform(down[y], line);
#pragma unroll
      for (int64_t x = 0; x < kWindow; x++) store(to + (y * kWindow + x) * kLine, line[x]);
    }
  }

  void run_all(int64_t panels, const CoilHost* host) {
    const int64_t tasks = panels * parts;
    if (tasks == 1 || host->num_workers <= 1) {
      run(this, 0, tasks, 0);
    } else {
      host->parallel_for(host->pool, tasks, 1, run, this);
    }
  }
};

}  // namespace

CoilConv2d transform_plain_weight(const CoilConv2d& conv, const CoilHost* host) {
  const int64_t panels = ceil_div(conv.oc, kPanel), places = (conv.winograd + 2) * (conv.winograd + 2);
  CoilConv2d plain = conv;
  plain.scratch = static_cast<char*>(conv.scratch) + panels * kPanel * conv.ic * places * 4;
  CoilConv2d transformed = pack_plain_weight(plain, host);
  const auto* from = static_cast<const float*>(transformed.w);
  auto* to = static_cast<float*>(conv.scratch);
  const int64_t parts = ceil_div(conv.ic, kPartChannels);
  if (conv.winograd == 2) Transform<2>{conv, from, to, parts}.run_all(panels, host);
  else Transform<4>{conv, from, to, parts}.run_all(panels, host);
  transformed.w = to;
  transformed.scratch = plain.scratch;  // the plain panels are done with
  return transformed;
}

}  // namespace COIL_KERNELS_NAMESPACE
