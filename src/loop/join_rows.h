// What the options of the routine join_rows say (device/library/join_rows.cc describes it): the lowering writes them, and whoever computes the routine on
// another way than by the library reads them.
#pragma once

#include "device/cuda/join_rules.h"
#include "loop/loop.h"

namespace coil {

struct JoinRows {
  enum How : int64_t {
    sum = cd::kJoinSum,
    product = cd::kJoinProduct,
    largest = cd::kJoinLargest,
    smallest = cd::kJoinSmallest,
    last = cd::kJoinLast
  } how = sum;
  bool whole = false;  // the table at first is given, not one element for all of it
  // Which values row k brings: its own, the only ones, those of a row that a vector names, or (not on the CPU) its number k / sizes[3] % sizes[4].
  enum Whose : int64_t { own = cd::kJoinOwn, shared = cd::kJoinShared, chosen = cd::kJoinChosen, number = cd::kJoinNumber } whose = own;
  // Not 0: row k names one of the sizes[3] rows of the table's part k / part, or none, and the table is 0 at first; so each part is summed up by itself.
  int64_t part = 0;
  bool turned = false;  // values lie by columns

  // nullopt: another routine.
  static std::optional<JoinRows> of(const Library& def) {
    const std::vector<int64_t>& o = def.options;
    if (def.routine != "join_rows" || (o.size() != 3 && o.size() != 5)) return std::nullopt;
    JoinRows join{static_cast<How>(o[0]), o[1] != 0, static_cast<Whose>(o[2])};
    if (o.size() == 5) join.part = o[3], join.turned = o[4] != 0;
    return join;
  }
  // What the rows of one place become together; of the last one, which stays alone, any.
  ReduceOp reduction() const {
    switch (how) {
      case product: return ReduceOp::prod;
      case largest: return ReduceOp::max;
      case smallest: return ReduceOp::min;
      default: return ReduceOp::sum;
    }
  }
  std::vector<int64_t> options() const {
    if (part == 0) return {how, whole, whose};
    return {how, whole, whose, part, turned};
  }
};

}  // namespace coil
