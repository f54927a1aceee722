#include "schedule/written_rows.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "schedule/lets.h"
#include "schedule/schedule.h"
#include "schedule/work.h"

namespace coil {
namespace {

bool pointwise(const Kernel& k) {
  const auto* loop = std::get_if<LoopKernel>(&k.def);
  return loop && loop->num_outer == static_cast<int>(loop->axes.size()) && !loop->sequential && loop->scratch.empty() && k.assertion.empty();
}

// A kernel's one result, at the kernel's own axes.
struct Computed {
  BufferId buffer;
  Expr value, offset;
};

std::optional<Computed> computed_by(const KernelPlan& plan, const LoopKernel& k) {
  Lets lets;
  const Stmt* store = nullptr;
  for (const Stmt& s : k.stmts) {
    lets.add(s);
    if (s.kind != Stmt::Kind::store) continue;
    if (store || s.condition) return std::nullopt;
    store = &s;
  }
  if (!store || plan.buffer(store->buffer).info.kind != BufferInfo::Kind::computed) return std::nullopt;
  const std::optional<Expr> value = lets.expand(store->value);
  return value ? std::optional(Computed{store->buffer, *value, store->offset}) : std::nullopt;
}

// The coordinates at which a kernel stores the element that another one reads at `offset`, if these are that one's own axes and perhaps one position that is
// checked against the axis's size. `axes`: the reader's.
std::optional<std::vector<Expr>> coordinates_of(const LoopKernel& k, Expr stored, const std::vector<Axis>& axes, Expr offset) {
  ExprPool& pool = *offset->pool;
  std::vector<Expr> found(k.axes.size()), strides;
  const std::vector<Expr> origin(64, pool.index(0));
  if (!(substitute_vars(stored, origin) == pool.index(0))) return std::nullopt;
  for (size_t a = 0; a < k.axes.size(); ++a) {
    const auto affine = as_affine(stored, static_cast<int32_t>(a));
    if (!affine) return std::nullopt;
    strides.push_back(affine->coefficient);
  }
  Expr rest = offset;
  for (size_t v = 0; v < axes.size(); ++v) {
    const auto affine = as_affine(offset, static_cast<int32_t>(v));
    if (!affine || affine->coefficient == pool.index(0)) continue;  // the position may depend on an axis, as where a table says what is written
    size_t a = 0;
    while (a < strides.size() && (found[a] || !(strides[a] == affine->coefficient) || !(k.axes[a].size == axes[v].size))) ++a;
    if (a == strides.size()) return std::nullopt;
    found[a] = pool.var(static_cast<int32_t>(v));
    rest = rest - affine->coefficient * found[a];
  }
  for (size_t a = 0; a < found.size(); ++a) {
    if (found[a]) continue;
    if (rest == pool.index(0)) {
      found[a] = rest;
      continue;
    }
    Expr position;
    visit(rest, [&](Expr e) {
      if (e->is_op(ScalarOp::checked_index) && e->args[1] == k.axes[a].size && strides[a] * e == rest) position = e;
    });
    if (!position) return std::nullopt;
    found[a] = position, rest = pool.index(0);
  }
  return rest == pool.index(0) ? std::optional(found) : std::nullopt;
}

class RowComputer {
 public:
  explicit RowComputer(KernelPlan& plan) : plan_(plan), work_(plan.kernels.size()) {
    for (const LoopOutput& o : plan.outputs) shown_.insert(o.source);
    for (size_t n = 0; n < plan.kernels.size(); ++n) {
      work_[n] = kernel_work(plan, plan.kernels[n]);
      for (const BufferId id : work_[n].reads) readers_[id].insert(n);
      if (const auto* mark = std::get_if<ControlMark>(&plan.kernels[n].def); mark && mark->predicate.valid()) readers_[mark->predicate].insert(n);
    }
  }

  void run() {
    for (size_t n = 0; n < plan_.kernels.size(); ++n) {
      if (pointwise(plan_.kernels[n]) && writes_in_place(plan_.kernels[n])) take_in(n);
    }
    std::vector<Kernel> kernels;
    for (size_t n = 0; n < plan_.kernels.size(); ++n) {
      if (!gone_.contains(n)) kernels.push_back(std::move(plan_.kernels[n]));
    }
    plan_.kernels = std::move(kernels);
  }

 private:
  bool writes_in_place(const Kernel& k) const {
    const auto& stmts = std::get<LoopKernel>(k.def).stmts;
    return std::any_of(stmts.begin(), stmts.end(), [&](const Stmt& s) {
      const bool kept = s.kind == Stmt::Kind::store && s.condition;  // rows, not the whole state
      return kept && (plan_.buffer(s.buffer).info.kind == BufferInfo::Kind::state || plan_.buffer(s.buffer).info.kind == BufferInfo::Kind::input);
    });
  }

  // The kernels in front of number n whose results it alone reads.
  void take_in(size_t n) {
    constexpr size_t kMostBefore = 32;
    std::set<BufferId> written;  // between the two
    for (size_t before = n; before-- > 0 && before + kMostBefore >= n;) {
      const Kernel& k = plan_.kernels[before];
      if (std::holds_alternative<ControlMark>(k.def)) return;
      if (gone_.contains(before)) continue;
      if (pointwise(k) && take_in(std::get<LoopKernel>(k.def), before, n, written)) {
        gone_.insert(before);
        continue;
      }
      written.insert(work_[before].writes.begin(), work_[before].writes.end());
    }
  }

  bool take_in(const LoopKernel& made, size_t before, size_t n, const std::set<BufferId>& written) {
    const std::optional<Computed> x = computed_by(plan_, made);
    if (!x || !read_by(x->buffer, n)) return false;
    const std::vector<BufferId>& writes = work_[n].writes;
    for (const BufferId id : work_[before].reads) {
      if (written.contains(id) || std::find(writes.begin(), writes.end(), id) != writes.end()) return false;
    }
    auto& reader = std::get<LoopKernel>(plan_.kernels[n].def);
    Expr load;
    bool other = false;  // it reads another element too, or needs one to know where to store
    for (const Stmt& s : reader.stmts) {
      for (const Expr e : {s.value, s.offset, s.condition}) {
        if (!e) continue;
        visit(e, [&](Expr l) {
          if (l->kind != ExprKind::load || l->id != x->buffer.index) return;
          other = other || e != s.value || (load && load != l);
          load = l;
        });
      }
    }
    if (!load || other) return false;
    const auto at = coordinates_of(made, x->offset, reader.axes, load->args[0]);
    if (!at) return false;
    const Expr value = substitute_vars(x->value, *at);
    for (Stmt& s : reader.stmts) s.value = rewrite(s.value, [&](Expr e) { return e->kind == ExprKind::load && e->id == x->buffer.index ? value : Expr(); });
    readers_[x->buffer].erase(n);
    for (const BufferId id : work_[before].reads) readers_[id].erase(before), readers_[id].insert(n);
    Kernel &from = plan_.kernels[before], &to = plan_.kernels[n];
    to.ops.insert(to.ops.begin(), from.ops.begin(), from.ops.end());
    for (const Origin& o : from.origins) {
      if (std::find(to.origins.begin(), to.origins.end(), o) == to.origins.end()) to.origins.push_back(o);
    }
    return true;
  }

  // Whether kernel n is all that reads the buffer.
  bool read_by(BufferId id, size_t n) const {
    const auto found = readers_.find(id);
    return !shown_.contains(id) && (found == readers_.end() || std::all_of(found->second.begin(), found->second.end(), [&](size_t k) { return k == n; }));
  }

  KernelPlan& plan_;
  std::vector<KernelWork> work_;                  // of the kernels as they were
  std::map<BufferId, std::set<size_t>> readers_;  // the kernels that read a buffer, as they are now
  std::set<BufferId> shown_;                      // results of the program
  std::set<size_t> gone_;
};

}  // namespace

void compute_written_rows(KernelPlan& plan) { RowComputer(plan).run(); }

}  // namespace coil
