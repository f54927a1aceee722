// Long reductions to few results in two steps: a reduced dimension is cut into parts that are reduced side by side, and the
// parts are combined. The order of a sum then depends on sizes and the target only, never on threads.
#include <algorithm>
#include <cmath>

#include "loop/simplify_body.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

constexpr int64_t kEnough = 256;  // as many parts as any target wants

bool splittable(ReduceOp op) { return op != ReduceOp::argmax && op != ReduceOp::argmin; }

Expr identity(ExprPool& pool, ReduceOp op, DType dtype) {
  const DType type = compute_type(dtype);
  const auto extreme = [&](bool lowest) {
    if (is_float(type)) return pool.constant(lowest ? -INFINITY : INFINITY, type);
    if (is_bool(type)) return pool.boolean(!lowest);
    const int bits = 8 * byte_size(type);
    const bool is_unsigned = type == DType::u8;
    const int64_t top = is_unsigned ? 255 : bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1;
    return pool.constant_int(lowest ? (is_unsigned ? 0 : -top - 1) : top, type);
  };
  switch (op) {
    case ReduceOp::sum: return is_float(type) ? pool.constant(0, type) : pool.constant_int(0, type);
    case ReduceOp::prod: return is_float(type) ? pool.constant(1, type) : pool.constant_int(1, type);
    case ReduceOp::max: return extreme(true);
    case ReduceOp::min: return extreme(false);
    case ReduceOp::any: return pool.boolean(false);
    case ReduceOp::all: return pool.boolean(true);
    default: return {};
  }
}

class Splitter {
 public:
  Splitter(LoopProgram program, const TargetTraits& target) : program_(std::move(program)), target_(target) {}

  LoopProgram run() {
    std::vector<Loop> loops = std::move(program_.loops);
    program_.loops.clear();
    for (Loop& loop : loops) {
      auto* reduction = std::get_if<Reduction>(&loop.def);
      if (reduction && wanted(loop, *reduction)) add_parts(loop, *reduction);
      program_.loops.push_back(std::move(loop));
    }
    return std::move(program_);
  }

 private:
  ExprPool& pool() { return *program_.pool; }

  bool wanted(const Loop& loop, const Reduction& r) {
    if (!splittable(r.op) || target_.parallel_points == 0 || r.domain.empty()) return false;
    const int64_t results = typical(product(pool(), program_.buffer(loop.outputs[0]).sizes)), points = typical(product(pool(), r.domain));
    return results * 2 <= target_.parallel_points && points >= target_.split_points && number_of_parts(results, r) > 1;
  }

  // The outermost dimension that is long enough, so that parts are contiguous in memory; else the longest.
  size_t dimension_to_cut(const Reduction& r) const {
    size_t best = 0;
    for (size_t d = 0; d < r.domain.size(); ++d) {
      if (typical(r.domain[d]) >= kEnough) return d;
      if (typical(r.domain[d]) > typical(r.domain[best])) best = d;
    }
    return best;
  }

  // Enough for all units, each with enough to do; for a constant length one that divides it, into whole vectors if it can be, if there
  // is any near.
  int64_t number_of_parts(int64_t results, const Reduction& r) const {
    const Expr length = r.domain[dimension_to_cut(r)];
    const int64_t points = typical(product(*length->pool, r.domain));
    int64_t parts = std::min({target_.split_parts, target_.parallel_points * 4 / std::max<int64_t>(results, 1), points / (target_.split_points / 16), typical(length)});
    if (!length->is_constant()) return parts;
    for (const int64_t whole : {8, 1}) {
      for (int64_t p = parts; p > parts / 2; --p) {
        if (length->as_int() % (p * whole) == 0) return p;
      }
    }
    return parts;
  }

  // Turns `loop` into the combination of parts, which are defined before it.
  void add_parts(Loop& loop, Reduction& r) {
    const BufferInfo out = program_.buffer(loop.outputs[0]);
    const auto rank = static_cast<int>(out.sizes.size());
    const size_t cut = dimension_to_cut(r);
    const Expr length = r.domain[cut];
    const int64_t parts = number_of_parts(typical(product(pool(), out.sizes)), r);
    const Expr chunk = ceil_div(length, pool().index(parts));

    BufferInfo partial;
    partial.name = out.name + "_parts";
    partial.dtype = out.dtype == DType::f16 || out.dtype == DType::bf16 ? DType::f32 : out.dtype;  // parts are not rounded
    partial.sizes = out.sizes;
    partial.sizes.push_back(pool().index(parts));
    const BufferId id(program_.buffers.size());
    program_.buffers.push_back(partial);

    // Variables: the result's, the part's number, then the reduced ones, that of the cut dimension within its part.
    std::vector<Expr> vars;
    for (int v = 0; v < rank; ++v) vars.push_back(pool().var(v));
    const Expr part = pool().var(rank);
    Expr at;
    for (size_t d = 0; d < r.domain.size(); ++d) {
      const Expr v = pool().var(rank + 1 + static_cast<int>(d));
      vars.push_back(d == cut ? at = part * chunk + v : v);
    }
    Reduction first;
    first.op = r.op;
    first.domain = r.domain;
    first.domain[cut] = chunk;
    first.body = substitute_vars(r.body, vars);
    if (!(chunk * parts == length)) {
      first.body = pool().op(ScalarOp::masked, {index_less(at, length), first.body, identity(pool(), r.op, r.body->dtype)});
    }
    Loop step;
    step.def = std::move(first);
    step.outputs = {id};
    step.op = loop.op + ".parts";
    step.origins = loop.origins;
    program_.loops.push_back(std::move(step));

    std::vector<Expr> coordinates(vars.begin(), vars.begin() + rank);
    coordinates.push_back(part);
    r.body = pool().load(id, partial.dtype, coordinates);
    r.domain = {pool().index(parts)};
  }

  LoopProgram program_;
  const TargetTraits& target_;
};

}  // namespace

LoopProgram split_reductions(LoopProgram program, const TargetTraits& target) { return Splitter(std::move(program), target).run(); }

}  // namespace coil
