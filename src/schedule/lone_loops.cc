#include "schedule/lone_loops.h"

#include "schedule/build.h"
#include "schedule/inline_producers.h"

namespace coil {

LoopKernel store_kernel(const LoopProgram& program, BufferId buffer, const std::vector<Expr>& sizes, Expr body, Expr offset) {
  ExprPool& pool = *program.pool;
  LoopKernel k;
  std::vector<Expr> renumber;
  for (const Expr& size : sizes) {
    if (size == pool.index(1)) {
      renumber.push_back(pool.index(0));
      continue;
    }
    renumber.push_back(pool.var(static_cast<int>(k.axes.size())));
    k.axes.push_back({size, "i" + std::to_string(k.axes.size())});
  }
  k.num_outer = static_cast<int>(k.axes.size());
  k.num_phases = 1;
  Stmt store;
  store.dtype = program.buffer(buffer).dtype;
  store.value = substitute_vars(body, renumber);
  store.buffer = buffer;
  store.offset = substitute_vars(offset, renumber);
  k.stmts.push_back(store);
  merge_axes(k);
  return k;
}

LoopKernel piece_kernel(const LoopProgram& program, const Loop& l, const Concat& concat, const Concat::Piece& piece) {
  ExprPool& pool = *program.pool;
  const BufferInfo& out = program.buffer(l.outputs[0]);
  std::vector<Expr> sizes = out.sizes, at = variables(pool, sizes.size());
  const auto d = static_cast<size_t>(concat.dim);
  sizes[d] = piece.size;
  at[d] = at[d] + piece.begin;
  return store_kernel(program, l.outputs[0], sizes, linearise(program, piece.body), linear_offset(pool, out, at));
}

LoopKernel scan_kernel(const LoopProgram& program, const Loop& l, const Scan& scan) {
  ExprPool& pool = *program.pool;
  const BufferInfo& out = program.buffer(l.outputs[0]);
  LoopKernel k;
  std::vector<Expr> renumber(out.sizes.size());
  for (size_t d = 0; d < out.sizes.size(); ++d) {
    if (static_cast<int>(d) == scan.dim) continue;
    renumber[d] = pool.var(static_cast<int>(k.axes.size()));
    k.axes.push_back({out.sizes[d], "i" + std::to_string(k.axes.size())});
  }
  k.num_outer = static_cast<int>(k.axes.size());
  if (!out.sizes.empty()) renumber[static_cast<size_t>(scan.dim)] = pool.var(k.num_outer);
  k.axes.push_back({out.sizes.empty() ? pool.index(1) : out.sizes[static_cast<size_t>(scan.dim)], "r"});
  k.sequential = true;
  k.num_phases = 1;
  Stmt step;
  step.kind = Stmt::Kind::scan;
  step.inner = true;
  step.temp = TempId(0);
  step.op = step_of(scan.op);
  step.dtype = compute_type(out.dtype);
  step.value = substitute_vars(linearise(program, scan.body), renumber);
  Stmt store;
  store.inner = true;
  store.dtype = out.dtype;
  store.value = pool.temp(TempId(0), step.dtype);
  store.buffer = l.outputs[0];
  store.offset = substitute_vars(linear_offset(pool, out, variables(pool, out.sizes.size())), renumber);
  k.stmts = {step, store};
  return k;
}

LoopKernel compact_kernel(const LoopProgram& program, const Loop& l, const Compact& compact) {
  ExprPool& pool = *program.pool;
  const BufferInfo& out = program.buffer(l.outputs[0]);
  LoopKernel k;
  k.axes = {{compact.blocks, "i0"}, {compact.length, "r"}};
  k.num_outer = 1;
  k.sequential = true;
  k.num_phases = 1;
  Stmt count;
  count.kind = Stmt::Kind::scan;
  count.inner = true;
  count.temp = TempId(0);
  count.op = ReduceOp::sum;
  count.dtype = DType::i64;
  const Expr keep = linearise(program, compact.keep), one = pool.constant_int(1, DType::i64);
  count.value = pool.select(keep, one, pool.constant_int(0, DType::i64));
  Stmt store;
  store.inner = true;
  store.dtype = out.dtype;
  store.value = linearise(program, compact.value);
  store.buffer = l.outputs[0];
  store.condition = keep;
  const Expr before = pool.op(ScalarOp::sub, {pool.temp(TempId(0), DType::i64), one});
  const Expr to = pool.checked_index(pool.op(ScalarOp::add, {linearise(program, compact.start), before}), out.sizes[0]);
  store.offset = linear_offset(pool, out, std::vector<Expr>{to});
  k.stmts = {count, store};
  return k;
}

}  // namespace coil
