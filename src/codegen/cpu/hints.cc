// What in a program's own shapes keeps the CPU's kernels from their speed, in plain words.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "codegen/cpu/choices.h"
#include "codegen/cpu/host/template_text.h"
#include "device/kernels.h"
#include "schedule/depthwise.h"
#include "schedule/schedule.h"

namespace coil::cpu {
namespace {

constexpr int64_t kMostPadding = 10;    // per cent of the work
constexpr int64_t kWinogradChannels = 16;
constexpr int64_t kWorthSaying = 1 << 22;  // multiply-adds

// The kernels compute columns in steps of half a panel: the second half of the last one is skipped where it is padding. Dot products
// of bfloat16 (device/kernels/microkernel_dot.cc) always compute a whole one.
int64_t column_step(DType dtype) { return dtype == DType::bf16 ? COIL_PANEL : COIL_PANEL_COLUMNS(byte_size(dtype)) / 2; }

int64_t padding_percent(int64_t columns, int64_t step) {
  const int64_t padded = (columns + step - 1) / step * step;
  return (padded - columns) * 100 / padded;
}

std::string of_gemm(const KernelPlan& plan, const TemplateKernel& t, const Gemm& g) {
  const Expr n = product(*plan.pool, g.n), k = product(*plan.pool, g.k), m = product(*plan.pool, g.m), batch = product(*plan.pool, g.batch);
  if (typical(batch) * typical(m) * typical(n) * typical(k) < kWorthSaying) return "";
  const PlanBuffer& b = plan.buffer(t.operands[1].buffer);
  const int64_t step = column_step(b.info.dtype);
  if (n->is_constant() && padding_percent(n->as_int(), step) > kMostPadding) {
    return fmt::format("{} columns are no multiple of {}: {} % of the product is padding", n->as_int(), step, padding_percent(n->as_int(), step));
  }
  if (b.placement.kind != Placement::Kind::constant && b.info.kind == BufferInfo::Kind::input) {
    return fmt::format("the second factor is the input '{}': it is packed in each call; a parameter is packed when the program is compiled", b.info.name);
  }
  return "";
}

std::string of_conv(const KernelPlan& plan, const TemplateKernel& t, const Conv2d& c) {
  const BufferInfo& w = plan.buffer(t.operands[1].buffer).info;
  if (!w.sizes[0]->is_constant() || !w.sizes[1]->is_constant() || is_depthwise(c, w.sizes)) return "";
  const int64_t oc = w.sizes[0]->as_int() / c.groups, ic = w.sizes[1]->as_int();
  if (typical(t.result_sizes[0]) * typical(t.result_sizes[2]) * typical(t.result_sizes[3]) * oc * ic * c.kernel[0] * c.kernel[1] < kWorthSaying) return "";
  const bool winograd_shape = c.kernel == std::array<int64_t, 2>{3, 3} && c.stride == std::array<int64_t, 2>{1, 1} && c.dilation == std::array<int64_t, 2>{1, 1} && c.groups == 1;
  if (winograd_shape && ic > kWinogradChannels && ic % kWinogradChannels != 0) {
    return fmt::format("{} input channels are no multiple of {}: no Winograd filtering", ic, kWinogradChannels);
  }
  const PlanConstant* packed = packed_constant(plan, t.operands[1].buffer);
  if (packed && (packed->packing == PlanConstant::Packing::narrow_groups_weight || packed->packing == PlanConstant::Packing::few_outputs_weight)) return "";
  const int64_t step = column_step(w.dtype);
  if (padding_percent(oc, step) > kMostPadding) {
    return fmt::format("{} output channels{} are no multiple of {}: {} % of the sums are padding", oc, c.groups > 1 ? " of a group" : "", step, padding_percent(oc, step));
  }
  return "";
}

}  // namespace

std::vector<std::string> hints(const KernelPlan& plan) {
  std::vector<std::string> out;
  for (const Kernel& k : plan.kernels) {
    const auto* t = std::get_if<TemplateKernel>(&k.def);
    if (!t) continue;
    std::string text;
    if (const auto* g = std::get_if<Gemm>(&t->def)) text = of_gemm(plan, *t, *g);
    if (const auto* c = std::get_if<Conv2d>(&t->def)) text = of_conv(plan, *t, *c);
    if (text.empty()) continue;
    text = k.name + ": " + text;
    if (!k.origins.empty() && !k.origins[0].source.empty()) text += " (" + k.origins[0].source.substr(0, k.origins[0].source.find(": ")) + ")";
    if (std::find(out.begin(), out.end(), text) == out.end()) out.push_back(std::move(text));
  }
  return out;
}

}  // namespace coil::cpu
