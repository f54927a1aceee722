#include "schedule/products/panel_lookups.h"

#include <algorithm>

#include "schedule/inline_producers.h"
#include "schedule/schedule.h"
#include "schedule/weights.h"

namespace coil {
namespace {

constexpr int64_t kColumns = 32;    // of a panel (templates/packing.h); elements of 8 bytes have others
constexpr int64_t kQuad = 4;        // k that lie side by side there (gemm_b_quads)
constexpr int64_t kPiece = 32;      // numbers of which a line has whole pieces (gemm_b_lines); of 4 bits the first half of them are the lower ones of bytes
constexpr int64_t kLeastShare = 8;  // of the table, that no more than one part in so many is looked up

bool reads_buffer(Expr e, BufferId id) {
  return any_of(e, [&](Expr n) { return n->kind == ExprKind::load && n->id == id.index; });
}

using Packing = PlanConstant::Packing;

bool in_lines(Packing packing) { return packing == Packing::gemm_b_lines || packing == Packing::gemm_b_lines_4bit; }

// The lines of numbers that a target makes of a weight, [n, k], if they are not the table as it is.
std::optional<Packing> lines_of(const BufferInfo& b) {
  if (!is_int(b.dtype)) return std::nullopt;
  if (has_4_bits(b.data.bytes)) return Packing::gemm_b_lines_4bit;
  return b.sizes[1]->as_int() % kPiece == 0 ? std::nullopt : std::optional(Packing::gemm_b_lines);
}

// The panels in which a product reads the whole table, [n, k], as its constant weight.
std::optional<Packing> panels_of(const LoopProgram& program, const Loop& loop, BufferId table, const TargetTraits& target) {
  const auto* g = std::get_if<Gemm>(&loop.def);
  if (!g || g->b.buffer != table || g->a.buffer == table || !g->batch.empty() || g->n.size() != 1 || g->k.size() != 1) return std::nullopt;
  const BufferInfo& b = program.buffer(table);
  const auto n_var = static_cast<int32_t>(g->m.size());
  const std::vector<Expr> whole{program.pool->var(n_var), program.pool->var(n_var + 1)};
  if (g->b.coordinates != whole || b.sizes[0] != g->n[0] || b.sizes[1] != g->k[0]) return std::nullopt;
  if (!target.packs_constant_weights) return lines_of(b);
  const Packing packing = product_packing(*g, b, program.buffer(g->a.buffer).dtype);
  return packing == Packing::gemm_b_integer ? std::nullopt : std::optional(packing);  // (whose panels have room for sums between them)
}

// The body of a loop that looks up rows by data, few beside those of the table; null: it reads it in another way.
Expr* lookup_body(LoopProgram& program, Loop& loop, BufferId table) {
  Expr* body = nullptr;
  std::vector<Expr> sizes = program.buffer(loop.outputs[0]).sizes;
  if (auto* p = std::get_if<Pointwise>(&loop.def)) body = &p->body;
  if (auto* r = std::get_if<Reduction>(&loop.def)) {
    body = &r->body;
    sizes.insert(sizes.end(), r->domain.begin(), r->domain.end());
  }
  if (!body || !reads_buffer(*body, table)) return nullptr;
  int64_t points = kLeastShare, elements = 1;
  for (const Expr size : sizes) points *= typical(size);
  for (const Expr size : program.buffer(table).sizes) elements *= size->as_int();
  const bool by_data = !any_of(*body, [&](Expr e) {
    return e->kind == ExprKind::load && e->id == table.index && !any_of(e->args[0], [](Expr n) { return n->kind == ExprKind::load; });
  });
  return by_data && points <= elements ? body : nullptr;
}

bool in_quads(Packing packing) { return packing == Packing::gemm_b_quads || packing == Packing::gemm_b_quads_4bit; }

BufferId add_panels(LoopProgram& program, BufferId table, Packing packing) {
  BufferInfo b = program.buffer(table);
  ExprPool& pool = *program.pool;
  b.name += ".packed";
  const int64_t n = b.sizes[0]->as_int(), k = b.sizes[1]->as_int();
  if (in_lines(packing)) {
    b.sizes[1] = pool.index((k + kPiece - 1) / kPiece * (has_4_bits(packing) ? kPiece / 2 : kPiece));
    b.strides = contiguous_strides(pool, b.sizes);
    program.buffers.push_back(std::move(b));
    return BufferId(program.buffers.size() - 1);
  }
  const Expr panels = pool.index((n + kColumns - 1) / kColumns), columns = pool.index(has_4_bits(packing) ? kColumns / 2 : kColumns);
  b.sizes = {panels, b.sizes[1], columns};
  if (in_quads(packing)) b.sizes = {panels, pool.index((k + kQuad - 1) / kQuad), columns, pool.index(kQuad)};
  b.strides = contiguous_strides(pool, b.sizes);
  program.buffers.push_back(std::move(b));
  return BufferId(program.buffers.size() - 1);
}

// Half a byte, the upper one where `half` is 1: a number with 8 added, or one in two's complement.
Expr number_of_4_bits(Expr byte, Expr half, bool complement) {
  ExprPool& pool = *byte->pool;
  const auto number = [&](int64_t v) { return pool.constant(static_cast<double>(v), DType::i32); };
  const Expr lower = pool.cast(byte, DType::i32), upper = pool.op(ScalarOp::shr, {lower, number(4)});
  const Expr kept = pool.op(ScalarOp::bit_and, {pool.op(ScalarOp::select, {pool.op(ScalarOp::eq, {half, pool.index(1)}), upper, lower}), number(15)});
  const Expr shifted = complement ? pool.op(ScalarOp::bit_xor, {kept, number(8)}) : kept;
  return pool.cast(pool.op(ScalarOp::sub, {shifted, number(8)}), byte->dtype);
}

Expr in_lines(Expr load, BufferId lines, Packing packing) {
  ExprPool& pool = *load->pool;
  const Expr row = load->args[0], k = load->args[1], piece = pool.index(kPiece), half = pool.index(kPiece / 2);
  if (!has_4_bits(packing)) return pool.load(lines, load->dtype, {row, k});
  const Expr byte = floor_div(k, piece) * half + floor_mod(k, half);
  return number_of_4_bits(pool.load(lines, load->dtype, {row, byte}), floor_div(floor_mod(k, piece), half), true);
}

Expr in_panels(Expr body, BufferId table, BufferId panels, Packing packing) {
  return rewrite(body, [&](Expr e) {
    if (e->kind != ExprKind::load || e->id != table.index) return Expr();
    if (in_lines(packing)) return in_lines(e, panels, packing);
    ExprPool& pool = *e->pool;
    const Expr row = e->args[0], k = e->args[1], columns = pool.index(kColumns), quad = pool.index(kQuad), half = pool.index(kColumns / 2);
    const Expr panel = floor_div(row, columns), within = floor_mod(row, columns), column = has_4_bits(packing) ? floor_mod(within, half) : within;
    const std::vector<Expr> place = in_quads(packing) ? std::vector{panel, floor_div(k, quad), column, floor_mod(k, quad)} : std::vector{panel, k, column};
    const Expr found = pool.load(panels, e->dtype, place);
    return has_4_bits(packing) ? number_of_4_bits(found, floor_div(within, half), false) : found;
  });
}

bool is_table(const BufferInfo& b) {
  if (b.kind != BufferInfo::Kind::constant || b.sizes.size() != 2 || byte_size(b.dtype) == 8) return false;
  if (!std::all_of(b.sizes.begin(), b.sizes.end(), [](Expr n) { return n->is_constant() && n->as_int() > 0; })) return false;
  return b.strides.empty() || b.strides == contiguous_strides(*b.sizes[0]->pool, b.sizes);
}

}  // namespace

std::vector<PanelTable> look_up_in_panels(LoopProgram& program, const TargetTraits& target) {
  std::vector<PanelTable> made;
  const std::vector<BufferUse> uses = buffer_uses(program);
  for (size_t i = 0; i < uses.size(); ++i) {
    const BufferId table(i);
    if (!is_table(program.buffer(table)) || uses[i].program_output) continue;
    std::vector<Expr*> lookups;
    size_t products = 0;
    std::optional<Packing> packing;
    for (const int l : uses[i].loops) {
      Loop& loop = program.loops[static_cast<size_t>(l)];
      const std::optional<Packing> read = panels_of(program, loop, table, target);
      if (read && (!packing || packing == read)) ++products, packing = read;
      else if (Expr* body = lookup_body(program, loop, table)) lookups.push_back(body);
    }
    if (products == 0 || lookups.empty() || products + lookups.size() != uses[i].loops.size()) continue;
    PlanConstant row;
    row.buffer = table;
    row.packing = *packing;
    row.n = program.buffer(table).sizes[0]->as_int(), row.k = program.buffer(table).sizes[1]->as_int();
    row.row_stride = 1, row.col_stride = row.k;
    const BufferId panels = add_panels(program, table, *packing);
    for (Expr* body : lookups) *body = in_panels(*body, table, panels, *packing);
    made.push_back({panels, row});
  }
  return made;
}

}  // namespace coil
