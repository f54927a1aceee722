// Numbers with a bound of their error: the value that exact arithmetic gives (in float64), and how far a kernel's may be from it.
//
// The bounds are those of a running error analysis: each operation adds its own rounding to what the errors of its operands come to. They hold for
// any order of operations that a kernel may choose, for fused multiplications, and for values that are kept in a wider type than the program says.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "expr/expr.h"

namespace coil::reference {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Num {
  double f = 0;   // floating types
  int64_t i = 0;  // integers, booleans and indices
  double e = 0;   // the largest error; infinity: anything may come out
};

// The largest relative error of one rounding to the type; 0 for integers. Of float64 twice that: the reference rounds too.
double unit_roundoff(DType dtype);
// The largest finite number, and the smallest normal one.
double largest(DType dtype);
double smallest(DType dtype);

// One operation. `type`: the operands' (operand 1's for select and masked); `result`: the result's.
Num apply(ScalarOp op, DType type, DType result, std::span<const Num> args);
Num convert_num(Num v, DType from, DType to);
// a + b and a * b in a type, as sums and products of many numbers are made.
Num add(const Num& a, const Num& b, DType type);
Num multiply(const Num& a, const Num& b, DType type);
// What may have been rounded to the type on the way, or not.
Num maybe_rounded(Num v, DType type);
// Whether a number that was found in memory of a type can be this one.
bool allows(const Num& expected, DType stored, double found_f, int64_t found_i);
// How far off it may be, the rounding to memory included.
double allowed_error(const Num& expected, DType stored);

}  // namespace coil::reference
