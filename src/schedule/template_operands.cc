#include "schedule/template_operands.h"

#include <algorithm>
#include <span>

#include "loop/templates/template.h"
#include "schedule/schedule.h"

namespace coil {

void TemplateOperands::add(TemplateKernel& k, int loop) {
  visit_template(program_.loops[static_cast<size_t>(loop)].def, [&](const auto& def) { of(k, def, loop); });
}

void TemplateOperands::one(TemplateKernel& k, const Operand& x) {
  k.operands.push_back({x.buffer, simplify_index(linear_offset(pool(), program_.buffer(x.buffer), x.coordinates), {operand_ranges(k.def)})});
}

void TemplateOperands::of(TemplateKernel& k, const Gemm& gemm, int) {
  one(k, gemm.a);
  one(k, gemm.b);
  const bool packed = weights_.pack_gemm_weight(k, gemm);
  CHECK(packed || !is_int(program_.buffer(gemm.b.buffer).dtype), "a quantised weight that cannot be packed");
  if (gemm.quantised) add_scales(k, *gemm.quantised);
}

void TemplateOperands::of(TemplateKernel& k, const GroupedGemm& grouped, int) {
  one(k, grouped.a);
  one(k, grouped.b);
  if (grouped.kind == GroupedGemm::Kind::rows) weights_.pack_gemm_weight(k, in_batches(grouped));
  k.operands.push_back({grouped.ends, pool().index(0)});
}

void TemplateOperands::of(TemplateKernel& k, const Conv2d& conv, int) {
  one(k, conv.x);
  weights_.add_conv_weight(k, conv);
}

void TemplateOperands::of(TemplateKernel& k, const Attention& attention, int loop) {
  const auto joined = past_keys_.attentions.find(loop);
  const bool joins = joined != past_keys_.attentions.end();
  one(k, attention.q);
  one(k, joins ? joined->second.k : attention.k);
  one(k, joins ? joined->second.v : attention.v);
  if (attention.mask) one(k, *attention.mask);
  if (joins) k.past = past_of(joined->second);
}

PastKeys TemplateOperands::past_of(const PastKeysPlan::Join& j) {
  const auto operand = [&](const Operand& x) {
    return PlanOperand{x.buffer, simplify_index(linear_offset(pool(), program_.buffer(x.buffer), x.coordinates), {})};
  };
  return {j.rows, operand(j.past_k), operand(j.past_v), j.keep_k, j.keep_v};
}

void TemplateOperands::add_scales(TemplateKernel& k, const Gemm::Quantised& q) {
  Gemm::Quantised kept = q;
  if (q.zero.valid() && program_.buffer(q.zero).kind == BufferInfo::Kind::constant) {
    const std::span<const uint8_t> bytes = program_.buffer(q.zero).data.bytes;
    if (std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; })) kept.zero = BufferId();
  }
  const auto given = [&](BufferId id) { return id.valid() && program_.buffer(id).kind != BufferInfo::Kind::constant; };
  const bool packed = !given(kept.scale) && !given(kept.zero);
  for (BufferId id : {kept.scale, kept.zero}) {
    if (id.valid()) k.operands.push_back({packed ? weights_.packed_table(id) : id, pool().index(0)});
  }
  std::get<Gemm>(k.def).quantised = kept;
}

}  // namespace coil
