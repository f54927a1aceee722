// Which of neighbouring segments of a row a place is in.
#pragma once

#include <algorithm>
#include <bit>

#include "lower/formula.h"

namespace coil::lowering {

// How many of `groups` segments end at `place` or before, by bisection: the number (i64) of the one that holds the place, if one does. end(k): of the type of
// `place`, where the segment ends that the index k names, in order.
template <class End>
Val segments_before(Op& op, Expr groups, Val place, const End& end) {
  ExprPool& p = op.pool;
  const Val number = p.cast(groups, DType::i64);
  constexpr int64_t kMost = int64_t{1} << 40;
  Val found = p.constant_int(0, DType::i64);
  for (uint64_t step = std::bit_floor(static_cast<uint64_t>(std::clamp<int64_t>(upper_bound(groups).value_or(kMost), 1, kMost))); step > 0; step /= 2) {
    const Val next = found + static_cast<double>(step);
    const Expr last = p.checked_index(max(min(next - 1.0, number - 1.0), 0.0).e, index_max(groups, p.index(1)));
    found = select(Val(masked((next <= number).e, (end(last) <= place).e, p.boolean(false))), next, found);
  }
  return found;
}

}  // namespace coil::lowering
