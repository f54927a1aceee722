// What the scheduler should know of the CPU and its device library.
#include <algorithm>

#include "codegen/cpu/cpu_kernels.h"
#include "codegen/cpu/cpu_machine.h"
#include "codegen/cpu/loop_form.h"
#include "codegen/cpu/templates/conv2d.h"
#include "device/kernels.h"
#include "loop/templates/template.h"

namespace coil::cpu {
namespace {

Expr template_scratch(const KernelPlan& plan, const TemplateKernel& k) {
  Expr bytes;
  visit_template(k.def, [&](const auto& def) { bytes = scratch(TemplateUse{plan, k}, def); });
  return bytes;
}

}  // namespace

TargetTraits traits(const CpuSettings& settings) {
  TargetTraits t;
  t.convolution_packings = [settings](const Conv2d& c, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight) {
    const std::vector<PlanConstant::Packing> possible = conv_packings(c, x_offset, result_sizes, weight, settings.winograd);
    if (weight.kind != BufferInfo::Kind::constant) return possible;
    std::vector<PlanConstant::Packing> kept = {possible[0]};
    if (settings.keep_packings) kept = settings.keep_packings(conv_problem_text(c, x_offset, result_sizes, weight), possible);
    add_direct(kept, weight.dtype);
    if (reads_pairs(c, x_offset, result_sizes, weight)) {
      std::replace(kept.begin(), kept.end(), PlanConstant::Packing::conv_weight, PlanConstant::Packing::conv_weight_pairs);
    }
    return kept;
  };
  t.paired_depth = COIL_PAIRED_K;
  t.paired_rows = kFewestPairedRows;
  t.template_scratch = template_scratch;
  t.joins_keys = true;
  t.select_pieces = 2, t.select_step = kMaxLanes;  // a vector is of one piece
  t.small_product = 2;
  t.parallel_points = parallel_points(kUsualMachine);
  t.split_points = 1 << 16;
  t.split_parts = 64;
  t.columns_of_a_unit = kColumnBlock;
  t.colliding_row_bytes = 2048;  // as suits_in_place in device/kernels/block.h
  t.kept_bytes = kept_bytes(kUsualMachine);
  return t;
}

}  // namespace coil::cpu
