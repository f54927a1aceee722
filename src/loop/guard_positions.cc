#include "loop/guard_positions.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

namespace coil {
namespace {

bool may_be_empty(Expr size) { return !provably_nonnegative(size - 1); }

void add_once(std::vector<Expr>& list, Expr e) {
  if (std::find(list.begin(), list.end(), e) == list.end()) list.push_back(e);
}

// The checks that an index is made of; those of loads within have been seen to. A search's index meets its parts many times over.
void collect_checks(Expr index, std::vector<Expr>& checks) {
  std::unordered_set<const ExprNode*> seen;
  std::vector<Expr> left{index};
  while (!left.empty()) {
    const Expr e = left.back();
    left.pop_back();
    if (e->kind == ExprKind::load || !seen.insert(e.node()).second) continue;
    if (e->is_op(ScalarOp::checked_index)) add_once(checks, e);
    else left.insert(left.end(), e->args.rbegin(), e->args.rend());
  }
}

std::vector<Expr> all_checks(Expr e) {
  std::vector<Expr> checks;
  visit(e, [&](Expr n) {
    if (n->is_op(ScalarOp::checked_index)) checks.push_back(n);
  });
  return checks;
}

Expr guarded(const LoopProgram& program, Expr load) {
  ExprPool& pool = *load->pool;
  const BufferInfo& from = program.buffer(BufferId(load->id));
  std::vector<Expr> checks, sizes;
  for (size_t d = 0; d < load->args.size(); ++d) {
    const size_t before = checks.size();
    collect_checks(load->args[d], checks);
    for (size_t i = before; i < checks.size(); ++i) {
      if (may_be_empty(checks[i]->args[1])) add_once(sizes, checks[i]->args[1]);
    }
    if (checks.size() > before && may_be_empty(from.sizes[d])) add_once(sizes, from.sizes[d]);
  }
  if (sizes.empty()) return load;
  Expr there, other;
  bool never = false;
  for (Expr size : sizes) {
    never = never || size->is_constant();
    const Expr some = pool.op(ScalarOp::lt, {pool.index(0), size});
    there = there ? pool.op(ScalarOp::logical_and, {there, some}) : some;
  }
  for (Expr check : checks) {
    const Expr number = pool.cast(check, DType::i64);
    other = other ? pool.op(ScalarOp::add, {other, number}) : number;
  }
  other = pool.cast(other, load->dtype);
  return never ? other : pool.op(ScalarOp::masked, {there, load, other});
}

bool is_zero(Expr e) { return e->is_constant() && e->dtype == DType::i64 && e->as_int() == 0; }

Expr last_of(Expr bound) {
  ExprPool& pool = *bound->pool;
  return pool.cast(bound - 1, DType::i64);
}

// op(a, b) with one of them `known`; the other one.
std::optional<Expr> other_operand(Expr e, ScalarOp op, FunctionRef<bool(Expr)> known) {
  if (!e->is_op(op)) return std::nullopt;
  if (known(e->args[0])) return e->args[1];
  if (known(e->args[1])) return e->args[0];
  return std::nullopt;
}

}  // namespace

Expr clamped_position(Expr position, Expr bound) {
  ExprPool& pool = *bound->pool;
  return pool.op(ScalarOp::maximum, {pool.op(ScalarOp::minimum, {position, last_of(bound)}), pool.constant_int(0, DType::i64)});
}

bool never_fails(Expr checked) {
  const Expr position = checked->args[0], bound = checked->args[1];
  if (!provably_nonnegative(bound - 1)) return false;
  const auto last = [&](Expr e) { return e == last_of(bound); };
  if (const auto low = other_operand(position, ScalarOp::maximum, is_zero)) return other_operand(*low, ScalarOp::minimum, last).has_value();
  if (const auto high = other_operand(position, ScalarOp::minimum, last)) return other_operand(*high, ScalarOp::maximum, is_zero).has_value();
  return false;
}

Expr guard_positions(const LoopProgram& program, Expr body) {
  if (!any_of(body, [](Expr e) { return e->is_op(ScalarOp::checked_index); })) return body;
  return rewrite(body, [&](Expr e) { return e->kind == ExprKind::load ? guarded(program, e) : Expr(); });
}

bool checks_on_both_sides(Expr e) {
  const std::vector<Expr> other = all_checks(e->args[2]);
  if (other.empty()) return false;
  const std::vector<Expr> own = all_checks(e->args[1]);
  return std::all_of(other.begin(), other.end(), [&](Expr c) { return std::find(own.begin(), own.end(), c) != own.end(); });
}

}  // namespace coil
