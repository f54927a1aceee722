// Sympy expressions as trees, of both texts that programs hold: srepr ("Add(Symbol('s77', integer=True), Integer(-1))"), and of PyTorch 2.5 and 2.6
// what str() makes of them ("s77 - 1", "((s0 + 1)//2)").
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace coil {

// The names are srepr's for either text: Add, Mul, Symbol, Integer, FloorDiv. Views into the text.
struct SympyTree {
  std::string_view head;  // "Add"; "true" and "false" for themselves
  std::string_view text;  // the string of Symbol and Float, the digits of a bare number
  std::vector<SympyTree> args;
};

// Errors: bad_program (neither text, too long, too deep).
Result<SympyTree> parse_sympy(std::string_view text);

}  // namespace coil
