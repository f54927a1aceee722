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

// A constant's elements in another order, as a tensor over the same memory: a large table, which may be a part of a file, is not copied.
std::optional<TensorData> view_of_constant(const LoopProgram& program, const Loop& loop) {
  const auto* def = std::get_if<Pointwise>(&loop.def);
  if (!def || loop.outputs.size() != 1 || def->body->kind != ExprKind::load || !is_fixed(program.buffer(loop.outputs[0]).sizes)) return std::nullopt;
  const BufferInfo& out = program.buffer(loop.outputs[0]);
  const BufferInfo& from = program.buffer(BufferId(def->body->id));
  if (from.kind != BufferInfo::Kind::constant || from.dtype != out.dtype || from.data.dtype != out.dtype || from.pairs || out.pairs) return std::nullopt;
  if (def->body->args.size() != from.data.strides.size() || points(out.sizes) < 1 || points(out.sizes) != points(from.sizes)) return std::nullopt;
  TensorData view = from.data;
  view.sizes.clear();
  for (Expr size : out.sizes) view.sizes.push_back(size->as_int());
  view.strides.assign(out.sizes.size(), 0);
  for (size_t d = 0; d < def->body->args.size(); ++d) {
    Expr rest = def->body->args[d];
    int64_t last = 0;
    for (size_t v = 0; v < out.sizes.size(); ++v) {
      const std::optional<Affine> affine = as_affine(rest, static_cast<int32_t>(v));
      if (!affine || !affine->coefficient->is_constant() || affine->coefficient->as_int() < 0) return std::nullopt;
      rest = affine->base;
      if (view.sizes[v] == 1) continue;
      if (affine->coefficient->as_int() >= from.data.sizes[d]) return std::nullopt;
      view.strides[v] += affine->coefficient->as_int() * from.data.strides[d];
      last += affine->coefficient->as_int() * (view.sizes[v] - 1);
    }
    if (!rest->is_constant() || rest->as_int() < 0 || last + rest->as_int() >= from.data.sizes[d]) return std::nullopt;
    view.offset += rest->as_int() * from.data.strides[d];
  }
  return view;
}

void become_constant(const LoopProgram& program, BufferInfo& buffer, TensorData data) {
  buffer.kind = BufferInfo::Kind::constant;
  buffer.data = std::move(data);
  buffer.strides = contiguous_strides(*program.pool, buffer.sizes);
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
    if (std::optional<TensorData> view = view_of_constant(program, loop)) {
      interpreter.set(loop.outputs[0], *view);
      become_constant(program, program.buffer(loop.outputs[0]), *std::move(view));
      continue;
    }
    if (Status s = interpreter.run(loop); !s.ok()) {  // a wrong index in constants: the call will say so, if it gets there
      kept.push_back(std::move(loop));
      continue;
    }
    for (BufferId id : loop.outputs) become_constant(program, program.buffer(id), interpreter.get(id));
  }
  program.loops = std::move(kept);
  return dead_loops(std::move(program));
}

}  // namespace coil
