// Computed buffers that depend on constants alone become constants.
#include <algorithm>

#include "loop/interpret.h"

namespace coil {
namespace {

bool is_fixed(const std::vector<Expr>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](Expr s) { return s->is_constant(); });
}

constexpr int64_t kTooMany = int64_t{1} << 50;

// The product of constant sizes, or kTooMany where it is more.
int64_t points(const std::vector<Expr>& sizes) {
  int64_t n = 1;
  for (Expr s : sizes) {
    if (s->as_int() <= 0) return 0;
    if (__builtin_mul_overflow(n, s->as_int(), &n) || n > kTooMany) n = kTooMany;
  }
  return n;
}

int64_t bytes(const BufferInfo& b) { return points(b.sizes) * byte_size(b.dtype); }

bool mentions_symbols(const LoopProgram& program, const Loop& loop) {
  for (const BodyRef& ref : bodies(program, loop)) {
    if (!is_fixed(ref.domain) || any_of(ref.body, [](Expr e) { return e->kind == ExprKind::symbol; })) return true;
  }
  return false;
}

// Whether a formula of the coordinates costs more than reading what it gives, and that is little: which part of an image a window's pixels belong to,
// where in another image a point lies.
bool is_long_formula(const LoopProgram& program, const Loop& loop) {
  constexpr int kLong = 8, kFew = 64 << 10;
  const auto* def = std::get_if<Pointwise>(&loop.def);
  const BufferInfo& out = program.buffer(loop.outputs[0]);
  if (!def || !is_fixed(out.sizes) || bytes(out) > kFew) return false;
  int operations = 0;
  bool rounds = false;
  visit(def->body, [&](Expr e) {
    operations += e->kind == ExprKind::op;
    rounds |= e->kind == ExprKind::op && e->op == ScalarOp::floor;
  });
  return rounds || operations >= kLong;
}

// Work that would rather be done once at compile time than kept for every call, and whose result is worth its place.
bool worth_folding(const LoopProgram& program, const Loop& loop, Fold which) {
  if (defines_whole(loop.def) || std::holds_alternative<ReadSize>(loop.def)) return false;
  const std::vector<BufferId> inputs = reads(program, loop);
  if (inputs.empty() && !is_long_formula(program, loop)) return false;  // short formulas are cheaper computed than loaded
  int64_t in = 0, out = 0;
  for (BufferId id : inputs) {
    if (program.buffer(id).kind != BufferInfo::Kind::constant) return false;
    in += bytes(program.buffer(id));
  }
  for (BufferId id : loop.outputs) {
    if (!is_fixed(program.buffer(id).sizes)) return false;
    if (which == Fold::bytes && program.buffer(id).dtype != DType::i8 && program.buffer(id).dtype != DType::u8) return false;
    out += bytes(program.buffer(id));
  }
  constexpr int64_t kFree = 1 << 20;
  if (out > 4 * in + kFree || mentions_symbols(program, loop)) return false;
  // A reduction over what a constant was expanded to may have any number of steps.
  constexpr int64_t kStepsPerByte = 256;
  for (const BodyRef& ref : bodies(program, loop)) {
    if (points(ref.domain) > kStepsPerByte * (in + kFree)) return false;
  }
  return true;
}

}  // namespace

Result<LoopProgram> fold_constants(LoopProgram program, Fold which) {
  std::vector<char> is_output(program.buffers.size(), 0);
  for (const LoopOutput& out : program.outputs) is_output[static_cast<size_t>(out.source.index)] = 1;
  std::vector<Loop> kept;
  // One interpreter for all: it reads the program's buffers, whose constants grow as it goes.
  std::vector<Loop> loops = std::move(program.loops);
  Interpreter interpreter(program, {});
  for (Loop& loop : loops) {
    const bool writes_output =
        std::any_of(loop.outputs.begin(), loop.outputs.end(), [&](BufferId id) { return is_output[static_cast<size_t>(id.index)] != 0; });
    if (writes_output || !worth_folding(program, loop, which)) {
      kept.push_back(std::move(loop));
      continue;
    }
    if (Status s = interpreter.run(loop); !s.ok()) {  // a wrong index in constants: the call will say so, if it gets there
      kept.push_back(std::move(loop));
      continue;
    }
    for (BufferId id : loop.outputs) {
      BufferInfo& b = program.buffer(id);
      b.kind = BufferInfo::Kind::constant;
      b.data = interpreter.get(id);
      b.strides = contiguous_strides(*program.pool, b.sizes);
    }
  }
  program.loops = std::move(kept);
  return dead_loops(std::move(program));
}

}  // namespace coil
