// See product_rows.h.
#include "schedule/products/product_rows.h"

namespace coil {
namespace {

bool reads_colliding_rows(const LoopProgram& program, const Gemm& g, const TargetTraits& target) {
  const BufferInfo& b = program.buffer(g.a.buffer);
  if ((b.dtype != DType::f32 && b.dtype != DType::bf16) || b.sizes.size() < 2 || !b.sizes.back()->is_constant()) return false;
  const int k = static_cast<int>(g.batch.size() + g.m.size() + g.n.size());
  const int64_t columns = b.sizes.back()->as_int();
  const Expr rows = product(*program.pool, g.m);
  if (g.k.size() != 1 || g.a.coordinates.back() != program.pool->var(k) || columns * byte_size(b.dtype) % target.colliding_row_bytes != 0) return false;
  constexpr int64_t kFewRows = 16;  // are copied in no time
  return columns > 0 && (!rows->is_constant() || rows->as_int() > kFewRows);
}

std::set<BufferId> colliding(const LoopProgram& program, const TargetTraits& target) {
  std::set<BufferId> found, others;
  for (const Loop& loop : program.loops) {
    const auto* gemm = std::get_if<Gemm>(&loop.def);
    for (BufferId id : reads(program, loop)) {
      (gemm && id == gemm->a.buffer && id != gemm->b.buffer && reads_colliding_rows(program, *gemm, target) ? found : others).insert(id);
    }
  }
  for (BufferId id : others) found.erase(id);
  return found;
}

std::set<BufferId> beginning_anywhere(const LoopProgram& program) {
  constexpr int64_t kLeastRow = 256;  // bytes
  std::set<BufferId> found, others;
  for (const Loop& loop : program.loops) {
    const bool loops = std::holds_alternative<Pointwise>(loop.def) || std::holds_alternative<Reduction>(loop.def);
    const auto* gemm = std::get_if<Gemm>(&loop.def);
    for (BufferId id : reads(program, loop)) {
      const BufferInfo& b = program.buffer(id);
      if (!gemm && !loops) others.insert(id);
      if (!gemm || byte_size(b.dtype) != 2 || b.sizes.size() < 2 || !b.sizes.back()->is_constant()) continue;
      const int64_t bytes = b.sizes.back()->as_int() * byte_size(b.dtype);
      if (bytes >= kLeastRow && bytes % 32 != 0) found.insert(id);
    }
    if (!gemm && !loops) others.insert(loop.outputs.begin(), loop.outputs.end());
  }
  for (BufferId id : others) found.erase(id);
  return found;
}

}  // namespace

ProductRows product_rows(const LoopProgram& program, const TargetTraits& target) {
  ProductRows rows;
  if (target.colliding_row_bytes > 0) rows.padded = colliding(program, target);
  if (target.product_row_bytes > 0) rows.aligned = beginning_anywhere(program);
  return rows;
}

std::vector<Expr> padded_strides(ExprPool& pool, const BufferInfo& buffer) {
  std::vector<Expr> sizes = buffer.sizes;
  sizes.back() = sizes.back() + 64 / byte_size(buffer.dtype);
  return contiguous_strides(pool, sizes);
}

std::vector<Expr> aligned_strides(ExprPool& pool, const BufferInfo& buffer, const TargetTraits& target) {
  // The room is at most a quarter of a long row, and an eighth of others.
  constexpr int64_t kLongRow = 512, kSector = 32;
  const int64_t size = byte_size(buffer.dtype);
  const int64_t multiple = (buffer.sizes.back()->as_int() * size >= kLongRow ? target.product_row_bytes : kSector) / size;
  std::vector<Expr> sizes = buffer.sizes;
  sizes.back() = pool.index((sizes.back()->as_int() + multiple - 1) / multiple * multiple);
  return contiguous_strides(pool, sizes);
}

bool lies_across(const BufferInfo& operand, Expr offset, int first, const std::vector<Expr>& rows, int k, const std::vector<Expr>& steps,
                 const TargetTraits& target) {
  if (target.product_row_bytes == 0 || byte_size(operand.dtype) != 2) return false;
  const Expr one = offset->pool->index(1);
  const auto innermost = [&](int begin, const std::vector<Expr>& dims) {
    for (size_t d = dims.size(); d-- > 0;) {
      if (dims[d] != one) return first_step(offset, begin + static_cast<int>(d));
    }
    return int64_t{0};
  };
  return innermost(first, rows) == 1 && innermost(k, steps) != 1;
}

bool misses_boxes(const BufferInfo& operand, Expr row, Expr step, const std::vector<Expr>& others, const TargetTraits& target) {
  constexpr int64_t kBox = 16, kOften = 128, kLongLine = 512;  // bytes; rows of the other operand; elements of a line
  ExprPool& pool = *row->pool;
  if (target.product_row_bytes == 0 || byte_size(operand.dtype) != 2 || operand.kind == BufferInfo::Kind::constant) return false;
  if (row != pool.index(1) || !step->is_constant() || step->as_int() < kLongLine || step->as_int() * byte_size(operand.dtype) % kBox == 0) return false;
  return typical(product(pool, others)) >= kOften;
}

}  // namespace coil
