// See grouped_heads.h.
#include "schedule/grouped_heads.h"

#include <optional>

namespace coil {
namespace {

// A group's first head of an operand, if the other heads of the group repeat it.
std::optional<Operand> first_of_group(ExprPool& pool, const Operand& x, int64_t group, const VarRanges& ranges) {
  std::vector<Expr> first, renumbered;
  for (int v = 0; v < 4; ++v) first.push_back(pool.var(v));
  renumbered = first;
  first[1] = floor_div(first[1], pool.index(group)) * group;
  renumbered[1] = renumbered[1] * group;
  Operand found = x;
  for (Expr& c : found.coordinates) {
    if (simplify_index(substitute_vars(c, first), ranges) != simplify_index(c, ranges)) return std::nullopt;
    c = simplify_index(substitute_vars(c, renumbered), {});
  }
  return found;
}

}  // namespace

void group_heads(ExprPool& pool, Attention& a, const VarRanges& ranges) {
  if (!a.heads->is_constant() || a.kv_heads != a.heads) return;
  const int64_t heads = a.heads->as_int();
  for (int64_t group = heads; group > 1; --group) {
    if (heads % group != 0) continue;
    std::optional<Operand> k = first_of_group(pool, a.k, group, ranges), v = first_of_group(pool, a.v, group, ranges);
    if (!k || !v) continue;
    a.k = std::move(*k), a.v = std::move(*v);
    a.kv_heads = pool.index(heads / group);
    return;
  }
}

}  // namespace coil
