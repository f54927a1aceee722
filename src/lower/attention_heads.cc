#include "lower/attention_heads.h"

namespace coil {

Expr of_kv_head(Expr c, Expr heads, int64_t group, int64_t rest) {
  ExprPool& pool = *heads->pool;
  const std::vector<Expr> vars{pool.var(0), pool.var(1) * group + rest, pool.var(2), pool.var(3)};
  const Expr far = pool.index(int64_t{1} << 31);
  const std::vector<Expr> sizes{far, pool.index(heads->as_int() / group), far, far};
  return simplify_index(substitute_vars(c, vars), VarRanges{sizes});
}

namespace {

bool same_within_group(const Operand& o, Expr heads, int64_t group) {
  for (Expr c : o.coordinates) {
    for (int64_t r = 1; r < group; ++r) {
      if (of_kv_head(c, heads, group, r) != of_kv_head(c, heads, group, 0)) return false;
    }
  }
  return true;
}

}  // namespace

int64_t group_of(const Operand& o, Expr heads) {
  ExprPool& pool = *heads->pool;
  int64_t group = 1;
  for (Expr c : o.coordinates) {
    visit(c, [&](Expr e) {
      if (e->is_op(ScalarOp::idiv) && e->args[0] == pool.var(1) && e->args[1]->is_constant()) group = e->args[1]->as_int();
    });
  }
  const bool divides = heads->is_constant() && group > 1 && group <= 64 && heads->as_int() % group == 0;
  return divides && same_within_group(o, heads, group) ? group : 1;
}

}  // namespace coil
