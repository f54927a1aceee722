#include <algorithm>
#include <array>
#include <cmath>

#include "reference/interpreter.h"
#include "reference/products.h"

namespace coil::reference {
namespace {

constexpr double kWinogradGrowth = 128;  // of roundings, by the transforms of tiles of 6 x 6

// [planes][rows][columns] with zeros around, large enough for every tap.
std::vector<double> padded(const std::vector<double>& x, int64_t planes, std::array<int64_t, 2> of, std::array<int64_t, 2> front, std::array<int64_t, 2> to) {
  std::vector<double> y(static_cast<size_t>(planes * to[0] * to[1]));
  for (int64_t n = 0; n < planes; ++n) {
    for (int64_t h = 0; h < std::min(of[0], to[0] - front[0]); ++h) {
      const double* row = x.data() + (n * of[0] + h) * of[1];
      std::copy_n(row, std::max<int64_t>(std::min(of[1], to[1] - front[1]), 0), y.data() + (n * to[0] + h + front[0]) * to[1] + front[1]);
    }
  }
  return y;
}

}  // namespace

Status Interpreter::run_template(const Loop& loop, const Conv2d& def) {
  const std::vector<int64_t> xs = sizes(def.x_sizes), out = sizes(program_.buffer(loop.outputs[0]).sizes), ws = sizes(program_.buffer(def.weight).sizes);
  TRY(Values x, gathered(def.x, xs, {0, 1, 2, 3}));
  for (double& v : x.f) v -= static_cast<double>(def.x_zero);
  std::vector<Expr> whole;
  for (int32_t i = 0; i < 4; ++i) whole.push_back(program_.pool->var(i));
  TRY(const Values w, gathered({def.weight, whole}, ws, {0, 1, 2, 3}));
  Products sums(static_cast<size_t>(product(out)));
  const int64_t per_group = std::max<int64_t>(out[1] / def.groups, 1), ic = ws[1], kh = ws[2], kw = ws[3];
  const bool winograd = arithmetic_.winograd && kh == 3 && kw == 3 && def.stride == std::array<int64_t, 2>{1, 1} && is_float(type_of(def.x.buffer));
  std::array<int64_t, 2> seen;
  for (size_t i = 0; i < 2; ++i) seen[i] = (out[2 + i] - 1) * def.stride[i] + (ws[2 + i] - 1) * def.dilation[i] + 1;
  const std::vector<double> padded_x = sums.f.empty() ? x.f : padded(x.f, xs[0] * xs[1], {xs[2], xs[3]}, def.padding, seen);
  const std::vector<double> padded_e = x.e.empty() || sums.f.empty() ? x.e : padded(x.e, xs[0] * xs[1], {xs[2], xs[3]}, def.padding, seen);
  for (int64_t n = 0; n < out[0]; ++n) {
    for (int64_t o = 0; o < out[1]; ++o) {
      double reach = 0;  // of Winograd's sums: each plane's largest number by its weights
      for (int64_t c = 0; c < ic && !sums.f.empty(); ++c) {
        const int64_t plane = (n * xs[1] + o / per_group * ic + c) * seen[0] * seen[1];
        double most = 0, weights = 0;
        for (int64_t p = 0; p < kh * kw; ++p) {
          const auto at = static_cast<size_t>((o * ic + c) * kh * kw + p);
          weights += std::fabs(w.f[at]);
          for (int64_t h = 0; h < out[2]; ++h) {
            const int64_t row = plane + (h * def.stride[0] + p / kw * def.dilation[0]) * seen[1] + p % kw * def.dilation[1];
            const auto to = static_cast<size_t>(((n * out[1] + o) * out[2] + h) * out[3]);
            for (int64_t v = 0; v < out[3]; ++v) {
              const auto place = static_cast<size_t>(row + v * def.stride[1]);
              sums.add(to + static_cast<size_t>(v), w.f[at], w.e.empty() ? 0 : w.e[at], padded_x.data() + place, from(padded_e, place), 1);
            }
          }
        }
        if (!winograd) continue;
        for (int64_t i = 0; i < seen[0] * seen[1]; ++i) most = std::max(most, std::fabs(padded_x[static_cast<size_t>(plane + i)]));
        reach += most * weights;
      }
      const double growth = winograd ? kWinogradGrowth * unit_roundoff(DType::f32) * reach : 0;
      for (int64_t i = 0; i < out[2] * out[3] && winograd; ++i) sums.e[static_cast<size_t>((n * out[1] + o) * out[2] * out[3] + i)] += growth;
    }
  }
  store_product(loop.outputs[0], type_of(def.x.buffer), sums, static_cast<double>(ic * kh * kw), arithmetic_.tf32.convolutions);
  return ok_status();
}

}  // namespace coil::reference
