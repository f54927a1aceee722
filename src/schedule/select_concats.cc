// Concatenations as choices between their pieces.
#include <algorithm>

#include "loop/simplify_body.h"
#include "schedule/inline_producers.h"

namespace coil {
namespace {

constexpr int kMaxPieceCost = 4, kMaxPieceLoads = 1;

bool cheap(Expr body) {
  int loads = 0;
  visit(body, [&](Expr e) { loads += e->kind == ExprKind::load; });
  return cost(body) <= kMaxPieceCost && loads <= kMaxPieceLoads;
}

bool contiguous(const Concat& concat, const BufferInfo& result) {
  const auto dim = static_cast<size_t>(concat.dim);
  return result.strides.empty() ? dim + 1 == result.sizes.size() : result.strides[dim] == concat.pieces[0].begin->pool->index(1);
}

// Whether pieces written one by one would leave gaps between few elements, as stacked ones do.
bool narrow(const Concat& concat, const BufferInfo& result, int pieces) {
  constexpr int64_t kNarrow = 4;
  return concat.pieces.size() <= static_cast<size_t>(pieces) && concat.pieces.size() > 1 && contiguous(concat, result) &&
         std::all_of(concat.pieces.begin(), concat.pieces.end(), [](const Concat::Piece& p) { return p.size->is_constant() && p.size->as_int() <= kNarrow; });
}

// Whether each piece begins where the target wants it to.
bool in_step(const Concat& concat, const BufferInfo& result, int64_t step) {
  if (step == 1 || !contiguous(concat, result)) return true;
  return std::all_of(concat.pieces.begin(), concat.pieces.end(),
                     [&](const Concat::Piece& p) { return p.begin->is_constant() && p.begin->as_int() % step == 0; });
}

// The choice over the whole domain; no piece is read outside of its part.
Expr choice(const Concat& concat, const std::vector<Expr>& sizes) {
  ExprPool& pool = *sizes[0]->pool;
  const auto d = static_cast<size_t>(concat.dim);
  const VarRanges ranges{sizes};
  std::vector<Expr> at = variables(pool, sizes.size());
  const Expr position = at[d];
  Expr result = pool.cast(pool.constant_int(0, DType::i64), concat.pieces[0].body->dtype);
  for (size_t k = concat.pieces.size(); k-- > 0;) {
    const Concat::Piece& piece = concat.pieces[k];
    const Expr from = index_at_least(position, piece.begin, ranges), below = index_less(position, piece.begin + piece.size, ranges);
    at[d] = position - piece.begin;
    const Expr body = substitute_vars(piece.body, at);
    const Expr inside = k == 0 ? below : k + 1 == concat.pieces.size() ? from : pool.op(ScalarOp::logical_and, {from, below});
    if (inside->is_constant()) {
      if (inside->as_int()) result = body;
    } else {
      result = pool.op(ScalarOp::masked, {inside, body, result});
    }
  }
  return result;
}

}  // namespace

void select_concats(LoopProgram& program, const TargetTraits& target) {
  if (target.select_pieces == 0) return;
  const auto uses = buffer_uses(program);
  for (Loop& loop : program.loops) {
    const auto* concat = std::get_if<Concat>(&loop.def);
    if (!concat) continue;
    const bool is_narrow = narrow(*concat, program.buffer(loop.outputs[0]), target.narrow_pieces);
    if (!is_narrow && concat->pieces.size() > static_cast<size_t>(target.select_pieces)) continue;
    const BufferUse& use = uses[static_cast<size_t>(loop.outputs[0].index)];
    const bool by_points = std::all_of(use.loops.begin(), use.loops.end(), [&](int l) {
      const Loop& user = program.loops[static_cast<size_t>(l)];
      return std::holds_alternative<Pointwise>(user.def) && user.assertion.empty();
    });
    if (!is_narrow && (use.program_output || use.operand || !by_points || use.loops.empty())) continue;
    if (!std::all_of(concat->pieces.begin(), concat->pieces.end(), [](const Concat::Piece& p) { return cheap(p.body); })) continue;
    if (!in_step(*concat, program.buffer(loop.outputs[0]), target.select_step)) continue;
    loop.def = Pointwise{choice(*concat, program.buffer(loop.outputs[0]).sizes)};
  }
}

}  // namespace coil
