// sort, topk, kthvalue and the like: the sort template.
#include "lower/lowering.h"

namespace coil::lowering {
namespace {

Views sorted(Op& op, const View& x, int64_t dim_arg, Expr kept, bool descending) {
  if (x.rank() == 0) return {x, View{DType::i64, {}, op.pool.constant_int(0, DType::i64)}};
  const size_t dim = wrap_dim(dim_arg, x.rank());
  auto [values, indices] = op.rec.sort(op.name, x, static_cast<int>(dim), kept ? kept : x.sizes[dim], descending);
  return {values, indices};
}

Views sort(Op& op) {
  const bool descending = op.node.find("descending") && op.flag("descending");
  return sorted(op, op.tensor("self"), op.has("dim") ? op.integer("dim") : op.name == "msort" ? 0 : -1, Expr(), descending);
}

// The element of rank k (from 0) of a sorted row, as one slice of it.
Views kth(Op& op, const View& x, int64_t dim_arg, Expr k, bool keep) {
  if (x.rank() == 0) return sorted(op, x, 0, Expr(), false);
  const size_t dim = wrap_dim(dim_arg, x.rank());
  Views results = sorted(op, x, dim_arg, k + 1, false);
  for (View& v : results) {
    v = sliced(op, v, dim, k, op.pool.index(1));
    if (!keep) v = squeezed(op, v, dim);
  }
  return results;
}

}  // namespace

void add_sorting(Table& table) {
  for (const char* target : {"aten.sort.default", "aten.sort.stable", "aten.msort.default"}) table[target] = sort;
  for (const char* target : {"aten.argsort.default", "aten.argsort.stable"}) table[target] = [](Op& op) { return Views{sort(op)[1]}; };
  table["aten.topk.default"] = [](Op& op) { return sorted(op, op.tensor("self"), op.integer("dim"), op.index("k"), op.flag("largest")); };
  table["aten.kthvalue.default"] = [](Op& op) { return kth(op, op.tensor("self"), op.integer("dim"), op.index("k") - 1, op.flag("keepdim")); };
}

}  // namespace coil::lowering
