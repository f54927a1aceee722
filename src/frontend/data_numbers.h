// Numbers that a program reads from tensors (x.item()) and computes with in Python, as operators on 0-d tensors: int64, float64
// or bool. They may be operands, arguments of type Scalar and conditions of assertions, but never sizes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace coil {

class DataNumbers {
 public:
  // Adds nodes to `graph` in place of `node`: with its name and origins.
  DataNumbers(Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  // x.item() as a number of this type. Errors: bad_program (not one element).
  Result<ValueId> read(ValueId tensor, DType dtype, std::string name);
  // "_operator.ge" and the like on numbers, of which at least one is a ValueId; the others are Expr, double or bool.
  // Errors: unsupported_feature for an operator that has no counterpart.
  Result<ValueId> compute(std::string_view python_operator, const std::vector<Argument>& operands, DType dtype, std::string name);
  // An assertion about a 0-d bool tensor (or an index expression: 0 fails).
  void assert_true(Argument condition, std::string message);

 private:
  ValueId add(std::string target, std::vector<std::pair<std::string, Argument>> args, DType dtype, std::string name);
  DType type_of(const Argument& number) const;
  ValueId converted(ValueId v, DType dtype);
  ValueId number(const Argument& a, DType dtype);  // as a tensor of this type

  Graph& graph_;
  const Node& node_;
};

}  // namespace coil
