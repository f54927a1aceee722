#include "expr/sum.h"

namespace coil {

Expr sum(ExprPool& pool, std::vector<Expr> terms) {
  if (terms.empty()) return pool.index(0);
  while (terms.size() > 1) {
    size_t kept = 0;
    for (size_t i = 0; i < terms.size(); i += 2) terms[kept++] = i + 1 < terms.size() ? terms[i] + terms[i + 1] : terms[i];
    terms.resize(kept);
  }
  return terms[0];
}

}  // namespace coil
