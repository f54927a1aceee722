#include "schedule/panel_lookups.h"

#include <algorithm>

#include "schedule/inline_producers.h"
#include "schedule/schedule.h"
#include "schedule/weights.h"

namespace coil {
namespace {

constexpr int64_t kColumns = 32;    // of a panel (templates/packing.h); elements of 8 bytes have others
constexpr int64_t kQuad = 4;        // k that lie side by side there (gemm_b_quads)
constexpr int64_t kLeastShare = 8;  // of the table, that no more than one part in so many is looked up

bool reads_buffer(Expr e, BufferId id) {
  return any_of(e, [&](Expr n) { return n->kind == ExprKind::load && n->id == id.index; });
}

using Packing = PlanConstant::Packing;

// The panels in which a product reads the whole table, [n, k], as its constant weight, if their numbers can be looked up.
std::optional<Packing> panels_of(const LoopProgram& program, const Loop& loop, BufferId table) {
  const auto* g = std::get_if<Gemm>(&loop.def);
  if (!g || g->b.buffer != table || g->a.buffer == table || !g->batch.empty() || g->n.size() != 1 || g->k.size() != 1) return std::nullopt;
  const BufferInfo& b = program.buffer(table);
  const auto n_var = static_cast<int32_t>(g->m.size());
  const std::vector<Expr> whole{program.pool->var(n_var), program.pool->var(n_var + 1)};
  if (g->b.coordinates != whole || b.sizes[0] != g->n[0] || b.sizes[1] != g->k[0]) return std::nullopt;
  const Packing packing = product_packing(*g, b, program.buffer(g->a.buffer).dtype);
  return packing == Packing::gemm_b || packing == Packing::gemm_b_quads ? std::optional(packing) : std::nullopt;
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

BufferId add_panels(LoopProgram& program, BufferId table, Packing packing) {
  BufferInfo b = program.buffer(table);
  ExprPool& pool = *program.pool;
  b.name += ".packed";
  const int64_t n = b.sizes[0]->as_int(), k = b.sizes[1]->as_int();
  const Expr panels = pool.index((n + kColumns - 1) / kColumns);
  b.sizes = packing == Packing::gemm_b ? std::vector{panels, b.sizes[1], pool.index(kColumns)}
                                       : std::vector{panels, pool.index((k + kQuad - 1) / kQuad), pool.index(kColumns), pool.index(kQuad)};
  b.strides = contiguous_strides(pool, b.sizes);
  program.buffers.push_back(std::move(b));
  return BufferId(program.buffers.size() - 1);
}

Expr in_panels(Expr body, BufferId table, BufferId panels, Packing packing) {
  return rewrite(body, [&](Expr e) {
    if (e->kind != ExprKind::load || e->id != table.index) return Expr();
    ExprPool& pool = *e->pool;
    const Expr row = e->args[0], k = e->args[1], columns = pool.index(kColumns), quad = pool.index(kQuad);
    if (packing == Packing::gemm_b) return pool.load(panels, e->dtype, {floor_div(row, columns), k, floor_mod(row, columns)});
    return pool.load(panels, e->dtype, {floor_div(row, columns), floor_div(k, quad), floor_mod(row, columns), floor_mod(k, quad)});
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
  if (!target.packs_constant_weights) return made;
  const std::vector<BufferUse> uses = buffer_uses(program);
  for (size_t i = 0; i < uses.size(); ++i) {
    const BufferId table(i);
    if (!is_table(program.buffer(table)) || uses[i].program_output) continue;
    std::vector<Expr*> lookups;
    size_t products = 0;
    std::optional<Packing> packing;
    for (const int l : uses[i].loops) {
      Loop& loop = program.loops[static_cast<size_t>(l)];
      const std::optional<Packing> read = panels_of(program, loop, table);
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
