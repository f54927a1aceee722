// What eager's operators refuse of types that no table of kinds says: checks of single operators, and what both files of checks are written in.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "lower/lowering.h"

namespace coil::lowering {

// A tensor among a node's arguments.
struct RuleOperand {
  std::string_view argument;
  DType type;
  bool single;  // of rank 0: perhaps a number of Python's, which takes the tensors' type
  bool none;    // without elements
  size_t rank;
};

// f, i, b, c: floating-point numbers, integers, booleans, complex numbers.
char kind_of(DType type);

// Fails: the operator takes numbers of these kinds alone, as the argument unless that is empty.
[[noreturn]] void refuse(const Op& op, std::string_view argument, std::string_view kinds, DType type);

// Eager multiplies matrices of booleans where there is nothing to add up, and says that it cannot anywhere else.
bool is_empty_product(const Op& op, const std::vector<RuleOperand>& operands);

// Fails where the types differ.
void same_type(const Op& op, DType a, DType b);

// What the result's type alone forbids.
void check_result_types(const Op& op);
// What the types of the operands (at least one) forbid to single operators.
void check_single_operators(const Op& op, const std::vector<RuleOperand>& operands);

}  // namespace coil::lowering
