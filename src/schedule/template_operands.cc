#include "schedule/template_operands.h"

#include "schedule/schedule.h"
#include "schedule/templates/parts.h"

namespace coil {

void TemplateOperands::add(TemplateKernel& k, int loop) {
  visit_template(program_.loops[static_cast<size_t>(loop)].def, [&](const auto& def) { add_operands(*this, k, def, loop); });
}

PlanOperand TemplateOperands::linear(const Operand& x, const VarRanges& ranges) const {
  return {x.buffer, simplify_index(linear_offset(pool(), program_.buffer(x.buffer), x.coordinates), ranges)};
}

const PastKeysPlan::Join* TemplateOperands::join(int loop) const {
  const auto found = past_keys_.attentions.find(loop);
  return found == past_keys_.attentions.end() ? nullptr : &found->second;
}

}  // namespace coil
