// What attention and its gradient share.
#pragma once

#include <optional>

#include "lower/lowering.h"

namespace coil::lowering {

struct AttentionProblem {
  View q, k, v;  // [batch, heads, length, dim]
  std::optional<View> mask;
  bool causal = false;
  double scale = 1;
  double dropout = 0;
};

// The arguments query, key, value, the mask of that name (null: none), is_causal, scale and dropout_p.
AttentionProblem attention_problem(Op& op, const char* mask_name);
// softmax(q k^T * scale + mask) v, [batch, heads, rows of q, dim of v], of `dtype`: the template where it fits, else products and a softmax.
View attention_of(Op& op, const AttentionProblem& p, DType dtype);
// Grouped-query: each head of k and v serves several of q.
View for_all_heads(Op& op, const View& v, Expr heads);
// q k^T * scale + mask at a point, of products [batch, heads, row, column]; where nothing is to be seen, the lowest number.
Expr attention_score(Op& op, const AttentionProblem& p, const View& products, DType type, Coordinates c);

}  // namespace coil::lowering
