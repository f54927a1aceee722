// Products of bytes: of rows in int8 with a constant weight of 8-bit or 4-bit numbers.
#include <fmt/format.h>

#include "codegen/index_text.h"

#include "codegen/cuda/loop_context.h"
#include "codegen/cuda/templates/f16_range.h"
#include "codegen/cuda/templates/gemm.h"
#include "device/cuda/shared_memory.h"
#include "schedule/schedule.h"
#include "templates/packing.h"

namespace coil::cuda {
namespace {

struct Table {
  const PlanOperand* operand = nullptr;
  Expr group, column;  // how far it moves with each
};

struct Tables {
  Table scale, zero;
};

const PlanConstant* constant_of(const TemplateUse& use, size_t operand) {
  const Placement& p = use.plan.buffer(use.kernel.operands[operand].buffer).placement;
  return p.kind == Placement::Kind::constant ? &use.plan.constants[static_cast<size_t>(p.index)] : nullptr;
}

Tables tables_of(const TemplateUse& use, const Gemm& g) {
  Tables found;
  if (!g.quantised) return found;
  ExprPool& pool = use.pool();
  size_t next = 2;
  for (const auto& [id, table] : {std::pair(g.quantised->scale, &found.scale), std::pair(g.quantised->zero, &found.zero)}) {
    if (!id.valid()) continue;
    const PlanConstant* packed = constant_of(use, next);
    const bool lines = packed && packed->packing == packings::gemm_b_lines;
    const Expr groups = pool.index(product(pool, g.k)->as_int() / g.quantised->group), columns = product(pool, g.n), one = pool.index(1);
    *table = {&use.kernel.operands[next++], lines ? one : columns, lines ? groups : one};
  }
  return found;
}

// Whether all that the product stores is in 16 bits: to round its factors to float16's 11 bits of mantissa then changes less than the results' own rounding.
bool stores_halves(const TemplateUse& use) {
  if (!use.kernel.epilogue.empty()) return cuda::stores_halves(use.kernel.epilogue);
  const DType type = use.plan.buffer(use.kernel.result).info.dtype;
  return type == DType::bf16 || type == DType::f16;
}

// See CudaByteFacts::f16_shift.
std::optional<int> shift_of(const TemplateUse& use, const templates::CudaByteFacts& f, const Tables& tables) {
  if (f.group == 0 || !tables.scale.operand || !stores_halves(use)) return std::nullopt;
  const auto data = [&](const Table& table) -> const TensorData* {
    const Placement& p = use.plan.buffer(table.operand->buffer).placement;
    if (p.kind != Placement::Kind::constant) return nullptr;
    return &use.plan.buffer(use.plan.constants[static_cast<size_t>(p.index)].buffer).info.data;
  };
  const TensorData *scale = data(tables.scale), *zero = tables.zero.operand ? data(tables.zero) : nullptr;
  if (!scale || (tables.zero.operand && !zero)) return std::nullopt;
  const int64_t numbers = f.n * (f.k / f.group);
  return f16_shift(f.bits, *scale, numbers, zero, numbers);
}

}  // namespace

bool is_of_bytes(const TemplateUse& use) { return is_int(use.dtype(1)); }

std::optional<Packing> product_packing(const WeightUse& use) {
  if (!is_int(use.weight.dtype)) return std::nullopt;
  const PlanConstant& c = use.place;
  if (has_4_bits(use.weight.data.bytes)) return packings::gemm_b_lines_4bit;
  return c.row_stride == 1 && c.col_stride == c.k && c.k % cd::kBytePiece == 0 && c.first == 0 ? kPlain : packings::gemm_b_lines;
}

templates::CudaByteFacts byte_facts(const TemplateUse& use, const Gemm& g) {
  ExprPool& pool = use.pool();
  const Tables tables = tables_of(use, g);
  const auto type = [&](const Table& t) { return t.operand ? std::optional(use.plan.buffer(t.operand->buffer).info.dtype) : std::nullopt; };
  const PlanConstant* weight = constant_of(use, 1);
  templates::CudaByteFacts f;
  f.m = product(pool, g.m), f.n = product(pool, g.n)->as_int(), f.k = product(pool, g.k)->as_int();
  f.bits = weight && weight->packing == packings::gemm_b_lines_4bit ? 4 : 8;  // (one that stays as it is has no place yet)
  f.group = g.quantised && g.quantised->group < f.k ? g.quantised->group : 0;
  f.scale = type(tables.scale), f.zero = type(tables.zero);
  f.integers = !g.quantised;
  const int m0 = static_cast<int>(g.batch.size()), k0 = m0 + static_cast<int>(g.m.size() + g.n.size());
  const auto row = merged_stride(use.kernel.operands[0].offset, m0, g.m), col = merged_stride(use.kernel.operands[0].offset, k0, g.k);
  CHECK(row && col, "rows of bytes that do not merge");
  f.a_row = *row, f.a_col = *col;
  f.a_alignment = alignment_of(use.plan, use.kernel.operands[0]), f.b_alignment = alignment_of(use.plan, use.kernel.operands[1]);
  return f;
}

templates::CudaByteFacts byte_tile_facts(const TemplateUse& use, const Gemm& g) {
  templates::CudaByteFacts f = byte_facts(use, g);
  f.f16_shift = shift_of(use, f, tables_of(use, g));
  return f;
}

std::string byte_problem(const templates::CudaByteFacts& f) {
  const auto table = [](std::optional<DType> type) { return type ? name(*type) : "none"; };
  return fmt::format("gemm of {}-bit numbers{}{} [{}, {}, {}], scales {}, zero points {}, a strides [{}] at {}, b at {}", f.bits,
                     f.integers    ? ", sums as they are"
                     : f.group > 0 ? fmt::format(" in groups of {}", f.group)
                                   : "",
                     f.f16_shift ? ", in float16 too" : "", size_text(f.m), f.n, f.k, table(f.scale), table(f.zero), size_texts({f.a_row, f.a_col}),
                     f.a_alignment, f.b_alignment);
}

void byte_params(Params& p, const TemplateUse& use, const Gemm& g) {
  const templates::CudaByteFacts f = byte_facts(use, g);
  const Tables tables = tables_of(use, g);
  p.set("m", f.m), p.set("n", fmt::to_string(f.n)), p.set("k", fmt::to_string(f.k));
  p.operand("a", use.kernel.operands[0]);
  // The stride of a single row moves nothing: such that it does not spoil the alignment.
  p.set("a_row", f.m == use.pool().index(1) ? use.pool().index(0) : f.a_row), p.set("a_col", f.a_col);
  p.operand("b", use.kernel.operands[1]);
  p.set("b_line", fmt::to_string(templates::line_bytes(f.k, f.bits)));
  for (const auto& [name, table] : {std::pair("scale", &tables.scale), std::pair("zero", &tables.zero)}) {
    if (!table->operand) continue;
    p.operand(name, *table->operand);
    p.set(fmt::format("{}_group", name), table->group), p.set(fmt::format("{}_col", name), table->column);
  }
}

}  // namespace coil::cuda
