#include "codegen/sum_blocks.h"

#include "schedule/schedule.h"

namespace coil {

bool adds_floats(const Stmt& s) { return s.kind == Stmt::Kind::reduce && s.op == ReduceOp::sum && is_float(s.value->dtype); }

SumBlocks sum_blocks(const LoopKernel& kernel, int lanes, int64_t points) {
  ExprPool& pool = *kernel.axes.front().size->pool;
  const auto steps = [&](int a) {
    const Expr size = kernel.axes[static_cast<size_t>(a)].size;
    return a == lanes ? ceil_div(size, pool.index(points)) : size;
  };
  Expr all = pool.index(1);
  for (int a = kernel.num_outer; a < static_cast<int>(kernel.axes.size()); ++a) all = all * steps(a);
  if (upper_bound(all).value_or(INT64_MAX) <= kShortSum) return {};
  // The innermost loop that has a block's steps, those inside of it included.
  Expr inside = pool.index(1);
  for (int a = static_cast<int>(kernel.axes.size()) - 1;; --a) {
    const Expr with = inside * steps(a);
    if (a == kernel.num_outer || typical(with) >= kSumBlock)
      return {a, index_max(pool.index(1), floor_div(pool.index(kSumBlock), index_max(pool.index(1), inside)))};
    inside = with;
  }
}

}  // namespace coil
