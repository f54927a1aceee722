// Attention.
#pragma once

#include <optional>

#include "loop/templates/parts.h"

namespace coil {

// out[batch, heads, q_len, v_dim] = softmax(q k^T * scale + mask) v. Variables of each operand: batch, head, row, column.
// k and v have kv_heads heads (heads % kv_heads == 0). mask: absent, bool (true attends) or float (added), broadcast. With highest_fill, what
// is false or at most that takes the place of the score, as masked_fill does, whatever the score is: a hidden NaN stays hidden.
struct Attention {
  Expr batch, heads, kv_heads, q_len, kv_len, dim, v_dim;
  Operand q, k, v;
  std::optional<Operand> mask;
  std::optional<double> highest_fill;  // negative
  bool causal = false;
  bool masked_rows_zero = true;  // queries whose keys are all hidden give 0, else NaN
  double scale = 1.0;

  static constexpr const char* kName = "attention";
  static constexpr bool kTakesEpilogue = false;
  static constexpr bool kChecksData = false;
  static constexpr const char* kSummed = "keys";
};

TemplateParts parts(Attention& def);
std::string highest_fill_text(const Attention& def);  // of C++: a float, NaN for none
std::string problem(const LoopProgram& program, const Loop& loop, const Attention& def);
std::string text(const LoopText& words, const Attention& def);
void read(LoopReader& words, Attention& def);  // what text() wrote
DimRange narrowable(const Attention& def, size_t dim, const DimRange& wanted, Expr size);
void narrow(Attention& def, const std::vector<DimRange>& ranges, const std::vector<Expr>& at);
TemplateTiles tiles(ExprPool& pool, const Attention& def, const std::vector<Expr>& results);
std::optional<std::vector<Expr>> own_strides(ExprPool& pool, const Attention& def, const std::vector<Expr>& results);
Expr operations(ExprPool& pool, const Attention& def, const std::vector<Expr>& results);
std::vector<Expr> work_sizes(const Attention& def, const std::vector<Expr>& results);
TemplateLimits limits(ExprPool& pool, const Attention& def, const std::vector<Expr>& results);

}  // namespace coil
