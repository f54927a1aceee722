#include "reference/number.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

namespace coil::reference {
namespace {

constexpr double kMathRoundoffs = 16;  // of a function of the device's mathematics, in roundings: 8 ulps
constexpr double kSafety = 2;          // a compiler may split one operation into two (a division into a reciprocal and a product)

// What an operand's error does to the result, by row of scalar_ops.def.
enum class ErrorRule {
  exact,   // passes on: the result is not rounded
  larger,  // the larger of the operands' passes on
  step,    // the result jumps where the operand does
  smooth,  // as the function moves within the operands' errors: it rises or falls there
  wave,    // as the operand's: a slope of at most 1, values of at most 1
  root,    // smooth, with infinite slope at 0
  pole,    // smooth, but unbounded around 0
  poles,   // smooth, but unbounded around odd multiples of pi / 2
  angle,   // smooth, but for a jump by 2 pi where operand 0 is 0 and operand 1 negative
  sum,
  difference,
  product,
  quotient,
  fused,
  jumps,       // a whole quotient
  steps_back,  // a remainder
  compared,    // true or false, unsure where the operands' errors meet
  logic,       // unsure where an operand is and the other does not decide
  class_of,    // what kind of number: unsure where nothing is known of the operand
  choice,      // of operands, by a condition that may be unsure
  lost,        // nothing is known once an operand has an error
};

constexpr ErrorRule kRules[] = {
#define OP(name, arity, result, cost, infix, header, error, ...) ErrorRule::error,
#include "ops/scalar_ops.def"
#undef OP
};
ErrorRule rule(ScalarOp op) { return kRules[static_cast<size_t>(op)]; }

bool is_wide(DType type) { return type == DType::f64; }

// Rounding to the type: the error, and what is too large for it.
Num rounded(double v, double e, DType type, double roundoffs = 1) {
  Num r;
  r.f = v;
  if (std::isnan(v) || std::isinf(v)) {
    r.e = e == kInfinity ? kInfinity : 0;
    return r;
  }
  r.e = e + roundoffs * kSafety * unit_roundoff(type) * std::fabs(v) + (v == 0 && e == 0 ? 0 : smallest(type));
  if (std::isnan(r.e)) r.e = kInfinity;
  if (std::fabs(v) > largest(type)) {
    r.f = std::copysign(kInfinity, v);
    r.e = std::fabs(v) - r.e > largest(type) ? 0 : kInfinity;
  } else if (std::fabs(v) + r.e > largest(type)) {
    r.e = kInfinity;
  }
  return r;
}

double value_of(ScalarOp op, double a, double b = 0) {
  const Value args[] = {{a, 0}, {b, 0}};
  return apply_scalar(op, DType::f64, {args, static_cast<size_t>(info(op).arity)}).f;
}

// |f(x) - f(a)| for x = a + step. Where the function is defined at one of them alone, the result may be anything.
double moved(ScalarOp op, double a, double step, double at) {
  const double there = value_of(op, a + step);
  if (std::isnan(there) || std::isnan(at)) return std::isnan(there) && std::isnan(at) ? 0 : kInfinity;
  return there == at ? 0 : std::fabs(there - at);
}

// The largest change that an error of the operand causes, for functions that rise or fall on both sides of it.
double change(ScalarOp op, double a, double e, double at) {
  if (e == 0) return 0;
  if (e == kInfinity) return kInfinity;
  return std::max(moved(op, a, e, at), moved(op, a, -e, at));
}

Num unary(ScalarOp op, DType type, const Num& a) {
  const double at = value_of(op, a.f);
  switch (rule(op)) {
    case ErrorRule::exact: return {at, 0, a.e};
    case ErrorRule::step: return {at, 0, change(op, a.f, a.e, at)};
    case ErrorRule::wave: return rounded(at, std::min(a.e, 2.0), type, kMathRoundoffs);
    case ErrorRule::root:
      if (a.f - a.e < 0 && a.f >= 0 && a.e < kInfinity) return {at, 0, std::sqrt(a.f + a.e) + std::sqrt(a.e)};
      break;
    case ErrorRule::pole:
      if (std::fabs(a.f) <= a.e && a.e > 0) return {at, 0, kInfinity};
      break;
    case ErrorRule::poles:
      if (a.e > 0 && M_PI_2 - std::fabs(std::remainder(a.f, M_PI)) <= a.e) return {at, 0, kInfinity};
      break;
    default: break;
  }
  return rounded(at, change(op, a.f, a.e, at), type, kMathRoundoffs);
}

// Functions of two numbers by what happens at the corners of their errors.
Num corners(ScalarOp op, DType type, const Num& a, const Num& b) {
  const double at = value_of(op, a.f, b.f);
  double e = 0;
  if (a.e == kInfinity || b.e == kInfinity) e = kInfinity;
  for (int i = 0; i < 9 && e < kInfinity; ++i) {
    const double there = value_of(op, a.f + (i % 3 - 1) * a.e, b.f + (i / 3 - 1) * b.e);
    if (a.e == 0 && b.e == 0) break;
    e = std::isnan(there) != std::isnan(at) ? kInfinity : std::isnan(there) || there == at ? e : std::max(e, std::fabs(there - at));
  }
  return rounded(at, e, type, kMathRoundoffs);
}

Num divide(const Num& a, const Num& b, DType type) {
  const double v = a.f / b.f;
  if (a.e == 0 && b.e == 0) return rounded(v, 0, type, 2);
  if (!(std::fabs(b.f) > b.e)) return {v, 0, kInfinity};
  return rounded(v, std::isinf(b.f) ? 0 : (a.e + std::fabs(v) * b.e) / (std::fabs(b.f) - b.e), type, 2);
}

// Remainders and rounded quotients jump where the quotient is a whole number.
Num remainder_like(ScalarOp op, DType type, const Num& a, const Num& b) {
  const double at = value_of(op, a.f, b.f);
  if (a.e == 0 && b.e == 0) return rounded(at, 0, type);
  if (!(std::fabs(b.f) > b.e) || a.e == kInfinity) return {at, 0, kInfinity};
  const Num quotient = divide(a, b, type);
  const bool jumps = std::floor(quotient.f - quotient.e) != std::floor(quotient.f + quotient.e);
  if (rule(op) == ErrorRule::jumps) return {at, 0, jumps ? std::ceil(2 * quotient.e) + 1 : 0};
  return rounded(at, jumps ? std::fabs(b.f) + b.e + a.e : a.e + (std::fabs(quotient.f) + 1) * b.e, type);
}

double larger_error(const Num& a, const Num& b) { return std::max(a.e, b.e); }

Num binary(ScalarOp op, DType type, const Num& a, const Num& b) {
  switch (rule(op)) {
    case ErrorRule::sum: return add(a, b, type);
    case ErrorRule::difference: return add(a, {-b.f, 0, b.e}, type);
    case ErrorRule::product: return multiply(a, b, type);
    case ErrorRule::quotient: return divide(a, b, type);
    case ErrorRule::larger: return {value_of(op, a.f, b.f), 0, larger_error(a, b)};
    case ErrorRule::angle:
      if (std::fabs(a.f) <= a.e && b.f - b.e < 0) return rounded(value_of(op, a.f, b.f), 2 * M_PI, type, kMathRoundoffs);
      return corners(op, type, a, b);
    case ErrorRule::jumps:
    case ErrorRule::steps_back: return remainder_like(op, type, a, b);
    default: return corners(op, type, a, b);
  }
}

// A boolean; its error is 1 where the errors of the operands may turn it over.
Num comparison(ScalarOp op, DType type, const Num& a, const Num& b) {
  const Value args[] = {{a.f, a.i}, {b.f, b.i}};
  Num r;
  r.i = apply_scalar(op, is_float(type) ? DType::f64 : type, {args, 2}).i;
  if (a.e + b.e == 0) return r;
  const double distance = is_float(type) ? std::fabs(a.f - b.f) : std::fabs(static_cast<double>(a.i) - static_cast<double>(b.i));
  r.e = !(distance > a.e + b.e) ? 1 : 0;
  return r;
}

Num select(DType type, std::span<const Num> a) {
  Num r = a[0].i ? a[1] : a[2];
  if (a[0].e == 0) return r;
  const double apart = is_float(type) ? std::fabs(a[1].f - a[2].f) : std::fabs(static_cast<double>(a[1].i) - static_cast<double>(a[2].i));
  const bool same = is_float(type) && std::isnan(a[1].f) && std::isnan(a[2].f);
  r.e = same || a[1].f == a[2].f ? apart + larger_error(a[1], a[2]) : std::isnan(apart) ? kInfinity : apart + larger_error(a[1], a[2]);
  if (std::isnan(r.e)) r.e = same || a[1].f == a[2].f ? larger_error(a[1], a[2]) : kInfinity;
  return r;
}

Num logic(ScalarOp op, DType type, std::span<const Num> a) {
  Value args[2];
  for (size_t k = 0; k < a.size(); ++k) args[k] = {a[k].f, a[k].i};
  const Value v = apply_scalar(op, is_float(type) ? DType::f64 : type, {args, a.size()});
  Num r{v.f, v.i, 0};
  for (size_t k = 0; k < a.size(); ++k) {
    const Num& other = a[a.size() - 1 - k];
    const bool decides = a.size() == 2 && other.e == 0 && (op == ScalarOp::logical_and ? !other.i : op == ScalarOp::logical_or && other.i);
    if (a[k].e > 0 && !(decides && !is_float(type))) r.e = 1;
  }
  return r;
}

// Integers are exact but where something rounded made them.
Num integer(ScalarOp op, DType type, std::span<const Num> a) {
  Value args[4];
  double e = 0;
  for (size_t k = 0; k < a.size() && k < 4; ++k) {
    args[k] = {a[k].f, a[k].i};
    e += a[k].e;
  }
  Num r;
  if (info(op).result == ResultRule::bits) {
    const Value v = apply_scalar(op, type, {args, a.size()});
    return {v.f, v.i, e > 0 ? kInfinity : 0};
  }
  r.i = apply_scalar(op, type, {args, a.size()}).i;
  if (e == 0) return r;
  switch (rule(op)) {
    case ErrorRule::exact:
    case ErrorRule::sum:
    case ErrorRule::difference: r.e = e; break;
    case ErrorRule::larger: r.e = larger_error(a[0], a[1]); break;
    case ErrorRule::product: r.e = std::fabs(static_cast<double>(a[0].i)) * a[1].e + std::fabs(static_cast<double>(a[1].i)) * a[0].e + a[0].e * a[1].e; break;
    default: r.e = kInfinity;
  }
  return r;
}

}  // namespace

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-52;
    case DType::f32: return 0x1p-24;
    case DType::f16: return 0x1p-11;
    case DType::bf16: return 0x1p-8;
    default: return 0;
  }
}

double largest(DType dtype) { return dtype == DType::f16 ? 65504 : is_wide(dtype) ? DBL_MAX : static_cast<double>(FLT_MAX); }
double smallest(DType dtype) { return dtype == DType::f16 ? 0x1p-24 : is_wide(dtype) ? DBL_MIN : static_cast<double>(FLT_MIN); }

Num add(const Num& a, const Num& b, DType type) { return rounded(a.f + b.f, a.e + b.e, type); }

Num multiply(const Num& a, const Num& b, DType type) {
  if (a.e == 0 && b.e == 0) return rounded(a.f * b.f, 0, type);
  const double e = std::fabs(a.f) * b.e + std::fabs(b.f) * a.e + a.e * b.e;
  return rounded(a.f * b.f, std::isnan(e) ? (std::isfinite(a.e) && std::isfinite(b.e) ? 0 : kInfinity) : e, type);
}

Num apply(ScalarOp op, DType type, DType result, std::span<const Num> a) {
  const ErrorRule by = rule(op);
  if (by == ErrorRule::choice) return select(type, a);
  if (by == ErrorRule::compared) return comparison(op, type, a[0], a[1]);
  if (by == ErrorRule::logic) return logic(op, type, a);
  if (by == ErrorRule::class_of) return {0, op == ScalarOp::isnan ? std::isnan(a[0].f) : std::isinf(a[0].f), a[0].e == kInfinity ? 1.0 : 0.0};
  if (!is_float(type) || info(op).result == ResultRule::bits) return integer(op, type, a);
  if (by == ErrorRule::fused) return add(multiply(a[0], a[1], type), a[2], type);
  (void)result;
  return a.size() == 1 ? unary(op, type, a[0]) : binary(op, type, a[0], a[1]);
}

Num convert_num(Num v, DType from, DType to) {
  if (is_float(from) && is_float(to)) return unit_roundoff(compute_type(to)) > unit_roundoff(from) || compute_type(to) != to ? rounded(v.f, v.e, to) : v;
  const Value in{v.f, v.i};
  const Value out = coil::convert(in, is_float(from) ? DType::f64 : from, is_float(to) ? DType::f64 : to);
  Num r{out.f, out.i, 0};
  if (is_float(to)) return rounded(out.f, v.e, to, std::fabs(out.f) < 0x1p24 ? 0 : 1);
  if (v.e == 0) return r;
  if (is_bool(to)) {
    r.e = is_float(from) ? (std::fabs(v.f) <= v.e ? 1 : 0) : 1;
    return r;
  }
  if (!is_float(from)) {
    r.e = v.e;
    return r;
  }
  // Whole numbers that the error reaches.
  r.e = std::isfinite(v.e) && std::isfinite(v.f)
            ? std::max(std::fabs(std::trunc(v.f + v.e) - std::trunc(v.f)), std::fabs(std::trunc(v.f - v.e) - std::trunc(v.f)))
            : kInfinity;
  return r;
}

Num maybe_rounded(Num v, DType type) {
  if (type != DType::f16 && type != DType::bf16) return v;
  return rounded(v.f, v.e, type, 0.5);
}

double allowed_error(const Num& expected, DType stored) {
  if (!is_float(stored)) return expected.e;
  return expected.e + unit_roundoff(stored) * std::fabs(expected.f) + smallest(stored) * (stored == DType::f16 ? 1.0 : 0x1p-7);
}

bool allows(const Num& expected, DType stored, double found_f, int64_t found_i) {
  if (expected.e == kInfinity) return true;
  if (!is_float(stored)) {
    if (is_bool(stored)) return expected.e >= 1 || (found_i != 0) == (expected.i != 0);
    return std::fabs(static_cast<double>(found_i) - static_cast<double>(expected.i)) <= expected.e;
  }
  if (std::isnan(expected.f) || std::isnan(found_f)) return std::isnan(expected.f) && std::isnan(found_f);
  if (found_f == expected.f) return true;
  const double error = allowed_error(expected, stored);
  if (std::isinf(found_f)) return (found_f > 0) == (expected.f > 0) && std::fabs(expected.f) + error >= largest(stored);
  return std::fabs(found_f - expected.f) <= error;
}

}  // namespace coil::reference
