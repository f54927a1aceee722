#include "schedule/products/panel_lookups.h"

#include <algorithm>

#include "schedule/inline_producers.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

constexpr int64_t kLeastShare = 8;  // of the table, that no more than one part in so many is looked up

bool reads_buffer(Expr e, BufferId id) {
  return any_of(e, [&](Expr n) { return n->kind == ExprKind::load && n->id == id.index; });
}

// The packing in which a product reads the whole table, [n, k], as its constant weight.
std::optional<PackedTable> packing_of(const LoopProgram& program, const Loop& loop, BufferId table, const TargetTraits& target) {
  const auto* g = std::get_if<Gemm>(&loop.def);
  if (!g || g->b.buffer != table || g->a.buffer == table || !g->batch.empty() || g->n.size() != 1 || g->k.size() != 1) return std::nullopt;
  const BufferInfo& b = program.buffer(table);
  const auto n_var = static_cast<int32_t>(g->m.size());
  const std::vector<Expr> whole{program.pool->var(n_var), program.pool->var(n_var + 1)};
  if (g->b.coordinates != whole || b.sizes[0] != g->n[0] || b.sizes[1] != g->k[0]) return std::nullopt;
  return target.packings.lookups(*g, b, program.buffer(g->a.buffer).dtype);
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

BufferId add_packed(LoopProgram& program, BufferId table, const PackedTable& packed) {
  BufferInfo b = program.buffer(table);
  b.name += ".packed";
  b.sizes = packed.sizes;
  b.strides = contiguous_strides(*program.pool, b.sizes);
  program.buffers.push_back(std::move(b));
  return BufferId(program.buffers.size() - 1);
}

Expr in_packing(Expr body, BufferId table, BufferId packed, const PackedTable& lies) {
  return rewrite(body, [&](Expr e) { return e->kind == ExprKind::load && e->id == table.index ? lies.element(e, packed) : Expr(); });
}

bool is_table(const BufferInfo& b) {
  if (b.kind != BufferInfo::Kind::constant || b.sizes.size() != 2 || byte_size(b.dtype) == 8) return false;
  if (!std::all_of(b.sizes.begin(), b.sizes.end(), [](Expr n) { return n->is_constant() && n->as_int() > 0; })) return false;
  return b.strides.empty() || b.strides == contiguous_strides(*b.sizes[0]->pool, b.sizes);
}

}  // namespace

std::vector<PanelTable> look_up_in_panels(LoopProgram& program, const TargetTraits& target) {
  std::vector<PanelTable> made;
  if (!target.packings.lookups) return made;
  const std::vector<BufferUse> uses = buffer_uses(program);
  for (size_t i = 0; i < uses.size(); ++i) {
    const BufferId table(i);
    if (!is_table(program.buffer(table)) || uses[i].program_output) continue;
    std::vector<Expr*> lookups;
    size_t products = 0;
    std::optional<PackedTable> lies;
    for (const int l : uses[i].loops) {
      Loop& loop = program.loops[static_cast<size_t>(l)];
      std::optional<PackedTable> read = packing_of(program, loop, table, target);
      if (read && (!lies || lies->packing == read->packing)) ++products, lies = std::move(read);
      else if (Expr* body = lookup_body(program, loop, table)) lookups.push_back(body);
    }
    if (products == 0 || lookups.empty() || products + lookups.size() != uses[i].loops.size()) continue;
    PlanConstant row;
    row.buffer = table;
    row.packing = lies->packing;
    row.codes = lies->codes;
    row.n = program.buffer(table).sizes[0]->as_int(), row.k = program.buffer(table).sizes[1]->as_int();
    row.row_stride = 1, row.col_stride = row.k;
    const BufferId packed = add_packed(program, table, *lies);
    for (Expr* body : lookups) *body = in_packing(*body, table, packed, *lies);
    made.push_back({packed, row});
  }
  return made;
}

}  // namespace coil
