#include "schedule/renumber.h"

#include "loop/templates/template.h"

namespace coil {
namespace {

class Renumberer {
 public:
  explicit Renumberer(FunctionRef<BufferId(BufferId)> to) : to_(to) {}

  void operator()(LoopKernel& k) const {
    for (Stmt& s : k.stmts) map(s);
    for (WorkerScratch& s : k.scratch) map(s.buffer);
  }
  void operator()(TemplateKernel& k) const {
    const TemplateParts parts = parts_of(k.def);
    for (const TemplateParts::Read& read : parts.operands) map(read.operand->buffer);
    for (BufferId* id : parts.whole) map(*id);
    for (PlanOperand& o : k.operands) map(o.buffer);
    if (k.past) map(k.past->k.buffer), map(k.past->v.buffer);
    for (Stmt& s : k.epilogue) map(s);
    map(k.result);
    map(k.scratch);
  }
  void operator()(SortKernel& k) const {
    map(k.def.body);
    map(k.body);
    for (BufferId* id : {&k.values, &k.indices, &k.scratch}) map(*id);
  }
  void operator()(LibraryKernel& k) const {
    for (BufferId& id : k.def.inputs) map(id);
    for (BufferId& id : k.results) map(id);
    map(k.scratch);
  }
  void operator()(UserCallKernel& k) const {
    for (UserCall::Argument& a : k.def.args) {
      if (auto* t = std::get_if<UserCall::Tensor>(&a)) map(t->operand.buffer);
    }
    for (PlanOperand& o : k.operands) map(o.buffer);
    for (BufferId& id : k.results) map(id);
  }
  void operator()(CopyKernel& k) const {
    map(k.from);
    map(k.to);
  }
  void operator()(ReadKernel& k) const { map(k.source); }
  void operator()(ControlMark& k) const {
    map(k.predicate);
    map(k.scratch);
  }

 private:
  void map(BufferId& id) const {
    if (id.valid() && id.index < kScratchBase) id = to_(id);
  }
  void map(Expr& e) const {
    if (!e) return;
    e = rewrite(e, [this](Expr leaf) {
      if (leaf->kind != ExprKind::load) return Expr();
      BufferId id(leaf->id);
      map(id);
      ExprNode node = *leaf;  // linear loads: the coordinates are an offset, the type is the register's
      node.id = id.index;
      return leaf->pool->make(std::move(node));
    });
  }
  void map(Stmt& s) const {
    map(s.value);
    map(s.offset);
    map(s.condition);
    map(s.buffer);
  }

  FunctionRef<BufferId(BufferId)> to_;
};

}  // namespace

Kernel renumbered(Kernel kernel, FunctionRef<BufferId(BufferId)> to) {
  std::visit(Renumberer(to), kernel.def);
  return kernel;
}

Kernel renumbered(Kernel kernel, const std::vector<BufferId>& ids) {
  return renumbered(std::move(kernel), [&](BufferId id) { return ids[static_cast<size_t>(id.index)]; });
}

}  // namespace coil
