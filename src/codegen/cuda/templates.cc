// Templates: what is known of a call for choosing variants, the params that the host fills in, and the kernel around a variant with the
// fused loops as its epilogue.
#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "codegen/cuda/loop_context.h"
#include "codegen/host/index_text.h"
#include "schedule/schedule.h"
#include "templates/cuda_library.h"

namespace coil::cuda {
namespace {

using templates::CudaVariant;

constexpr int64_t kPlacedAlignment = 64;
constexpr int kStraightLines = 24;  // of an epilogue that templates may repeat for every few columns

Expr base_of(const KernelPlan& plan, const PlanOperand& o) {
  return substitute_vars(o.offset, std::vector<Expr>(64, plan.pool->index(0)));
}

// What the address of an operand's first element is surely a multiple of. Must not depend on placements: scratch is asked for before
// they are known.
int64_t alignment_of(const KernelPlan& plan, const PlanOperand& o) {
  const BufferInfo& b = plan.buffer(o.buffer).info;
  const int64_t item = byte_size(b.dtype);
  const bool output = std::any_of(plan.outputs.begin(), plan.outputs.end(), [&](const LoopOutput& out) { return out.source == o.buffer; });
  if (b.kind == BufferInfo::Kind::input || output) return item;
  const Expr base = base_of(plan, o);
  if (!base->is_constant()) return item;
  return base->as_int() == 0 ? kPlacedAlignment : std::gcd(base->as_int() * item, kPlacedAlignment);
}

Expr merged(Expr offset, int first, const std::vector<Expr>& sizes) {
  const auto s = merged_stride(offset, first, sizes);
  CHECK(s.has_value(), "a matrix operand that does not merge");
  return *s;
}

Expr coefficient(Expr offset, int var) {
  const auto a = as_affine(offset, var);
  CHECK(a.has_value(), "a template operand that is not affine");
  return a->coefficient;
}

templates::CudaGemmFacts gemm_facts(const KernelPlan& plan, const TemplateKernel& k, const Gemm& g) {
  ExprPool& pool = *plan.pool;
  const int m0 = static_cast<int>(g.batch.size()), n0 = m0 + static_cast<int>(g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
  const Expr a = k.operands[0].offset, b = k.operands[1].offset;
  templates::CudaGemmFacts f;
  f.dtype = plan.buffer(k.operands[0].buffer).info.dtype;
  f.batch = product(pool, g.batch), f.m = product(pool, g.m), f.n = product(pool, g.n), f.k = product(pool, g.k);
  f.a_batch = merged(a, 0, g.batch), f.a_row = merged(a, m0, g.m), f.a_col = merged(a, k0, g.k);
  f.b_batch = merged(b, 0, g.batch), f.b_row = merged(b, k0, g.k), f.b_col = merged(b, n0, g.n);
  f.a_alignment = alignment_of(plan, k.operands[0]);
  f.b_alignment = alignment_of(plan, k.operands[1]);
  // Strides of single batches, rows and columns move nothing: such that they do not spoil the alignment of the others.
  const Expr one = pool.index(1);
  if (f.batch == one) f.a_batch = f.b_batch = pool.index(0);
  if (f.m == one && f.a_col == one) f.a_row = f.k;
  if (f.n == one && f.b_row == one) f.b_col = f.k;
  return f;
}

templates::CudaConvFacts conv_facts(const KernelPlan& plan, const TemplateKernel& k, const Conv2d& c) {
  templates::CudaConvFacts f;
  f.dtype = plan.buffer(k.operands[0].buffer).info.dtype;
  f.def = c;
  f.result_sizes = k.result_sizes;
  const Expr x = k.operands[0].offset;
  f.x_n = coefficient(x, 0), f.x_c = coefficient(x, 1), f.x_h = coefficient(x, 2), f.x_w = coefficient(x, 3);
  f.x_alignment = alignment_of(plan, k.operands[0]);
  return f;
}

// A 1x1 convolution of channels-last pixels is a matrix product: rows are pixels, the weight is [oc][ic].
std::optional<templates::CudaGemmFacts> as_product(const KernelPlan& plan, const TemplateKernel& k) {
  const auto* c = std::get_if<Conv2d>(&k.def);
  const std::array<int64_t, 2> one = {1, 1}, none = {0, 0};
  if (!c || c->kernel != one || c->stride != one || c->padding != none || c->groups != 1) return std::nullopt;
  ExprPool& pool = *plan.pool;
  const templates::CudaConvFacts f = conv_facts(plan, k, *c);
  const Expr ic = c->x_sizes[1];
  const auto is_one = [&](Expr size) { return size == pool.index(1); };  // then its stride does not count
  const bool rows = is_one(f.x_c) && (is_one(c->x_sizes[2]) || f.x_h == f.x_w * c->x_sizes[3]) &&
                    (is_one(c->x_sizes[0]) || f.x_n == f.x_w * c->x_sizes[3] * c->x_sizes[2]) && !is_one(c->x_sizes[3]);
  if (!rows) return std::nullopt;
  templates::CudaGemmFacts g;
  g.dtype = f.dtype;
  g.batch = pool.index(1);
  g.m = f.result_sizes[0] * f.result_sizes[2] * f.result_sizes[3], g.n = f.result_sizes[1], g.k = ic;
  g.a_batch = pool.index(0), g.a_row = f.x_w, g.a_col = pool.index(1);
  g.b_batch = pool.index(0), g.b_row = pool.index(1), g.b_col = ic;
  g.a_alignment = f.x_alignment;
  g.b_alignment = kPlacedAlignment;
  return g;
}

templates::CudaAttentionFacts attention_facts(const KernelPlan& plan, const TemplateKernel& k, const Attention& a) {
  templates::CudaAttentionFacts f;
  f.dtype = plan.buffer(k.operands[0].buffer).info.dtype;
  f.def = a;
  if (k.operands.size() > 3) f.mask_dtype = plan.buffer(k.operands[3].buffer).info.dtype;
  f.alignment = kPlacedAlignment;
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

class Params {
 public:
  Params(const KernelPlan& plan, const std::function<std::string(BufferId)>& address) : plan_(plan), address_(address) {}

  void set(const std::string& field, const std::string& value) { text += fmt::format("    t.{} = {};\n", field, value); }
  void set(const std::string& field, Expr value) { set(field, host_index(value)); }
  void operand(const std::string& field, const PlanOperand& o) {
    const Expr base = base_of(plan_, o);
    const std::string start = address_(o.buffer);
    set(field, base == plan_.pool->index(0) ? start
                                            : fmt::format("(void*)((char*)({}) + {} * {})", start, host_index(base), byte_size(plan_.buffer(o.buffer).info.dtype)));
  }

  std::string text;

 private:
  const KernelPlan& plan_;
  const std::function<std::string(BufferId)>& address_;
};

void gemm_params(Params& p, const templates::CudaGemmFacts& f, const TemplateKernel& k) {
  p.set("batch", f.batch), p.set("m", f.m), p.set("n", f.n), p.set("k", f.k);
  p.operand("a", k.operands[0]);
  p.set("a_batch", f.a_batch), p.set("a_row", f.a_row), p.set("a_col", f.a_col);
  p.operand("b", k.operands[1]);
  p.set("b_batch", f.b_batch), p.set("b_row", f.b_row), p.set("b_col", f.b_col);
  p.set("split", std::string("1"));
}

void conv_params(Params& p, const templates::CudaConvFacts& f, const TemplateKernel& k, const std::string& weight) {
  const Conv2d& c = f.def;
  const char* in[] = {"n", "ic", "ih", "iw"};
  for (size_t i = 0; i < 4; ++i) p.set(in[i], c.x_sizes[i]);
  p.set("oc", f.result_sizes[1]), p.set("oh", f.result_sizes[2]), p.set("ow", f.result_sizes[3]);
  const auto pair = [&](const char* h, const char* w, const std::array<int64_t, 2>& v) {
    p.set(h, std::to_string(v[0]));
    p.set(w, std::to_string(v[1]));
  };
  pair("kh", "kw", c.kernel);
  pair("stride_h", "stride_w", c.stride);
  pair("pad_h", "pad_w", c.padding);
  pair("dilation_h", "dilation_w", c.dilation);
  p.set("groups", std::to_string(c.groups));
  p.set("split", std::string("1"));
  p.operand("x", k.operands[0]);
  p.set("x_n", f.x_n), p.set("x_c", f.x_c), p.set("x_h", f.x_h), p.set("x_w", f.x_w);
  p.set("w", weight);
}

void attention_params(Params& p, const Attention& a, const TemplateKernel& k, const std::string& result) {
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
  p.set("o", result);
  p.set("o_batch", coefficient(k.result_offset, 0)), p.set("o_head", coefficient(k.result_offset, 1)), p.set("o_row", coefficient(k.result_offset, 2));
  p.set("scale", fmt::format("(float){:.17g}", a.scale));
  p.set("split", std::string("1"));
}

int epilogue_width(DType dtype) { return dtype == DType::f64 ? 2 : dtype == DType::f32 ? 4 : 8; }

// The fused loops for `width` consecutive columns, or for one.
std::string epilogue_statements(KernelContext& c, const std::vector<Stmt>& stmts, TempId acc, int width, const std::string& indent) {
  std::string before, body, after;
  std::map<int, TempText> temps = {{acc.index, {"acc[v]", width > 1}}};
  Emitter emitter(c, {&before, width > 1 ? &body : &before, indent, width > 1 ? indent + "  " : indent, 2, width}, temps);
  for (const Stmt& s : stmts) emitter.store(s.buffer, s.offset, s.value, after, indent);
  if (width == 1) return before + after;
  return before + fmt::format("#pragma unroll\n{}for (int v = 0; v < {}; ++v) {{\n", indent, width) + body + indent + "}\n" + after;
}

}  // namespace

std::vector<CudaVariant> template_variants(const KernelPlan& plan, const TemplateKernel& k, int sm, bool libraries) {
  const auto with = [&](std::vector<CudaVariant> variants, std::optional<CudaVariant> library) {
    if (libraries && library) variants.insert(variants.begin(), std::move(*library));
    return variants;
  };
  const auto product = [&](const templates::CudaGemmFacts& f) { return with(templates::cuda_gemm_variants(f, sm), templates::cuda_gemm_library(f, sm)); };
  if (const auto* g = std::get_if<Gemm>(&k.def)) return product(gemm_facts(plan, k, *g));
  if (const auto f = as_product(plan, k)) return product(*f);
  if (const auto* c = std::get_if<Conv2d>(&k.def)) {
    const templates::CudaConvFacts f = conv_facts(plan, k, *c);
    return with(templates::cuda_conv_variants(f, sm), templates::cuda_conv_library(f, sm));
  }
  return templates::cuda_attention_variants(attention_facts(plan, k, std::get<Attention>(k.def)), sm);
}

std::string template_params(const KernelPlan& plan, const TemplateKernel& k, const std::function<std::string(BufferId)>& address) {
  Params p(plan, address);
  const char* type = "CudaGemm";
  if (const auto* g = std::get_if<Gemm>(&k.def)) {
    gemm_params(p, gemm_facts(plan, k, *g), k);
  } else if (const auto product = as_product(plan, k)) {
    gemm_params(p, *product, k);
  } else if (const auto* c = std::get_if<Conv2d>(&k.def)) {
    conv_params(p, conv_facts(plan, k, *c), k, address(k.operands[1].buffer));
    type = "CudaConv2d";
  } else {
    attention_params(p, std::get<Attention>(k.def), k, address(k.result));
    type = "CudaAttention";
  }
  p.set("scratch", k.scratch.valid() ? address(k.scratch) : "nullptr");
  return fmt::format("    {} t = {{}};\n", type) + p.text;
}

KernelText template_text(const KernelPlan& plan, const TemplateKernel& k, const CudaVariant& variant) {
  KernelText t;
  const std::string bounds = variant.min_blocks > 1 ? fmt::format("__launch_bounds__({}, {})", variant.threads, variant.min_blocks)
                                                    : fmt::format("__launch_bounds__({})", variant.threads);
  if (std::holds_alternative<Attention>(k.def)) {
    t.body = fmt::format("COIL_KERNEL void {} @NAME@(const __grid_constant__ CudaAttention t) {{\n  {}\n}}\n", bounds, variant.call);
  } else {
    ExprPool& pool = *plan.pool;
    KernelContext c(plan);
    c.half_results = stores_halves(k.epilogue);
    c.vars = {"batch", "row", "col"};
    c.sizes = tile_sizes(pool, k);
    c.wide_index = !fits_32(k.epilogue, k.result_sizes, product(pool, c.sizes));
    std::vector<Stmt> stmts = k.epilogue;
    const DType dtype = plan.buffer(k.operands[0].buffer).info.dtype;
    if (stmts.empty()) {
      Stmt store;
      store.dtype = plan.buffer(k.result).info.dtype;
      store.value = pool.temp(k.acc, compute_type(store.dtype));
      store.buffer = k.result;
      store.offset = k.result_offset;
      stmts.push_back(store);
    }
    const std::vector<Expr> coordinates = tile_coordinates(pool, k);
    std::vector<BufferId> written;
    for (Stmt& s : stmts) {
      s.value = reindex(s.value, coordinates, c.sizes);
      s.offset = reindex(s.offset, coordinates, c.sizes);
      written.push_back(s.buffer);
    }
    const int width = epilogue_width(dtype);
    mark_read_only(c, stmts, written);
    const std::string wide = epilogue_statements(c, stmts, k.acc, width, "    ");
    c.vars[2] = "(col + v)";
    const std::string single = epilogue_statements(c, stmts, k.acc, 1, "      ");
    std::string pointers = kernel_frame(c, written, "");
    const size_t head = pointers.find("COIL_KERNEL"), body = pointers.find("{\n", head) + 2;
    t = finish(c, "");
    const char* type = dtype == DType::f64 ? "double" : "float";
    const std::string frame = pointers.substr(body);
    t.body = pointers.substr(0, head) + "struct @NAME@_epilogue {\n  const @NAME@_args& a;\n";
    if (std::count(wide.begin(), wide.end(), '\n') <= kStraightLines) t.body += "  __device__ __forceinline__ bool straight() const { return a.wide; }\n";
    t.body += fmt::format("  __device__ __forceinline__ void wide([[maybe_unused]] cd::i64 batch, int row, int col, const {} (&acc)[{}]) const {{\n{}{}  }}\n", type,
                          width, frame, wide);
    t.body += fmt::format("  template <int W>\n  __device__ __forceinline__ void operator()([[maybe_unused]] cd::i64 batch, int row, int col, const {} (&acc)[W], int count) const {{\n"
                          "    static_assert(W == {}, \"columns that are finished at once\");\n    if (a.wide && count == W) return wide(batch, row, col, acc);\n{}",
                          type, width, frame);
    t.body += fmt::format("#pragma unroll\n    for (int v = 0; v < W; ++v) {{\n      if (v >= count) continue;\n{}    }}\n  }}\n}};\n", single);
    t.body += fmt::format("COIL_KERNEL void {} @NAME@(const __grid_constant__ {} t, const __grid_constant__ @NAME@_args a) {{\n  const @NAME@_epilogue epilogue{{a}};\n  {}\n}}\n",
                          bounds, std::holds_alternative<Gemm>(k.def) || as_product(plan, k) ? "CudaGemm" : "CudaConv2d", variant.call);
  }
  t.headers = {"cuda/base.h", "cuda/params.h", variant.header};
  t.threads = variant.threads;
  t.shared_bytes = variant.shared_bytes;
  return t;
}

TargetTraits traits(std::vector<int> sms, bool libraries) {
  TargetTraits t;
  t.packs_constant_weights = false;
  t.packs_convolution_weights = false;
  t.memory_per_worker = false;
  t.max_kept_elements = 16384;
  t.parallel_points = 264;  // two blocks for each of some 132 multiprocessors
  t.recompute_cost = 8;
  t.inline_cost = 12;
  t.select_pieces = 4;
  t.template_scratch = [sms = std::move(sms), libraries](const KernelPlan& plan, const TemplateKernel& k) {
    Expr bytes;
    for (const int sm : sms) {
      for (const CudaVariant& v : template_variants(plan, k, sm, libraries)) {
        if (!v.scratch_bytes) continue;
        bytes = bytes ? index_max(bytes, v.scratch_bytes) : v.scratch_bytes;
      }
    }
    return bytes;
  };
  return t;
}

}  // namespace coil::cuda
