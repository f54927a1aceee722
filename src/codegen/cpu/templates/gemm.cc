#include "codegen/cpu/templates/gemm.h"

#include <algorithm>

#include <fmt/format.h>

#include "codegen/cpu/templates/call_fields.h"
#include "codegen/cpu/templates/parts.h"
#include "codegen/index_text.h"
#include "device/kernels.h"
#include "schedule/schedule.h"
#include "templates/packing.h"

namespace coil::cpu {

namespace {

constexpr int64_t kMostCopied = 64 << 20;  // bytes of a copy, which may be more than a program has else

Expr copy_bytes(const KernelPlan& plan, const TemplateKernel& t) {
  const auto& g = std::get<Gemm>(t.def);
  const auto panels = [&](const std::vector<Expr>& sizes, int64_t of) { return ceil_div(product(*plan.pool, sizes), plan.pool->index(of)); };
  const Expr depth = panels(g.k, COIL_PAIRED_K) * COIL_PAIRED_K;
  return product(*plan.pool, g.batch) * panels(g.n, COIL_PANEL) * depth * (COIL_PANEL * byte_size(plan.buffer(t.operands[0].buffer).info.dtype));
}

// Whether the kernel reads pairs of k, which instructions for bfloat16 want: of whole depths, or of so many that zeros behind an odd one cost little memory.
bool wants_pairs(const WeightUse& use) {
  constexpr int64_t kFewestPieces = 4;
  const int64_t k = use.place.k;
  if (!std::holds_alternative<Gemm>(use.kernel.def) || use.weight.dtype != DType::bf16 || use.other != DType::bf16) return false;
  if (k <= 0 || (k % COIL_PAIRED_K != 0 && k < kFewestPieces * COIL_PAIRED_K)) return false;
  return lower_bound(product(*use.weight.sizes[0]->pool, use.product.m)).value_or(1) >= COIL_FEWEST_PAIRED_ROWS;
}

}  // namespace

Packing panel_packing(const Gemm& g, const BufferInfo& weight, DType other, const std::vector<int8_t>& codes) {
  if (!g.quantised) return is_int(other) ? packings::gemm_b_integer : packings::gemm_b;
  if (!codes.empty()) return is_int(other) ? packings::gemm_b_quads_codes : packings::gemm_b_codes;
  const bool four = has_4_bits(weight.data.bytes);
  if (is_int(other)) return four ? packings::gemm_b_quads_4bit : packings::gemm_b_quads;
  return four ? packings::gemm_b_4bit : packings::gemm_b;
}

// A weight that is there in panels for another product, or for lookups, is not kept in pairs too.
std::optional<Packing> product_packing(const WeightUse& use) {
  const Packing panels = panel_packing(use.product, use.weight, use.other, use.place.codes);
  const bool there = std::find(use.present.begin(), use.present.end(), panels) != use.present.end();
  const bool pairs = panels == packings::gemm_b && !use.product.quantised && !there && wants_pairs(use);
  return pairs ? packings::gemm_b_pairs : panels;
}

std::string problem(const TemplateUse& use, const Gemm& g) {
  const auto& [plan, t] = use;
  ExprPool& pool = use.pool();
  const int m0 = static_cast<int>(g.batch.size()), n0 = m0 + static_cast<int>(g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
  const auto stride = [&](Expr offset, int first, const std::vector<Expr>& sizes) {
    const auto s = merged_stride(offset, first, sizes);
    return s ? size_text(*s) : std::string("?");
  };
  const Expr a = t.operands[0].offset, b = t.operands[1].offset;
  const bool packed = use.packing(1) == packings::gemm_b || use.packing(1) == packings::gemm_b_pairs;
  const std::string b_text = packed ? "packed" : fmt::format("strides {}, {}, {}", stride(b, 0, g.batch), stride(b, k0, g.k), stride(b, n0, g.n));
  const std::string quantised = g.quantised ? fmt::format(" quantised by {}", g.quantised->group) : "";
  return fmt::format("gemm {}, a {} strides {}, {}, {}, b {}{}",
                     size_texts({product(pool, g.batch), product(pool, g.m), product(pool, g.n), product(pool, g.k)}), name(use.info(0).dtype),
                     stride(a, 0, g.batch), stride(a, m0, g.m), stride(a, k0, g.k), b_text, quantised);
}

Expr key(const TemplateUse& use, const Gemm& g) { return product(use.pool(), g.batch) * product(use.pool(), g.m); }

const ChoiceNames& choice_names(const Gemm&) { return ProductChoice::kNames; }
std::string method_text(const Gemm&, int32_t method) { return method == kOneDnn ? "onednn" : ""; }
bool has_method(const TemplateUse&, const Gemm&, int32_t method) { return method == kOwnMethod; }

OneDnnWeight onednn_weight(const TemplateUse& use, const Gemm& g) {
  const auto& [plan, t] = use;
  const DType dtype = use.info(0).dtype;
  const Packing b = use.packing(1);
  if ((dtype != DType::f32 && dtype != DType::bf16) || g.quantised || (b != packings::gemm_b && b != packings::gemm_b_pairs && b != kPlain)) return {};
  if (b == kPlain) return {&t.operands[1], 0};
  const PlanConstant& c = plan.constants[static_cast<size_t>(plan.buffer(t.operands[1].buffer).placement.index)];
  return {&t.operands[1], c.batch * c.k * c.n};
}

std::vector<Choice> candidates(const TemplateUse& use, const Gemm& g, const Sought& sought) {
  const auto total = [&](const std::vector<Expr>& dims) { return sought.value(product(use.pool(), dims)); };
  const Blocked p = {total(g.batch), total(g.m), total(g.n), total(g.k), use.info(0).dtype == DType::f64 ? 8 : 4};
  std::vector<Choice> first;
  if (sought.machine.onednn && onednn_weight(use, g).operand) first.push_back(by(kOneDnn));
  if (sought.machine.threads > 1 && p.multiply_adds() < kSmallProduct) first.push_back(one_thread());
  Priced rest;
  add_blocks(p, kOwnMethod, sought.machine, rest);
  return ordered(first, std::move(rest), sought.most);
}

KernelHint hint(const TemplateUse& use, const Gemm& g) {
  const auto& [plan, t] = use;
  const Expr n = product(use.pool(), g.n), k = product(use.pool(), g.k), m = product(use.pool(), g.m), batch = product(use.pool(), g.batch);
  if (typical(batch) * typical(m) * typical(n) * typical(k) < kWorthSaying) return {};
  const PlanBuffer& b = plan.buffer(t.operands[1].buffer);
  const int64_t step = column_step(b.info.dtype);
  if (n->is_constant() && padding_percent(n->as_int(), step) > kMostPadding) {
    return padded("columns", n->as_int(), step, "product is");
  }
  if (b.placement.kind != Placement::Kind::constant && b.info.kind == BufferInfo::Kind::input) {
    return {fmt::format("the second factor is the input '{}': it is packed in each call; a parameter is packed when the program is compiled", b.info.name)};
  }
  return {};
}

bool copies_b(const KernelPlan& plan, const TemplateKernel& t) {
  const auto* g = std::get_if<Gemm>(&t.def);
  if (!g) return false;
  ExprPool& pool = *plan.pool;
  const TemplateUse use{plan, t};
  const DType type = use.info(0).dtype;
  const bool half = type == DType::bf16 || type == DType::f16;
  if ((!half && type != DType::f32) || g->quantised || use.info(1).dtype != type || use.packing(1) != kPlain) return false;
  const Expr batch = product(pool, g->batch);
  if (!half && !(batch == pool.index(1))) return false;
  const Expr all = batch * product(pool, g->n) * product(pool, g->k);
  return typical(product(pool, g->m)) >= (half ? COIL_GEMM_COPY_HALF_ROWS : COIL_GEMM_COPY_ROWS) && typical(all) * byte_size(type) <= kMostCopied;
}

std::string device_object(const TemplateUse& use, const Gemm& g) {
  if (g.quantised && is_int(use.info(0).dtype)) return "gemm_bytes";
  return use.info(0).dtype == DType::f64 ? "gemm_f64" : "gemm";
}

Expr scratch(const TemplateUse& use, const Gemm& g) {
  if (is_int(use.info(0).dtype)) return Expr();  // sums of bytes lie on the stack
  const int64_t unblocked = COIL_GEMM_UNBLOCKED_K(byte_size(use.info(0).dtype));
  const bool one_block = provably_less(product(use.pool(), g.k), use.pool().index(unblocked + 1));
  const Expr partial = one_block ? Expr() : use.pool().symbol(use.plan.workers) * COIL_GEMM_WORKER_BYTES;
  if (!copies_b(use.plan, use.kernel)) return partial;
  const Expr copy = copy_bytes(use.plan, use.kernel);
  return partial ? copy + partial : copy;
}

namespace {

bool is_bytes_of_groups(const PlanConstant& c) { return c.packing == packings::gemm_b_quads || c.packing == packings::gemm_b_quads_codes; }

bool has_least(const PlanConstant& c, const StoredBytes& numbers) {
  if (!c.codes.empty()) return c.codes[0] == INT8_MIN;
  return !numbers.told("no -128", [&] {
    return numbers.each_piece([](std::span<const uint8_t> piece) { return std::find(piece.begin(), piece.end(), uint8_t{0x80}) == piece.end(); });
  });
}

// How many elements one matrix of several has, with what pads it; `item`: bytes of one.
int64_t batch_elements(const PlanConstant& c, size_t item) {
  if (c.packing == packings::gemm_b_pairs) return templates::packed_pairs_elements(c.k, c.n);
  const bool quads = is_bytes_of_groups(c) || c.packing == packings::gemm_b_quads_4bit;
  return quads ? templates::packed_quads_bytes(c.k, c.n, 8) : templates::packed_gemm_b_elements(c.k, c.n, item);
}

// A list of numbers as two of 64 bits.
void add_codes(CallWriter& to, const std::vector<int8_t>& codes) {
  to.add("b_coded", 1);
  for (size_t word = 0; word < 2; ++word) {
    uint64_t bytes = 0;
    for (size_t i = 8 * word; i < std::min(8 * word + 8, codes.size()); ++i) bytes |= static_cast<uint64_t>(static_cast<uint8_t>(codes[i])) << 8 * (i % 8);
    to.number(fmt::format("b_codes[{}]", word), fmt::format("0x{:016x}UL", bytes));
  }
}

// next: the first operand that is a table.
void add_quantised(CallWriter& to, const Gemm::Quantised& q, const PlanConstant& packed, size_t next) {
  const TemplateKernel& t = to.kernel;
  const bool coded = has_codes(packed.packing);
  to.add("b_bits", coded || has_4_bits(packed.packing) ? 4 : 8);
  if (coded) add_codes(to, packed.codes);
  to.add("b_group", q.group);
  if ((q.scale.valid() || q.zero.valid()) && packed_constant(to.plan, t.operands[next].buffer)) to.add("b_tables_packed", 1);
  const auto table = [&](const char* name, const char* type, BufferId id) {
    if (!id.valid()) return;
    to.pointer(name, t.operands[next].buffer);
    to.add(type, to.dtype(t.operands[next++].buffer));
  };
  table("b_scale", "b_scale_dtype", q.scale);
  table("b_zero", "b_zero_dtype", q.zero);
}

}  // namespace

void add_fields(CallWriter& to, const Gemm& g) {
  const TemplateKernel& t = to.kernel;
  const int m0 = static_cast<int>(g.batch.size()), n0 = m0 + static_cast<int>(g.m.size()), k0 = n0 + static_cast<int>(g.n.size());
  const int vars = k0 + static_cast<int>(g.k.size());
  const Expr a = t.operands[0].offset, b = t.operands[1].offset;
  const auto stride = [&](Expr offset, int first, const std::vector<Expr>& sizes) {
    const auto s = merged_stride(offset, first, sizes);
    CHECK(s.has_value(), "a gemm operand that does not merge");
    return *s;
  };
  to.set_type("CoilGemm");
  to.add("batch", product(to.pool(), g.batch));
  to.add("m", product(to.pool(), g.m));
  to.add("n", product(to.pool(), g.n));
  to.add("k", product(to.pool(), g.k));
  to.element("a", t.operands[0], vars);
  to.add("a_batch", stride(a, 0, g.batch));
  to.add("a_row", stride(a, m0, g.m));
  to.add("a_col", stride(a, k0, g.k));
  to.element("b", t.operands[1], vars);
  to.add("dtype", to.dtype(t.operands[0].buffer));
  if (const PlanConstant* packed = packed_constant(to.plan, t.operands[1].buffer)) {
    to.add("b_packed", 1);
    const auto bytes = static_cast<size_t>(byte_size(to.plan.buffer(t.operands[1].buffer).info.dtype));
    const bool pairs = packed->packing == packings::gemm_b_pairs;
    to.add("b_batch", packed->batch_stride == 0 ? 0 : batch_elements(*packed, bytes));
    if (pairs) to.add("b_pairs", 1);
    if (is_bytes_of_groups(*packed) && !has_least(*packed, to.plan.buffer(packed->buffer).info.data.bytes)) to.add("b_no_least", 1);
    if (g.quantised) add_quantised(to, *g.quantised, *packed, std::holds_alternative<GroupedGemm>(t.def) ? 3 : 2);
  } else {
    to.add("b_batch", stride(b, 0, g.batch));
    to.add("b_row", stride(b, k0, g.k));
    to.add("b_col", stride(b, n0, g.n));
    if (copies_b(to.plan, t)) to.add("b_copied", 1);
  }
  if (!t.epilogue.empty()) return;
  const Expr n = product(to.pool(), g.n);
  to.pointer("c", t.result);
  to.add("c_row", n);
  to.add("c_batch", product(to.pool(), g.m) * n);
}

std::string method_fields(const TemplateUse&, const Gemm&) { return ""; }

}  // namespace coil::cpu
