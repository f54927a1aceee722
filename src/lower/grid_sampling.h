// Positions between the points of an image or a volume, as grid_sampler and its gradient see them.
#pragma once

#include <array>

#include "lower/lowering.h"

namespace coil::lowering {

// Arithmetic on floating expressions of one type.
struct Math {
  ExprPool& p;
  DType type;
  Expr c(double v) const { return p.constant(v, type); }
  Expr add(Expr a, Expr b) const { return p.op(ScalarOp::add, {a, b}); }
  Expr sub(Expr a, Expr b) const { return p.op(ScalarOp::sub, {a, b}); }
  Expr mul(Expr a, Expr b) const { return p.op(ScalarOp::mul, {a, b}); }
  Expr div(Expr a, Expr b) const { return p.op(ScalarOp::div, {a, b}); }
  Expr f(ScalarOp s, Expr a) const { return p.op(s, {a}); }
  Expr size(Expr index) const { return as(p.cast(index, DType::i64), type); }
};

enum : int64_t { kBilinear = 0, kNearest = 1, kBicubic = 2, kZeros = 0, kBorder = 1, kReflection = 2 };

// What is read between the points of an image, where, and how.
struct Sampling {
  View x, grid;
  int64_t mode, padding;
  bool align;
};

// Of a node's arguments: cuDNN's operators have none for bilinear reads between corners with zeros outside.
Sampling sampling_of(const Op& op);

// A position in pixels, moved inside the image as the padding mode says.
Expr inside_image(const Math& m, Expr x, Expr size, int64_t padding, bool align);
// From [-1, 1] to positions in pixels.
Expr pixel(const Math& m, Expr g, Expr size, int64_t padding, bool align);
// Keys' cubic with A = -0.75, at distance t from the second of four taps.
std::array<Expr, 4> cubic_weights(const Math& m, Expr t);

}  // namespace coil::lowering
