#include "schedule/product_orders.h"

#include <algorithm>
#include <numeric>

#include "loop/templates/template.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

constexpr size_t kLeastRank = 3, kMostRank = 5;  // of which there are at most 24 orders that leave the last dimension where it is

// A product's operand: the dimensions of its rows (or columns) and of what is summed over begin at these variables.
struct Read {
  const Gemm* gemm;
  const Operand* operand;
  int first;
  const std::vector<Expr>* rows;
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

bool can_read(const LoopProgram& program, const Read& read, const std::vector<Expr>& strides) {
  const Gemm& g = *read.gemm;
  BufferInfo laid = program.buffer(read.operand->buffer);
  laid.strides = strides;
  const int k0 = static_cast<int>(g.batch.size() + g.m.size() + g.n.size());
  const Expr offset = simplify_index(linear_offset(*program.pool, laid, read.operand->coordinates), {operand_ranges(LoopDef(g))});
  return merged_stride(offset, 0, g.batch) && merged_stride(offset, read.first, *read.rows) && merged_stride(offset, k0, g.k);
}

// The first order of the dimensions that the most reads can use; none: no read can use any. What lies side by side stays so: whoever makes the buffer most
// likely reads it so too.
std::vector<Expr> best_order(const LoopProgram& program, const std::vector<Expr>& sizes, const std::vector<Read>& reads) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<Expr> best;
  std::ptrdiff_t most = 0;
  do {
    const std::vector<Expr> strides = strides_in(*program.pool, sizes, order);
    const auto count = std::count_if(reads.begin(), reads.end(), [&](const Read& r) { return can_read(program, r, strides); });
    if (count > most) most = count, best = strides;
  } while (most < static_cast<std::ptrdiff_t>(reads.size()) && std::next_permutation(order.begin(), order.end() - 1));
  return best;
}

}  // namespace

std::map<BufferId, std::vector<Expr>> product_orders(const LoopProgram& program, const std::set<BufferId>& other) {
  std::set<BufferId> free;
  for (const Loop& loop : program.loops) {
    const BufferInfo& b = program.buffer(loop.outputs[0]);
    const bool loops = std::holds_alternative<Pointwise>(loop.def) || std::holds_alternative<Reduction>(loop.def) || std::holds_alternative<Concat>(loop.def);
    const bool fits = b.kind == BufferInfo::Kind::computed && b.strides.empty() && b.sizes.size() >= kLeastRank && b.sizes.size() <= kMostRank;
    if (loops && fits && !other.contains(loop.outputs[0])) free.insert(loop.outputs[0]);
  }
  std::map<BufferId, std::vector<Read>> reads;
  for (const Loop& loop : program.loops) {
    const auto* g = std::get_if<Gemm>(&loop.def);
    if (!g) continue;
    const int m0 = static_cast<int>(g->batch.size()), n0 = m0 + static_cast<int>(g->m.size());
    if (free.contains(g->a.buffer)) reads[g->a.buffer].push_back({g, &g->a, m0, &g->m});
    if (free.contains(g->b.buffer)) reads[g->b.buffer].push_back({g, &g->b, n0, &g->n});
  }
  std::map<BufferId, std::vector<Expr>> found;
  for (const auto& [id, of] : reads) {
    const std::vector<Expr>& sizes = program.buffer(id).sizes;
    const std::vector<Expr> usual = contiguous_strides(*program.pool, sizes);
    if (std::any_of(of.begin(), of.end(), [&](const Read& r) { return can_read(program, r, usual); })) continue;
    std::vector<Expr> best = best_order(program, sizes, of);
    if (!best.empty()) found.emplace(id, std::move(best));
  }
  return found;
}

}  // namespace coil
