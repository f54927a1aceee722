// Arithmetic of complex numbers as pairs of real expressions of one type.
//
// Formulas are those that stay right for large and small parts (W. Kahan, "Branch cuts for complex elementary functions"); branch cuts
// and signed zeros follow C99. Products and quotients of infinities may give NaN parts, as PyTorch's vectorised kernels do.
#pragma once

#include "loop/recorder.h"

namespace coil::lowering {

using Complex = coil::Complex;

// Functions take and give parts of the compute type of `type` (f32 or f64).
class ComplexMath {
 public:
  ComplexMath(ExprPool& pool, DType type) : pool_(pool), type_(compute_type(type)) {}

  Expr number(double x) const { return pool_.constant(x, type_); }
  Complex real(Expr x) const { return {x, number(0)}; }
  Complex real(double x) const { return real(number(x)); }
  // Multiplication by i and by -i; signs of zeros are kept.
  Complex times_i(const Complex& z) const { return {neg(z.im), z.re}; }
  Complex times_minus_i(const Complex& z) const { return {z.im, neg(z.re)}; }

  Complex neg(const Complex& z) const { return {neg(z.re), neg(z.im)}; }
  Complex conj(const Complex& z) const { return {z.re, neg(z.im)}; }
  Complex add(const Complex& a, const Complex& b) const { return {add(a.re, b.re), add(a.im, b.im)}; }
  Complex sub(const Complex& a, const Complex& b) const { return {sub(a.re, b.re), sub(a.im, b.im)}; }
  Complex mul(const Complex& a, const Complex& b) const;
  Complex scaled(const Complex& z, Expr by) const { return {mul(z.re, by), mul(z.im, by)}; }
  Complex div(const Complex& a, const Complex& b) const;
  Complex reciprocal(const Complex& z) const { return div(real(1), z); }
  Expr abs(const Complex& z) const { return two(ScalarOp::hypot, z.re, z.im); }
  Expr angle(const Complex& z) const { return two(ScalarOp::atan2, z.im, z.re); }
  Complex sgn(const Complex& z) const;

  Complex sqrt(const Complex& z) const;
  Complex rsqrt(const Complex& z) const { return reciprocal(sqrt(z)); }
  Complex exp(const Complex& z) const;
  Complex exp2(const Complex& z) const { return exp(scaled(z, number(0.69314718055994530942))); }
  Complex expm1(const Complex& z) const;
  Complex log(const Complex& z) const { return {one(ScalarOp::log, abs(z)), angle(z)}; }
  Complex log2(const Complex& z) const { return scaled(log(z), number(1.44269504088896340736)); }
  Complex log10(const Complex& z) const { return scaled(log(z), number(0.43429448190325182765)); }
  Complex log1p(const Complex& z) const;
  Complex pow(const Complex& base, const Complex& exponent) const;
  Complex sigmoid(const Complex& z) const { return reciprocal(add(real(1), exp(neg(z)))); }

  Complex silu(const Complex& z) const { return mul(z, sigmoid(z)); }
  Complex sinc(const Complex& z) const;  // sin(pi z) / (pi z)
  Complex logaddexp(const Complex& a, const Complex& b) const;
  Complex ldexp(const Complex& a, const Complex& b) const { return mul(a, exp2(b)); }

  Complex sin(const Complex& z) const { return times_minus_i(sinh(times_i(z))); }
  Complex cos(const Complex& z) const { return cosh(times_i(z)); }
  Complex tan(const Complex& z) const { return times_minus_i(tanh(times_i(z))); }
  Complex sinh(const Complex& z) const;
  Complex cosh(const Complex& z) const;
  Complex tanh(const Complex& z) const;
  Complex asin(const Complex& z) const;
  Complex acos(const Complex& z) const;
  Complex atan(const Complex& z) const { return times_minus_i(atanh(times_i(z))); }
  Complex asinh(const Complex& z) const { return times_minus_i(asin(times_i(z))); }
  Complex acosh(const Complex& z) const;
  Complex atanh(const Complex& z) const;

  Expr equal(const Complex& a, const Complex& b) const;
  Expr is_zero(const Complex& z) const { return equal(z, real(0)); }
  Expr either(ScalarOp test, const Complex& z) const { return two(ScalarOp::logical_or, one(test, z.re), one(test, z.im)); }
  Complex select(Expr condition, const Complex& a, const Complex& b) const {
    return {pool_.select(condition, a.re, b.re), pool_.select(condition, a.im, b.im)};
  }

  Expr one(ScalarOp op, Expr a) const { return pool_.op(op, {a}); }
  Expr two(ScalarOp op, Expr a, Expr b) const { return pool_.op(op, {a, b}); }
  Expr neg(Expr a) const { return one(ScalarOp::neg, a); }
  Expr add(Expr a, Expr b) const { return two(ScalarOp::add, a, b); }
  Expr sub(Expr a, Expr b) const { return two(ScalarOp::sub, a, b); }
  Expr mul(Expr a, Expr b) const { return two(ScalarOp::mul, a, b); }
  Expr div(Expr a, Expr b) const { return two(ScalarOp::div, a, b); }

 private:
  // The size of `a` with the sign of `b`, -0.0 included.
  Expr copysign(Expr a, Expr b) const;

  ExprPool& pool_;
  DType type_;
};

}  // namespace coil::lowering
