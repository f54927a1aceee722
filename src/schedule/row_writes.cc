#include "schedule/row_writes.h"

#include <algorithm>

#include "loop/guard_positions.h"
#include "schedule/lets.h"

namespace coil {
namespace {

bool reads_element(Expr e, BufferId buffer, Expr offset) { return e->kind == ExprKind::load && e->id == buffer.index && e->args[0] == offset; }

std::vector<Expr> conjuncts(Expr e) {
  if (!e->is_op(ScalarOp::logical_and)) return {e};
  std::vector<Expr> all = conjuncts(e->args[0]);
  for (const Expr part : conjuncts(e->args[1])) all.push_back(part);
  return all;
}

Expr conjunction(ExprPool& pool, const std::vector<Expr>& parts) {
  Expr all;
  for (const Expr part : parts) all = all ? pool.op(ScalarOp::logical_and, {all, part}) : part;
  return all;
}

// An index as a number of i64 is that index.
Expr index_in(Expr e) { return e->is_op(ScalarOp::cast) && e->args[0]->dtype == DType::index ? e->args[0] : e; }

// One coordinate of an axis.
struct OneCoordinate {
  int axis;
  Expr at;      // the coordinate, an index that stays in range
  Expr exists;  // null, or that the number is a coordinate at all
};

// What "a == b" says of an axis.
std::optional<OneCoordinate> one_coordinate(const LoopKernel& k, Expr a, Expr b) {
  const Expr var = index_in(a), other = index_in(b);
  if (var->kind != ExprKind::var || depends_on_var(other, var->id)) return std::nullopt;
  const Expr size = k.axes[static_cast<size_t>(var->id)].size;
  if (!provably_nonnegative(size - 1)) return std::nullopt;
  if (other->is_op(ScalarOp::checked_index) && other->args[1] == size) return OneCoordinate{var->id, other, {}};
  ExprPool& pool = *var->pool;
  const bool integer = other->dtype == DType::index || other->dtype == DType::i64 || other->dtype == DType::i32;
  if (!integer) return std::nullopt;
  const Expr number = pool.cast(other, DType::i64);
  const Expr exists = pool.op(
      ScalarOp::logical_and, {pool.op(ScalarOp::ge, {number, pool.constant_int(0, DType::i64)}), pool.op(ScalarOp::lt, {number, pool.cast(size, DType::i64)})});
  return OneCoordinate{var->id, pool.checked_index(clamped_position(number, size), size), exists};
}

std::optional<OneCoordinate> one_coordinate(const LoopKernel& k, Expr part) {
  if (!part->is_op(ScalarOp::eq)) return std::nullopt;
  if (auto found = one_coordinate(k, part->args[0], part->args[1])) return found;
  return one_coordinate(k, part->args[1], part->args[0]);
}

// The loops without the axis, of which only one coordinate counts.
void drop_axis(LoopKernel& k, const OneCoordinate& one, std::vector<Stmt>& stores, std::vector<Expr>& parts) {
  ExprPool& pool = *one.at->pool;
  std::vector<Expr> now;
  for (int a = 0; a < static_cast<int>(k.axes.size()); ++a) now.push_back(pool.var(a > one.axis ? a - 1 : a));
  std::vector<Expr> at = now;
  at[static_cast<size_t>(one.axis)] = substitute_vars(one.at, now);
  for (Stmt& store : stores) {
    for (Expr* e : {&store.value, &store.offset}) *e = substitute_vars(*e, at);
  }
  for (Expr& part : parts) part = substitute_vars(part, at);
  if (one.exists) parts.push_back(substitute_vars(one.exists, now));
  k.axes.erase(k.axes.begin() + one.axis);
  --k.num_outer;
}

}  // namespace

std::optional<RowWrite> find_row_write(const LoopKernel& k, BufferId made) {
  if (k.num_outer != static_cast<int>(k.axes.size()) || k.sequential || !k.scratch.empty()) return std::nullopt;
  std::optional<size_t> row;
  for (size_t i = 0; i < k.stmts.size(); ++i) {
    const Stmt& s = k.stmts[i];
    if (s.kind != Stmt::Kind::let && s.kind != Stmt::Kind::store) return std::nullopt;
    if (s.kind != Stmt::Kind::store || s.buffer != made) continue;
    if (row || s.condition) return std::nullopt;
    row = i;
  }
  if (!row) return std::nullopt;
  const Stmt& store = k.stmts[*row];
  Lets lets;
  for (const Stmt& s : k.stmts) lets.add(s);
  const Expr outside = lets.behind(store.value);
  if (!outside->is_op(ScalarOp::masked) && !outside->is_op(ScalarOp::select)) return std::nullopt;
  const std::optional<Expr> whole = lets.expand(outside);
  if (!whole || (!(*whole)->is_op(ScalarOp::masked) && !(*whole)->is_op(ScalarOp::select))) return std::nullopt;
  const Expr value = *whole;
  RowWrite write{*row, {}, value->args[0], value->args[1]};
  Expr kept = value->args[2];
  if (kept->kind != ExprKind::load || kept->args[0] != store.offset) {
    std::swap(kept, write.value);
    write.condition = kept->pool->op(ScalarOp::logical_not, {write.condition});
  }
  if (kept->kind != ExprKind::load || kept->args[0] != store.offset) return std::nullopt;
  write.old = BufferId(kept->id);
  bool alone = true;
  for (const Stmt& s : k.stmts) {
    for (const Expr e : {s.value, s.offset, s.condition}) {
      if (e)
        visit(e, [&](Expr n) {
          alone = alone && (n->kind != ExprKind::load || n->id != kept->id || reads_element(n, write.old, store.offset)) &&
                  (n->kind != ExprKind::load || n->id != made.index);
        });
    }
  }
  return alone ? std::optional(write) : std::nullopt;
}

LoopKernel only_new_elements(LoopKernel k, const std::vector<RowWrite>& writes, Expr allowed) {
  ExprPool& pool = *writes[0].value->pool;
  const auto all = static_cast<size_t>(std::count_if(k.stmts.begin(), k.stmts.end(), [](const Stmt& s) { return s.kind == Stmt::Kind::store; }));
  const auto allowed_too = [&](std::vector<Expr> parts, bool first) {
    if (allowed) parts.insert(first ? parts.begin() : parts.end(), allowed);
    return conjunction(pool, parts);
  };
  if (all != writes.size()) {  // what others store needs the loops as they are
    for (const RowWrite& w : writes) k.stmts[w.store].condition = allowed_too(conjuncts(w.condition), false);
    return k;
  }
  std::vector<Stmt> stores;
  for (const RowWrite& w : writes) stores.push_back(k.stmts[w.store]), stores.back().value = w.value;
  // An axis goes where all writes are at the same coordinate of it.
  const bool same = std::all_of(writes.begin(), writes.end(), [&](const RowWrite& w) { return w.condition == writes[0].condition; });
  std::vector<Expr> parts = same ? conjuncts(writes[0].condition) : std::vector<Expr>();
  for (size_t i = 0; i < parts.size();) {
    const std::optional<OneCoordinate> one = one_coordinate(k, parts[i]);
    if (!one) {
      ++i;
      continue;
    }
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i));
    drop_axis(k, *one, stores, parts);
    i = 0;
  }
  for (size_t i = 0; i < stores.size(); ++i) stores[i].condition = allowed_too(same ? parts : conjuncts(writes[i].condition), true);
  k.stmts = std::move(stores);
  return k;
}

}  // namespace coil
