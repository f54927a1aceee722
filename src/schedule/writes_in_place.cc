// States and inputs that a program changes element by element (an optimizer's moments and weights, running statistics) are written where they lie: the
// kernel that computes the new value stores it there, instead of into memory of its own from which it is copied when all is done.
#include <algorithm>
#include <set>

#include "schedule/renumber.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

class InPlaceWrites {
 public:
  explicit InPlaceWrites(KernelPlan& plan) : plan_(plan) {}

  void run() {
    if (!cannot_fail()) return;
    find_users();
    std::set<int32_t> sources, kept;
    for (const LoopOutput& o : plan_.outputs) {
      if (o.kind == LoopOutput::Kind::user || o.kind == LoopOutput::Kind::check || !sources.insert(o.source.index).second) kept.insert(o.source.index);
    }
    std::vector<bool> gone(plan_.kernels.size(), false);
    std::vector<BufferId> to(plan_.buffers.size());
    for (size_t i = 0; i < to.size(); ++i) to[i] = BufferId(i);
    for (size_t n = 0; n < plan_.kernels.size(); ++n) {
      const auto* copy = std::get_if<CopyKernel>(&plan_.kernels[n].def);
      if (!copy || kept.contains(copy->from.index) || !fits(*copy, static_cast<int>(n))) continue;
      to[static_cast<size_t>(copy->from.index)] = copy->to;
      gone[n] = true;
      store_last(std::get<LoopKernel>(plan_.kernels[static_cast<size_t>(writer(copy->from))].def));
    }
    apply(gone, to);
  }

 private:
  const std::vector<int>& users(BufferId id) const { return users_[static_cast<size_t>(id.index)]; }

  // A call that fails leaves states and inputs as they were: nothing of the program may fail while it runs.
  bool cannot_fail() const {
    for (const Kernel& k : plan_.kernels) {
      const bool known = std::holds_alternative<LoopKernel>(k.def) || std::holds_alternative<CopyKernel>(k.def) || std::holds_alternative<TemplateKernel>(k.def);
      if (!known || !k.assertion.empty()) return false;
      const auto* loop = std::get_if<LoopKernel>(&k.def);
      const auto* call = std::get_if<TemplateKernel>(&k.def);
      for (const Stmt& s : loop ? loop->stmts : call ? call->epilogue : std::vector<Stmt>()) {
        for (Expr e : {s.value, s.offset, s.condition}) {
          if (e && any_of(e, [](Expr n) { return n->is_op(ScalarOp::checked_index); })) return false;
        }
      }
    }
    return true;
  }

  // Which kernels touch each buffer, in their order.
  void find_users() {
    users_.assign(plan_.buffers.size(), {});
    for (size_t n = 0; n < plan_.kernels.size(); ++n) {
      renumbered(plan_.kernels[n], [&](BufferId id) {
        std::vector<int>& list = users_[static_cast<size_t>(id.index)];
        if (list.empty() || list.back() != static_cast<int>(n)) list.push_back(static_cast<int>(n));
        return id;
      });
    }
  }

  // The kernel that makes a computed buffer is the first that touches it.
  int writer(BufferId id) const { return users(id).front(); }

  bool fits(const CopyKernel& copy, int at) const {
    const BufferInfo &from = plan_.buffer(copy.from).info, &to = plan_.buffer(copy.to).info;
    if (from.kind != BufferInfo::Kind::computed || from.dtype != to.dtype || from.sizes != to.sizes || from.strides != to.strides) return false;
    const int made = writer(copy.from);
    // Who reads the old value after the new one is there? The copy itself touches both.
    for (const int user : users(copy.to)) {
      if (user > made && user != at) return false;
    }
    const auto* loop = std::get_if<LoopKernel>(&plan_.kernels[static_cast<size_t>(made)].def);
    return loop && stores_where_it_reads(*loop, copy.from, copy.to);
  }

  // Each point of a pointwise kernel reads of `old` no element but the one whose new value it stores.
  static bool stores_where_it_reads(const LoopKernel& k, BufferId made, BufferId old) {
    if (k.num_outer != static_cast<int>(k.axes.size()) || k.sequential || !k.scratch.empty()) return false;
    Expr offset;
    for (const Stmt& s : k.stmts) {
      if (s.kind != Stmt::Kind::let && s.kind != Stmt::Kind::store) return false;
      if (s.kind != Stmt::Kind::store || s.buffer != made) continue;
      if (offset || s.condition) return false;
      offset = s.offset;
    }
    if (!offset) return false;
    bool same = true;
    for (const Stmt& s : k.stmts) {
      for (Expr e : {s.value, s.offset, s.condition}) {
        if (!e) continue;
        visit(e, [&](Expr n) {
          if (n->kind == ExprKind::load && n->id == old.index) same = same && n->args[0] == offset;
          if (n->kind == ExprKind::load && n->id == made.index) same = false;
        });
      }
    }
    return same;
  }

  // All stores behind all that is read.
  static void store_last(LoopKernel& k) {
    int32_t next = 0;
    for (const Stmt& s : k.stmts) next = std::max(next, s.temp.index + 1);
    std::vector<Stmt> first, stores;
    for (Stmt s : k.stmts) {
      if (s.kind == Stmt::Kind::store && any_of(s.value, [](Expr n) { return n->kind == ExprKind::load; })) {
        Stmt let;
        let.kind = Stmt::Kind::let;
        let.inner = s.inner, let.phase = s.phase;
        let.temp = TempId(next++);
        let.value = s.value;
        let.dtype = s.value->dtype;
        s.value = s.value->pool->temp(let.temp, let.dtype);
        first.push_back(std::move(let));
      }
      (s.kind == Stmt::Kind::store ? stores : first).push_back(std::move(s));
    }
    k.stmts = std::move(first);
    k.stmts.insert(k.stmts.end(), stores.begin(), stores.end());
  }

  void apply(const std::vector<bool>& gone, const std::vector<BufferId>& to) {
    if (std::find(gone.begin(), gone.end(), true) == gone.end()) return;
    std::vector<Kernel> kernels;
    for (size_t n = 0; n < plan_.kernels.size(); ++n) {
      if (!gone[n]) kernels.push_back(renumbered(std::move(plan_.kernels[n]), to));
    }
    plan_.kernels = std::move(kernels);
    for (LoopOutput& o : plan_.outputs) o.source = to[static_cast<size_t>(o.source.index)];
  }

  KernelPlan& plan_;
  std::vector<std::vector<int>> users_;
};

}  // namespace

void write_in_place(KernelPlan& plan) { InPlaceWrites(plan).run(); }

}  // namespace coil
