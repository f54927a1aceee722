#include "schedule/products/product_orders.h"

#include <algorithm>
#include <numeric>

#include "loop/templates/template.h"
#include "schedule/few_last.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

constexpr size_t kLeastRank = 3, kMostRank = 5;  // of which there are at most 120 orders, and 24 that leave the last dimension where it is

// A product's operand: the dimensions of its rows (or columns) and of what is summed over begin at these variables.
struct Read {
  const Gemm* gemm;
  const Operand* operand;
  int first;
  const std::vector<Expr>* rows;
  size_t loop;
};

std::vector<Expr> strides_in(ExprPool& pool, const std::vector<Expr>& sizes, const std::vector<size_t>& order) {
  std::vector<Expr> strides(sizes.size());
  Expr next = pool.index(1);
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = next;
    next = next * sizes[order[i]];
  }
  return strides;
}

// 0: it cannot read them so; 2: and rows or what is summed over lie side by side.
int worth(const LoopProgram& program, const Read& read, const std::vector<Expr>& strides) {
  const Gemm& g = *read.gemm;
  BufferInfo laid = program.buffer(read.operand->buffer);
  laid.strides = strides;
  const int k0 = static_cast<int>(g.batch.size() + g.m.size() + g.n.size());
  const Expr offset = simplify_index(linear_offset(*program.pool, laid, read.operand->coordinates), {operand_ranges(LoopDef(g))});
  const auto row = merged_stride(offset, read.first, *read.rows), step = merged_stride(offset, k0, g.k);
  if (!merged_stride(offset, 0, g.batch) || !row || !step) return 0;
  const Expr one = program.pool->index(1);
  return *row == one || *step == one ? 2 : 1;
}

// The first order of the dimensions that the most reads can use; none: no read can use any. What lies side by side stays so, unless it is few elements:
// whoever makes the buffer most likely reads it so too.
std::vector<Expr> best_order(const LoopProgram& program, const std::vector<Expr>& sizes, const std::vector<Read>& reads) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<Expr> best;
  int most = 0;
  const std::ptrdiff_t stays = is_few(sizes.back()) ? 0 : 1;
  do {
    const std::vector<Expr> strides = strides_in(*program.pool, sizes, order);
    int sum = 0;
    for (const Read& r : reads) sum += worth(program, r, strides);
    if (sum > most) most = sum, best = strides;
  } while (most < 2 * static_cast<int>(reads.size()) && std::next_permutation(order.begin(), order.end() - stays));
  return best;
}

// Of a loop that turns one buffer and reads nothing else point by point: the order of its dimensions in which they follow one another there. Empty: it does
// not.
std::vector<size_t> source_order(const LoopProgram& program, const Loop& loop) {
  const size_t rank = program.buffer(loop.outputs[0]).sizes.size();
  std::vector<size_t> order;
  if (!std::holds_alternative<Pointwise>(loop.def)) return order;
  bool one = true;
  visit(bodies(program, loop)[0].body, [&](Expr e) {
    if (e->kind != ExprKind::load || e->args.size() != rank) return;
    std::vector<size_t> at;
    for (Expr c : e->args) {
      if (c->kind == ExprKind::var) at.push_back(static_cast<size_t>(c->id));
    }
    std::vector<size_t> sorted = at;
    std::sort(sorted.begin(), sorted.end());
    const bool each = at.size() == rank && std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
    if (each && program.buffer(BufferId(e->id)).kind == BufferInfo::Kind::computed) {
      one = one && (order.empty() || order == at);
      order = at;
    } else if (at.size() == rank || depends_on_var(e->args.back(), static_cast<int>(rank) - 1)) {
      one = false;
    }
  });
  return one ? order : std::vector<size_t>{};
}

// With its rows' first dimension as a batch's: those of several images need not lie one after the other then.
Gemm by_image(Gemm g) {
  g.batch.push_back(g.m.front());
  g.m.erase(g.m.begin());
  return g;
}

bool takes_by_image(const LoopProgram& program, const Read& r, const std::vector<Expr>& strides) {
  if (r.operand != &r.gemm->a || r.rows->size() < 2) return false;
  const Gemm g = by_image(*r.gemm);
  return worth(program, {&g, &g.a, r.first + 1, &g.m, r.loop}, strides) > 0;
}

// What a product reads as well in lines along another dimension lies as what it is made from: whoever computes that stores its own lines then.
void order_as_source(const LoopProgram& program, const Loop& loop, const std::vector<Read>& reads, const TargetTraits& target, ProductOrders& found) {
  constexpr int64_t kLine = 16;  // bytes that boxes of products begin at
  const BufferInfo& b = program.buffer(loop.outputs[0]);
  const std::vector<size_t> order = source_order(program, loop);
  if (target.product_row_bytes == 0 || byte_size(b.dtype) != 2 || order.empty() || order.back() == b.sizes.size() - 1) return;
  const Expr line = b.sizes[order.back()];
  if (!line->is_constant() || line->as_int() * byte_size(b.dtype) % kLine != 0) return;
  std::vector<Expr> strides = strides_in(*program.pool, b.sizes, order);
  std::set<size_t> by_images;
  for (const Read& r : reads) {
    if (worth(program, r, strides) > 0) continue;
    if (!takes_by_image(program, r, strides)) return;
    by_images.insert(r.loop);
  }
  found.strides.emplace(loop.outputs[0], std::move(strides));
  found.reasons.emplace(loop.outputs[0], "it lies as what it is made from: the products that read it take either order");
  found.by_images.merge(by_images);
}

}  // namespace

ProductOrders product_orders(const LoopProgram& program, const std::set<BufferId>& other, const TargetTraits& target) {
  std::set<BufferId> free;
  for (const Loop& loop : program.loops) {
    const BufferInfo& b = program.buffer(loop.outputs[0]);
    const bool loops = std::holds_alternative<Pointwise>(loop.def) || std::holds_alternative<Reduction>(loop.def) || std::holds_alternative<Concat>(loop.def);
    const bool fits = b.kind == BufferInfo::Kind::computed && b.strides.empty() && b.sizes.size() >= kLeastRank && b.sizes.size() <= kMostRank;
    if (loops && fits && !other.contains(loop.outputs[0])) free.insert(loop.outputs[0]);
  }
  std::map<BufferId, std::vector<Read>> reads;
  std::set<BufferId> read_by_others;
  for (size_t i = 0; i < program.loops.size(); ++i) {
    const Loop& loop = program.loops[i];
    const auto* g = std::get_if<Gemm>(&loop.def);
    if (!g) {
      for (BufferId id : coil::reads(program, loop)) read_by_others.insert(id);
      continue;
    }
    const int m0 = static_cast<int>(g->batch.size()), n0 = m0 + static_cast<int>(g->m.size());
    if (free.contains(g->a.buffer)) reads[g->a.buffer].push_back({g, &g->a, m0, &g->m, i});
    if (free.contains(g->b.buffer)) reads[g->b.buffer].push_back({g, &g->b, n0, &g->n, i});
  }
  ProductOrders found;
  for (const auto& [id, of] : reads) {
    const std::vector<Expr>& sizes = program.buffer(id).sizes;
    const std::vector<Expr> usual = contiguous_strides(*program.pool, sizes);
    if (std::any_of(of.begin(), of.end(), [&](const Read& r) { return worth(program, r, usual) > 0; })) continue;
    std::vector<Expr> best = best_order(program, sizes, of);
    if (best.empty()) continue;
    found.strides.emplace(id, std::move(best));
    found.reasons.emplace(id, "in this order of its dimensions products can read it where it lies, and not in the usual one");
  }
  for (const Loop& loop : program.loops) {
    const auto of = reads.find(loop.outputs[0]);
    if (of == reads.end() || read_by_others.contains(of->first) || found.strides.contains(of->first)) continue;
    order_as_source(program, loop, of->second, target, found);
  }
  return found;
}

void change_products(LoopProgram& program, const ProductOrders& orders) {
  for (size_t loop : orders.by_images) {
    auto& gemm = std::get<Gemm>(program.loops[loop].def);
    gemm = by_image(std::move(gemm));
  }
}

}  // namespace coil
