#include "codegen/cpu/templates/conv2d.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "codegen/cpu/templates/call_fields.h"
#include "codegen/interface/call_text.h"
#include "schedule/depthwise.h"
#include "schedule/schedule.h"

namespace coil::cpu {

const PlanOperand* weight_of(const KernelPlan& plan, const TemplateKernel& k, int32_t method) {
  const PlanOperand& own = k.operands[1];
  if (method == kOwnMethod) return &own;
  const auto fits = [&](const PlanOperand& w) {
    const Packing packing = packing_of(plan, w.buffer);
    if (method == kWinograd) return winograd_tile(packing) != 0;
    return packing == packings::conv_weight || packing == packings::conv_weight_pairs || packing == kPlain ||
           ((packing == packings::depthwise_weight || packing == packings::narrow_groups_weight) && method == kOneDnn);
  };
  if (fits(own)) return &own;
  const auto it = std::find_if(k.weights.begin(), k.weights.end(), fits);
  return it == k.weights.end() ? nullptr : &*it;
}

std::string conv_problem_text(const Conv2d& c, Expr x_offset, const std::vector<Expr>& result_sizes, const BufferInfo& weight) {
  std::vector<Expr> strides;
  for (int v = 0; v < 4; ++v) strides.push_back(as_affine(x_offset, v)->coefficient);
  return fmt::format("conv2d x {} strides {}, weight {} {}, result {}, stride {}x{} padding {}x{} dilation {}x{} groups {}", size_texts(c.x_sizes),
                     size_texts(strides), name(weight.dtype), size_texts(weight.sizes), size_texts(result_sizes), c.stride[0], c.stride[1], c.padding[0],
                     c.padding[1], c.dilation[0], c.dilation[1], c.groups);
}

std::string problem(const TemplateUse& use, const Conv2d& c) {
  return conv_problem_text(c, use.kernel.operands[0].offset, use.kernel.result_sizes, use.info(1));
}

Expr key(const TemplateUse& use, const Conv2d&) {
  const std::vector<Expr>& r = use.kernel.result_sizes;
  return r[0] * r[2] * r[3];
}

const ChoiceNames& choice_names(const Conv2d&) { return ProductChoice::kNames; }

std::string method_text(const Conv2d&, int32_t method) {
  static constexpr const char* kMethods[] = {"", "direct", "implicit product", "winograd", "onednn"};
  return static_cast<size_t>(method) < std::size(kMethods) ? kMethods[method] : "unknown";
}

bool has_method(const TemplateUse& use, const Conv2d&, int32_t method) { return weight_of(use.plan, use.kernel, method) != nullptr; }

OneDnnWeight onednn_weight(const TemplateUse& use, const Conv2d&) {
  const DType dtype = use.info(0).dtype;
  if (dtype != DType::f32 && dtype != DType::bf16) return {};
  const PlanOperand* w = weight_of(use.plan, use.kernel, kOneDnn);
  if (!w || packing_of(use.plan, w->buffer) == kPlain) return {};
  return {w, product(use.pool(), use.plan.buffer(w->buffer).info.sizes)->as_int()};
}

std::vector<Choice> candidates(const TemplateUse& use, const Conv2d& c, const Sought& sought) {
  const auto& [plan, t] = use;
  const bool onednn = sought.machine.onednn && onednn_weight(use, c).operand;
  const Packing own = use.packing(1);
  if (own == packings::depthwise_weight || own == packings::narrow_groups_weight || own == packings::few_outputs_weight ||
      own == packings::conv_weight_integer) {
    return ordered(onednn ? std::vector<Choice>{by(kOneDnn)} : std::vector<Choice>{}, {}, sought.most);
  }
  const std::vector<Expr>&w = use.info(1).sizes, &r = t.result_sizes;
  const auto value = [&](Expr e) { return sought.value(e); };
  const auto groups = static_cast<double>(c.groups);
  const Blocked p = {groups, value(r[0]) * value(r[2]) * value(r[3]), value(w[0]) / groups, value(w[1]) * value(w[2]) * value(w[3]),
                     use.info(0).dtype == DType::f64 ? 8 : 4};
  std::vector<Choice> first;
  const bool own_winograd = winograd_tile(own) != 0 || t.call_winograd != 0;
  if (!own_winograd && weight_of(plan, t, kWinograd)) first.push_back(by(kWinograd));
  if (own_winograd && weight_of(plan, t, kDirect)) first.push_back(by(kDirect));
  if (onednn) first.push_back(by(kOneDnn));
  Priced rest;
  if (weight_of(plan, t, kImplicit)) add_blocks(p, kImplicit, sought.machine, rest);
  if (sought.machine.threads > 1 && p.multiply_adds() < kSmallProduct) first.push_back(one_thread());
  return ordered(first, std::move(rest), sought.most);
}

namespace {

constexpr int64_t kWinogradChannels = 16;

}  // namespace

KernelHint hint(const TemplateUse& use, const Conv2d& c) {
  const auto& [plan, t] = use;
  const BufferInfo& w = plan.buffer(t.operands[1].buffer).info;
  if (!w.sizes[0]->is_constant() || !w.sizes[1]->is_constant() || is_depthwise(c, w.sizes)) return {};
  const int64_t oc = w.sizes[0]->as_int() / c.groups, ic = w.sizes[1]->as_int();
  if (typical(t.result_sizes[0]) * typical(t.result_sizes[2]) * typical(t.result_sizes[3]) * oc * ic * c.kernel[0] * c.kernel[1] < kWorthSaying) return {};
  const bool winograd_shape =
      c.kernel == std::array<int64_t, 2>{3, 3} && c.stride == std::array<int64_t, 2>{1, 1} && c.dilation == std::array<int64_t, 2>{1, 1} && c.groups == 1;
  if (winograd_shape && ic > kWinogradChannels && ic % kWinogradChannels != 0) {
    return {fmt::format("{} input channels are no multiple of {}: no Winograd filtering", ic, kWinogradChannels)};
  }
  const PlanConstant* packed = packed_constant(plan, t.operands[1].buffer);
  if (packed && (packed->packing == packings::narrow_groups_weight || packed->packing == packings::few_outputs_weight)) return {};
  const int64_t step = column_step(w.dtype);
  if (padding_percent(oc, step) > kMostPadding) {
    return padded(c.groups > 1 ? "output channels of a group" : "output channels", oc, step, "sums are");
  }
  return {};
}

std::string device_object(const TemplateUse& use, const Conv2d&) { return use.info(0).dtype == DType::f64 ? "conv2d_f64" : "conv2d"; }

namespace {

void add_weight(CallWriter& to, const Conv2d& c) {
  const TemplateKernel& t = to.kernel;
  const PlanOperand& w = t.operands[1];
  to.pointer("w", w.buffer);
  to.add("dtype", to.dtype(t.operands[0].buffer));
  to.add("depthwise", is_depthwise(c, to.plan.buffer(w.buffer).info.sizes));
  const PlanConstant* packed = packed_constant(to.plan, w.buffer);
  if (c.x_zero) to.add("x_zero", c.x_zero);
  if (packed && packed->packing == packings::few_outputs_weight) to.add("few_outputs", 1);
  if (packed && packed->packing == packings::narrow_groups_weight) to.add("narrow_groups", 1);
  if (packed && winograd_tile(packed->packing)) {
    to.add("winograd", winograd_tile(packed->packing));
    const PlanOperand* direct = weight_of(to.plan, t, kDirect);
    if (direct && to.plan.buffer(w.buffer).info.dtype == DType::bf16) {
      to.pointer("w_direct", direct->buffer);
      if (packing_of(to.plan, direct->buffer) == packings::conv_weight_pairs) to.add("w_pairs", 1);
    }
  }
  if (packed && packed->packing == packings::conv_weight_pairs) to.add("w_pairs", 1);
  if (packed) return;
  if (t.call_winograd) to.add("winograd", t.call_winograd);
  const char* strides[] = {"w_o", "w_i", "w_h", "w_w"};
  for (int v = 0; v < 4; ++v) to.add(strides[v], as_affine(w.offset, v)->coefficient);
  to.add("w_plain", 1);
}

}  // namespace

void add_fields(CallWriter& to, const Conv2d& c) {
  const TemplateKernel& t = to.kernel;
  const std::vector<Expr>& r = t.result_sizes;
  const Expr x = t.operands[0].offset;
  to.set_type("CoilConv2d");
  const char* in[] = {"n", "ic", "ih", "iw"};
  for (size_t i = 0; i < 4; ++i) to.add(in[i], c.x_sizes[i]);
  to.add("oc", r[1]);
  to.add("oh", r[2]);
  to.add("ow", r[3]);
  const auto pair = [&](const char* h, const char* w, const std::array<int64_t, 2>& v) {
    to.add(h, v[0]);
    to.add(w, v[1]);
  };
  pair("kh", "kw", c.kernel);
  pair("stride_h", "stride_w", c.stride);
  pair("pad_h", "pad_w", c.padding);
  pair("dilation_h", "dilation_w", c.dilation);
  to.add("groups", c.groups);
  to.element("x", t.operands[0], 4);
  const char* strides[] = {"x_n", "x_c", "x_h", "x_w"};
  for (int v = 0; v < 4; ++v) to.add(strides[v], as_affine(x, v)->coefficient);
  add_weight(to, c);
  if (t.epilogue.empty()) to.pointer("y", t.result);
}

// The weight as the chosen method wants it.
std::string method_fields(const TemplateUse& use, const Conv2d&) {
  const TemplateKernel& t = use.kernel;
  std::string text;
  const auto is = [](Method method) { return fmt::format("{} == {}", name_of(&ProductChoice::method), static_cast<int>(method)); };
  for (const int32_t method : {kDirect, kWinograd}) {
    const PlanOperand* w = weight_of(use.plan, t, method);
    if (!w || w == &t.operands[1]) continue;
    const PlanConstant* packed = packed_constant(use.plan, w->buffer);
    text += fmt::format("    if ({}) {{\n  {}  {}    }}\n", method == kWinograd ? is(kWinograd) : is(kDirect) + " || " + is(kImplicit) + " || " + is(kOneDnn),
                        field("w", buffer_address(use.plan, w->buffer)), field("winograd", std::to_string(packed ? winograd_tile(packed->packing) : 0)));
  }
  if (t.call_winograd) text += fmt::format("    if ({} || {}) t.winograd = 0;\n", is(kDirect), is(kImplicit));
  return text + "    t.implicit = " + is(kImplicit) + ";\n";
}

}  // namespace coil::cpu
