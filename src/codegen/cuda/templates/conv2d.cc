#include <fmt/format.h>

#include <array>

#include "codegen/cuda/templates/arithmetic.h"
#include "codegen/cuda/templates/parts.h"
#include "templates/cuda_library.h"

namespace coil::cuda {

using templates::CudaCandidate;
using templates::CudaConvFacts;
using templates::CudaGemmFacts;
using templates::CudaVariant;
using templates::CudaWay;

namespace {

CudaConvFacts facts(const TemplateUse& use, const Conv2d& def) {
  const PlanOperand& x = use.kernel.operands[0];
  CudaConvFacts f;
  f.dtype = use.dtype(0);
  f.tf32 = tf32_of(use.plan).convolutions && f.dtype == DType::f32;
  f.def = def;
  f.result_sizes = use.kernel.result_sizes;
  f.x_n = coefficient(x.offset, 0), f.x_c = coefficient(x.offset, 1), f.x_h = coefficient(x.offset, 2), f.x_w = coefficient(x.offset, 3);
  f.x_alignment = alignment_of(use.plan, x);
  return f;
}

// A 1x1 convolution of channels-last pixels is a matrix product: rows are pixels, the weight is [oc][ic].
std::optional<CudaGemmFacts> as_product(const TemplateUse& use, const Conv2d& c) {
  const std::array<int64_t, 2> one = {1, 1}, none = {0, 0};
  if (c.kernel != one || c.stride != one || c.padding != none || c.groups != 1) return std::nullopt;
  ExprPool& pool = use.pool();
  const CudaConvFacts f = facts(use, c);
  const Expr ic = c.x_sizes[1];
  if (!(c.x_sizes[1] == pool.index(1)) && !(f.x_c == pool.index(1))) return std::nullopt;
  Expr row, next;  // strides of pixels, and of what comes after those seen so far; those of dimensions of one element do not count
  for (const auto& [size, stride] : {std::pair(c.x_sizes[3], f.x_w), {c.x_sizes[2], f.x_h}, {c.x_sizes[0], f.x_n}}) {
    if (size == pool.index(1)) continue;
    if (!row) row = next = stride;
    if (!(stride == next)) return std::nullopt;
    next = next * size;
  }
  CudaGemmFacts g;
  g.dtype = f.dtype;
  g.tf32 = f.tf32;
  g.batch = pool.index(1);
  g.m = f.result_sizes[0] * f.result_sizes[2] * f.result_sizes[3], g.n = f.result_sizes[1], g.k = ic;
  g.a_batch = pool.index(0), g.a_row = row ? row : ic, g.a_col = pool.index(1);
  g.b_batch = pool.index(0), g.b_row = pool.index(1), g.b_col = ic;
  g.a_alignment = f.x_alignment;
  g.b_alignment = cd::kPlacedAlignment;
  return g;
}

}  // namespace

std::string problem(const TemplateUse& use, const Conv2d& def) {
  if (const auto product = as_product(use, def)) return product_problem(*product);
  const CudaConvFacts f = facts(use, def);
  return fmt::format("conv2d {} x [{}] strides [{}] at {}, result [{}], kernel {}x{} stride {}x{} padding {}x{} dilation {}x{} groups {}",
                     f.tf32 ? "tf32" : name(f.dtype), size_texts(def.x_sizes), size_texts({f.x_n, f.x_c, f.x_h, f.x_w}), f.x_alignment,
                     size_texts(f.result_sizes), def.kernel[0], def.kernel[1], def.stride[0], def.stride[1], def.padding[0], def.padding[1], def.dilation[0],
                     def.dilation[1], def.groups);
}

Expr key(const TemplateUse& use, const Conv2d& def) {
  if (const auto product = as_product(use, def)) return product->batch * product->m;
  const std::vector<Expr>& r = use.kernel.result_sizes;
  return r[0] * r[2] * r[3];
}

std::vector<CudaVariant> variants(const TemplateUse& use, const Conv2d& def, const CudaMachine& machine, bool libraries) {
  if (const auto product = as_product(use, def)) return product_variants(*product, machine, libraries);
  return templates::cuda_conv_variants(facts(use, def), machine);
}

std::optional<CudaVariant> variant(const TemplateUse& use, const Conv2d& def, const CudaMachine& machine, const CudaWay& way) {
  if (const auto product = as_product(use, def)) return product_variant(*product, machine, way);
  const CudaConvFacts f = facts(use, def);
  return way == CudaWay{.kind = templates::kLibraryCall} ? templates::cuda_conv_library(f) : templates::cuda_conv_variant(f, machine, way);
}

std::vector<CudaCandidate> ranked(const TemplateUse& use, const Conv2d& def, const CudaMachine& machine, const SizeOf& sizes) {
  if (const auto product = as_product(use, def)) return templates::cuda_gemm_candidates(*product, machine, sizes);
  return templates::cuda_conv_candidates(facts(use, def), machine, sizes);
}

const char* params_type(const TemplateUse& use, const Conv2d& def) { return as_product(use, def) ? "CudaGemm" : "CudaConv2d"; }

void fill_params(Params& p, const TemplateUse& use, const Conv2d& def) {
  if (const auto product = as_product(use, def)) return product_params(p, use, *product);
  const CudaConvFacts f = facts(use, def);
  const char* in[] = {"n", "ic", "ih", "iw"};
  for (size_t i = 0; i < 4; ++i) p.set(in[i], def.x_sizes[i]);
  p.set("oc", f.result_sizes[1]), p.set("oh", f.result_sizes[2]), p.set("ow", f.result_sizes[3]);
  const auto pair = [&](const char* h, const char* w, const std::array<int64_t, 2>& v) {
    p.set(h, std::to_string(v[0]));
    p.set(w, std::to_string(v[1]));
  };
  pair("kh", "kw", def.kernel);
  pair("stride_h", "stride_w", def.stride);
  pair("pad_h", "pad_w", def.padding);
  pair("dilation_h", "dilation_w", def.dilation);
  p.set("groups", std::to_string(def.groups));
  p.set("split", std::string("1"));
  p.operand("x", use.kernel.operands[0]);
  p.set("x_n", f.x_n), p.set("x_c", f.x_c), p.set("x_h", f.x_h), p.set("x_w", f.x_w);
  p.set("w", p.address(use.kernel.operands[1].buffer));
}

KernelHint hint(const TemplateUse&, const Conv2d&) { return {}; }

}  // namespace coil::cuda
