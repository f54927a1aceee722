// One scalar operation on constants, with ATen's semantics.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/result.h"
#include "expr/convert.h"
#include "expr/expr.h"
#include "expr/polynomial.h"

namespace coil {
namespace {

// --- floating point; T is the type that rounds each step (float, double)

template <class T>
T float_remainder(T a, T b) {
  T r = std::fmod(a, b);
  if (r != 0 && (b < 0) != (r < 0)) r += b;
  return r;
}

// Python's floor division: not floor(a / b), whose quotient may round up to the next integer.
template <class T>
T float_floor_div(T a, T b) {
  if (b == 0) return a / b;
  const T r = std::fmod(a, b);
  T quotient = (a - r) / b;
  if (r != 0 && (b < 0) != (r < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(T(0), a / b);
  const T floored = std::floor(quotient);
  return quotient - floored > T(0.5) ? floored + 1 : floored;
}

template <class T>
T float_arithmetic(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::add:
      return a + b;
    case ScalarOp::sub:
      return a - b;
    case ScalarOp::mul:
      return a * b;
    case ScalarOp::div:
      return a / b;
    case ScalarOp::floor_div:
      return float_floor_div(a, b);
    case ScalarOp::trunc_div:
      return std::trunc(a / b);
    case ScalarOp::remainder:
      return float_remainder(a, b);
    case ScalarOp::fmod:
      return std::fmod(a, b);
    case ScalarOp::maximum:
      return std::isnan(a) ? a : std::isnan(b) ? b : (a < b ? b : a);
    case ScalarOp::minimum:
      return std::isnan(a) ? a : std::isnan(b) ? b : (b < a ? b : a);
    case ScalarOp::fmax:
      return std::isnan(a) ? b : std::isnan(b) ? a : (a < b ? b : a);
    case ScalarOp::fmin:
      return std::isnan(a) ? b : std::isnan(b) ? a : (b < a ? b : a);
    default:
      break;
  }
  CHECK(false, info(op).name);
  return 0;
}

// Unary mathematics, in double; the caller rounds.
double float_unary(ScalarOp op, double a) {
  switch (op) {
    case ScalarOp::neg:
      return -a;
    case ScalarOp::abs:
      return std::fabs(a);
    case ScalarOp::sign:
      return (a > 0) - (a < 0);
    case ScalarOp::floor:
      return std::floor(a);
    case ScalarOp::ceil:
      return std::ceil(a);
    case ScalarOp::trunc:
      return std::trunc(a);
    case ScalarOp::round:
      return std::nearbyint(a);
    case ScalarOp::sqrt:
      return std::sqrt(a);
    case ScalarOp::rsqrt:
      return 1 / std::sqrt(a);
    case ScalarOp::reciprocal:
      return 1 / a;
    case ScalarOp::exp:
      return std::exp(a);
    case ScalarOp::exp2:
      return std::exp2(a);
    case ScalarOp::expm1:
      return std::expm1(a);
    case ScalarOp::log:
      return std::log(a);
    case ScalarOp::log2:
      return std::log2(a);
    case ScalarOp::log10:
      return std::log10(a);
    case ScalarOp::log1p:
      return std::log1p(a);
    case ScalarOp::tanh:
      return std::tanh(a);
    case ScalarOp::sigmoid:
      return 1 / (1 + std::exp(-a));
    case ScalarOp::erf:
      return std::erf(a);
    case ScalarOp::erfc:
      return std::erfc(a);
    case ScalarOp::sin:
      return std::sin(a);
    case ScalarOp::cos:
      return std::cos(a);
    case ScalarOp::tan:
      return std::tan(a);
    case ScalarOp::asin:
      return std::asin(a);
    case ScalarOp::acos:
      return std::acos(a);
    case ScalarOp::atan:
      return std::atan(a);
    case ScalarOp::sinh:
      return std::sinh(a);
    case ScalarOp::cosh:
      return std::cosh(a);
    case ScalarOp::asinh:
      return std::asinh(a);
    case ScalarOp::acosh:
      return std::acosh(a);
    case ScalarOp::atanh:
      return std::atanh(a);
    case ScalarOp::logical_not:
      return a == 0;
    default:
      break;
  }
  CHECK(false, info(op).name);
  return 0;
}

double float_binary(ScalarOp op, DType dtype, double a, double b) {
  switch (op) {
    case ScalarOp::atan2:
      return std::atan2(a, b);
    case ScalarOp::pow:
      return std::pow(a, b);
    case ScalarOp::hypot:
      return std::hypot(a, b);
    case ScalarOp::logical_and:
      return a != 0 && b != 0;
    case ScalarOp::logical_or:
      return a != 0 || b != 0;
    case ScalarOp::logical_xor:
      return (a != 0) != (b != 0);
    default:
      break;
  }
  // Arithmetic in the type itself: some of these round several times.
  if (dtype == DType::f64) return float_arithmetic<double>(op, a, b);
  return float_arithmetic<float>(op, static_cast<float>(a), static_cast<float>(b));
}

// --- integers, in int64 with wrap-around; the caller wraps to the width

int64_t add_wrap(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
int64_t sub_wrap(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b)); }
int64_t mul_wrap(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }
int64_t trunc_div_int(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? sub_wrap(0, a) : a / b; }
int64_t fmod_int(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

// ATen's steps in the type itself, whose least value has no absolute value and may leave a negative divisor.
int64_t gcd_wrap(int64_t a, int64_t b, DType dtype) {
  const auto size = [&](int64_t v) { return wrap(v < 0 ? sub_wrap(0, v) : v, dtype); };
  a = size(a), b = size(b);
  while (a != 0) {
    const int64_t rest = fmod_int(b, a);
    b = a, a = rest;
  }
  return b;
}

int64_t pow_int(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = mul_wrap(result, base);
    base = mul_wrap(base, base);
  }
  return result;
}

// A shift by less than 0 or by the width and more shifts everything out.
int64_t shift_left(int64_t a, int64_t b, int width) {
  return b < 0 || b >= width ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
}
int64_t shift_right(int64_t a, int64_t b, int width) { return a >> (b < 0 || b >= width ? 63 : b); }

int64_t int_unary(ScalarOp op, DType dtype, int64_t a) {
  switch (op) {
    case ScalarOp::neg:
      return sub_wrap(0, a);
    case ScalarOp::abs:
      return a < 0 ? sub_wrap(0, a) : a;
    case ScalarOp::sign:
      return (a > 0) - (a < 0);
    case ScalarOp::logical_not:
      return a == 0;
    case ScalarOp::bit_not:
      return is_bool(dtype) ? a == 0 : ~a;
    case ScalarOp::floor:
    case ScalarOp::ceil:
    case ScalarOp::trunc:
    case ScalarOp::round:
      return a;
    default:
      break;
  }
  CHECK(false, info(op).name);  // mathematics needs a floating type: the lowering promotes
  return 0;
}

int64_t int_binary(ScalarOp op, DType dtype, int64_t a, int64_t b) {
  const int width = 8 * byte_size(dtype);
  switch (op) {
    case ScalarOp::add:
      return add_wrap(a, b);
    case ScalarOp::sub:
      return sub_wrap(a, b);
    case ScalarOp::mul:
      return mul_wrap(a, b);
    case ScalarOp::floor_div:
      return expr::floor_div_int(a, b);
    case ScalarOp::trunc_div:
      return trunc_div_int(a, b);
    case ScalarOp::remainder:
      return expr::floor_mod_int(a, b);
    case ScalarOp::fmod:
      return fmod_int(a, b);
    case ScalarOp::gcd:
      return gcd_wrap(a, b, dtype);
    case ScalarOp::maximum:
    case ScalarOp::fmax:
      return a < b ? b : a;
    case ScalarOp::minimum:
    case ScalarOp::fmin:
      return b < a ? b : a;
    case ScalarOp::logical_and:
      return a != 0 && b != 0;
    case ScalarOp::logical_or:
      return a != 0 || b != 0;
    case ScalarOp::logical_xor:
      return (a != 0) != (b != 0);
    case ScalarOp::bit_and:
      return a & b;
    case ScalarOp::bit_or:
      return a | b;
    case ScalarOp::bit_xor:
      return a ^ b;
    case ScalarOp::shl:
      return shift_left(a, b, width);
    case ScalarOp::shr:
      return shift_right(a, b, width);
    case ScalarOp::pow:
      return pow_int(a, b);
    default:
      break;
  }
  CHECK(false, info(op).name);
  return 0;
}

// --- index arithmetic: exact by construction

int64_t index_op(ScalarOp op, std::span<const Value> args) {
  int64_t r = args.empty() ? 0 : args[0].i;
  for (const Value& v : args.subspan(args.empty() ? 0 : 1)) {
    switch (op) {
      case ScalarOp::iadd:
        CHECK(!__builtin_add_overflow(r, v.i, &r), "an index leaves int64");
        break;
      case ScalarOp::imul:
        CHECK(!__builtin_mul_overflow(r, v.i, &r), "an index leaves int64");
        break;
      case ScalarOp::idiv:
        r = expr::floor_div_int(r, v.i);
        break;
      case ScalarOp::imod:
        r = expr::floor_mod_int(r, v.i);
        break;
      case ScalarOp::imin:
        r = std::min(r, v.i);
        break;
      case ScalarOp::imax:
        r = std::max(r, v.i);
        break;
      default:
        CHECK(false, info(op).name);
    }
  }
  return r;
}

template <class T>
bool compare_values(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::eq:
      return a == b;
    case ScalarOp::ne:
      return a != b;
    case ScalarOp::lt:
      return a < b;
    case ScalarOp::le:
      return a <= b;
    case ScalarOp::gt:
      return a > b;
    default:
      return a >= b;
  }
}

}  // namespace

Value apply_scalar(ScalarOp op, DType dtype, std::span<const Value> args) {
  CHECK(op != ScalarOp::cast && op != ScalarOp::checked_index, "needs both types: see convert() and evaluate()");
  CHECK(info(op).arity < 0 || static_cast<size_t>(info(op).arity) == args.size(), info(op).name);
  if (op == ScalarOp::select || op == ScalarOp::masked) return args[0].i != 0 ? args[1] : args[2];
  if (is_index_op(op)) return {.i = index_op(op, args)};
  if (info(op).result == ResultRule::boolean) {
    if (op == ScalarOp::isnan) return {.i = is_float(dtype) && std::isnan(args[0].f)};
    if (op == ScalarOp::isinf) return {.i = is_float(dtype) && std::isinf(args[0].f)};
    return {.i = is_float(dtype) ? compare_values(op, args[0].f, args[1].f) : compare_values(op, args[0].i, args[1].i)};
  }
  if (op == ScalarOp::bits) {
    return {.i = dtype == DType::f64 ? std::bit_cast<int64_t>(args[0].f) : std::bit_cast<int32_t>(static_cast<float>(args[0].f))};
  }
  if (op == ScalarOp::from_bits) {
    return {.f = dtype == DType::i64 ? std::bit_cast<double>(args[0].i) : std::bit_cast<float>(static_cast<int32_t>(args[0].i))};
  }
  if (op == ScalarOp::fma) {  // in the type itself: a float64 sum would round twice
    if (dtype == DType::f64) return {.f = std::fma(args[0].f, args[1].f, args[2].f)};
    return {.f = std::fma(static_cast<float>(args[0].f), static_cast<float>(args[1].f), static_cast<float>(args[2].f))};
  }
  if (is_float(dtype)) {
    const double r = args.size() == 1 ? float_unary(op, args[0].f) : float_binary(op, dtype, args[0].f, args[1].f);
    return {.f = round_to(r, compute_type(dtype))};
  }
  return {.i = wrap(args.size() == 1 ? int_unary(op, dtype, args[0].i) : int_binary(op, dtype, args[0].i, args[1].i), dtype)};
}

}  // namespace coil
