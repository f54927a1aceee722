// The first and the last kernel that uses each buffer of a plan: what memory may be shared follows from them.
#include "schedule/schedule.h"

namespace coil {
namespace {

class Lifetimes {
 public:
  explicit Lifetimes(const KernelPlan& plan) : plan_(plan) {}

  std::vector<Lifetime> run() {
    lives_.assign(plan_.buffers.size(), {});
    int depth = 0, begin = 0, first = 0;
    for (size_t n = 0; n < plan_.kernels.size(); ++n) {
      const int i = static_cast<int>(n);
      const auto* mark = std::get_if<ControlMark>(&plan_.kernels[n].def);
      const bool opens = mark && mark->opens();
      if (opens && depth++ == 0) begin = i;
      // What lives in a region lives from its first mark to its last one: loops come back, and branches leave things out. What kernels
      // use that may run at the same time, lives while any of them runs.
      if (!together(n)) first = i;
      int last = i;
      while (static_cast<size_t>(last) + 1 < plan_.kernels.size() && together(static_cast<size_t>(last) + 1)) ++last;
      std::visit([&](auto& def) { touch_kernel(def, depth > 0 ? begin : first); }, plan_.kernels[n].def);
      if (depth == 0 && last > first) std::visit([&](auto& def) { touch_kernel(def, last); }, plan_.kernels[n].def);
      if (!mark || mark->kind != ControlMark::Kind::end || --depth > 0) continue;
      for (int k = begin; k < i; ++k) std::visit([&](auto& def) { touch_kernel(def, i); }, plan_.kernels[static_cast<size_t>(k)].def);
    }
    return std::move(lives_);
  }

 private:
  void touch(BufferId id, int kernel) {
    if (id.index < 0 || id.index >= kScratchBase) return;
    if (const Placement& p = plan_.buffer(id).placement; p.kind == Placement::Kind::row) return touch(BufferId(p.index), kernel);
    Lifetime& life = lives_[static_cast<size_t>(id.index)];
    if (life.first < 0) life.first = kernel;
    life.last = kernel;
  }

  void touch_loads(Expr e, int kernel) {
    if (!e) return;
    visit(e, [&](Expr n) {
      if (n->kind == ExprKind::load) touch(BufferId(n->id), kernel);
    });
  }

  bool together(size_t n) const { return plan_.kernels[n].beside || plan_.kernels[n].joins; }

  void touch_kernel(const LoopKernel& k, int i) {
    for (const Stmt& s : k.stmts) {
      touch_loads(s.value, i);
      touch_loads(s.offset, i);
      touch_loads(s.condition, i);
      touch(s.buffer, i);
    }
    for (const WorkerScratch& s : k.scratch) touch(s.buffer, i);
  }
  void touch_kernel(const TemplateKernel& k, int i) {
    for (const PlanOperand& o : k.operands) touch(o.buffer, i);
    if (k.past) touch(k.past->k.buffer, i), touch(k.past->v.buffer, i);
    for (const Stmt& s : k.epilogue) {
      touch_loads(s.value, i);
      touch(s.buffer, i);
    }
    if (k.epilogue.empty()) touch(k.result, i);
    touch(k.scratch, i);
  }
  void touch_kernel(const SortKernel& k, int i) {
    touch_loads(k.body, i);
    for (BufferId id : {k.values, k.indices, k.scratch}) touch(id, i);
  }
  void touch_kernel(const LibraryKernel& k, int i) {
    for (BufferId id : k.def.inputs) touch(id, i);
    for (BufferId id : k.results) touch(id, i);
    touch(k.scratch, i);
  }
  void touch_kernel(const UserCallKernel& k, int i) {
    for (const PlanOperand& o : k.operands) touch(o.buffer, i);
    for (BufferId id : k.results) touch(id, i);
  }
  void touch_kernel(const CopyKernel& k, int i) {
    touch(k.from, i);
    touch(k.to, i);
  }

  void touch_kernel(const ReadKernel& k, int i) { touch(k.source, i); }
  void touch_kernel(const ControlMark& k, int i) {
    for (BufferId id : {k.predicate, k.scratch}) touch(id, i);
  }

  const KernelPlan& plan_;
  std::vector<Lifetime> lives_;
};

}  // namespace

std::vector<Lifetime> lifetimes(const KernelPlan& plan) { return Lifetimes(plan).run(); }

}  // namespace coil
