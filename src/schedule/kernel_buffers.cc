#include "schedule/kernel_buffers.h"

#include "loop/dense.h"

namespace coil {
namespace {

class Collector {
 public:
  void operator()(const LoopKernel& k) {
    for (const Stmt& s : k.stmts) add(s);
    for (const WorkerScratch& s : k.scratch) add(found.own, s.buffer);
  }
  void operator()(const TemplateKernel& k) {
    for (const PlanOperand& o : k.operands) read(o);
    for (const PlanOperand& o : k.weights) read(o);
    if (k.past) past(k);
    for (const Stmt& s : k.epilogue) add(s);
    if (k.epilogue.empty()) add(found.writes, k.result);
    add(found.own, k.scratch);
  }
  void operator()(const SortKernel& k) {
    loads(k.body);
    for (Expr e : {k.source_offset, k.values_offset, k.indices_offset}) loads(e);
    add(found.writes, k.values);
    add(found.writes, k.indices);
    add(found.own, k.scratch);
  }
  void operator()(const LibraryKernel& k) {
    for (BufferId id : k.def.inputs) add(found.reads, id);
    for (BufferId id : k.results) add(found.writes, id);
    add(found.own, k.scratch);
  }
  void operator()(const UserCallKernel& k) {
    for (const PlanOperand& o : k.operands) read(o);
    for (BufferId id : k.results) add(found.writes, id);
  }
  void operator()(const CopyKernel& k) {
    add(found.reads, k.from);
    loads(k.to_element);
    add(found.writes, k.to);
  }
  void operator()(const ReadKernel& k) { add(found.reads, k.source); }
  void operator()(const ControlMark& k) {
    add(found.reads, k.predicate);
    add(found.own, k.scratch);
  }

  KernelBuffers found;

 private:
  static void add(std::vector<BufferId>& list, BufferId id) {
    if (id.valid() && id.index < kScratchBase) list.push_back(id);
  }
  void loads(Expr e) {
    if (!e) return;
    visit(e, [&](Expr n) {
      if (n->kind == ExprKind::load) add(found.reads, BufferId(n->id));
    });
  }
  void read(const PlanOperand& o) {
    add(found.reads, o.buffer);
    loads(o.offset);
  }
  void add(const Stmt& s) {
    for_expressions(s, [&](Expr e) { loads(e); });
    if (s.kind == Stmt::Kind::store && s.scratch < 0) add(found.writes, s.buffer);
  }
  // The past rows are copied in front of the others, if somebody reads the whole.
  void past(const TemplateKernel& k) {
    read(k.past->k);
    read(k.past->v);
    if (k.past->keep_k && k.operands.size() > 1) add(found.writes, k.operands[1].buffer);
    if (k.past->keep_v && k.operands.size() > 2) add(found.writes, k.operands[2].buffer);
  }
};

}  // namespace

KernelBuffers buffers_of(const Kernel& kernel) {
  Collector c;
  std::visit(c, kernel.def);
  return std::move(c.found);
}

void for_expressions(const Stmt& s, FunctionRef<void(Expr)> f) {
  for (Expr e : {s.value, s.offset, s.condition}) {
    if (e) f(e);
  }
}

int64_t spanned_elements(const BufferInfo& buffer, FunctionRef<int64_t(Expr)> value) {
  int64_t last = 0, count = 1;
  for (size_t d = 0; d < buffer.sizes.size(); ++d) {
    const int64_t size = value(buffer.sizes[d]);
    if (size <= 0) return 0;
    count *= size;
    if (!buffer.strides.empty()) last += (size - 1) * value(buffer.strides[d]);
  }
  return buffer.strides.empty() ? count : last + 1;
}

bool copies_elements(const KernelPlan& plan, const CopyKernel& copy) {
  const BufferInfo& to = plan.buffer(copy.to).info;
  return !copy.to_element && to.kind == BufferInfo::Kind::input && !is_dense(to.sizes, to.strides);
}

BufferId whole_buffer(const KernelPlan& plan, BufferId id) {
  const Placement& p = plan.buffer(id).placement;
  return p.kind == Placement::Kind::row ? BufferId(p.index) : id;
}

std::vector<int> matching_ends(const KernelPlan& plan) {
  std::vector<int> ends(plan.kernels.size(), -1);
  std::vector<size_t> open;
  for (size_t n = 0; n < plan.kernels.size(); ++n) {
    const auto* mark = std::get_if<ControlMark>(&plan.kernels[n].def);
    if (!mark) continue;
    if (mark->opens()) open.push_back(n);
    if (mark->kind != ControlMark::Kind::end || open.empty()) continue;
    ends[open.back()] = static_cast<int>(n);
    open.pop_back();
  }
  return ends;
}

size_t last_of_group(const KernelPlan& plan, size_t first) {
  size_t last = first;
  while (last + 1 < plan.kernels.size() && (plan.kernels[last + 1].beside || plan.kernels[last + 1].joins)) ++last;
  return last;
}

}  // namespace coil
