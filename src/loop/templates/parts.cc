#include "loop/templates/parts.h"

namespace coil {

void append_unpacked(Expr flat, const std::vector<Expr>& sizes, std::vector<Expr>& coordinates) {
  std::vector<Expr> out(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    if (d == 0 || sizes[d] == flat->pool->index(0)) {  // an empty result has no point to find coordinates for
      out[d] = flat;
      continue;
    }
    out[d] = floor_mod(flat, sizes[d]);
    flat = floor_div(flat, sizes[d]);
  }
  coordinates.insert(coordinates.end(), out.begin(), out.end());
}

void narrow_operand(Operand& operand, const std::vector<Expr>& at) {
  for (Expr& c : operand.coordinates) c = substitute_vars(c, at);
}

}  // namespace coil
