// Traversal and rewriting. Everything works on distinct nodes and without recursion: a DAG costs what its nodes cost, and a
// long chain of operations does not exhaust the stack.
#include "base/result.h"
#include "expr/expr.h"
#include "expr/node_table.h"

namespace coil {
namespace {

// Nodes below `e`, operands before users. `stop` ends the walk early when it returns true.
template <class Stop>
bool walk(Expr e, Stop stop) {
  CHECK(e, "null expression");
  if (e->args.empty()) return stop(e);
  struct Frame {
    Expr e;
    size_t next;
  };
  NodeTable<char> seen;
  seen.insert(e.node());
  std::vector<Frame> stack;
  stack.reserve(16);
  stack.push_back({e, 0});
  while (!stack.empty()) {
    Frame& top = stack.back();
    if (top.next < top.e->args.size()) {
      Expr arg = top.e->args[top.next++];
      if (seen.insert(arg.node())) stack.push_back({arg, 0});
      continue;
    }
    Expr done = top.e;
    stack.pop_back();
    if (stop(done)) return true;
  }
  return false;
}

// The same operation on other operands, folded and normalised anew.
Expr rebuild(Expr e, std::vector<Expr> args) {
  ExprPool& pool = *e->pool;
  if (e->kind == ExprKind::load) {
    ExprNode node{};
    node.kind = ExprKind::load;
    node.dtype = e->dtype;
    node.id = e->id;
    node.args = std::move(args);
    return pool.make(std::move(node));
  }
  if (e->op == ScalarOp::cast) return pool.cast(args[0], e->dtype);
  if (e->op == ScalarOp::checked_index) return pool.checked_index(args[0], args[1]);
  return pool.op(e->op, std::move(args));
}

}  // namespace

void visit(Expr e, FunctionRef<void(Expr)> f) {
  walk(e, [&](Expr x) {
    f(x);
    return false;
  });
}

bool any_of(Expr e, FunctionRef<bool(Expr)> f) { return walk(e, f); }

bool depends_on_data(Expr e) {
  return any_of(e, [](Expr n) { return n->kind == ExprKind::symbol && n->pool->symbol_info(SymbolId(n->id)).from_data; });
}

bool depends_on_var(Expr e, int32_t var) {
  return walk(e, [var](Expr x) { return x->kind == ExprKind::var && x->id == var; });
}

int cost(Expr e) {
  int sum = 0;
  walk(e, [&](Expr x) {
    // n-ary sums and products take one step less than they have operands.
    if (x->kind == ExprKind::op) sum += info(x->op).cost * (info(x->op).arity < 0 ? static_cast<int>(x->args.size()) - 1 : 1);
    return false;
  });
  return sum;
}

Expr rewrite(Expr e, FunctionRef<Expr(Expr)> leaf) {
  NodeTable<Expr> done;
  walk(e, [&](Expr x) {
    Expr result = x;
    if (!x->args.empty()) {
      bool changed = false;
      std::vector<Expr> args;
      args.reserve(x->args.size());
      for (Expr a : x->args) {
        args.push_back(done.at(a.node()));
        changed |= args.back() != a;
      }
      if (changed) result = rebuild(x, std::move(args));
    }
    if (x->kind != ExprKind::op && x->kind != ExprKind::constant) {
      if (Expr replaced = leaf(result)) {
        CHECK(replaced->dtype == x->dtype, "a rewrite changed a type");
        result = replaced;
      }
    }
    done.insert(x.node(), result);
    return false;
  });
  return done.at(e.node());
}

Expr substitute_vars(Expr e, std::span<const Expr> replacements) {
  return rewrite(e, [&](Expr x) {
    const bool hit = x->kind == ExprKind::var && static_cast<size_t>(x->id) < replacements.size();
    return hit ? replacements[static_cast<size_t>(x->id)] : Expr();
  });
}

}  // namespace coil
