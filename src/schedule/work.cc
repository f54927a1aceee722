// See work.h.
#include "schedule/work.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "loop/templates/template.h"
#include "ops/element_count.h"
#include "schedule/renumber.h"

namespace coil {
namespace {

bool is_floating(DType t) { return t == DType::f16 || t == DType::bf16 || t == DType::f32 || t == DType::f64; }

// Moves and comparisons are no arithmetic.
bool counts(Expr e) {
  if (e->kind != ExprKind::op || !is_floating(e->dtype)) return false;
  switch (e->op) {
    case ScalarOp::select:
    case ScalarOp::masked:
    case ScalarOp::cast:
    case ScalarOp::bits:
    case ScalarOp::from_bits: return false;
    default: return true;
  }
}

// A condition on coordinates and sizes: of an element's place, not of the element.
bool is_of_places(Expr condition) {
  bool places = true;
  visit(condition, [&](Expr e) { places = places && e->kind != ExprKind::load; });
  return places;
}

// Whether a value is only read, chosen by its place, or converted. Where it is read may be computed.
bool is_moved(Expr e) {
  if (e->kind != ExprKind::op) return true;
  switch (e->op) {
    case ScalarOp::select:
    case ScalarOp::masked: return is_of_places(e->args[0]) && is_moved(e->args[1]) && is_moved(e->args[2]);
    case ScalarOp::cast:
    case ScalarOp::bits:
    case ScalarOp::from_bits: return is_moved(e->args[0]);
    default: return false;
  }
}

class Counter {
 public:
  explicit Counter(const KernelPlan& plan) : plan_(plan), flops_(pool().index(0)) {}

  // `elements` of a buffer are read or written; several such parts of one buffer may be the same ones, so together they are no more than it.
  void touch(BufferId id, Expr elements, bool written = false) {
    if (!id.valid() || id.index >= kScratchBase) return;
    if (plan_.buffer(id).placement.kind != Placement::Kind::constant) (written ? writes_ : reads_).insert(id.index);
    Expr& sum = touched_[id.index];
    sum = sum ? sum + elements : elements;
  }
  void touch(BufferId id) {
    if (id.valid() && id.index < kScratchBase) touch(id, elements_of(id));
  }
  void write(BufferId id) {
    if (id.valid() && id.index < kScratchBase) touch(id, elements_of(id), true);
  }

  // Space for a kernel's own use: it has a life in memory, and nothing of it reaches another kernel.
  void scratch(BufferId id) {
    if (id.valid() && id.index < kScratchBase) writes_.insert(id.index);
  }

  void value(Expr e, Expr points) {
    int64_t operations = 0;
    visit(e, [&](Expr n) {
      operations += counts(n);
      if (n->kind == ExprKind::load) touch(BufferId(n->id), points);
    });
    compute(points * operations);
  }
  void compute(Expr operations) { flops_ = flops_ + operations; }

  void statement(const Stmt& s, Expr points) {
    value(s.value, points);
    if (s.condition) value(s.condition, points);
    if (s.kind == Stmt::Kind::store && s.scratch < 0) touch(s.buffer, points, true);
    if ((s.kind == Stmt::Kind::reduce || s.kind == Stmt::Kind::scan) && is_floating(s.dtype)) compute(points);
  }

  KernelWork work(bool known = true) const {
    Expr bytes = pool().index(0);
    for (const auto& [index, elements] : touched_) {
      const BufferId id(index);
      const Expr moved = pool().op(ScalarOp::imin, {elements, elements_of(id)});
      bytes = bytes + (is_in_halves(id) ? floor_div(moved + 1, pool().index(2)) : moved * byte_size(plan_.buffer(id).info.dtype));
    }
    const auto list = [](const std::set<int32_t>& ids) { return std::vector<BufferId>(ids.begin(), ids.end()); };
    return {bytes, known ? flops_ : Expr(), false, list(reads_), list(writes_)};
  }
  ExprPool& pool() const { return *plan_.pool; }

 private:
  Expr elements_of(BufferId id) const { return product(pool(), plan_.buffer(id).info.sizes); }
  // Whether its numbers have half a byte each: a constant whose place in the package, once that is known, is smaller than its elements are.
  bool is_in_halves(BufferId id) const {
    const Placement& p = plan_.buffer(id).placement;
    if (p.kind != Placement::Kind::constant || p.index < 0) return false;
    const BufferInfo& info = plan_.buffer(id).info;
    const auto bytes = static_cast<uint64_t>(element_count(info.data.sizes) * byte_size(info.dtype));
    const uint64_t stored = plan_.constants[static_cast<size_t>(p.index)].bytes;
    return stored > 0 && stored < bytes;
  }

  const KernelPlan& plan_;
  std::map<int32_t, Expr> touched_;  // by buffer
  std::set<int32_t> reads_, writes_;
  Expr flops_;
};

KernelWork loop_work(Counter c, const LoopKernel& loop) {
  Expr outer = c.pool().index(1), all = c.pool().index(1);
  for (size_t i = 0; i < loop.axes.size(); ++i) {
    all = all * loop.axes[i].size;
    if (i < static_cast<size_t>(loop.num_outer)) outer = outer * loop.axes[i].size;
  }
  for (const Stmt& s : loop.stmts) c.statement(s, s.inner ? all : outer);
  for (const WorkerScratch& s : loop.scratch) c.scratch(s.buffer);
  KernelWork work = c.work();
  work.moves = std::all_of(loop.stmts.begin(), loop.stmts.end(), [](const Stmt& s) {
    return s.kind != Stmt::Kind::reduce && s.kind != Stmt::Kind::scan && is_moved(s.value) && (!s.condition || is_of_places(s.condition));
  });
  return work;
}

KernelWork work_of_template(Counter c, const TemplateKernel& t) {
  for (const PlanOperand& o : t.operands) c.touch(o.buffer);
  const Expr results = product(c.pool(), t.result_sizes);
  c.compute(template_operations(c.pool(), t.def, t.result_sizes));
  if (t.past) c.touch(t.past->k.buffer), c.touch(t.past->v.buffer);
  for (const Stmt& s : t.epilogue) c.statement(s, results);
  if (t.epilogue.empty()) c.touch(t.result, results, true);
  c.scratch(t.scratch);
  return c.work();
}

// The numbers among the factors of a product.
double constant_part(const std::vector<Expr>& sizes) {
  double part = 1;
  for (const Expr size : sizes) part *= size->is_constant() ? std::max<double>(1, std::abs(static_cast<double>(size->as_int()))) : 1;
  return part;
}

// Programs may have sizes whose amounts are no numbers of 64 bits; nobody can compute them, and they are not counted.
bool is_countable(const KernelPlan& plan, const Kernel& kernel) {
  constexpr double kMost = 0x1p44;  // times operations of a point and bytes of an element
  bool fine = true;
  const auto check = [&](std::vector<Expr> sizes) { fine = fine && constant_part(sizes) < kMost; };
  renumbered(kernel, [&](BufferId id) {
    check(plan.buffer(id).info.sizes);
    return id;
  });
  if (const auto* loop = std::get_if<LoopKernel>(&kernel.def)) {
    std::vector<Expr> sizes;
    for (const Axis& axis : loop->axes) sizes.push_back(axis.size);
    check(std::move(sizes));
  } else if (const auto* t = std::get_if<TemplateKernel>(&kernel.def)) {
    check(template_work_sizes(t->def, t->result_sizes));
  } else if (const auto* sort = std::get_if<SortKernel>(&kernel.def)) {
    std::vector<Expr> sizes = sort->sizes;
    sizes.push_back(sort->def.length);
    check(std::move(sizes));
  }
  return fine;
}

}  // namespace

KernelWork kernel_work(const KernelPlan& plan, const Kernel& kernel) {
  Counter c(plan);
  if (std::holds_alternative<ControlMark>(kernel.def) || !is_countable(plan, kernel)) return {};
  if (const auto* loop = std::get_if<LoopKernel>(&kernel.def)) return loop_work(c, *loop);
  if (const auto* t = std::get_if<TemplateKernel>(&kernel.def)) return work_of_template(c, *t);
  if (const auto* sort = std::get_if<SortKernel>(&kernel.def)) {
    c.value(sort->body, floor_div(product(c.pool(), sort->sizes) * sort->def.length,
                                  sort->sizes.empty() ? c.pool().index(1) : sort->sizes[static_cast<size_t>(sort->def.dim)]));
    c.write(sort->values), c.write(sort->indices), c.scratch(sort->scratch);
    return c.work();
  }
  if (const auto* library = std::get_if<LibraryKernel>(&kernel.def)) {
    for (BufferId id : library->def.inputs) c.touch(id);
    for (BufferId id : library->results) c.write(id);
    c.scratch(library->scratch);
    return c.work(false);
  }
  if (const auto* user = std::get_if<UserCallKernel>(&kernel.def)) {
    for (const PlanOperand& o : user->operands) c.touch(o.buffer);
    for (BufferId id : user->results) c.write(id);
    return c.work(false);
  }
  if (const auto* copy = std::get_if<CopyKernel>(&kernel.def)) {
    const Expr elements = product(c.pool(), plan.buffer(copy->from).info.sizes);
    c.touch(copy->from, elements), c.touch(copy->to, elements, true);
    KernelWork work = c.work();
    work.moves = true;
    return work;
  }
  c.touch(std::get<ReadKernel>(kernel.def).source);
  return c.work();
}

}  // namespace coil
