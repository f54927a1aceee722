// For looking at definitions by their kind.
#pragma once

#include <initializer_list>
#include <vector>

#include "expr/expr.h"

namespace coil {

// One function object of several, for std::visit.
template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

// The sizes of a definition's variables, which its parts number one after the other.
inline std::vector<Expr> joined_sizes(std::initializer_list<const std::vector<Expr>*> parts) {
  std::vector<Expr> all;
  for (const std::vector<Expr>* part : parts) all.insert(all.end(), part->begin(), part->end());
  return all;
}

}  // namespace coil
