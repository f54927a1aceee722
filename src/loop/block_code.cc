#include "loop/block_code.h"

namespace coil::interpreter {

bool BlockCode::reads_data(Expr e) {
  auto [it, fresh] = reads_data_.try_emplace(e.node(), false);
  if (!fresh) return it->second;
  bool r = e->kind == ExprKind::load || e->is_op(ScalarOp::checked_index);
  for (Expr a : e->args) r = reads_data(a) || r;
  return reads_data_[e.node()] = r;
}

int BlockCode::compile(Expr e, int guard) {
  const Key key{e.node(), reads_data(e) ? guard : -1};
  // What was computed where an outer guard holds is right here too; a search's rounds, each within the last one's guard, would double otherwise.
  for (int outer = key.guard;; outer = outer_guard_.at(outer)) {
    if (auto it = done_.find({e.node(), outer}); it != done_.end()) return it->second;
    if (outer < 0) break;
  }
  const int slot = compile_new(e, key.guard);
  done_[key] = slot;
  return slot;
}

int BlockCode::constant(Expr e) {
  constants.push_back({slots_, e});
  return slots_++;
}

int BlockCode::compile_new(Expr e, int guard) {
  if (e->kind == ExprKind::constant) return constant(e);
  if (e->kind == ExprKind::symbol) return constant(e->pool->index(symbol_(SymbolId(e->id))));
  CHECK(e->kind != ExprKind::temp, "temporaries belong to kernels");
  if (e->is_op(ScalarOp::masked)) return compile_masked(e, guard);
  Instr in{Instr::Kind::op};
  in.to = e->dtype;
  in.guard = guard;
  for (Expr a : e->args) in.args.push_back(compile(a, guard));
  if (e->kind == ExprKind::var) {
    in.kind = Instr::Kind::var;
    in.id = e->id;
  } else if (e->kind == ExprKind::load) {
    in.kind = Instr::Kind::load;
    in.id = static_cast<int>(loads.size());
    loads.push_back(e);
  } else if (e->op == ScalarOp::cast || e->op == ScalarOp::checked_index) {
    in.kind = e->op == ScalarOp::cast ? Instr::Kind::cast : Instr::Kind::checked_index;
    in.from = e->args[0]->dtype;
  } else {
    in.op = e->op;
    in.from = e->args[e->op == ScalarOp::select ? 1 : 0]->dtype;
  }
  return emit(std::move(in));
}

int BlockCode::compile_masked(Expr e, int guard) {
  const int condition = compile(e->args[0], guard);
  int inner = condition;
  if (guard >= 0) {
    Instr both{Instr::Kind::guard_and};
    both.args = {guard, condition};
    inner = emit(std::move(both));
  }
  outer_guard_.try_emplace(inner, guard);
  Instr in{Instr::Kind::op};
  in.op = ScalarOp::select;
  in.from = in.to = e->dtype;
  in.args = {condition, compile(e->args[1], inner), compile(e->args[2], guard)};
  return emit(std::move(in));
}

int BlockCode::emit(Instr in) {
  in.result = slots_++;
  instructions.push_back(std::move(in));
  return instructions.back().result;
}

}  // namespace coil::interpreter
