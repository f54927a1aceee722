#include "loop/dense.h"

namespace coil {

bool is_dense(const std::vector<Expr>& sizes, const std::vector<Expr>& strides) {
  if (strides.size() != sizes.size()) return false;
  if (sizes.empty()) return true;
  std::vector<char> done(sizes.size(), 0);
  const Expr one = sizes[0]->pool->index(1);
  Expr step = one;
  for (size_t placed = 0; placed < sizes.size(); ++placed) {
    size_t next = sizes.size();
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (!done[i] && (sizes[i] == one || one->pool->is_one(sizes[i]))) next = i;  // any stride will do
    }
    for (size_t i = sizes.size(); next == sizes.size() && i-- > 0;) {
      if (!done[i] && strides[i] == step) next = i;
    }
    if (next == sizes.size()) return false;
    done[next] = 1;
    step = step * sizes[next];
  }
  return true;
}

}  // namespace coil
