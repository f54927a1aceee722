#include <fmt/format.h>

#include <numeric>

#include "codegen/cuda/templates/parts.h"

namespace coil::cuda {

using templates::CudaAttentionFacts;
using templates::CudaCandidate;
using templates::CudaVariant;
using templates::CudaWay;

namespace {

CudaAttentionFacts facts(const TemplateUse& use, const Attention& a) {
  const auto& [plan, k] = use;
  CudaAttentionFacts f;
  f.dtype = plan.buffer(k.operands[0].buffer).info.dtype;
  f.def = a;
  if (k.operands.size() > 3) f.mask_dtype = plan.buffer(k.operands[3].buffer).info.dtype;
  f.alignment = cd::kPlacedAlignment;
  const Expr sizes[2][3] = {{a.batch, a.heads, a.q_len}, {a.batch, a.kv_heads, a.kv_len}};
  for (size_t i = 0; i < 3; ++i) {
    const Expr base = base_of(plan, k.operands[i]);
    const int64_t item = byte_size(f.dtype);
    if (base->is_constant() && base->as_int() != 0) f.alignment = std::gcd(f.alignment, base->as_int() * item);
    for (int v = 0; v < 3; ++v) {
      const Expr stride = coefficient(k.operands[i].offset, v);
      if (sizes[i > 0][v]->is_constant() && sizes[i > 0][v]->as_int() <= 1) continue;
      // A dynamic stride: rows of a constant number of elements times a dynamic size stay aligned.
      const bool scaled = stride->is_op(ScalarOp::imul) && stride->args[0]->is_constant();
      const int64_t factor = stride->is_constant() ? stride->as_int() : scaled ? stride->args[0]->as_int() : 1;
      if (factor != 0) f.alignment = std::gcd(f.alignment, factor * item);
    }
  }
  return f;
}

}  // namespace

std::string problem(const TemplateUse& use, const Attention& a) {
  const CudaAttentionFacts f = facts(use, a);
  return fmt::format("attention {} [{}]{}{}, scale {} at {}", name(f.dtype), size_texts({a.batch, a.heads, a.kv_heads, a.q_len, a.kv_len, a.dim, a.v_dim}),
                     a.causal ? " causal" : "", a.mask ? fmt::format(" masked by {}", name(f.mask_dtype)) : "", a.scale > 0 ? "> 0" : "<= 0", f.alignment);
}

Expr key(const TemplateUse&, const Attention& a) { return a.batch * a.q_len * a.kv_len; }

std::vector<CudaVariant> variants(const TemplateUse& use, const Attention& a, const CudaMachine& machine, bool) {
  return templates::cuda_attention_variants(facts(use, a), machine);
}

std::optional<CudaVariant> variant(const TemplateUse& use, const Attention& a, const CudaMachine& machine, const CudaWay& way) {
  return templates::cuda_attention_variant(facts(use, a), machine, way);
}

std::vector<CudaCandidate> ranked(const TemplateUse& use, const Attention& a, const CudaMachine& machine, const SizeOf& sizes) {
  return templates::cuda_attention_candidates(facts(use, a), machine, sizes);
}

const char* params_type(const TemplateUse&, const Attention&) { return "CudaAttention"; }

void fill_params(Params& p, const TemplateUse& use, const Attention& a) {
  const TemplateKernel& k = use.kernel;
  p.set("batch", a.batch), p.set("heads", a.heads), p.set("kv_heads", a.kv_heads), p.set("q_len", a.q_len), p.set("kv_len", a.kv_len);
  p.set("dim", a.dim), p.set("v_dim", a.v_dim);
  const char* names[] = {"q", "k", "v", "mask"};
  for (size_t i = 0; i < k.operands.size(); ++i) {
    const std::string x = names[i];
    p.operand(x, k.operands[i]);
    p.set(x + "_batch", coefficient(k.operands[i].offset, 0));
    p.set(x + "_head", coefficient(k.operands[i].offset, 1));
    p.set(x + "_row", coefficient(k.operands[i].offset, 2));
    if (i == 3) p.set("mask_col", coefficient(k.operands[i].offset, 3));
  }
  p.set("o", p.address(k.result));
  p.set("o_batch", coefficient(k.result_offset, 0)), p.set("o_head", coefficient(k.result_offset, 1)), p.set("o_row", coefficient(k.result_offset, 2));
  p.set("scale", fmt::format("(float){:.17g}", a.scale));
  p.set("nan_rows", std::string(a.masked_rows_zero ? "0" : "1"));
  p.set("highest_fill", highest_fill_text(a));
}

KernelHint hint(const TemplateUse&, const Attention&) { return {}; }

}  // namespace coil::cuda
