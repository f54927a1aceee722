#include "schedule/early_checks.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "loop/guard_positions.h"
#include "loop/join_rows.h"
#include "loop/templates/template.h"
#include "schedule/lets.h"
#include "schedule/work.h"

namespace coil {
namespace {

constexpr size_t kMostChecks = 32;

// Which routines of the library cannot fail: those that move rows, but for positions of their own.
bool cannot_fail(const Library& def) {
  const std::optional<JoinRows> join = JoinRows::of(def);
  return def.routine == "copy_bytes" || (join && join->whose != JoinRows::chosen);
}

}  // namespace

class EarlyChecks::Finder {
 public:
  explicit Finder(const KernelPlan& plan) : plan_(plan), writer_(plan.buffers.size(), -1) {
    for (size_t n = 0; n < plan.kernels.size(); ++n) {
      for (const BufferId id : kernel_work(plan, plan.kernels[n]).writes) writer_[static_cast<size_t>(id.index)] = static_cast<int>(n);
    }
  }

  std::optional<EarlyChecks> run() {
    for (const Kernel& k : plan_.kernels) {
      if (!std::visit([&](const auto& def) { return look_at(def); }, k.def)) return std::nullopt;
      ++kernel_;
    }
    return std::move(found_);
  }

 private:
  bool look_at(const LoopKernel& k) {
    std::vector<Expr> sizes;
    for (const Axis& axis : k.axes) sizes.push_back(axis.size);
    return look_at(k.stmts, sizes);
  }
  bool look_at(const TemplateKernel& k) { return !checks_data(k.def) && look_at(k.epilogue, k.result_sizes); }
  bool look_at(const SortKernel& k) { return !may_fail(k.body); }
  bool look_at(const LibraryKernel& k) { return cannot_fail(k.def); }
  bool look_at(const CopyKernel&) { return true; }
  // Sizes from data, users' code, control flow.
  template <class Other>
  bool look_at(const Other&) {
    return false;
  }

  static bool may_fail(Expr e) {
    return e && any_of(e, [](Expr n) { return n->is_op(ScalarOp::checked_index) && !never_fails(n); });
  }

  bool look_at(const std::vector<Stmt>& stmts, const std::vector<Expr>& sizes) {
    lets_ = Lets();
    for (const Stmt& s : stmts) {
      if (s.condition && (may_fail(s.value) || may_fail(s.offset))) return false;
      for (Expr e : {s.value, s.offset, s.condition}) {
        if (may_fail(e) && !look_at(e, sizes)) return false;
      }
      lets_.add(s);
    }
    return true;
  }

  bool look_at(Expr e, const std::vector<Expr>& sizes) {
    std::unordered_set<const ExprNode*> seen;
    std::vector<Expr> left{e};
    while (!left.empty()) {
      const Expr next = left.back();
      left.pop_back();
      if (!seen.insert(next.node()).second) continue;
      // The second operand's loads happen only where the first one holds, and its checks count only there.
      if (next->is_op(ScalarOp::masked) && may_fail(next->args[1])) return false;
      if (next->is_op(ScalarOp::checked_index) && !never_fails(next) && !add(next, sizes)) return false;
      left.insert(left.end(), next->args.begin(), next->args.end());
    }
    return true;
  }

  // Without checks within, which are looked at alone.
  static Expr unchecked(Expr e) {
    std::unordered_map<const ExprNode*, Expr> done;
    visit(e, [&](Expr n) {
      std::vector<Expr> args;
      for (const Expr a : n->args) args.push_back(done.at(a.node()));
      ExprPool& pool = *n->pool;
      Expr now = n;
      if (n->is_op(ScalarOp::checked_index)) {
        now = pool.checked_index(never_fails(n) ? args[0] : clamped_position(args[0], args[1]), args[1]);
      } else if (n->is_op(ScalarOp::cast)) {
        now = pool.cast(args[0], n->dtype);
      } else if (args != n->args) {
        now = n->kind == ExprKind::load ? pool.load(BufferId(n->id), n->dtype, args) : pool.op(n->op, args);
      }
      done[n.node()] = now;
    });
    return done.at(e.node());
  }

  bool add(Expr checked, const std::vector<Expr>& sizes) {
    const std::optional<Expr> whole = lets_.expand(checked->args[0]);
    if (!whole) return false;
    Expr position = *whole;
    const Expr bound = checked->args[1];
    if (any_of(position, [](Expr n) { return n->kind == ExprKind::temp; }) || cost(position) > 1000) return false;
    if (may_fail(position)) {
      if (any_of(position, [](Expr n) { return n->is_op(ScalarOp::checked_index) && !provably_nonnegative(n->args[1] - 1); })) return false;
      position = unchecked(position);
    }
    Check check;
    std::vector<Expr> now;  // variables by the order of the loop: the first ones of the check
    for (size_t v = 0; v < sizes.size(); ++v) {
      const auto var = static_cast<int32_t>(v);
      now.push_back(plan_.pool->var(static_cast<int32_t>(check.domain.size())));
      if (depends_on_var(position, var) || depends_on_var(bound, var)) check.domain.push_back(sizes[v]);
      else if (!provably_nonnegative(sizes[v] - 1)) return false;  // a loop without points checks nothing
    }
    check.position = substitute_vars(position, now);
    check.bound = substitute_vars(bound, now);
    const auto known = std::find_if(found_.checks_.begin(), found_.checks_.end(),
                                    [&](const Check& c) { return c.position == check.position && c.bound == check.bound && c.domain == check.domain; });
    if (known != found_.checks_.end()) {
      known->kernels.push_back(kernel_);
      return true;
    }
    for (const Expr part : {check.position, check.bound}) {
      visit(part, [&](Expr n) {
        if (n->kind != ExprKind::load || plan_.buffer(BufferId(n->id)).info.kind != BufferInfo::Kind::computed) return;
        found_.last_needed_ = std::max(found_.last_needed_, writer_[static_cast<size_t>(n->id)]);
      });
    }
    check.kernels = {kernel_};
    found_.checks_.push_back(std::move(check));
    return found_.checks_.size() <= kMostChecks;
  }

  const KernelPlan& plan_;
  std::vector<int> writer_;  // the last kernel that stores to each buffer: a concatenation has one for each part
  Lets lets_;
  int kernel_ = 0;
  EarlyChecks found_;
};

std::optional<EarlyChecks> EarlyChecks::find(const KernelPlan& plan) { return Finder(plan).run(); }

namespace {

// Adds kernels of checks, and each one's result to those before.
class CheckKernels {
 public:
  explicit CheckKernels(KernelPlan& plan) : plan_(plan) {}

  void add(Expr holds, const std::vector<Expr>& domain, const Kernel* told_as) {
    ExprPool& pool = *plan_.pool;
    LoopKernel k;
    k.num_phases = 1;
    if (!domain.empty()) {
      for (size_t d = 0; d < domain.size(); ++d) k.axes.push_back({domain[d], "r" + std::to_string(d)});
      Stmt all;
      all.kind = Stmt::Kind::reduce;
      all.inner = true;
      all.temp = TempId(0);
      all.op = ReduceOp::all;
      all.dtype = DType::boolean;
      all.value = holds;
      k.stmts.push_back(std::move(all));
      holds = pool.temp(TempId(0), DType::boolean);
    }
    const BufferId result(plan_.buffers.size());
    BufferInfo info;
    info.name = "checks_hold" + (list.empty() ? std::string() : "_" + std::to_string(list.size()));
    info.dtype = DType::boolean;
    plan_.buffers.push_back({std::move(info), {}});
    Stmt store;
    store.dtype = DType::boolean;
    store.phase = domain.empty() ? 0 : 1;
    store.value = all_hold ? pool.op(ScalarOp::logical_and, {all_hold, holds}) : holds;
    store.buffer = result;
    store.offset = pool.index(0);
    k.stmts.push_back(std::move(store));
    list.push_back(told_as ? Kernel{told_as->name, std::move(k), told_as->ops, told_as->origins, {}, {}}
                           : Kernel{"checks_hold", std::move(k), {"checks_hold"}, {}, {}, {}});
    all_hold = pool.load(result, DType::boolean, {pool.index(0)});
  }

  std::vector<Kernel> list;
  Expr all_hold;

 private:
  KernelPlan& plan_;
};

}  // namespace

std::vector<Kernel> EarlyChecks::kernels(KernelPlan& plan, FunctionRef<bool(int)> silent, Expr* all_hold) const {
  ExprPool& pool = *plan.pool;
  CheckKernels kernels(plan);
  Expr points;  // checks of one position each, which others tell of
  for (const Check& c : checks_) {
    if (std::all_of(c.kernels.begin(), c.kernels.end(), silent)) {
      kernels.add(pool.op(ScalarOp::eq, {pool.cast(pool.checked_index(c.position, c.bound), DType::i64), c.position}), c.domain,
                  &plan.kernels[static_cast<size_t>(c.kernels[0])]);
      continue;
    }
    const Expr holds = pool.op(ScalarOp::logical_and, {pool.op(ScalarOp::ge, {c.position, pool.constant_int(0, DType::i64)}),
                                                       pool.op(ScalarOp::lt, {c.position, pool.cast(c.bound, DType::i64)})});
    if (!c.domain.empty()) kernels.add(holds, c.domain, nullptr);
    else points = points ? pool.op(ScalarOp::logical_and, {points, holds}) : holds;
  }
  if (points) kernels.add(points, {}, nullptr);
  *all_hold = kernels.all_hold;
  return std::move(kernels.list);
}

}  // namespace coil
