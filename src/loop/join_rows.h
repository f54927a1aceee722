// What the options of the routine join_rows say (device/library/join_rows.cc describes it): the lowering writes them, and whoever computes the routine on
// another way than by the library reads them.
#pragma once

#include "loop/loop.h"

namespace coil {

struct JoinRows {
  enum How : int64_t { sum, product, largest, smallest, last } how = sum;
  bool whole = false;  // the table at first is given, not one element for all of it
  // Which values row k brings: its own, the only ones, those of a row that a vector names, or (not on the CPU) its number k / sizes[3] % sizes[4].
  enum Whose : int64_t { own, shared, chosen, number } whose = own;

  // nullopt: another routine.
  static std::optional<JoinRows> of(const Library& def) {
    if (def.routine != "join_rows" || def.options.size() != 3) return std::nullopt;
    return JoinRows{static_cast<How>(def.options[0]), def.options[1] != 0, static_cast<Whose>(def.options[2])};
  }
  std::vector<int64_t> options() const { return {how, whole, whose}; }
};

}  // namespace coil
