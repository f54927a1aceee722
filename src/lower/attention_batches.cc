#include "lower/attention_batches.h"

#include <algorithm>
#include <set>

namespace coil {
namespace {

// Two neighbours of a product's batches joined: the first and the second, or the second and the third.
AttentionBatches joined(ExprPool& pool, const std::vector<Expr>& sizes, bool last) {
  const Expr inner = sizes[last ? 2 : 1], b = pool.var(0), h = pool.var(1), third = pool.var(2);
  if (last) return {sizes[0], sizes[1] * inner, {b, floor_div(h, inner), floor_mod(h, inner)}, {b, h * inner + third}};
  return {sizes[0] * inner, sizes[2], {floor_div(b, inner), floor_mod(b, inner), h}, {b * inner + h, third}};
}

template <class F>
void each_division(const Attention& a, F&& f) {
  for (const Operand* o : {&a.q, &a.k, &a.v}) {
    for (Expr c : o->coordinates) {
      visit(c, [&](Expr e) {
        if ((e->is_op(ScalarOp::idiv) || e->is_op(ScalarOp::imod)) && (depends_on_var(e->args[0], 0) || depends_on_var(e->args[0], 1))) f(e);
      });
    }
  }
}

}  // namespace

bool AttentionBatches::is_plain() const {
  if (of_point.size() != 2) return false;
  ExprPool& pool = *batch->pool;
  return of_point[0] == pool.var(0) && of_point[1] == pool.var(1);
}

std::vector<Expr> AttentionBatches::point_of(const std::vector<Expr>& coordinates, bool turned) const {
  std::vector<Expr> point;
  for (Expr e : to_point) point.push_back(substitute_vars(e, coordinates));
  const size_t row = of_point.size();
  point.push_back(coordinates[turned ? row + 1 : row]);
  point.push_back(coordinates[turned ? row : row + 1]);
  return point;
}

std::vector<AttentionBatches> ways_to_split(ExprPool& pool, const std::vector<Expr>& batch) {
  const Expr zero = pool.index(0), one = pool.index(1), b = pool.var(0), h = pool.var(1);
  switch (batch.size()) {
    case 0: return {{one, one, {}, {zero, zero}}};
    case 1: return {{one, batch[0], {h}, {zero, b}}};
    case 2: return {{batch[0], batch[1], {b, h}, {b, h}}};
    case 3: return {joined(pool, batch, true), joined(pool, batch, false)};
    default: return {};
  }
}

void append_split(ExprPool& pool, Expr size, int64_t heads, std::vector<AttentionBatches>& ways) {
  const Expr count = pool.index(heads), batch = floor_div(size, count);
  if (heads < 2 || !provably_equal(batch * count, size)) return;
  const Expr n = pool.var(0);
  ways.push_back({batch, count, {n * count + pool.var(1)}, {floor_div(n, count), floor_mod(n, count)}});
}

int64_t count_divisions(const Attention& a) {
  int64_t n = 0;
  each_division(a, [&](Expr) { ++n; });
  return n;
}

std::vector<int64_t> divisors_of_heads(const Attention& a) {
  std::set<int64_t> found;
  each_division(a, [&](Expr e) {
    if (e->args[1]->is_constant()) found.insert(e->args[1]->as_int());
  });
  return {found.begin(), found.end()};
}

}  // namespace coil
