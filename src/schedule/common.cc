// Small helpers that several scheduling steps share.
#include <algorithm>

#include "expr/estimate.h"
#include "schedule/schedule.h"

namespace coil {

Expr linear_offset(ExprPool& pool, const BufferInfo& buffer, std::span<const Expr> coordinates) {
  CHECK(coordinates.size() == buffer.strides.size(), buffer.name);
  Expr sum = pool.index(0);
  for (size_t d = 0; d < coordinates.size(); ++d) sum = sum + coordinates[d] * buffer.strides[d];
  return sum;
}

std::optional<Expr> merged_stride(Expr offset, int first, std::span<const Expr> sizes) {
  ExprPool& pool = *offset->pool;
  const Expr one = pool.index(1);
  std::optional<Expr> innermost;
  Expr inside = one;  // points of the dimensions inside k
  for (size_t k = sizes.size(); k-- > 0;) {
    if (sizes[k] == one) continue;
    const auto affine = as_affine(offset, first + static_cast<int>(k));
    if (!affine) return std::nullopt;
    if (!innermost) {
      innermost = affine->coefficient;
    } else if (!(affine->coefficient == *innermost * inside)) {
      return std::nullopt;  // does not step over exactly what is inside it
    }
    inside = inside * sizes[k];
  }
  return innermost ? innermost : std::optional<Expr>(one);
}

int64_t first_step(Expr offset, int var) {
  if (!depends_on_var(offset, var) || any_of(offset, [](Expr e) { return e->dtype != DType::index || e->kind == ExprKind::temp; }))
    return 0;  // data has another type
  ExprPool& pool = *offset->pool;
  std::vector<Expr> at(static_cast<size_t>(var) + 1, pool.index(0));
  visit(offset, [&](Expr e) {
    if (e->kind == ExprKind::var && static_cast<size_t>(e->id) >= at.size()) at.resize(static_cast<size_t>(e->id) + 1, pool.index(0));
  });
  const int64_t begin = typical(substitute_vars(offset, at));
  at[static_cast<size_t>(var)] = pool.index(1);
  return typical(substitute_vars(offset, at)) - begin;
}

int64_t typical(Expr e) {
  ExprPool& pool = *e->pool;
  // In floating point: a range may begin at any number, and products of such sizes leave int64.
  const double value = estimate_index(e, [&](SymbolId id) {
    const Symbol& s = pool.symbol_info(id);
    return static_cast<double>(std::clamp<int64_t>(61, s.min, std::max(s.min, s.max)));
  });
  constexpr double kMost = 0x1p62;
  return static_cast<int64_t>(std::clamp(value, -kMost, kMost));
}

}  // namespace coil
