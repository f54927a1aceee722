#include "reference/accumulator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "loop/log_sum.h"

namespace coil::reference {
namespace {

// Long sums are added up in blocks (codegen/sum_blocks.h): no chain of additions is longer.
constexpr int64_t kLongestChain = 512;
constexpr double kLogSumRoundoffs = 32;  // of an exponential, a logarithm and two sums

int64_t lowest(DType type) { return is_bool(type) || type == DType::u8 ? 0 : INT64_MIN >> (64 - 8 * byte_size(type)); }
int64_t highest(DType type) { return is_bool(type) ? 1 : type == DType::u8 ? 255 : INT64_MAX >> (64 - 8 * byte_size(type)); }

}  // namespace

Accumulator::Accumulator(ReduceOp op, DType type) : op_(op), type_(type) {
  const bool one = op == ReduceOp::prod || op == ReduceOp::all;
  value_.f = op == ReduceOp::max || op == ReduceOp::log_sum ? -kInfinity : op == ReduceOp::min ? kInfinity : one ? 1 : 0;
  value_.i = op == ReduceOp::max ? lowest(type) : op == ReduceOp::min ? highest(type) : one ? 1 : 0;
}

void Accumulator::add_extreme(const Num& x) {
  const double e = std::max(value_.e, x.e);
  if (is_float(type_)) {
    const bool better = op_ == ReduceOp::max ? x.f > value_.f : x.f < value_.f;
    if (!std::isnan(value_.f) && (better || std::isnan(x.f))) value_.f = x.f;
  } else {
    value_.i = op_ == ReduceOp::max ? std::max(value_.i, x.i) : std::min(value_.i, x.i);
  }
  value_.e = e;
}

// The place of the first extreme element; unsure where errors may make it another one.
void Accumulator::add_place(const Num& x) {
  const bool floating = is_float(type_);
  const double sign = op_ == ReduceOp::argmax ? 1 : -1, v = sign * (floating ? x.f : static_cast<double>(x.i));
  const bool first = count_ == 0, nan = floating && std::isnan(x.f), had_nan = floating && std::isnan(value_.f);
  const bool better = first || (!had_nan && (nan || (floating ? sign * x.f > sign * value_.f : sign * static_cast<double>(x.i) > reach_)));
  if (better) {
    others_ = first ? -kInfinity : std::max(others_, reach_ + value_.e);
    value_ = {x.f, count_, x.e};
    reach_ = v;
  } else {
    others_ = std::max(others_, v + x.e);
  }
  if (x.e > 0) unsure_ = true;
}

// The result moves by no more than its operands do.
void Accumulator::add_logarithm(const Num& x) {
  const double e = std::max(value_.e, x.e);
  value_.f = log_sum(value_.f, x.f);
  value_.e = std::isfinite(value_.f) ? e + kLogSumRoundoffs * unit_roundoff(type_) * (std::fabs(value_.f) + 1) : std::isinf(e) ? e : 0;
}

void Accumulator::add(const Num& x) {
  switch (op_) {
    case ReduceOp::sum:
      value_.f += x.f;
      value_.i = static_cast<int64_t>(static_cast<uint64_t>(value_.i) + static_cast<uint64_t>(x.i));
      value_.e += x.e;
      sizes_ += std::fabs(x.f) + x.e;
      break;
    case ReduceOp::prod: value_ = is_float(type_) ? multiply(value_, x, type_) : apply(ScalarOp::mul, type_, type_, std::array{value_, x}); break;
    case ReduceOp::max:
    case ReduceOp::min: add_extreme(x); break;
    case ReduceOp::any:
    case ReduceOp::all: {
      const bool is = is_float(type_) ? x.f != 0 : x.i != 0;
      const bool sure = is_float(type_) ? std::fabs(x.f) > x.e || x.e == 0 : x.e == 0;
      const bool decides = is == (op_ == ReduceOp::any);
      if (decides && sure) unsure_ = false, reach_ = 1;  // whatever the others are
      if (!sure && reach_ == 0) unsure_ = true;
      if (decides) value_.i = op_ == ReduceOp::any;
      break;
    }
    case ReduceOp::argmax:
    case ReduceOp::argmin: add_place(x); break;
    case ReduceOp::log_sum: add_logarithm(x); break;
  }
  ++count_;
}

Num Accumulator::result() const {
  Num r = value_;
  switch (op_) {
    case ReduceOp::sum:
      if (!is_float(type_)) return {0, r.i, r.e};
      if (std::isnan(r.f) || std::isinf(r.f)) return {r.f, 0, std::isinf(r.e) ? kInfinity : 0};
      r.e += 2 * static_cast<double>(std::min(count_, kLongestChain)) * unit_roundoff(type_) * sizes_;
      if (sizes_ > largest(type_)) r.e = kInfinity;
      return r;
    case ReduceOp::any:
    case ReduceOp::all: return {0, r.i, unsure_ ? 1.0 : 0.0};
    case ReduceOp::argmax:
    case ReduceOp::argmin: {
      const bool sure = !unsure_ || reach_ - r.e > others_ || std::isnan(r.f);
      return {0, r.i, sure ? 0 : kInfinity};
    }
    default: return r;
  }
}

}  // namespace coil::reference
