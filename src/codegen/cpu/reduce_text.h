// The text of one reduction: its accumulator, the step, and how lanes combine at the end.
#pragma once

#include <string>

#include "schedule/kernel_plan.h"

namespace coil::cpu {

struct ReduceText {
  int temp = -1;
  std::string accumulator;  // C++ name; argmax and argmin have a second one, accumulator + "i"
  std::string result;       // name of the finished value
  ReduceOp op = ReduceOp::sum;
  DType operand = DType::f32;
  bool vector = false;      // lanes accumulate apart
  int vectors = 1;          // and so many vectors: then the accumulator is an array
  std::string element;      // of the array, in the text at hand: "[u]"

  static ReduceText make(const Stmt& s, int number, bool vector, int vectors);
  std::string declare(const std::string& indent) const;
  // `number`: the point's number, for argmax and argmin. masked: only the first `lanes` lanes count.
  std::string update(const std::string& indent, const std::string& value, const std::string& number, bool masked) const;
  // The value of `element` without a name of its own.
  std::string in_place() const;
  // combine: the lanes, and the vectors, are parts of one result.
  std::string finish(const std::string& indent, bool combine) const;
};

}  // namespace coil::cpu
