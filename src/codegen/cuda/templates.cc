// Templates: the params that the host fills in, and the kernel around a variant with the
// fused loops as its epilogue.
#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "codegen/cuda/choices.h"
#include "codegen/cuda/machine.h"
#include "codegen/cuda/loop_context.h"
#include "codegen/cuda/templates/gemm.h"
#include "codegen/cuda/templates/template.h"
#include "codegen/index_text.h"
#include "codegen/packed_tables.h"
#include "device/cuda/shared_memory.h"
#include "loop/templates/template.h"
#include "schedule/schedule.h"

namespace coil::cuda {
namespace {

using templates::CudaVariant;

constexpr int kStraightLines = 24;  // of an epilogue that templates may repeat for every few columns

int epilogue_width(DType dtype) { return dtype == DType::f64 ? 2 : dtype == DType::f32 ? 4 : 8; }

// The names by which an epilogue's expressions know the products' elements.
std::map<int, TempText> accumulators(size_t products, bool lanes) {
  std::map<int, TempText> temps;
  for (size_t i = 0; i < products; ++i) temps[static_cast<int>(i)] = {i == 0 ? "acc[v]" : "other[v]", lanes};
  return temps;
}

// The fused loops for `width` consecutive columns, or for one.
std::string epilogue_statements(KernelContext& c, const std::vector<Stmt>& stmts, size_t products, int width, const std::string& indent,
                                ReadAhead* ahead = nullptr) {
  std::string before, body, after;
  std::map<int, TempText> temps = accumulators(products, width > 1);
  Emitter emitter(c, {&before, width > 1 ? &body : &before, indent, width > 1 ? indent + "  " : indent, 2, width, ahead}, temps);
  for (const Stmt& s : stmts) emitter.store(s.buffer, s.offset, s.value, s.condition, after, indent);
  if (width == 1) return before + after;
  return before + fmt::format("#pragma unroll\n{}for (int v = 0; v < {}; ++v) {{\n", indent, width) + body + indent + "}\n" + after;
}

// Columns of a row that one store can take, if they are fewer than `width`: rows of results whose length is odd, say. Lanes then take neighbouring columns,
// or each would write a few bytes of a line of its own. 0: `width`, or columns do not lie side by side.
int narrow_columns(KernelContext& c, const std::vector<Stmt>& stmts, int width) {
  constexpr int kColumn = 2;  // the variable
  int narrow = width;
  for (const Stmt& s : stmts) {
    const auto affine = as_affine(s.offset, kColumn);
    if (!affine || !(affine->coefficient == s.offset->pool->index(1))) return 0;
    while (narrow > 1 && access_kind(c, s.buffer, s.offset, kColumn, narrow, false) != AccessKind::wide) narrow /= 2;
  }
  return narrow < width ? narrow : 0;
}

// What a template stores, in its own coordinates: its epilogue, or the plain result. Its element is the temp of this number.
std::vector<Stmt> stored_by(const KernelPlan& plan, const TemplateKernel& k, int number) {
  ExprPool& pool = *plan.pool;
  const auto element = [&](DType type) { return pool.temp(TempId(number), type); };
  std::vector<Stmt> stmts = k.epilogue;
  for (Stmt& s : stmts) s.value = rewrite(s.value, [&](Expr e) { return e->kind == ExprKind::temp && e->id == k.acc.index ? element(e->dtype) : Expr(); });
  if (!stmts.empty()) return stmts;
  Stmt store;
  store.dtype = plan.buffer(k.result).info.dtype;
  store.value = element(compute_type(store.dtype));
  store.buffer = k.result;
  store.offset = k.result_offset;
  return {store};
}

// What both products of a pair store, where there is a second one: it reads the first one's element before that is stored.
std::vector<Stmt> stored_by_both(const KernelPlan& plan, const TemplateKernel& k, const TemplateKernel* second) {
  std::vector<Stmt> stmts = stored_by(plan, k, 0);
  if (!second) return stmts;
  const Stmt first = stmts[0];
  for (Stmt& s : stored_by(plan, *second, 1)) {
    s.value = rewrite(s.value, [&](Expr e) { return e->kind == ExprKind::load && e->id == first.buffer.index ? first.value : Expr(); });
    stmts.push_back(std::move(s));
  }
  return stmts;
}

// The members by which a template reads `most` bytes at most before it has the elements; empty: the epilogue reads nothing so.
std::string ahead_members(KernelContext& c, const std::vector<Stmt>& stmts, const std::vector<BufferId>& written, int width, int most) {
  ReadAhead ahead{.most = most, .written = written};
  const std::string wide = epilogue_statements(c, stmts, 1, width, "    ", &ahead);
  if (ahead.bytes == 0) return "";
  const std::string frame = pointers(c, written), place = "[[maybe_unused]] cd::i64 batch, int row, int col";
  return fmt::format(
      "  static constexpr int kAhead = {0};\n  __device__ __forceinline__ void ahead(cd::u32 to, {1}) const {{\n{2}{3}  }}\n"
      "  __device__ __forceinline__ void wide({1}, const float (&acc)[{4}], const unsigned char* from) const {{\n{2}{5}  }}\n",
      ahead.bytes, place, frame, ahead.copies, width, wide);
}

}  // namespace

KernelText epilogue_text(const KernelPlan& plan, const TemplateKernel& k, const TemplateKernel* second, int ahead, const std::vector<BufferId>& fresh) {
  ExprPool& pool = *plan.pool;
  KernelContext c(plan);
  const size_t products = second ? 2 : 1;
  std::vector<Stmt> stmts = stored_by_both(plan, k, second);
  c.half_results = stores_halves(stmts);
  c.vars = {"batch", "row", "col"};
  const TemplateTiles tiles = template_tiles(pool, k.def, k.result_sizes);
  c.sizes = tiles.sizes;
  c.wide_index = !fits_32(stmts, k.result_sizes, product(pool, c.sizes));
  const DType dtype = plan.buffer(k.operands[0].buffer).info.dtype;
  std::vector<BufferId> written;
  for (Stmt& s : stmts) {
    s.value = reindex(s.value, tiles.coordinates, c.sizes);
    s.offset = reindex(s.offset, tiles.coordinates, c.sizes);
    written.push_back(s.buffer);
  }
  const int width = epilogue_width(dtype);
  std::vector<BufferId> changing = written;
  changing.insert(changing.end(), fresh.begin(), fresh.end());
  mark_read_only(c, stmts, changing);
  const std::string wide = epilogue_statements(c, stmts, products, width, "    ");
  const int narrow = second ? 0 : narrow_columns(c, stmts, width);
  std::string columns;
  if (narrow == 1) c.vars[2] = "col";
  if (narrow > 0) columns = epilogue_statements(c, stmts, products, narrow, "    ");
  c.vars[2] = "(col + v)";
  const std::string single = epilogue_statements(c, stmts, products, 1, "      ");
  const bool straight = narrow == 0 && std::count(wide.begin(), wide.end(), '\n') <= kStraightLines;
  c.vars[2] = "col";
  const std::string early = straight && ahead > 0 ? ahead_members(c, stmts, written, width, ahead) : "";
  KernelText t = finish(c, "");
  const DType summed = plan.buffer(k.result).info.dtype;
  const char* type = summed == DType::f64 ? "double" : is_int(summed) ? "int" : "float";
  const std::string frame = pointers(c, written);
  if (narrow == 1) columns = "    constexpr int v = 0;\n" + columns;
  const auto elements = [&](const auto& count) {
    return fmt::format("const {} (&acc)[{}]", type, count) + (second ? fmt::format(", const {} (&other)[{}]", type, count) : "");
  };
  t.body = args_struct(c) + "struct @NAME@_epilogue {\n  const @NAME@_args& a;\n";
  if (narrow > 0) {
    t.body += fmt::format(
        "  static constexpr int kColumns = {};\n  __device__ __forceinline__ bool takes_columns() const {{ return {}; }}\n"
        "  __device__ __forceinline__ void columns([[maybe_unused]] cd::i64 batch, int row, int col, {}) const {{\n{}{}  }}\n",
        narrow, narrow > 1 ? "a.wide" : "true", elements(narrow), frame, columns);
  } else if (straight) {
    t.body += "  __device__ __forceinline__ bool straight() const { return a.wide; }\n" + early;
  }
  t.body += fmt::format("  __device__ __forceinline__ void wide([[maybe_unused]] cd::i64 batch, int row, int col, {}) const {{\n{}{}  }}\n", elements(width),
                        frame, wide);
  t.body += fmt::format(
      "  template <int W>\n  __device__ __forceinline__ void operator()([[maybe_unused]] cd::i64 batch, int row, int col, {}, int count) const {{\n"
      "    static_assert(W == {}, \"columns that are finished at once\");\n    if (a.wide && count == W) return wide(batch, row, col, acc{});\n{}",
      elements("W"), width, second ? ", other" : "", frame);
  t.body += fmt::format("#pragma unroll\n    for (int v = 0; v < W; ++v) {{\n      if (v >= count) continue;\n{}    }}\n  }}\n}};\n", single);
  return t;
}

KernelText template_text(const KernelPlan& plan, const TemplateKernel& k, const CudaVariant& variant) {
  KernelText t;
  const std::string bounds = variant.min_blocks > 1 ? fmt::format("__launch_bounds__({}, {})", variant.threads, variant.min_blocks)
                                                    : fmt::format("__launch_bounds__({})", variant.threads);
  if (!takes_epilogue(k.def)) {
    t.body = fmt::format("COIL_KERNEL void {} @NAME@(const __grid_constant__ {} t) {{\n  cd::begin_kernel();\n  {}\n}}\n", bounds, params_type(plan, k),
                         variant.call);
  } else {
    t = epilogue_text(plan, k, nullptr, variant.reads_ahead);
    t.body += fmt::format(
        "COIL_KERNEL void {} @NAME@(const __grid_constant__ {} t, const __grid_constant__ @NAME@_args a) {{\n  cd::begin_kernel();\n  const @NAME@_epilogue epilogue{{a}};\n  {}\n}}\n",
        bounds, params_type(plan, k), variant.call);
  }
  t.headers = {"cuda/base.h", "cuda/params.h", variant.header};
  t.threads = variant.threads;
  t.shared_bytes = variant.shared_bytes;
  return t;
}

// Blocks of templates/cuda_gemm.cc: few rows have 16 columns a block, others tiles of 64 x 64 at least; up to eight parts of k, where they pay, make a cluster.
// With few rows a block reads more than it computes: only the sums that joined products (joined_products.h) do not take are worth a second launch.
static TargetTraits::ProductUnits product_units(int64_t batch, int64_t m, int64_t n) {
  const auto tiles = [](int64_t size, int64_t tile) { return (size + tile - 1) / tile; };
  if (m <= 16) return {batch * tiles(n, 16) * 8, 1 << 14};
  return {batch * tiles(m, 64) * tiles(n, 64) * 4, 1 << 11};
}

// Lines of numbers stay where they are if the table is so already.
static PackingRules packing_rules() {
  PackingRules rules;
  rules.product = product_packing;
  rules.scales = packings::gemm_b_lines;
  rules.convolution = [](const Conv2d&, Expr, const std::vector<Expr>&, const BufferInfo&) { return std::vector{packings::conv_ohwi}; };
  rules.lookups = [](const Gemm&, const BufferInfo& table, DType) { return table_in_lines(table); };
  return rules;
}

TargetTraits traits(const CudaSettings& settings) {
  TargetTraits t;
  t.packings = packing_rules();
  t.packs_convolution_weights = false;
  t.constant_line_bytes = 16;
  t.best_line_bytes = 128;  // a line of the L2 cache: TMA reads pieces of it
  t.memory_per_worker = false;
  t.sorted_in_place = cd::kSortTile;
  t.sort_index_bytes = 4;
  t.sort_counts_bytes = cd::radix_counts_bytes();
  t.max_kept_elements = 16384;
  t.narrows_reductions = true;
  for (const int sm : settings.sms) t.parallel_points = std::max<int64_t>(t.parallel_points, 2 * settings.machine(sm).multiprocessors);  // two blocks each
  t.machine = plan_machine(settings);
  t.product_row_bytes = 128;  // a line of the L2 cache; TMA asks for 16
  t.small_product = 64;
  t.scan_part = 4096;
  t.product_units = product_units;
  t.columns_of_a_unit = 32;  // codegen/cuda/reduction.cc: a block is 32 columns wide
  t.recompute_cost = 8;
  t.inline_cost = 12;
  t.most_loads = 64;  // of 4 floats each: 256 registers
  t.select_pieces = 4;
  t.narrow_pieces = 16;
  t.most_beside = 16;
  t.turns_in_tiles = true;
  t.joins_products = true;
  t.template_scratch = [settings](const KernelPlan& plan, const TemplateKernel& k) {
    Expr bytes;
    const auto add = [&](const CudaVariant& v) {
      if (v.scratch_bytes) bytes = bytes ? index_max(bytes, v.scratch_bytes) : v.scratch_bytes;
    };
    for (const int sm : settings.sms) {
      for (const CudaVariant& v : template_variants(plan, k, settings.machine(sm), settings.libraries)) add(v);
    }
    if (!settings.choices) return bytes;
    for (const Choice& choice : settings.choices(problem_text(plan, k))) {
      if (const auto v = chosen_variant(plan, k, settings.machine(settings.tuned_sm), choice)) add(*v);
    }
    return bytes;
  };
  return t;
}

}  // namespace coil::cuda
