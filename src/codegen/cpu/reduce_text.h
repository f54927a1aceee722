// The text of one reduction: its accumulator, the step, and how lanes combine at the end.
#pragma once

#include <string>

#include "schedule/kernel_plan.h"

namespace coil::cpu {

// The length of an array of vectors: of `columns` lanes, in memory, or, if that is 0, of `vectors`, in registers.
std::string array_length(int vectors, int64_t columns);

struct ReduceText {
  int temp = -1;
  std::string accumulator;  // C++ name; argmax and argmin have a second one, accumulator + "i"
  std::string result;       // name of the finished value
  ReduceOp op = ReduceOp::sum;
  DType operand = DType::f32;
  bool vector = false;   // lanes accumulate apart
  int vectors = 1;       // and so many vectors: then the accumulator is an array
  int64_t columns = 0;   // ... in memory, for so many lanes at most, `whole` vectors of which are in use; 0: for `vectors`, in registers
  std::string element;   // of the array, in the text at hand: "[u]"
  bool combine = false;  // the lanes, and the vectors, are parts of one result
  bool small = false;    // of argmax and argmin: the points' numbers fit 32 bits
  bool blocks = false;   // a sum in blocks, see sum_blocks.h: those before the one at hand are in `whole`, accumulator + "s"

  static ReduceText make(const Stmt& s, int number, bool vector, int vectors, bool combine);
  bool is_array() const { return vectors > 1 || columns > 0; }
  std::string declare(const std::string& indent) const;
  // `number`: the point's number, for argmax and argmin. masked: only the first `lanes` lanes count.
  std::string update(const std::string& indent, const std::string& value, const std::string& number, bool masked) const;
  // The value of `element` without a name of its own.
  std::string in_place() const;
  // Behind a block of a sum: it goes to the whole sum, the next one begins.
  std::string add_block(const std::string& indent) const;
  std::string finish(const std::string& indent) const;
  // Of several vectors that are results of their own: the accumulators become the results.
  std::string finish_in_place(const std::string& indent) const;

 private:
  // The head of a loop over the array's vectors, `u`.
  std::string each_vector(const std::string& indent) const;
  // Puts the accumulators of several vectors into the first one.
  std::string join_vectors(const std::string& indent) const;
};

}  // namespace coil::cpu
