// coil.dropout_mask: the masks that PyTorch's dropout draws on a GPU, bit for bit. Each thread of its kernel takes Philox4x32-10 with the generator's seed as
// key and its own number as the upper half of the counter; the lower half goes on from the generator's offset by 1 for every four numbers (ATen's
// native/cuda/Dropout.cu). So an element's number is a function of its place, and the mask can be computed wherever it is read.
#include <fmt/format.h>

#include "lower/constant_table.h"
#include "lower/formula.h"

namespace coil::lowering {
namespace {

// Where an element's number comes from.
struct Place {
  Expr thread, step, word;  // index expressions; the counter is `step` behind the operator's offset
};

// `vector`: consecutive elements that a thread takes at once; 1: its elements lie `threads` apart.
Place place_of(ExprPool& p, Expr element, int64_t vector, int64_t threads) {
  const auto number = [&](int64_t n) { return p.index(n); };
  if (vector == 1) {
    const Expr turn = p.op(ScalarOp::idiv, {element, number(threads)});
    return {p.op(ScalarOp::imod, {element, number(threads)}), p.op(ScalarOp::idiv, {turn, number(4)}), p.op(ScalarOp::imod, {turn, number(4)})};
  }
  // Of pairs, PyTorch takes the first two of four words each time.
  const int64_t words = std::min<int64_t>(vector, 4), blocks = vector / words;
  const Expr block = p.op(ScalarOp::idiv, {element, number(words)}), group = p.op(ScalarOp::idiv, {block, number(blocks)});
  const Expr turn = p.op(ScalarOp::idiv, {group, number(threads)});
  const Expr step = p.op(ScalarOp::iadd, {p.op(ScalarOp::imul, {number(blocks), turn}), p.op(ScalarOp::imod, {block, number(blocks)})});
  return {p.op(ScalarOp::imod, {group, number(threads)}), step, p.op(ScalarOp::imod, {element, number(words)})};
}

// state: i64[2], the generator's seed and offset before this graph's first operator. offset: of this one behind that. below: a 32-bit word of less keeps its
// element.
Views dropout_mask_of_generator(Op& op) {
  ExprPool& p = op.pool;
  const View state = op.tensor("state");
  const int64_t vector = op.integer("vector"), threads = op.integer("threads"), below = op.integer("below"), offset = op.integer("offset");
  if ((vector != 1 && vector != 2 && vector != 4 && vector != 8) || threads < 1 || offset < 0 || offset % 4 != 0) {
    fail(ErrorCode::bad_program, op.node.target + ": no kernel of PyTorch draws so");
  }
  // Read from a constant: so the kernels of a program's dropouts have the same text, and compile once.
  const View first = op.rec.constant(fmt::format("coil.dropout_mask.offset_{}", offset), table_data<int64_t>({1}, {offset / 4}));
  const auto at = [&](const View& v, int64_t i) { return Val(op.rec.at(v, std::vector<Expr>{p.index(i)})); };
  const auto value = [&](Expr index) { return Val(p.cast(index, DType::i64)); };
  const Val word_mask(p.constant_int(0xffffffff, DType::i64));
  const Sizes& sizes = op.out().sizes;
  return {op.rec.pointwise("dropout_mask", DType::boolean, sizes, [&](Coordinates c) {
    const Place place = place_of(p, row_major(p, c, sizes), vector, threads);
    const Val seed = at(state, 0);
    const Val counter = apply(ScalarOp::shr, at(state, 1), p.constant_int(2, DType::i64)) + at(first, 0) + value(place.step);
    const std::vector<Expr> operands = {seed.e, counter.e, value(place.thread).e};
    const Val half = select(value(place.word) < 2.0, p.op(ScalarOp::philox_low, operands), p.op(ScalarOp::philox_high, operands));
    const Val odd = value(p.op(ScalarOp::imod, {place.word, p.index(2)}));
    const Val word = apply(ScalarOp::bit_and, apply(ScalarOp::shr, half, odd * 32.0), word_mask);
    return (word < Val(p.constant_int(below, DType::i64))).e;
  })};
}

}  // namespace

void add_dropout_masks(Table& table) { table["coil.dropout_mask.default"] = dropout_mask_of_generator; }

}  // namespace coil::lowering
