// The inside of one kernel: its variables, temps, loads and stores.
#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "loop/templates/template.h"
#include "loop/visit.h"
#include "schedule/kernel_buffers.h"
#include "schedule/verify_plan.h"

namespace coil {
namespace {

class KernelVerifier {
 public:
  KernelVerifier(const KernelPlan& plan, const Kernel& kernel) : plan_(plan), kernel_(kernel) {}

  std::string run(const KernelBuffers& used) {
    for (const auto* list : {&used.reads, &used.writes, &used.own}) {
      for (BufferId id : *list) {
        if (!exists(id)) return fmt::format("mentions buffer {} of {}", id.index, plan_.buffers.size());
      }
    }
    for (BufferId id : used.writes) {
      if (plan_.buffer(id).info.kind == BufferInfo::Kind::constant) return fmt::format("writes to the constant '{}'", name(id));
    }
    std::visit([this](const auto& def) { check(def); }, kernel_.def);
    return problem_;
  }

 private:
  // Of a temp: who defines it.
  struct Definition {
    Stmt::Kind kind;
    bool inner;
    int phase;
    DType dtype;
  };

  template <class... A>
  void wrong(fmt::format_string<A...> format, A&&... args) {
    if (problem_.empty()) problem_ = fmt::format(format, std::forward<A>(args)...);
  }

  bool exists(BufferId id) const { return id.valid() && static_cast<size_t>(id.index) < plan_.buffers.size(); }
  const std::string& name(BufferId id) const { return plan_.buffer(id).info.name; }

  // A size is a number before the kernel runs.
  void check_size(Expr e, const char* what) {
    if (!e) return wrong("has no {}", what);
    if (e->dtype != DType::index) return wrong("has {} of another type than index", what);
    if (any_of(e, [](Expr n) { return n->kind == ExprKind::var || n->kind == ExprKind::load || n->kind == ExprKind::temp; }))
      wrong("has {} that depends on a point: {}", what, to_string(e));
  }

  void check_load(Expr e, const std::vector<WorkerScratch>& scratch) {
    if (e->args.size() != 1 || e->args[0]->dtype != DType::index) return wrong("loads at {} coordinates, not at one linear offset", e->args.size());
    DType stored = DType::f32;
    if (e->id >= kScratchBase) {
      const auto row = static_cast<size_t>(e->id - kScratchBase);
      if (row >= scratch.size()) return wrong("loads from scratch{} of {}", row, scratch.size());
      stored = scratch[row].dtype;
    } else {
      stored = plan_.buffer(BufferId(e->id)).info.dtype;
    }
    if (compute_type(stored) != e->dtype) wrong("loads {} as {}", coil::name(stored), coil::name(e->dtype));
  }

  // Variables, loads and temps of an expression. temp: whether it may be used here.
  template <class Usable>
  void check_expression(Expr e, size_t num_vars, const std::vector<WorkerScratch>& scratch, const Usable& usable) {
    if (!e) return wrong("lacks an expression");
    visit(e, [&](Expr n) {
      if (n->kind == ExprKind::var && static_cast<size_t>(n->id) >= num_vars) wrong("mentions variable {} where there are {}", n->id, num_vars);
      if (n->kind == ExprKind::load) check_load(n, scratch);
      if (n->kind == ExprKind::temp) usable(n);
    });
  }

  void check_store(const Stmt& s, const std::vector<WorkerScratch>& scratch) {
    DType stored = s.dtype;
    if (s.scratch >= 0) {
      if (static_cast<size_t>(s.scratch) >= scratch.size()) return wrong("stores to scratch{} of {}", s.scratch, scratch.size());
      stored = scratch[static_cast<size_t>(s.scratch)].dtype;
    } else {
      if (!exists(s.buffer)) return wrong("stores to no buffer");
      stored = plan_.buffer(s.buffer).info.dtype;
      if (stored != s.dtype) return wrong("stores {} to '{}', which has {}", coil::name(s.dtype), name(s.buffer), coil::name(stored));
    }
    if (!s.offset || s.offset->dtype != DType::index) return wrong("stores at no linear offset");
    if (s.value && s.value->dtype != compute_type(stored)) wrong("stores a value of {} as {}", coil::name(s.value->dtype), coil::name(stored));
    if (s.condition && !is_bool(s.condition->dtype)) wrong("stores under a condition of {}", coil::name(s.condition->dtype));
  }

  // Whether a statement may use what another one defines.
  static bool ready(const Definition& d, const Stmt& user) {
    switch (d.kind) {
      case Stmt::Kind::reduce: return user.phase > d.phase;  // complete when its pass is
      case Stmt::Kind::scan: return user.inner && user.phase == d.phase;
      default: return !d.inner || (user.inner && user.phase == d.phase);
    }
  }

  void check_statement(const Stmt& s, size_t num_vars, const std::vector<WorkerScratch>& scratch) {
    const auto usable = [&](Expr temp) {
      const auto found = temps_.find(temp->id);
      if (found == temps_.end()) return wrong("uses t{} before it is computed", temp->id);
      if (!ready(found->second, s)) wrong("uses t{} of phase {} in phase {}, where it is not complete", temp->id, found->second.phase, s.phase);
      if (found->second.dtype != temp->dtype) wrong("uses t{} as {}", temp->id, coil::name(temp->dtype));
    };
    check_expression(s.value, num_vars, scratch, usable);
    if (s.offset) check_expression(s.offset, num_vars, scratch, usable);
    if (s.condition) check_expression(s.condition, num_vars, scratch, usable);
    if (s.kind == Stmt::Kind::store) return check_store(s, scratch);
    if (!s.temp.valid() || !temps_.try_emplace(s.temp.index, Definition{s.kind, s.inner, s.phase, s.dtype}).second) wrong("computes t{} twice", s.temp.index);
  }

  void check(const LoopKernel& k) {
    for (const Axis& axis : k.axes) check_size(axis.size, "an axis");
    if (k.num_outer < 0 || static_cast<size_t>(k.num_outer) > k.axes.size()) return wrong("has {} outer axes of {}", k.num_outer, k.axes.size());
    for (const WorkerScratch& s : k.scratch) check_size(s.elements, "scratch memory");
    const Stmt* before = nullptr;
    for (const Stmt& s : k.stmts) {
      if (s.phase < 0 || s.phase > k.num_phases || (s.inner && s.phase == k.num_phases)) wrong("has phase {} of {}", s.phase, k.num_phases);
      if (before && std::pair(s.phase, s.inner) < std::pair(before->phase, before->inner)) wrong("goes back from phase {} to {}", before->phase, s.phase);
      if (s.kind == Stmt::Kind::scan && (!k.sequential || !s.inner)) wrong("scans along no axis");
      if (s.kind == Stmt::Kind::reduce && !s.inner) wrong("reduces a single point");
      check_statement(s, s.inner ? k.axes.size() : static_cast<size_t>(k.num_outer), k.scratch);
      before = &s;
    }
  }

  void check_operand(const PlanOperand& o, size_t num_vars) {
    if (!exists(o.buffer)) return wrong("has an operand that is no buffer");
    check_expression(o.offset, num_vars, {}, [&](Expr) { wrong("finds '{}' by a temp", name(o.buffer)); });
    if (o.offset && any_of(o.offset, [](Expr e) { return e->kind == ExprKind::load; })) wrong("finds '{}' by data", name(o.buffer));
  }

  void check(const TemplateKernel& k) {
    if (!is_template(k.def)) return wrong("calls a template that is none");
    const TemplateParts parts = parts_of(k.def);
    const size_t whole = static_cast<size_t>(std::count_if(parts.whole.begin(), parts.whole.end(), [](const BufferId* id) { return id->valid(); }));
    if (k.operands.size() != parts.operands.size() + whole) return wrong("has {} operands, its template {}", k.operands.size(), parts.operands.size() + whole);
    size_t most = 4;  // whole buffers: over their own coordinates
    for (size_t i = 0; i < parts.operands.size(); ++i) check_operand(k.operands[i], parts.operands[i].domain.size());
    for (size_t i = parts.operands.size(); i < k.operands.size(); ++i) check_operand(k.operands[i], most);
    for (const PlanOperand& o : k.weights) check_operand(o, most);
    if (k.past) {
      check_size(k.past->rows, "rows of the past");
      check_operand(k.past->k, most);
      check_operand(k.past->v, most);
    }
    for (Expr size : k.result_sizes) check_size(size, "a size of its result");
    if (k.epilogue.empty()) {
      if (!exists(k.result)) return wrong("has no result");
      return check_expression(k.result_offset, k.result_sizes.size(), {}, [&](Expr) { wrong("stores its result at a temp's place"); });
    }
    if (!takes_epilogue(k.def)) return wrong("has an epilogue that its template cannot run");
    const DType result = exists(k.result) ? plan_.buffer(k.result).info.dtype : DType::f32;
    temps_.emplace(k.acc.index, Definition{Stmt::Kind::let, false, 0, compute_type(result)});
    for (const Stmt& s : k.epilogue) check_statement(s, k.result_sizes.size(), {});
  }

  void check(const SortKernel& k) {
    const auto no_temp = [&](Expr) { wrong("sorts what is not computed"); };
    check_expression(k.body, k.sizes.size(), {}, no_temp);
    for (Expr offset : {k.values_offset, k.indices_offset}) check_expression(offset, k.sizes.size(), {}, no_temp);
    for (Expr size : k.sizes) check_size(size, "a size");
    check_size(k.def.length, "a length to sort");
    if (!exists(k.values) || !exists(k.indices)) return wrong("has no result");
    if (k.def.dim < 0 || static_cast<size_t>(k.def.dim) >= std::max<size_t>(k.sizes.size(), 1))
      wrong("sorts along dimension {} of {}", k.def.dim, k.sizes.size());
    if (plan_.buffer(k.values).info.dtype != k.dtype || plan_.buffer(k.indices).info.dtype != DType::i64) wrong("sorts into buffers of wrong types");
  }

  void check(const LibraryKernel& k) {
    for (BufferId id : k.def.inputs) {
      if (!exists(id)) wrong("reads no buffer");
    }
    for (BufferId id : k.results) {
      if (!exists(id)) wrong("writes to no buffer");
    }
    if (k.results.empty()) wrong("has no result");
  }

  void check(const UserCallKernel& k) {
    if (!k.def.kernel) return wrong("calls a user's kernel that is none");
    if (k.operands.size() != k.def.args.size()) return wrong("has {} operands for {} arguments", k.operands.size(), k.def.args.size());
    for (size_t i = 0; i < k.operands.size(); ++i) {
      const auto* tensor = std::get_if<UserCall::Tensor>(&k.def.args[i]);
      if (k.operands[i].buffer.valid()) check_operand(k.operands[i], tensor ? tensor->sizes.size() : 0);
      else if (tensor && tensor->operand.buffer.valid()) wrong("lacks the tensor of argument {}", i);
    }
  }

  void check(const CopyKernel& k) {
    if (!exists(k.from) || !exists(k.to)) return wrong("copies from or to no buffer");
    if (plan_.buffer(k.from).info.dtype != plan_.buffer(k.to).info.dtype) wrong("copies '{}' to '{}', which has another type", name(k.from), name(k.to));
    if (k.to_element) check_size(k.to_element, "a place to copy to");
  }

  void check(const ReadKernel& k) {
    if (!exists(k.source) || plan_.buffer(k.source).info.dtype != DType::i64 || !plan_.buffer(k.source).info.sizes.empty())
      return wrong("reads a size from what is no 0-d i64 buffer");
    if (!k.symbol.valid() || static_cast<size_t>(k.symbol.index) >= plan_.pool->num_symbols()) return wrong("reads a size that is no symbol");
    if (k.limit) check_size(k.limit, "a limit");
  }

  void check(const ControlMark& k) {
    using Kind = ControlMark::Kind;
    if (k.kind == Kind::branch || k.kind == Kind::stop_unless) {
      if (!exists(k.predicate)) return wrong("asks no buffer");
      const BufferInfo& b = plan_.buffer(k.predicate).info;
      if (!is_bool(b.dtype) || !b.sizes.empty()) return wrong("asks '{}', which is no 0-d bool", b.name);
    }
    if (k.kind == Kind::loop && (!k.step.valid() || static_cast<size_t>(k.step.index) >= plan_.pool->num_symbols())) wrong("counts no symbol");
    if (k.kind == Kind::images || (k.kind == Kind::loop && k.steps)) check_size(k.steps, "a number of steps");
    if (k.kind == Kind::images) check_size(k.part_bytes, "memory of an image");
    if (k.opens() && !exists(k.scratch)) wrong("has no memory for the kernels inside");
  }

  const KernelPlan& plan_;
  const Kernel& kernel_;
  std::unordered_map<int32_t, Definition> temps_;
  std::string problem_;
};

}  // namespace

std::string kernel_problem(const KernelPlan& plan, const Kernel& kernel, const KernelBuffers& used) { return KernelVerifier(plan, kernel).run(used); }

}  // namespace coil
