#include "loop/rename.h"

#include "loop/templates/template.h"

namespace coil {
namespace {

class Rename {
 public:
  explicit Rename(FunctionRef<BufferId(BufferId)> to) : to_(to) {}

  void operator()(Pointwise& d) const { rename(d.body); }
  void operator()(Reduction& d) const { rename(d.body); }
  void operator()(Scan& d) const { rename(d.body); }
  void operator()(Sort& d) const { rename(d.body); }
  void operator()(Concat& d) const {
    for (Concat::Piece& piece : d.pieces) rename(piece.body);
  }
  void operator()(Library& d) const {
    for (BufferId& id : d.inputs) map(id);
  }
  void operator()(Compact& d) const {
    for (Expr* e : {&d.keep, &d.start, &d.value}) rename(*e);
  }
  void operator()(ReadSize& d) const { map(d.source); }
  void operator()(UserCall& d) const {
    for (UserCall::Argument& a : d.args) {
      if (auto* t = std::get_if<UserCall::Tensor>(&a)) map(t->operand.buffer);
    }
  }
  void operator()(Region& d) const {
    map(d.predicate);
    for (BufferId& id : d.initial) map(id);
    for (RegionPart& part : d.parts) {
      for (auto& capture : part.captures) map(capture.second);
    }
  }
  template <Template T>
  void operator()(T& d) const {
    const TemplateParts p = parts(d);
    for (const TemplateParts::Read& read : p.operands) map(read.operand->buffer);
    for (BufferId* id : p.whole) map(*id);
  }

 private:
  void map(BufferId& id) const {
    if (id.valid()) id = to_(id);
  }
  void rename(Expr& e) const {
    e = rewrite(e, [this](Expr leaf) {
      if (leaf->kind != ExprKind::load) return Expr();
      return leaf->pool->load(to_(BufferId(leaf->id)), leaf->dtype, leaf->args);
    });
  }

  FunctionRef<BufferId(BufferId)> to_;
};

}  // namespace

void rename_reads(Loop& loop, FunctionRef<BufferId(BufferId)> to) { std::visit(Rename(to), loop.def); }

}  // namespace coil
