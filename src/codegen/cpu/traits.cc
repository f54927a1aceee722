// What the scheduler should know of the CPU and its device library.
#include <algorithm>

#include "codegen/cpu/cpu_kernels.h"
#include "codegen/cpu/cpu_machine.h"
#include "codegen/cpu/loop_form.h"
#include "codegen/cpu/templates/conv2d.h"
#include "codegen/cpu/templates/gemm.h"
#include "codegen/packed_tables.h"
#include "device/kernels.h"
#include "loop/templates/template.h"

namespace coil::cpu {
namespace {

Expr template_scratch(const KernelPlan& plan, const TemplateKernel& k) {
  Expr bytes;
  visit_template(k.def, [&](const auto& def) { bytes = scratch(TemplateUse{plan, k}, def); });
  return bytes;
}

PackingRules packing_rules(const CpuSettings& settings) {
  PackingRules rules;
  rules.product = product_packing;
  rules.scales = packings::gemm_b;
  rules.codes = true;
  rules.convolution = [settings](const Conv2d& c, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight) {
    const std::vector<Packing> possible = conv_packings(c, x_offset, result_sizes, weight, settings.winograd);
    std::vector<Packing> kept = {possible[0]};
    if (settings.keep_packings && possible.size() > 1) kept = settings.keep_packings(conv_problem_text(c, x_offset, result_sizes, weight), possible);
    add_direct(kept, weight.dtype);
    if (reads_pairs(c, x_offset, result_sizes, weight)) std::replace(kept.begin(), kept.end(), packings::conv_weight, packings::conv_weight_pairs);
    return kept;
  };
  if (settings.winograd) {
    rules.call_winograd = [](const Conv2d& c, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight) {
      return static_cast<int32_t>(call_winograd(c, x_offset, result_sizes, weight));
    };
  }
  rules.lookups = [](const Gemm& g, const BufferInfo& table, DType other) {
    const bool coded = g.quantised && !has_4_bits(table.data.bytes);
    const std::vector<int8_t> codes = coded ? coded_numbers(table.data.bytes) : std::vector<int8_t>{};
    return table_in_panels(table, panel_packing(g, table, other, codes), codes);
  };
  return rules;
}

}  // namespace

TargetTraits traits(const CpuSettings& settings) {
  TargetTraits t;
  t.packings = packing_rules(settings);
  t.template_scratch = template_scratch;
  t.joins_keys = true;
  t.select_pieces = 2, t.select_step = kMaxLanes;  // a vector is of one piece
  t.small_product = 2;
  const CpuMachine machine = settings.machine.value_or(kUsualCpu);
  if (settings.machine) t.machine = {machine.workers, machine.own_cache, machine.shared_cache, 0};
  t.parallel_points = parallel_points(machine);
  t.split_points = 1 << 16;
  t.split_parts = 64;
  t.columns_of_a_unit = kColumnBlock;
  t.colliding_row_bytes = COIL_COLLIDING_ROW_BYTES;
  t.kept_bytes = kept_bytes(machine);
  return t;
}

}  // namespace coil::cpu
