#include "schedule/schedule.h"
#include "schedule/templates/parts.h"

namespace coil {
namespace {

// Where the template wants constant weights as [oc][kh][kw][ic], those of run time are copied to be so.
void legalise_weight(OperandCopies& copies, const Loop& loop, Conv2d& c) {
  const BufferInfo& w = copies.buffer(c.weight);
  if (w.kind == BufferInfo::Kind::constant || copies.target().packs_convolution_weights) return;
  const Expr ic = w.sizes[1], row = w.sizes[3] * ic;
  if (w.strides == std::vector<Expr>{w.sizes[2] * row, copies.pool().index(1), row, ic} && w.kind == BufferInfo::Kind::computed) return;
  Operand whole{c.weight, {}};
  for (int d = 0; d < 4; ++d) whole.coordinates.push_back(copies.pool().var(d));
  copies.copy(whole, {0, 1, 2, 3}, std::vector<Expr>(w.sizes), loop, "a convolution reads the weights of a point of its window side by side", true);
  c.weight = whole.buffer;
}

}  // namespace

// The template reads unit-stride channels, or gathers from few channels.
void legalise(OperandCopies& copies, Loop& loop, Conv2d& c) {
  legalise_weight(copies, loop, c);
  const Expr offset = copies.offset_of(c.x, loop.def);
  if (copies.has_strides(offset, 4)) {
    const auto channel = as_affine(offset, 1);
    const bool few = c.x_sizes[1]->is_constant() && c.x_sizes[1]->as_int() <= 4;
    const bool bytes = is_int(copies.buffer(c.x.buffer).dtype), one = c.x_sizes[1] == copies.pool().index(1);
    if (channel->coefficient == copies.pool().index(1) || (few && c.groups == 1 && (!bytes || one))) return;
  }
  copies.copy(c.x, {0, 1, 2, 3}, c.x_sizes, loop, "a convolution reads the channels of a point side by side", true);
}

std::optional<ResultRows> result_rows(ExprPool&, const Conv2d&, const std::vector<Expr>&) { return std::nullopt; }

void add_operands(TemplateOperands& to, TemplateKernel& k, const Conv2d& conv, int) {
  to.one(k, conv.x);
  to.weights.add_conv_weight(k, conv);
}

// The weight by its own coordinates. Each way in which it is packed is one of the program's weight.
void read_from_plan(TemplateRun& run, Conv2d& conv) {
  const TemplateKernel& kernel = run.kernel();
  const BufferInfo& w = run.info(conv.weight);
  const std::vector<int64_t> sizes = run.values(w.sizes);
  const PlanOperand& first = kernel.operands[1];
  for (const PlanOperand& o : kernel.weights) CHECK(run.packed(o) && run.packed(o)->buffer == conv.weight, "a weight that is packed from another one");
  conv.x = run.linear(kernel.operands[0]);
  if (const PlanConstant* c = run.packed(first)) {
    CHECK(c->buffer == conv.weight, "a weight that is packed from another one");
    conv.weight = run.add_dense(w.dtype, sizes, run.plain(c->buffer));
  } else {
    conv.weight = run.gathered(run.pool().load(first.buffer, w.dtype, {first.offset}), w.dtype, sizes);
  }
}

}  // namespace coil
