#include "schedule/panel_lookups.h"

#include <algorithm>

#include "schedule/inline_producers.h"
#include "schedule/schedule.h"
#include "schedule/weights.h"

namespace coil {
namespace {

constexpr int64_t kColumns = 32;    // of a panel (templates/packing.h); elements of 8 bytes have others
constexpr int64_t kLeastShare = 8;  // of the table, that no more than one part in so many is looked up

bool reads_buffer(Expr e, BufferId id) {
  return any_of(e, [&](Expr n) { return n->kind == ExprKind::load && n->id == id.index; });
}

// The whole table, [n, k], as the constant weight of a product that reads it in panels.
bool is_panel_weight(const LoopProgram& program, const Loop& loop, BufferId table) {
  const auto* g = std::get_if<Gemm>(&loop.def);
  if (!g || g->b.buffer != table || g->a.buffer == table || !g->batch.empty() || g->n.size() != 1 || g->k.size() != 1) return false;
  const BufferInfo& b = program.buffer(table);
  const auto n_var = static_cast<int32_t>(g->m.size());
  const std::vector<Expr> whole{program.pool->var(n_var), program.pool->var(n_var + 1)};
  if (g->b.coordinates != whole || b.sizes[0] != g->n[0] || b.sizes[1] != g->k[0]) return false;
  return !is_int(program.buffer(loop.outputs[0]).dtype) && !(g->quantised && has_4_bits(b));
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

BufferId add_panels(LoopProgram& program, BufferId table) {
  BufferInfo b = program.buffer(table);
  ExprPool& pool = *program.pool;
  b.name += ".packed";
  b.sizes = {pool.index((b.sizes[0]->as_int() + kColumns - 1) / kColumns), b.sizes[1], pool.index(kColumns)};
  b.strides = contiguous_strides(pool, b.sizes);
  program.buffers.push_back(std::move(b));
  return BufferId(program.buffers.size() - 1);
}

Expr in_panels(Expr body, BufferId table, BufferId panels) {
  return rewrite(body, [&](Expr e) {
    if (e->kind != ExprKind::load || e->id != table.index) return Expr();
    ExprPool& pool = *e->pool;
    const Expr row = e->args[0], columns = pool.index(kColumns);
    return pool.load(panels, e->dtype, {floor_div(row, columns), e->args[1], floor_mod(row, columns)});
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
    for (const int l : uses[i].loops) {
      Loop& loop = program.loops[static_cast<size_t>(l)];
      if (is_panel_weight(program, loop, table)) ++products;
      else if (Expr* body = lookup_body(program, loop, table)) lookups.push_back(body);
    }
    if (products == 0 || lookups.empty() || products + lookups.size() != uses[i].loops.size()) continue;
    PlanConstant row;
    row.buffer = table;
    row.packing = PlanConstant::Packing::gemm_b;
    row.n = program.buffer(table).sizes[0]->as_int(), row.k = program.buffer(table).sizes[1]->as_int();
    row.row_stride = 1, row.col_stride = row.k;
    const BufferId panels = add_panels(program, table);
    for (Expr* body : lookups) *body = in_panels(*body, table, panels);
    made.push_back({panels, row});
  }
  return made;
}

}  // namespace coil
