// Fusion groups -> kernels: every expression linearised, loops ordered by memory, temps and phases decided.
#include <algorithm>
#include <array>
#include <set>
#include <unordered_set>

#include "schedule/build.h"
#include "loop/gives_position.h"

namespace coil {
namespace {

// Row-major loop order by the strides of the reference access: the axis that moves furthest in memory is outermost.
std::vector<int> memory_order(Expr offset, const std::vector<Expr>& sizes) {
  std::vector<int> order(sizes.size());
  std::vector<int64_t> stride(sizes.size(), -1);
  for (size_t a = 0; a < sizes.size(); ++a) {
    order[a] = static_cast<int>(a);
    if (!offset) continue;
    if (const auto affine = as_affine(offset, static_cast<int>(a))) stride[a] = std::abs(typical(affine->coefficient));
  }
  std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
    const int64_t sx = stride[static_cast<size_t>(x)], sy = stride[static_cast<size_t>(y)];
    return sx > 0 && sy > 0 && sx > sy;
  });
  return order;
}

class LoopKernelBuilder {
 public:
  LoopKernelBuilder(const LoopProgram& program, const FusionGroup& group, const std::vector<bool>& stored, const TargetTraits& target)
      : program_(program), group_(group), stored_(stored), target_(target) {}

  LoopKernel run() {
    for (size_t m = 0; m < group_.loops.size(); ++m) add_member(m);
    order_axes();
    unroll_pairs();
    assign_phases();
    kernel_.num_phases = std::max(kernel_.num_phases, 1);
    keep_expensive_values();
    drop_lets();
    std::stable_sort(kernel_.stmts.begin(), kernel_.stmts.end(),
                     [](const Stmt& a, const Stmt& b) { return std::pair(a.phase, a.inner) < std::pair(b.phase, b.inner); });
    merge_axes(kernel_);
    return std::move(kernel_);
  }

 private:
  ExprPool& pool() { return *program_.pool; }

  TempId new_temp() { return TempId(next_temp_++); }

  // The member's variables as axes; variables of size 1 are 0.
  std::vector<Expr> axis_vars(size_t m) {
    std::vector<Expr> vars;
    for (int axis : group_.axis_of_var[m]) vars.push_back(axis < 0 ? pool().index(0) : pool().var(axis));
    return vars;
  }

  void add_member(size_t m) {
    const Loop& loop = program_.loops[static_cast<size_t>(group_.loops[m])];
    const BufferId out = loop.outputs[0];
    const BufferInfo& buffer = program_.buffer(out);
    const std::vector<Expr> vars = axis_vars(m);
    const auto* reduction = std::get_if<Reduction>(&loop.def);
    const Expr body = lower_body(reduction ? reduction->body : std::get<Pointwise>(loop.def).body, vars);
    bool inner = reduction != nullptr;
    for (int axis : group_.axis_of_var[m]) inner |= axis >= 0 && group_.axis_inner[static_cast<size_t>(axis)];

    Stmt define;
    define.kind = reduction ? Stmt::Kind::reduce : Stmt::Kind::let;
    define.inner = inner;
    define.temp = new_temp();
    define.value = body;
    define.dtype = compute_type(buffer.dtype);
    if (reduction) define.op = reduction->op;
    kernel_.stmts.push_back(define);
    const Expr temp = pool().temp(define.temp, define.dtype);
    values_[out] = temp;
    if (stored_[static_cast<size_t>(out.index)]) {
      Stmt store;
      store.kind = Stmt::Kind::store;
      store.inner = inner && !reduction;
      store.dtype = buffer.dtype;
      store.value = temp;
      store.buffer = out;
      store.offset = linear_offset(pool(), buffer, std::span(vars).first(buffer.sizes.size()));
      kernel_.stmts.push_back(store);
    }
  }

  Expr lower_body(Expr body, const std::vector<Expr>& vars) {
    return linearise(program_, substitute_vars(body, vars), [&](BufferId id) {
      const auto it = values_.find(id);
      return it == values_.end() ? Expr() : it->second;
    });
  }

  // The access that decides the loop order: the first store of a full point, else the first load that uses an inner axis.
  Expr reference_offset() {
    for (const Stmt& s : kernel_.stmts) {
      if (s.kind == Stmt::Kind::store && s.inner == group_.has_inner) return s.offset;
    }
    Expr best;
    for (const Stmt& s : kernel_.stmts) {
      if (!s.inner) continue;
      visit(s.value, [&](Expr e) {
        if (e->kind != ExprKind::load || best) return;
        for (size_t a = 0; a < group_.axis_sizes.size(); ++a) {
          if (group_.axis_inner[a] && depends_on_var(e->args[0], static_cast<int>(a))) best = e->args[0];
        }
      });
    }
    return best;
  }

  void order_axes() {
    std::vector<int> order = memory_order(reference_offset(), group_.axis_sizes);
    // argmax and argmin number the reduced points in the program's order, which the loops have to keep.
    for (const Stmt& s : kernel_.stmts) {
      if (s.kind == Stmt::Kind::reduce && gives_position(s.op)) std::sort(order.begin(), order.end());
    }
    std::stable_partition(order.begin(), order.end(), [&](int a) { return !group_.axis_inner[static_cast<size_t>(a)]; });
    std::vector<Expr> renumber(order.size());
    for (size_t k = 0; k < order.size(); ++k) {
      const auto old = static_cast<size_t>(order[k]);
      const bool inner = group_.axis_inner[old];
      kernel_.axes.push_back({group_.axis_sizes[old], (inner ? "r" : "i") + std::to_string(k)});
      kernel_.num_outer += !inner;
      renumber[old] = pool().var(static_cast<int>(k));
    }
    for (Stmt& s : kernel_.stmts) {
      s.value = substitute_vars(s.value, renumber);
      if (s.offset) s.offset = substitute_vars(s.offset, renumber);
    }
  }

  // An axis of two that statements tell apart (the parts of complex numbers) is no loop: what both parts share is computed once, and
  // another axis is left to be the vectors'.
  void unroll_pairs() {
    if (kernel_.num_outer != static_cast<int>(kernel_.axes.size())) return;
    for (size_t a = kernel_.axes.size(); a-- > 0;) {
      if (kernel_.axes[a].size == pool().index(2) && told_apart(static_cast<int>(a))) unroll_pair(static_cast<int>(a));
    }
  }

  // Not by data, as in a write to one of two rows.
  bool told_apart(int axis) {
    const auto loads = [](Expr e) { return e->kind == ExprKind::load; };
    const auto test = [&](Expr e) { return e->is_op(ScalarOp::eq) && e->args[0]->dtype == DType::index && depends_on_var(e, axis) && !any_of(e, loads); };
    return std::any_of(kernel_.stmts.begin(), kernel_.stmts.end(), [&](const Stmt& s) { return any_of(s.value, test); });
  }

  void unroll_pair(int axis) {
    std::vector<Stmt> out;
    std::map<int, std::array<TempId, 2>> both;  // of temps that differ between the two
    for (const Stmt& s : kernel_.stmts) {
      bool differs = depends_on_var(s.value, axis) || (s.offset && depends_on_var(s.offset, axis));
      visit(s.value, [&](Expr e) { differs = differs || (e->kind == ExprKind::temp && both.contains(e->id)); });
      if (differs && s.kind == Stmt::Kind::let) both[s.temp.index] = {s.temp, new_temp()};
      for (size_t k = 0; k < (differs ? 2 : 1); ++k) {
        Stmt copy = s;
        copy.value = rewrite(s.value, [&](Expr e) -> Expr {
          if (e->kind != ExprKind::temp || !both.contains(e->id)) return Expr();
          return pool().temp(both.at(e->id)[k], e->dtype);
        });
        if (differs && s.kind == Stmt::Kind::let) copy.temp = both.at(s.temp.index)[k];
        std::vector<Expr> renumber;
        for (int v = 0; v < static_cast<int>(kernel_.axes.size()); ++v) {
          renumber.push_back(v == axis ? pool().index(static_cast<int64_t>(k)) : pool().var(v - (v > axis)));
        }
        copy.value = substitute_vars(copy.value, renumber);
        if (copy.offset) copy.offset = substitute_vars(copy.offset, renumber);
        out.push_back(std::move(copy));
      }
    }
    kernel_.stmts = std::move(out);
    kernel_.axes.erase(kernel_.axes.begin() + axis);
    --kernel_.num_outer;
  }

  // A statement runs in the first pass in which all reductions that it needs are complete.
  void assign_phases() {
    std::map<int, int> ready;  // temp -> first phase in which it may be read
    for (Stmt& s : kernel_.stmts) {
      int level = 0;
      visit(s.value, [&](Expr e) {
        if (e->kind == ExprKind::temp) level = std::max(level, ready.at(e->id));
      });
      s.phase = level;
      if (s.kind == Stmt::Kind::let) ready[s.temp.index] = level;
      if (s.kind == Stmt::Kind::reduce) ready[s.temp.index] = level + 1;
      if (s.inner) kernel_.num_phases = std::max(kernel_.num_phases, level + 1);
    }
  }

  // Inner values that several phases use and that cost more than a round trip to the cache.
  void keep_expensive_values() {
    std::map<int, const Stmt*> lets;
    for (const Stmt& s : kernel_.stmts) {
      if (s.kind == Stmt::Kind::let && s.inner) lets[s.temp.index] = &s;
    }
    std::map<int, std::set<int>> phases = phases_of_use(lets);
    std::vector<Stmt> stores;
    if (upper_bound(product(pool(), inner_sizes())).value_or(INT64_MAX) > target_.max_kept_elements || rows_lie_across()) return;
    for (const auto& [temp, let] : lets) {
      const Expr expanded = expand(let->value, lets);
      if (phases[temp].size() < 2 || cost(expanded) < target_.recompute_cost) continue;
      Stmt store = *let;
      store.kind = Stmt::Kind::store;
      store.value = pool().temp(TempId(temp), let->dtype);
      store.scratch = static_cast<int>(kernel_.scratch.size());
      store.phase = *phases[temp].begin();
      store.offset = inner_offset();
      WorkerScratch scratch;
      scratch.dtype = let->dtype;
      scratch.elements = product(pool(), inner_sizes());
      kernel_.scratch.push_back(scratch);
      kept_[temp] = {store.scratch, store.phase};
      stores.push_back(store);
    }
    kernel_.stmts.insert(kernel_.stmts.end(), stores.begin(), stores.end());
  }

  // Whether more is read and written side by side along an outer axis than along the inner ones, as the channels of images that have them last: several
  // results are then computed at once, and what is kept of all their rows would be more than is read.
  bool rows_lie_across() {
    if (!target_.memory_per_worker) return false;
    std::vector<int> accesses(kernel_.axes.size());
    const auto count = [&](Expr offset) {
      for (size_t a = 0; a < accesses.size(); ++a) accesses[a] += first_step(offset, static_cast<int>(a)) == 1;
    };
    for (const Stmt& s : kernel_.stmts) {
      if (!s.inner) continue;
      visit(s.value, [&](Expr e) {
        if (e->kind == ExprKind::load) count(e->args[0]);
      });
      if (s.offset) count(s.offset);
    }
    const auto first_inner = accesses.begin() + kernel_.num_outer;
    const int outer = first_inner == accesses.begin() ? 0 : *std::max_element(accesses.begin(), first_inner);
    return outer > (first_inner == accesses.end() ? 0 : *std::max_element(first_inner, accesses.end()));
  }

  std::map<int, std::set<int>> phases_of_use(const std::map<int, const Stmt*>& lets) {
    std::map<int, std::set<int>> phases;
    for (const Stmt& s : kernel_.stmts) {
      if (!s.inner || s.kind == Stmt::Kind::let) continue;
      std::vector<Expr> todo = {s.value};
      while (!todo.empty()) {
        const Expr e = todo.back();
        todo.pop_back();
        visit(e, [&](Expr n) {
          if (n->kind != ExprKind::temp || !lets.contains(n->id)) return;
          if (phases[n->id].insert(s.phase).second) todo.push_back(lets.at(n->id)->value);
        });
      }
    }
    return phases;
  }

  std::vector<Expr> inner_sizes() const {
    std::vector<Expr> sizes;
    for (size_t a = static_cast<size_t>(kernel_.num_outer); a < kernel_.axes.size(); ++a) sizes.push_back(kernel_.axes[a].size);
    return sizes;
  }

  Expr inner_offset() {
    Expr offset = pool().index(0);
    for (size_t a = static_cast<size_t>(kernel_.num_outer); a < kernel_.axes.size(); ++a) {
      offset = offset * kernel_.axes[a].size + pool().var(static_cast<int>(a));
    }
    return offset;
  }

  Expr expand(Expr e, const std::map<int, const Stmt*>& lets) {
    return rewrite(e, [&](Expr n) -> Expr {
      if (n->kind != ExprKind::temp || !lets.contains(n->id)) return Expr();
      return expand(lets.at(n->id)->value, lets);
    });
  }

  // Inner lets are substituted (shared nodes are emitted once per phase); kept ones are read back from scratch in later phases.
  void drop_lets() {
    std::map<int, Stmt> lets;
    for (const Stmt& s : kernel_.stmts) {
      if (s.kind == Stmt::Kind::let && s.inner) lets[s.temp.index] = s;
    }
    std::vector<Stmt> out;
    for (Stmt s : kernel_.stmts) {
      if (s.kind == Stmt::Kind::let && s.inner) continue;
      if (s.inner) s.value = resolve(s.value, lets, s);
      out.push_back(std::move(s));
    }
    kernel_.stmts = std::move(out);
  }

  Expr resolve(Expr e, const std::map<int, Stmt>& lets, const Stmt& user) {
    return rewrite(e, [&](Expr n) -> Expr {
      if (n->kind != ExprKind::temp || !lets.contains(n->id)) return Expr();
      const auto kept = kept_.find(n->id);
      if (kept != kept_.end() && user.phase > kept->second.second) {
        return pool().load(BufferId(kScratchBase + kept->second.first), n->dtype, {inner_offset()});
      }
      return resolve(lets.at(n->id).value, lets, user);
    });
  }

  const LoopProgram& program_;
  const FusionGroup& group_;
  const std::vector<bool>& stored_;
  const TargetTraits& target_;
  LoopKernel kernel_;
  std::map<BufferId, Expr> values_;
  std::map<int, std::pair<int, int>> kept_;  // temp -> scratch row, phase that fills it
  int32_t next_temp_ = 0;
};

// Neighbouring axes that every access steps through as one become one.
bool mergeable(const LoopKernel& k, size_t a) {
  const Expr inner_size = k.axes[a + 1].size;
  bool ok = true;
  const auto check = [&](Expr offset) {
    const auto outer = as_affine(offset, static_cast<int>(a)), inner = as_affine(offset, static_cast<int>(a + 1));
    ok = ok && outer && inner && outer->coefficient == inner->coefficient * inner_size;
  };
  std::unordered_set<const ExprNode*> seen;  // values have many readers: of a tree there may be no end
  std::vector<Expr> todo;
  const auto scan = [&](Expr value) {
    for (todo = {value}; ok && !todo.empty();) {
      const Expr e = todo.back();
      todo.pop_back();
      if (!seen.insert(e.node()).second) continue;
      if (e->dtype == DType::index) check(e);
      else todo.insert(todo.end(), e->args.begin(), e->args.end());
    }
  };
  for (const Stmt& s : k.stmts) {
    if (s.kind == Stmt::Kind::scan) return false;
    scan(s.value);
    if (s.offset) check(s.offset);
  }
  return ok;
}

// A dimension that readers take apart (i // 8 and i % 8) is whole again where its parts lie behind one another in memory.
void join_places(LoopKernel& k) {
  std::vector<Expr> sizes;
  for (const Axis& axis : k.axes) sizes.push_back(axis.size);
  for (Stmt& s : k.stmts) {
    for (Expr* e : {&s.value, &s.offset}) {
      if (*e && any_of(*e, [](Expr n) { return n->is_op(ScalarOp::imod); })) *e = simplify_index(*e, {sizes});
    }
  }
}

}  // namespace

void merge_axes(LoopKernel& k) {
  join_places(k);
  for (size_t a = 0; a + 1 < k.axes.size();) {
    const bool same_side = (static_cast<int>(a) < k.num_outer) == (static_cast<int>(a + 1) < k.num_outer);
    if (!same_side || !mergeable(k, a)) {
      ++a;
      continue;
    }
    ExprPool& pool = *k.axes[a].size->pool;
    std::vector<Expr> renumber;
    for (size_t v = 0; v < k.axes.size(); ++v) {
      if (v < a) renumber.push_back(pool.var(static_cast<int>(v)));
      if (v == a) renumber.push_back(pool.index(0));
      if (v > a) renumber.push_back(pool.var(static_cast<int>(v) - 1));
    }
    for (Stmt& s : k.stmts) {
      s.value = substitute_vars(s.value, renumber);
      if (s.offset) s.offset = substitute_vars(s.offset, renumber);
    }
    k.axes[a].size = k.axes[a].size * k.axes[a + 1].size;
    k.axes.erase(k.axes.begin() + static_cast<int64_t>(a) + 1);
    if (static_cast<int>(a) < k.num_outer) --k.num_outer;
  }
}

Expr linearise(const LoopProgram& program, Expr body, FunctionRef<Expr(BufferId)> known) {
  ExprPool& pool = *program.pool;
  return rewrite(body, [&](Expr e) -> Expr {
    if (e->kind != ExprKind::load) return Expr();
    const BufferId id(e->id);
    if (const Expr value = known(id)) return value;
    const BufferInfo& buffer = program.buffer(id);
    return pool.load(id, buffer.dtype, {linear_offset(pool, buffer, e->args)});
  });
}

LoopKernel build_loop_kernel(const LoopProgram& program, const FusionGroup& group, const std::vector<bool>& stored, const TargetTraits& target) {
  return LoopKernelBuilder(program, group, stored, target).run();
}

}  // namespace coil
