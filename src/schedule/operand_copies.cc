#include "schedule/operand_copies.h"

#include "loop/templates/template.h"
#include "schedule/channels_last.h"
#include "schedule/schedule.h"

namespace coil {

Expr OperandCopies::offset_of(const Operand& operand, const LoopDef& user) const {
  return simplify_index(linear_offset(pool(), program_.buffer(operand.buffer), operand.coordinates), {operand_ranges(user)});
}

bool OperandCopies::has_strides(Expr offset, int count) const {
  for (int v = 0; v < count; ++v) {
    if (!as_affine(offset, v)) return false;
  }
  return true;
}

bool OperandCopies::copy(Operand& operand, const std::vector<int>& vars, const std::vector<Expr>& sizes, const Loop& user, const char* reason,
                         bool channels_last) {
  const BufferInfo source = program_.buffer(operand.buffer);
  std::vector<Expr> renumber(64);
  std::vector<Expr> coordinates;
  for (int i = 0; i < 64; ++i) renumber[static_cast<size_t>(i)] = pool().var(i);
  for (size_t k = 0; k < vars.size(); ++k) {
    renumber[static_cast<size_t>(vars[k])] = pool().var(static_cast<int>(k));
    coordinates.push_back(pool().var(vars[k]));
  }
  std::vector<Expr> at;
  for (Expr c : operand.coordinates) at.push_back(substitute_vars(c, renumber));
  const Expr value = pool().load(operand.buffer, source.dtype, at);
  BufferId& known = copied_[{value.node(), channels_last}];  // expressions of one value are one node
  if (known.valid() && program_.buffer(known).sizes == sizes) {
    operand = Operand{known, coordinates};
    return false;
  }
  BufferInfo made;
  made.name = source.name + "_copy" + std::to_string(++count_);
  made.dtype = source.dtype;
  made.sizes = sizes;
  made.strides = channels_last ? channels_last_strides(pool(), sizes) : contiguous_strides(pool(), sizes);
  made.why = "it is a copy of " + source.name + " for " + user.op + ": " + reason;
  const BufferId id(program_.buffers.size());
  program_.buffers.push_back(std::move(made));
  known = id;
  Loop loop;
  loop.def = Pointwise{value};
  loop.outputs = {id};
  loop.op = "copy";
  loop.origins = user.origins;
  program_.loops.push_back(std::move(loop));
  operand = Operand{id, coordinates};
  return true;
}

void OperandCopies::make_dense(BufferId& id, const Loop& user) {
  const BufferInfo& b = program_.buffer(id);
  if (b.strides == contiguous_strides(pool(), b.sizes)) return;
  std::vector<int> vars;
  Operand whole{id, {}};
  for (size_t d = 0; d < b.sizes.size(); ++d) {
    vars.push_back(static_cast<int>(d));
    whole.coordinates.push_back(pool().var(static_cast<int>(d)));
  }
  copy(whole, vars, std::vector<Expr>(b.sizes), user, "it reads dense rows, which these are not");
  id = whole.buffer;
}

}  // namespace coil
