// Windows of a length that the program says (hann, hamming, blackman, bartlett, kaiser): constants, made in double precision.
#include <cmath>
#include <numbers>

#include "lower/constant_table.h"

namespace coil::lowering {
namespace {

constexpr int64_t kLongest = 1 << 24;

// A window over x in [0, 1].
using WindowShape = std::function<double(double x)>;

double argument(const Op& op, const char* name, double otherwise) { return op.node.find(name) ? op.number(name) : otherwise; }

// a0 - a1 cos(2 pi x) + a2 cos(4 pi x)
WindowShape cosines(double a0, double a1, double a2) {
  return [=](double x) { return a0 - a1 * std::cos(2 * std::numbers::pi * x) + a2 * std::cos(4 * std::numbers::pi * x); };
}

// The modified Bessel function of order 0 by its power series, whose terms are all positive.
double bessel_i0(double x) {
  double sum = 1, term = 1;
  for (int k = 1; term > sum * 1e-17 && k < 10000; ++k) {
    term *= (x / 2 / k) * (x / 2 / k);
    sum += term;
  }
  return sum;
}

WindowShape kaiser(double beta) {
  return [=](double x) { return bessel_i0(beta * std::sqrt(std::max(0.0, 4 * x * (1 - x)))) / bessel_i0(beta); };
}

// A periodic window is one of a point more, without its last.
Views window_of(Op& op, const WindowShape& shape) {
  const TensorType& out = op.out();
  const int64_t length = op.integer("window_length");
  if (!is_float(out.dtype)) fail(ErrorCode::bad_program, op.node.target + " of integers");
  if (length > kLongest) fail(ErrorCode::unsupported_feature, op.node.target + " of more than 16777216 points");
  if (length < 1) return {View{out.dtype, out.sizes, op.constant(0, out.dtype)}};
  const bool periodic = !op.node.find("periodic") || op.flag("periodic");
  std::vector<double> values;
  for (int64_t i = 0; i < length; ++i) {
    values.push_back(length == 1 ? 1 : shape(static_cast<double>(i) / static_cast<double>(length - (periodic ? 0 : 1))));
  }
  const View exact = constant_table(op, op.name, {length}, std::move(values));
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) { return as(op.rec.at(exact, c), out.dtype); })};
}

void add_window(Table& table, const std::string& name, const std::vector<const char*>& overloads, const std::function<WindowShape(const Op&)>& shape) {
  for (const char* overload : overloads) table["aten." + name + "_window." + overload] = [shape](Op& op) { return window_of(op, shape(op)); };
}

}  // namespace

void add_windows(Table& table) {
  add_window(table, "hann", {"default", "periodic"}, [](const Op&) { return cosines(0.5, 0.5, 0); });
  add_window(table, "hamming", {"default", "periodic", "periodic_alpha", "periodic_alpha_beta"},
             [](const Op& op) { return cosines(argument(op, "alpha", 0.54), argument(op, "beta", 0.46), 0); });
  add_window(table, "blackman", {"default", "periodic"}, [](const Op&) { return cosines(0.42, 0.5, 0.08); });
  add_window(table, "bartlett", {"default", "periodic"}, [](const Op&) -> WindowShape { return [](double x) { return 1 - std::abs(2 * x - 1); }; });
  add_window(table, "kaiser", {"default", "periodic", "beta"}, [](const Op& op) { return kaiser(argument(op, "beta", 12)); });
}

}  // namespace coil::lowering
