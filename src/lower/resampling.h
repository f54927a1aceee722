// What the operators that resize images share.
#pragma once

#include <functional>
#include <optional>

#include "lower/lowering.h"

namespace coil::lowering {

// How many steps of the result make one of the image along its dimension i of `dims`, where the call says so.
std::optional<double> given_factor(const Op& op, size_t i, size_t dims);

// Dimension i of the `dims` of an image, and what it becomes.
struct Resized {
  Expr in, out;
  size_t i, dims;
};

// The pixel of the image that a place of the result shows; `exact`: the one around its middle.
Expr nearest_pixel(Op& op, const Resized& r, Expr place, bool exact);
// Where a place of the result lies between the pixels of the image, which may be outside of it.
Expr resized_point(Op& op, const Resized& r, Expr place, bool align, DType type);

// Where the points of one dimension of the result lie between those of the image: the same for all others, so it is stored.
struct Places {
  Expr size;       // of the image
  View low, high;  // the pixels around it, i64
  View weight;     // of the second one
};
Places places(Op& op, const Resized& r, bool align, DType type);

// Which places of the result may have read a pixel of the image, neighbours of each other, and with what weight.
struct Readers {
  Expr terms;                             // how many, at most as many as there are
  std::function<Expr(Expr pixel)> begin;  // the first of them, clamped
  std::function<Expr(Expr pixel, Expr place)> weight;
};
// The sums of a gradient's places along dimension d with their weights: the gradient of the image's pixels there.
View gathered_from_readers(Op& op, const View& grad, size_t d, Expr pixels, const Readers& readers, DType type);

// Eager's processors resize images of bytes by whole numbers, whose results are not those of a formula that is rounded.
bool resizes_bytes(const Op& op);
Views resized_bytes(Op& op, bool cubic, bool antialiased);

}  // namespace coil::lowering
