// Writes to the elements of a tensor at positions that are data (scatter, index_add, put, ...), and what joins those that reach the same element.
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "base/function_ref.h"
#include "lower/lowering.h"

namespace coil::lowering {

// How writes to the same place join, and whether the old value joins them.
struct Joining {
  ReduceOp reduce = ReduceOp::sum;
  bool mean = false, with_self = true;
};

// All writes are of slices along a dimension: the checked place (i64) that slice k of a vector goes to.
struct SliceWrites {
  size_t dim;
  std::function<Expr(Expr k)> place;
};

// They are elements of a tensor of these sizes, at whose coordinates they bring something: the checked coordinate along `dim` (i64) of the
// element that the one at `at` goes to; the others are the same.
struct ElementWrites {
  Sizes sizes;
  size_t dim;
  std::function<Expr(Coordinates at)> coordinate;
};

// What writes to the elements of a tensor of these sizes.
struct Writes {
  Sizes sizes;
  Sizes domain;                                       // of the writes
  std::function<Expr(Coordinates, Coordinates)> hit;  // whether write k of the domain reaches element c
  std::variant<SliceWrites, ElementWrites> way;
};

// For each element what reduce makes of value(c, k) of the writes k that reach it; `none` where there is no such write. Many elements may
// join what is `before` them.
View joined(Op& op, const std::string& name, ReduceOp reduce, DType type, const Writes& w, Expr none, FunctionRef<Expr(Coordinates, Coordinates)> value,
            const std::optional<View>& before = {});

// x with elements written over, value(at) each at its own coordinates; the last one stays. Nothing where that is not the way.
std::optional<View> written_elements(Op& op, const View& x, const Writes& w, FunctionRef<Expr(Coordinates)> value);

// Joins x with writes: value(c, k) is what write k brings to element c.
View joined_writes(Op& op, const View& x, const Joining& j, const Writes& w, FunctionRef<Expr(Coordinates, Coordinates)> value);

}  // namespace coil::lowering
