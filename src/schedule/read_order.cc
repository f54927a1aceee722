#include "schedule/read_order.h"

#include <algorithm>

namespace coil {

ReadOrder::ReadOrder(const KernelPlan& plan) {
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    if (const auto* read = std::get_if<ReadKernel>(&plan.kernels[k].def)) places_[read->symbol.index] = k;
  }
}

SymbolId ReadOrder::last(std::span<const Expr> exprs) const {
  SymbolId last;
  if (places_.empty()) return last;
  size_t latest = 0;
  for (Expr e : exprs) {
    if (!e || e->is_constant()) continue;
    visit(e, [&](Expr n) {
      const auto place = n->kind == ExprKind::symbol ? places_.find(n->id) : places_.end();
      if (place == places_.end() || (last.valid() && place->second <= latest)) return;
      last = SymbolId(n->id);
      latest = place->second;
    });
  }
  return last;
}

SymbolId last_data_symbol(const KernelPlan& plan, const std::vector<Expr>& exprs) {
  if (std::none_of(exprs.begin(), exprs.end(), [](Expr e) { return e && depends_on_data(e); })) return SymbolId();
  return ReadOrder(plan).last(exprs);
}

}  // namespace coil
