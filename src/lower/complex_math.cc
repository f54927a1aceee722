#include "lower/complex_math.h"

#include <cmath>

namespace coil::lowering {

Complex ComplexMath::mul(const Complex& a, const Complex& b) const { return {sub(mul(a.re, b.re), mul(a.im, b.im)), add(mul(a.re, b.im), mul(a.im, b.re))}; }

// Scaled by the larger part of the divisor, so that squares neither overflow nor vanish.
Complex ComplexMath::div(const Complex& a, const Complex& b) const {
  const Expr scale = two(ScalarOp::maximum, one(ScalarOp::abs, b.re), one(ScalarOp::abs, b.im));
  const Complex d{div(b.re, scale), div(b.im, scale)}, n{div(a.re, scale), div(a.im, scale)};
  const Expr size = add(mul(d.re, d.re), mul(d.im, d.im));
  const Complex product = mul(n, conj(d));
  return {div(product.re, size), div(product.im, size)};
}

Complex ComplexMath::sgn(const Complex& z) const {
  const Expr size = abs(z);
  const Complex unit{div(z.re, size), div(z.im, size)};
  return select(two(ScalarOp::eq, size, number(0)), real(0), unit);
}

Expr ComplexMath::copysign(Expr a, Expr b) const {
  const Expr size = one(ScalarOp::abs, a);
  // 1 / -0.0 is -inf.
  const Expr negative = two(ScalarOp::logical_or, two(ScalarOp::lt, b, number(0)), two(ScalarOp::lt, div(number(1), b), number(0)));
  return pool_.select(negative, neg(size), size);
}

Complex ComplexMath::sqrt(const Complex& z) const {
  const Expr x = one(ScalarOp::abs, z.re), y = one(ScalarOp::abs, z.im), zero = number(0), half = number(0.5);
  // Of the smaller numbers' halves the sum cannot overflow.
  const Expr root = one(ScalarOp::sqrt, add(mul(x, half), mul(abs(z), half)));
  const Expr other = div(mul(y, half), root);
  const Expr right = two(ScalarOp::ge, z.re, zero), none = two(ScalarOp::eq, root, zero), endless = one(ScalarOp::isinf, z.im);
  Complex r{pool_.select(right, root, other), copysign(pool_.select(right, other, root), z.im)};
  r = select(none, {zero, z.im}, r);
  return select(endless, {y, z.im}, r);
}

Complex ComplexMath::exp(const Complex& z) const {
  const Expr size = one(ScalarOp::exp, z.re), flat = two(ScalarOp::eq, z.im, number(0));
  const Complex r{mul(size, one(ScalarOp::cos, z.im)), mul(size, one(ScalarOp::sin, z.im))};
  const Complex nothing = select(flat, {size, z.im}, r);  // exp(inf) * sin(0) is not NaN
  // C99: whatever the angle, exp(-inf) is 0 and exp(inf) is of infinite size.
  const Expr vanishes = two(ScalarOp::eq, size, number(0));
  const Expr endless = two(ScalarOp::logical_and, two(ScalarOp::eq, size, number(INFINITY)), two(ScalarOp::ne, sub(z.im, z.im), number(0)));
  return select(vanishes, real(0), select(endless, {size, number(NAN)}, nothing));
}

Complex ComplexMath::expm1(const Complex& z) const {
  const Expr half_sine = one(ScalarOp::sin, mul(z.im, number(0.5)));
  const Expr less = one(ScalarOp::expm1, z.re), versine = mul(number(2), mul(half_sine, half_sine));
  // (expm1(x) + 1) cos(y) - 1
  const Expr re = sub(less, mul(add(less, number(1)), versine));
  return {re, mul(add(less, number(1)), one(ScalarOp::sin, z.im))};
}

// For small z the logarithm of |1 + z| from |1 + z|^2 - 1, which does not cancel.
Complex ComplexMath::log1p(const Complex& z) const {
  const Complex w{add(z.re, number(1)), z.im};
  const Expr small = two(ScalarOp::lt, abs(z), number(0.5));
  const Expr square = add(mul(z.re, add(z.re, number(2))), mul(z.im, z.im));
  const Expr re = pool_.select(small, mul(number(0.5), one(ScalarOp::log1p, square)), one(ScalarOp::log, abs(w)));
  return {re, angle(w)};
}

Complex ComplexMath::pow(const Complex& base, const Complex& exponent) const { return exp(mul(exponent, log(base))); }

Complex ComplexMath::sinh(const Complex& z) const {
  const Expr flat = two(ScalarOp::eq, z.im, number(0)), s = one(ScalarOp::sinh, z.re), c = one(ScalarOp::cosh, z.re);
  return {mul(s, one(ScalarOp::cos, z.im)), pool_.select(flat, z.im, mul(c, one(ScalarOp::sin, z.im)))};
}

Complex ComplexMath::cosh(const Complex& z) const {
  const Expr flat = two(ScalarOp::eq, z.im, number(0)), s = one(ScalarOp::sinh, z.re), c = one(ScalarOp::cosh, z.re);
  // 0 * inf: cosh of a real number is real.
  const Expr real_im = pool_.select(two(ScalarOp::lt, z.re, number(0)), neg(z.im), z.im);
  return {mul(c, one(ScalarOp::cos, z.im)), pool_.select(flat, real_im, mul(s, one(ScalarOp::sin, z.im)))};
}

Complex ComplexMath::tanh(const Complex& z) const {
  const Expr t = one(ScalarOp::tan, z.im), s = one(ScalarOp::sinh, z.re), s2 = mul(s, s);
  const Expr beta = add(number(1), mul(t, t)), rho = one(ScalarOp::sqrt, add(number(1), s2));
  const Expr size = add(number(1), mul(beta, s2));
  const Complex r{div(mul(mul(beta, rho), s), size), div(t, size)};
  // Where sinh^2 nears the end of the range, tanh is +-1 but for an imaginary part of 4 sin cos exp(-2|x|).
  const Expr far = two(ScalarOp::gt, one(ScalarOp::abs, z.re), number(type_ == DType::f64 ? 22 : 10));
  const Expr fade = one(ScalarOp::exp, mul(number(-2), one(ScalarOp::abs, z.re)));
  const Expr tail = mul(mul(number(2), one(ScalarOp::sin, mul(number(2), z.im))), fade);
  const Expr im = pool_.select(one(ScalarOp::isinf, z.re), copysign(number(0), z.im), tail);
  return select(far, {copysign(number(1), z.re), im}, r);
}

Complex ComplexMath::asin(const Complex& z) const {
  const Complex minus = sqrt({sub(number(1), z.re), neg(z.im)}), plus = sqrt({add(number(1), z.re), z.im});
  return {two(ScalarOp::atan2, z.re, mul(minus, plus).re), one(ScalarOp::asinh, mul(conj(minus), plus).im)};
}

Complex ComplexMath::acos(const Complex& z) const {
  const Complex minus = sqrt({sub(number(1), z.re), neg(z.im)}), plus = sqrt({add(number(1), z.re), z.im});
  return {mul(number(2), two(ScalarOp::atan2, minus.re, plus.re)), one(ScalarOp::asinh, mul(conj(plus), minus).im)};
}

Complex ComplexMath::acosh(const Complex& z) const {
  const Complex minus = sqrt({sub(z.re, number(1)), z.im}), plus = sqrt({add(z.re, number(1)), z.im});
  return {one(ScalarOp::asinh, mul(conj(minus), plus).re), mul(number(2), two(ScalarOp::atan2, minus.im, plus.re))};
}

Complex ComplexMath::atanh(const Complex& z) const {
  // The real part is odd: of the positive number no digits cancel.
  const Expr x = one(ScalarOp::abs, z.re), near = sub(number(1), x), y2 = mul(z.im, z.im);
  const Expr quotient = div(mul(number(4), x), add(mul(near, near), y2));
  const Expr re = copysign(mul(number(0.25), one(ScalarOp::log1p, quotient)), z.re), less = sub(number(1), z.re);
  const Expr across = sub(mul(less, add(number(1), z.re)), y2);
  // On the cut beyond 1 the side is that of the sign of the imaginary part, as atan2 has it.
  return {re, mul(number(0.5), two(ScalarOp::atan2, mul(number(2), z.im), across))};
}

Complex ComplexMath::sinc(const Complex& z) const {
  const Complex w = scaled(z, number(3.14159265358979323846));
  return select(is_zero(z), real(1), div(sin(w), w));
}

// The one with the larger real part comes out of the logarithm. Two equal infinities give themselves.
Complex ComplexMath::logaddexp(const Complex& a, const Complex& b) const {
  const Expr a_first = two(ScalarOp::ge, a.re, b.re);
  const Complex top = select(a_first, a, b), rest = select(a_first, b, a);
  const Complex r = add(top, log1p(exp(sub(rest, top))));
  const Expr endless = two(ScalarOp::logical_and, two(ScalarOp::eq, a.re, b.re), one(ScalarOp::isinf, a.re));
  const Expr below = two(ScalarOp::lt, a.re, number(0));
  return select(endless, select(below, a, log(add(exp(a), exp(b)))), r);
}

Expr ComplexMath::equal(const Complex& a, const Complex& b) const {
  return two(ScalarOp::logical_and, two(ScalarOp::eq, a.re, b.re), two(ScalarOp::eq, a.im, b.im));
}

}  // namespace coil::lowering
