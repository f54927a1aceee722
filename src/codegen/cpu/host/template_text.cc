#include "codegen/cpu/host/template_text.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "codegen/cpu/choices.h"
#include "codegen/cpu/templates/conv2d.h"
#include "codegen/cpu/templates/gemm.h"
#include "codegen/index_text.h"
#include "codegen/interface/call_text.h"
#include "loop/templates/template.h"
#include "schedule/depthwise.h"
#include "schedule/schedule.h"
#include "templates/packing.h"

namespace coil {
namespace {

class FieldsWriter {
 public:
  explicit FieldsWriter(const KernelPlan& plan) : plan_(plan) {}

  void fill(const TemplateKernel& t, const Gemm& g) {
    const int m0 = static_cast<int>(g.batch.size()), n0 = m0 + static_cast<int>(g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
    const int vars = k0 + static_cast<int>(g.k.size());
    const Expr a = t.operands[0].offset, b = t.operands[1].offset;
    const auto stride = [&](Expr offset, int first, const std::vector<Expr>& sizes) {
      const auto s = merged_stride(offset, first, sizes);
      CHECK(s.has_value(), "a gemm operand that does not merge");
      return *s;
    };
    call_.type = "CoilGemm";
    add("batch", product(pool(), g.batch));
    add("m", product(pool(), g.m));
    add("n", product(pool(), g.n));
    add("k", product(pool(), g.k));
    element("a", t.operands[0], vars);
    add("a_batch", stride(a, 0, g.batch));
    add("a_row", stride(a, m0, g.m));
    add("a_col", stride(a, k0, g.k));
    element("b", t.operands[1], vars);
    add("dtype", dtype(t.operands[0].buffer));
    if (const PlanConstant* packed = packed_constant(plan_, t.operands[1].buffer)) {
      add("b_packed", 1);
      const auto bytes = static_cast<size_t>(byte_size(plan_.buffer(t.operands[1].buffer).info.dtype));
      const bool pairs = packed->packing == PlanConstant::Packing::gemm_b_pairs;
      const int64_t elements = pairs ? templates::packed_pairs_elements(packed->k, packed->n) : templates::packed_gemm_b_elements(packed->k, packed->n, bytes);
      add("b_batch", packed->batch_stride == 0 ? 0 : elements);
      if (pairs) add("b_pairs", 1);
      if (packed->packing == PlanConstant::Packing::gemm_b_quads && !has_least(plan_.buffer(packed->buffer).info.data.bytes)) add("b_no_least", 1);
      if (g.quantised) quantised(t, *g.quantised, has_4_bits(packed->packing));
    } else {
      add("b_batch", stride(b, 0, g.batch));
      add("b_row", stride(b, k0, g.k));
      add("b_col", stride(b, n0, g.n));
      if (cpu::copies_b(plan_, t)) add("b_copied", 1);
    }
    if (!t.epilogue.empty()) return;
    const Expr n = product(pool(), g.n);
    pointer("c", t.result);
    add("c_row", n);
    add("c_batch", product(pool(), g.m) * n);
  }

  void fill(const TemplateKernel& t, const GroupedGemm& g) {
    const bool depth = g.kind == GroupedGemm::Kind::depth;
    fill(t, in_batches(g));
    if (!depth) add("c_batch", 0);
    pointer("ends", t.operands[2].buffer);
    add("ends_wide", plan_.buffer(t.operands[2].buffer).info.dtype == DType::i64);
    add("by_depth", depth);
    call_.fields.push_back({.name = "flag", .value = "args.flag", .place = {}});
  }

  void fill(const TemplateKernel& t, const Conv2d& c) {
    const std::vector<Expr>& r = t.result_sizes;
    const Expr x = t.operands[0].offset;
    call_.type = "CoilConv2d";
    const char* in[] = {"n", "ic", "ih", "iw"};
    for (size_t i = 0; i < 4; ++i) add(in[i], c.x_sizes[i]);
    add("oc", r[1]);
    add("oh", r[2]);
    add("ow", r[3]);
    const auto pair = [&](const char* h, const char* w, const std::array<int64_t, 2>& v) {
      add(h, v[0]);
      add(w, v[1]);
    };
    pair("kh", "kw", c.kernel);
    pair("stride_h", "stride_w", c.stride);
    pair("pad_h", "pad_w", c.padding);
    pair("dilation_h", "dilation_w", c.dilation);
    add("groups", c.groups);
    element("x", t.operands[0], 4);
    const char* strides[] = {"x_n", "x_c", "x_h", "x_w"};
    for (int v = 0; v < 4; ++v) add(strides[v], as_affine(x, v)->coefficient);
    weight(t, c);
    if (t.epilogue.empty()) pointer("y", t.result);
  }

  void fill(const TemplateKernel& t, const Attention& a) {
    call_.type = "CoilAttention";
    add("batch", a.batch);
    add("heads", a.heads);
    add("kv_heads", a.kv_heads);
    add("q_len", a.q_len);
    add("kv_len", a.kv_len);
    add("dim", a.dim);
    add("v_dim", a.v_dim);
    const char* names[] = {"q", "k", "v", "mask"};
    for (size_t i = 0; i < t.operands.size(); ++i) {
      rows(names[i], t.operands[i]);
      if (i != 3) continue;
      add("mask_col", as_affine(t.operands[i].offset, 3)->coefficient);
      add("mask_dtype", dtype(t.operands[i].buffer));
    }
    if (t.past) {
      add("past", t.past->rows);
      rows("k_past", t.past->k);
      rows("v_past", t.past->v);
      add("keep_k_past", t.past->keep_k);
      add("keep_v_past", t.past->keep_v);
    }
    add("causal", a.causal);
    add("masked_rows_zero", a.masked_rows_zero);
    add("dtype", dtype(t.operands[0].buffer));
    call_.fields.push_back({.name = "scale", .value = fmt::format("(float){:.17g}", a.scale), .number = true, .place = {}});
    if (a.mask) call_.fields.push_back({.name = "highest_fill", .value = highest_fill_text(a), .number = true, .place = {}});
    pointer("o", t.result);
    const char* strides[] = {"o_batch", "o_head", "o_row"};
    for (int v = 0; v < 3; ++v) add(strides[v], as_affine(t.result_offset, v)->coefficient);
    call_.fields.push_back(scratch_field(plan_, t));
  }

  CallFields taken() { return std::move(call_); }

 private:
  ExprPool& pool() const { return *plan_.pool; }

  void add(const std::string& name, Expr value) {
    call_.fields.push_back({.name = name, .value = host_index(value), .number = value->is_constant(), .place = {}});
  }
  void add(const std::string& name, int64_t value) { call_.fields.push_back({.name = name, .value = std::to_string(value), .number = true, .place = {}}); }
  void pointer(const std::string& name, BufferId id) {
    call_.fields.push_back({.name = name, .value = buffer_address(plan_, id), .place = fixed_place(plan_, id)});
  }
  void element(const std::string& name, const PlanOperand& x, int vars) {
    call_.fields.push_back({.name = name, .value = element_address(plan_, x, vars), .place = fixed_element(plan_, x, vars)});
  }

  // Where an attention's operand begins, and its strides.
  void rows(const std::string& name, const PlanOperand& x) {
    element(name, x, 4);
    const char* dims[] = {"_batch", "_head", "_row"};
    for (int v = 0; v < 3; ++v) add(name + dims[v], as_affine(x.offset, v)->coefficient);
  }

  void weight(const TemplateKernel& t, const Conv2d& c) {
    const PlanOperand& w = t.operands[1];
    pointer("w", w.buffer);
    add("dtype", dtype(t.operands[0].buffer));
    add("depthwise", is_depthwise(c, plan_.buffer(w.buffer).info.sizes));
    const PlanConstant* packed = packed_constant(plan_, w.buffer);
    if (c.x_zero) add("x_zero", c.x_zero);
    if (packed && packed->packing == PlanConstant::Packing::few_outputs_weight) add("few_outputs", 1);
    if (packed && packed->packing == PlanConstant::Packing::narrow_groups_weight) add("narrow_groups", 1);
    if (packed && winograd_tile(packed->packing)) {
      add("winograd", winograd_tile(packed->packing));
      const PlanOperand* direct = cpu::weight_of(plan_, t, cpu::kDirect);
      if (direct && plan_.buffer(w.buffer).info.dtype == DType::bf16) {
        pointer("w_direct", direct->buffer);
        if (cpu::packing_of(plan_, direct->buffer) == PlanConstant::Packing::conv_weight_pairs) add("w_pairs", 1);
      }
    }
    if (packed && packed->packing == PlanConstant::Packing::conv_weight_pairs) add("w_pairs", 1);
    if (packed) return;
    if (t.call_winograd) add("winograd", t.call_winograd);
    const char* strides[] = {"w_o", "w_i", "w_h", "w_w"};
    for (int v = 0; v < 4; ++v) add(strides[v], as_affine(w.offset, v)->coefficient);
    add("w_plain", 1);
  }

  void quantised(const TemplateKernel& t, const Gemm::Quantised& q, bool four_bits) {
    add("b_bits", four_bits ? 4 : 8);
    add("b_group", q.group);
    size_t next = 2;
    if ((q.scale.valid() || q.zero.valid()) && packed_constant(plan_, t.operands[next].buffer)) add("b_tables_packed", 1);
    const auto table = [&](const char* name, const char* type, BufferId id) {
      if (!id.valid()) return;
      pointer(name, t.operands[next].buffer);
      add(type, dtype(t.operands[next++].buffer));
    };
    table("b_scale", "b_scale_dtype", q.scale);
    table("b_zero", "b_zero_dtype", q.zero);
  }

  static bool has_least(std::span<const uint8_t> numbers) {
    return std::any_of(numbers.begin(), numbers.end(), [](uint8_t v) { return v == 0x80; });
  }

  int64_t dtype(BufferId id) const { return info(plan_.buffer(id).info.dtype).shim_number; }

  const KernelPlan& plan_;
  CallFields call_;
};

}  // namespace

std::string field(const char* name, const std::string& value) { return fmt::format("    t.{} = {};\n", name, value); }

std::string fields_text(const CallFields& call) {
  std::string text = fmt::format("    {} t = {{}};\n", call.type);
  for (const CallField& f : call.fields) text += field(f.name.c_str(), f.value);
  return text;
}

CallField scratch_field(const KernelPlan& plan, const TemplateKernel& t) {
  if (!t.scratch.valid()) return {.name = "scratch", .value = "nullptr", .number = true, .place = {}};
  return {.name = "scratch", .value = buffer_address(plan, t.scratch), .place = fixed_place(plan, t.scratch)};
}

const PlanConstant* packed_constant(const KernelPlan& plan, BufferId id) {
  const PlanBuffer& b = plan.buffer(id);
  if (b.placement.kind != Placement::Kind::constant) return nullptr;
  const PlanConstant& c = plan.constants[static_cast<size_t>(b.placement.index)];
  return c.packing == PlanConstant::Packing::plain ? nullptr : &c;
}

CallFields template_fields(const KernelPlan& plan, const TemplateKernel& t) {
  FieldsWriter writer(plan);
  visit_template(t.def, [&](const auto& def) { writer.fill(t, def); });
  return writer.taken();
}

}  // namespace coil
