// Arithmetic on value expressions that reads as such: select(x < 0.0, -x, x * x + 1.0). A number takes the type of what it meets.
#pragma once

#include <numbers>

#include "lower/lowering.h"

namespace coil::lowering {

inline constexpr double kPi = std::numbers::pi;

struct Val;
Val apply(ScalarOp op, Val a);
Val apply(ScalarOp op, Val a, Val b);

struct Val {
  Expr e;

  Val(Expr expr) : e(expr) {}
  // A number of this value's type.
  Val like(double v) const { return is_float(e->dtype) ? e->pool->constant(v, e->dtype) : e->pool->constant_int(static_cast<int64_t>(v), e->dtype); }

  // Seen where a Val is meant: of an Expr, ! asks whether there is one.
  friend Val operator!(Val a) { return apply(ScalarOp::logical_not, a); }
};

#define COIL_BINARY(NAME, OP)                                                    \
  inline Val NAME(Val a, Val b) { return apply(ScalarOp::OP, a, b); }            \
  inline Val NAME(Val a, double b) { return apply(ScalarOp::OP, a, a.like(b)); } \
  inline Val NAME(double a, Val b) { return apply(ScalarOp::OP, b.like(a), b); }
COIL_BINARY(operator+, add)
COIL_BINARY(operator-, sub)
COIL_BINARY(operator*, mul)
COIL_BINARY(operator/, div)
COIL_BINARY(operator<, lt)
COIL_BINARY(operator<=, le)
COIL_BINARY(operator>, gt)
COIL_BINARY(operator>=, ge)
COIL_BINARY(equal, eq)
COIL_BINARY(unequal, ne)
COIL_BINARY(max, maximum)
COIL_BINARY(min, minimum)
COIL_BINARY(pow, pow)
COIL_BINARY(remainder, remainder)
COIL_BINARY(atan2, atan2)
#undef COIL_BINARY

#define COIL_UNARY(NAME) \
  inline Val NAME(Val a) { return apply(ScalarOp::NAME, a); }
COIL_UNARY(abs)
COIL_UNARY(floor)
COIL_UNARY(ceil)
COIL_UNARY(trunc)
COIL_UNARY(round)
COIL_UNARY(sqrt)
COIL_UNARY(exp)
COIL_UNARY(exp2)
COIL_UNARY(expm1)
COIL_UNARY(log)
COIL_UNARY(log2)
COIL_UNARY(log1p)
COIL_UNARY(sin)
COIL_UNARY(cos)
COIL_UNARY(tan)
COIL_UNARY(erf)
COIL_UNARY(erfc)
COIL_UNARY(tanh)
COIL_UNARY(isnan)
COIL_UNARY(isinf)
COIL_UNARY(sigmoid)
COIL_UNARY(rsqrt)
COIL_UNARY(acos)
COIL_UNARY(acosh)
COIL_UNARY(cosh)
COIL_UNARY(sinh)
COIL_UNARY(sign)
#undef COIL_UNARY

inline Val operator-(Val a) { return apply(ScalarOp::neg, a); }
inline Val either(Val a, Val b) { return apply(ScalarOp::logical_or, a, b); }
inline Val both(Val a, Val b) { return apply(ScalarOp::logical_and, a, b); }
inline Val select(Val condition, Val a, Val b) { return condition.e->pool->select(condition.e, a.e, b.e); }
inline Val select(Val condition, double a, Val b) { return select(condition, b.like(a), b); }
inline Val select(Val condition, Val a, double b) { return select(condition, a, a.like(b)); }

// log of the magnitude of the gamma function, in double precision (special.cc).
Val log_gamma(Val x);

// true with probability 1 - p for each element (random.cc).
View dropout_mask(Op& op, const Sizes& sizes, double p);

// One row of a table: an elementwise function, computed in `compute` (default: the result's type).
using Function1 = std::function<Val(Val)>;
using Function2 = std::function<Val(Val, Val)>;
Lowering function_row(Function1 f, std::optional<DType> compute = {});
Lowering function_row(Function2 f, std::optional<DType> compute = {});

}  // namespace coil::lowering
