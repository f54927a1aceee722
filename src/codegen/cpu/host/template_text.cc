#include "codegen/cpu/host/template_text.h"

#include <fmt/format.h>

#include "codegen/cpu/choices.h"
#include "codegen/cpu/templates/conv2d.h"
#include "codegen/interface/call_text.h"
#include "codegen/index_text.h"
#include "schedule/depthwise.h"
#include "schedule/schedule.h"
#include "templates/packing.h"

namespace coil {
namespace {

class FieldsWriter {
 public:
  explicit FieldsWriter(const KernelPlan& plan) : plan_(plan) {}

  std::string gemm(const TemplateKernel& t, const Gemm& g) const {
    const int m0 = static_cast<int>(g.batch.size()), n0 = m0 + static_cast<int>(g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
    const int vars = k0 + static_cast<int>(g.k.size());
    const Expr a = t.operands[0].offset, b = t.operands[1].offset;
    const auto stride = [&](Expr offset, int first, const std::vector<Expr>& sizes) {
      const auto s = merged_stride(offset, first, sizes);
      CHECK(s.has_value(), "a gemm operand that does not merge");
      return *s;
    };
    std::string text = "    CoilGemm t = {};\n";
    text += field("batch", product(pool(), g.batch)) + field("m", product(pool(), g.m)) + field("n", product(pool(), g.n)) + field("k", product(pool(), g.k));
    text += field("a", element_address(plan_, t.operands[0], vars)) + field("a_batch", stride(a, 0, g.batch)) + field("a_row", stride(a, m0, g.m)) +
            field("a_col", stride(a, k0, g.k));
    text += field("b", element_address(plan_, t.operands[1], vars)) + field("dtype", dtype(t.operands[0].buffer));
    const PlanConstant* packed = constant_of(t.operands[1].buffer);
    if (packed) {
      text += field("b_packed", std::string("1"));
      text += field("b_batch", std::to_string(packed->batch_stride == 0 ? 0 : templates::packed_gemm_b_elements(packed->k, packed->n, static_cast<size_t>(byte_size(plan_.buffer(t.operands[1].buffer).info.dtype)))));
      if (g.quantised) text += quantised_text(t, *g.quantised, packed->packing == PlanConstant::Packing::gemm_b_4bit);
    } else {
      text += field("b_batch", stride(b, 0, g.batch)) + field("b_row", stride(b, k0, g.k)) + field("b_col", stride(b, n0, g.n));
    }
    if (t.epilogue.empty()) {
      const Expr n = product(pool(), g.n);
      text += field("c", address(t.result)) + field("c_row", n) + field("c_batch", product(pool(), g.m) * n);
    }
    return text;
  }

  std::string grouped(const TemplateKernel& t, const GroupedGemm& g) const {
    const bool depth = g.kind == GroupedGemm::Kind::depth;
    std::string text = gemm(t, in_batches(g));
    if (!depth) text += field("c_batch", std::string("0"));
    return text + field("ends", address(t.operands[2].buffer)) + field("ends_wide", std::string(plan_.buffer(t.operands[2].buffer).info.dtype == DType::i64 ? "1" : "0")) +
           field("by_depth", std::string(depth ? "1" : "0")) + field("flag", std::string("args.flag"));
  }

  std::string conv(const TemplateKernel& t, const Conv2d& c) const {
    const std::vector<Expr>& r = t.result_sizes;
    const Expr x = t.operands[0].offset;
    std::string text = "    CoilConv2d t = {};\n";
    const char* in[] = {"n", "ic", "ih", "iw"};
    for (size_t i = 0; i < 4; ++i) text += field(in[i], c.x_sizes[i]);
    text += field("oc", r[1]) + field("oh", r[2]) + field("ow", r[3]);
    const auto pair = [&](const char* h, const char* w, const std::array<int64_t, 2>& v) {
      text += field(h, std::to_string(v[0])) + field(w, std::to_string(v[1]));
    };
    pair("kh", "kw", c.kernel);
    pair("stride_h", "stride_w", c.stride);
    pair("pad_h", "pad_w", c.padding);
    pair("dilation_h", "dilation_w", c.dilation);
    text += field("groups", std::to_string(c.groups)) + field("x", element_address(plan_, t.operands[0], 4));
    const char* strides[] = {"x_n", "x_c", "x_h", "x_w"};
    for (int v = 0; v < 4; ++v) text += field(strides[v], as_affine(x, v)->coefficient);
    const PlanOperand& w = t.operands[1];
    text += field("w", address(w.buffer)) + field("dtype", dtype(t.operands[0].buffer));
    text += field("depthwise", std::string(is_depthwise(c, plan_.buffer(w.buffer).info.sizes) ? "1" : "0"));
    const PlanConstant* packed = constant_of(w.buffer);
    if (c.x_zero) text += field("x_zero", std::to_string(c.x_zero));
    if (packed && packed->packing == PlanConstant::Packing::few_outputs_weight) text += field("few_outputs", std::string("1"));
    if (packed && packed->packing == PlanConstant::Packing::narrow_groups_weight) text += field("narrow_groups", std::string("1"));
    if (packed && winograd_tile(packed->packing)) {
      text += field("winograd", std::to_string(winograd_tile(packed->packing)));
      const PlanOperand* direct = cpu::weight_of(plan_, t, cpu::kDirect);
      if (direct && plan_.buffer(w.buffer).info.dtype == DType::bf16) text += field("w_direct", address(direct->buffer));
    }
    if (!packed) {
      const char* weight_strides[] = {"w_o", "w_i", "w_h", "w_w"};
      for (int v = 0; v < 4; ++v) text += field(weight_strides[v], as_affine(w.offset, v)->coefficient);
      text += field("w_plain", std::string("1"));
    }
    if (t.epilogue.empty()) text += field("y", address(t.result));
    return text;
  }

  std::string attention(const TemplateKernel& t, const Attention& a) const {
    std::string text = "    CoilAttention t = {};\n";
    text += field("batch", a.batch) + field("heads", a.heads) + field("kv_heads", a.kv_heads) + field("q_len", a.q_len) + field("kv_len", a.kv_len) +
            field("dim", a.dim) + field("v_dim", a.v_dim);
    const char* names[] = {"q", "k", "v", "mask"};
    for (size_t i = 0; i < t.operands.size(); ++i) {
      text += rows(names[i], t.operands[i]);
      if (i == 3) text += field("mask_col", as_affine(t.operands[i].offset, 3)->coefficient) + field("mask_dtype", dtype(t.operands[i].buffer));
    }
    if (t.past) {
      text += field("past", t.past->rows) + rows("k_past", t.past->k) + rows("v_past", t.past->v);
      text += field("keep_k_past", std::string(t.past->keep_k ? "1" : "0")) + field("keep_v_past", std::string(t.past->keep_v ? "1" : "0"));
    }
    text += field("causal", std::string(a.causal ? "1" : "0")) + field("masked_rows_zero", std::string(a.masked_rows_zero ? "1" : "0")) + field("dtype", dtype(t.operands[0].buffer));
    text += field("scale", fmt::format("(float){:.17g}", a.scale)) + field("o", address(t.result));
    text += field("o_batch", as_affine(t.result_offset, 0)->coefficient) + field("o_head", as_affine(t.result_offset, 1)->coefficient) +
            field("o_row", as_affine(t.result_offset, 2)->coefficient);
    return text + field("scratch", address(t.scratch));
  }

 private:
  ExprPool& pool() const { return *plan_.pool; }
  std::string address(BufferId id) const { return buffer_address(plan_, id); }
  // Where an attention's operand begins, and its strides.
  std::string rows(const std::string& name, const PlanOperand& x) const {
    std::string text = field(name.c_str(), element_address(plan_, x, 4));
    const char* dims[] = {"_batch", "_head", "_row"};
    for (int v = 0; v < 3; ++v) text += field((name + dims[v]).c_str(), as_affine(x.offset, v)->coefficient);
    return text;
  }
  const PlanConstant* constant_of(BufferId id) const { return packed_constant(plan_, id); }

  std::string dtype(BufferId id) const { return std::to_string(info(plan_.buffer(id).info.dtype).shim_number); }

  std::string quantised_text(const TemplateKernel& t, const Gemm::Quantised& q, bool four_bits) const {
    std::string text = field("b_bits", std::string(four_bits ? "4" : "8")) + field("b_group", std::to_string(q.group));
    size_t next = 2;
    if (q.scale.valid()) text += field("b_scale", "(const float*)" + address(t.operands[next++].buffer));
    if (q.zero.valid()) text += field("b_zero", "(const float*)" + address(t.operands[next].buffer));
    return text;
  }

  const KernelPlan& plan_;
};

}  // namespace

std::string field(const char* name, const std::string& value) { return fmt::format("    t.{} = {};\n", name, value); }
std::string field(const char* name, Expr value) { return field(name, host_index(value)); }

const PlanConstant* packed_constant(const KernelPlan& plan, BufferId id) {
  const PlanBuffer& b = plan.buffer(id);
  if (b.placement.kind != Placement::Kind::constant) return nullptr;
  const PlanConstant& c = plan.constants[static_cast<size_t>(b.placement.index)];
  return c.packing == PlanConstant::Packing::plain ? nullptr : &c;
}

std::string template_fields(const KernelPlan& plan, const TemplateKernel& t) {
  const FieldsWriter writer(plan);
  if (const auto* gemm = std::get_if<Gemm>(&t.def)) return writer.gemm(t, *gemm);
  if (const auto* grouped = std::get_if<GroupedGemm>(&t.def)) return writer.grouped(t, *grouped);
  if (const auto* conv = std::get_if<Conv2d>(&t.def)) return writer.conv(t, *conv);
  return writer.attention(t, std::get<Attention>(t.def));
}

}  // namespace coil
