// A kernel's Choice as a type with names. Such a type has four int32_t members, in the order of the table that generated code reads, and
// kNames: what a tuning record calls them. A kind of kernel has its own, see codegen/cpu/choice_types.h and codegen/cuda/choices.h.
#pragma once

#include <array>
#include <bit>
#include <string>

#include "schedule/kernel_plan.h"

namespace coil {

using ChoiceNames = std::array<const char*, 4>;  // "": no such number

template <class T>
T as(const Choice& choice) {
  return std::bit_cast<T>(choice.values);
}
template <class T>
Choice choice_of(const T& named) {
  return {std::bit_cast<decltype(Choice::values)>(named)};
}

// "block_tiles": what a member is called, in records and in generated code.
template <class T>
const char* name_of(int32_t T::* member) {
  T probe = as<T>(Choice{});
  probe.*member = 1;
  const auto values = choice_of(probe).values;
  size_t place = 0;
  while (values[place] == 0) ++place;
  return T::kNames[place];
}
// "    const auto& [kind, rows, columns, split] = kChoices[3];": what the host program calls the numbers of a row of its table.
std::string declare_choice(const ChoiceNames& names, const std::string& row);
// "kind == 2 && rows == 64 && columns == 32 && split == 1": whether the numbers so declared are the choice's.
std::string is_declared(const ChoiceNames& names, const Choice& choice);

}  // namespace coil
