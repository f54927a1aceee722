// Rows of a product's operand, quantised to 8 bits while the program runs: for products with quantised weights, where the user asks for it.
#pragma once

#include <map>
#include <vector>

#include "lower/dequantised.h"

namespace coil {

// Of a row x of k: its greatest |x|, and round(x * 127 / greatest) as i8, so that a number stands for number * greatest / 127. A row of zeros
// has zeros; of a row with a NaN or an infinity the numbers mean nothing, but times the scale they make NaN or infinities of all results.
class RowQuantiser {
 public:
  // Loops of `program`, which gains buffers, are added to `before`.
  RowQuantiser(LoopProgram& program, std::vector<Loop>& before) : program_(program), pool_(*program.pool), before_(before) {}

  // Operand a of a product without a batch, over its variables m..., n, k; quantised once for all products that read it alike.
  Dequantised rows(const Loop& loop, const Gemm& g);

 private:
  struct Made {
    BufferId greatest, numbers;
  };
  Made make(const Loop& loop, const Gemm& g);

  LoopProgram& program_;
  ExprPool& pool_;
  std::vector<Loop>& before_;
  std::map<std::vector<int32_t>, Made> made_;  // by the buffer and its coordinates
};

}  // namespace coil
