#include "schedule/templates/scales.h"

namespace coil {

Gemm::Quantised add_scales(TemplateOperands& to, TemplateKernel& kernel, const Gemm::Quantised& quantised) {
  Gemm::Quantised kept = quantised;
  if (kept.zero.valid() && to.buffer(kept.zero).kind == BufferInfo::Kind::constant) {
    if (is_all_zeros(to.buffer(kept.zero).data.bytes)) kept.zero = BufferId();
  }
  const auto given = [&](BufferId id) { return id.valid() && to.buffer(id).kind != BufferInfo::Kind::constant; };
  const bool packed = !given(kept.scale) && !given(kept.zero);
  for (BufferId id : {kept.scale, kept.zero}) {
    if (id.valid()) kernel.operands.push_back({packed ? to.weights.packed_table(id) : id, to.pool().index(0)});
  }
  return kept;
}

void read_scales(TemplateRun& run, size_t first, const std::vector<int64_t>& sizes, Gemm::Quantised& quantised) {
  for (BufferId* id : {&quantised.scale, &quantised.zero}) {
    if (!id->valid()) continue;
    const PlanOperand& o = run.kernel().operands[first++];
    const PlanConstant* c = run.packed(o);
    if (!c) {
      *id = run.add_as(o.buffer, sizes);
      continue;
    }
    const bool same = c->k == sizes[sizes.size() - 2] && c->n == sizes.back() && c->batch == (sizes.size() == 3 ? sizes[0] : 1);
    CHECK(same && c->row_stride == c->n && c->col_stride == 1, "a table that is packed for another product");
    *id = run.add_dense(run.info(c->buffer).dtype, sizes, run.plain(c->buffer));
  }
}

}  // namespace coil
