// Long reductions to few results in two steps: a reduced dimension is cut into parts that are reduced side by side, and the
// parts are combined. The order of a sum then depends on sizes and the target only, never on threads.
#include <algorithm>

#include "loop/reduced_span.h"
#include "loop/simplify_body.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

constexpr int64_t kEnough = 256;  // as many parts as any target wants

bool splittable(ReduceOp op) { return op != ReduceOp::argmax && op != ReduceOp::argmin; }

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
    const Work work = work_of(loop, r);
    const int64_t points = typical(product(pool(), r.domain));
    if (target_.narrows_reductions && short_spans(loop, points)) return false;
    if (work.units * 2 > target_.parallel_points || work.points < target_.split_points) return false;
    const std::vector<Cut> found = cuts(work, r);
    return std::any_of(found.begin(), found.end(), [](const Cut& c) { return c.parts > 1; });
  }

  // What the target hands out of a reduction that is left whole: units, and the points of each.
  struct Work {
    int64_t units, points;
  };
  Work work_of(const Loop& loop, const Reduction& r) {
    const std::vector<Expr>& sizes = program_.buffer(loop.outputs[0]).sizes;
    const int64_t results = std::max<int64_t>(typical(product(pool(), sizes)), 1), points = typical(product(pool(), r.domain));
    const int64_t shared = target_.columns_of_a_unit > 1 && across_memory(r, sizes) ? std::min(target_.columns_of_a_unit, results) : 1;
    return {(results + shared - 1) / shared, points * shared};
  }

  // Whether neighbours in memory belong to different results rather than to one: sums over rows, statistics of channels that lie last.
  bool across_memory(const Reduction& r, const std::vector<Expr>& sizes) {
    int along = 0, across = 0;
    bool own = false;  // something is read at each point
    visit(r.body, [&](Expr e) {
      if (e->kind != ExprKind::load) return;
      const BufferInfo& buffer = program_.buffer(BufferId(e->id));
      const Expr offset = linear_offset(pool(), buffer, e->args);
      // A value for each result, or for each step, such as a mean, is little to read.
      if (!moves(offset, 0, sizes.size()) || !moves(offset, sizes.size(), r.domain.size())) return;
      own = true;
      for (size_t v = 0; v < sizes.size() + r.domain.size(); ++v) {
        const bool reduced = v >= sizes.size();
        if ((reduced ? r.domain[v - sizes.size()] : sizes[v]) == pool().index(1)) continue;
        if (first_step(offset, static_cast<int>(v)) == 1) ++(reduced ? along : across);
      }
    });
    return own ? across > along : moves(r.body, 0, sizes.size());
  }

  static bool moves(Expr value, size_t first, size_t count) {
    for (size_t v = first; v < first + count; ++v) {
      if (depends_on_var(value, static_cast<int>(v))) return true;
    }
    return false;
  }

  // Whether each of many ranges takes a part of the points: together they are all of them, and parts of one have nothing to do.
  bool short_spans(const Loop& loop, int64_t points) const {
    constexpr int64_t many = 128, few_points = 1024;
    const std::optional<ReducedSpan> span = reduced_span(program_, loop);
    if (!span) return false;
    int64_t ranges = 1;
    const std::vector<Expr>& sizes = program_.buffer(loop.outputs[0]).sizes;
    for (size_t d = 0; d < sizes.size(); ++d) {
      const int v = static_cast<int>(d);
      if (depends_on_var(span->first, v) || depends_on_var(span->last, v)) ranges *= typical(sizes[d]);
    }
    return ranges >= many || points <= few_points * ranges;
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

  struct Cut {
    size_t dimension;
    int64_t parts;
  };

  // One dimension into enough parts for all units, each with enough to do; or, if it has few or cannot be cut evenly, as many of the outermost ones whole and
  // a piece of the next, so that parts are contiguous in memory.
  std::vector<Cut> cuts(const Work& work, const Reduction& r) const {
    const int64_t wanted = std::min({target_.split_parts, target_.parallel_points * 4 / work.units, work.points / (target_.split_points / 16)});
    const int64_t enough = (target_.parallel_points + work.units - 1) / work.units;  // parts that keep all units busy
    const size_t dimension = dimension_to_cut(r);
    const Cut one{dimension, even_parts(r.domain[dimension], std::min(wanted, typical(r.domain[dimension])), enough)};
    const bool even = !r.domain[dimension]->is_constant() || r.domain[dimension]->as_int() % one.parts == 0;
    std::vector<Cut> several;
    int64_t made = 1;
    for (size_t d = 0; d < r.domain.size() && (!even || one.parts * 2 <= wanted); ++d) {
      const Expr length = r.domain[d];
      if (!length->is_constant() || made * 2 > wanted) break;
      int64_t parts = std::min(wanted / made, length->as_int());
      while (length->as_int() % parts != 0) --parts;
      if (parts > 1) several.push_back({d, parts});
      made *= parts;
      if (parts < length->as_int()) break;
    }
    return made >= one.parts * 2 || (!even && made >= enough) ? several : std::vector<Cut>{one};
  }

  // Of a constant length a number that divides it, into whole vectors if it can be, if there is any near, or any that is enough: what an uneven cut leaves
  // over is asked for at each step. Else as few parts as have that many steps at most.
  static int64_t even_parts(Expr length, int64_t parts, int64_t enough) {
    if (!length->is_constant() || parts < 2) return parts;
    const int64_t size = length->as_int(), near = parts / 2 + 1;
    for (const int64_t least : {near, std::min(near, enough)}) {
      for (const int64_t whole : {8, 1}) {
        for (int64_t p = parts; p >= std::max<int64_t>(least, 2); --p) {
          if (size % (p * whole) == 0) return p;
        }
      }
    }
    const int64_t steps = (size + parts - 1) / parts;
    return (size + steps - 1) / steps;
  }

  // A part's results lie side by side where they are computed side by side, else the parts of a result.
  std::vector<Expr> strides_of_parts(const Reduction& r, const std::vector<Expr>& results, const std::vector<Expr>& sizes) {
    if (target_.columns_of_a_unit <= 1 || !across_memory(r, results)) return contiguous_strides(pool(), sizes);
    const auto rank = static_cast<std::ptrdiff_t>(results.size());
    std::vector<Expr> turned(sizes.begin() + rank, sizes.end());
    turned.insert(turned.end(), sizes.begin(), sizes.begin() + rank);
    std::vector<Expr> strides = contiguous_strides(pool(), turned);
    std::rotate(strides.begin(), strides.end() - rank, strides.end());
    return strides;
  }

  // Turns `loop` into the combination of parts, which are defined before it.
  void add_parts(Loop& loop, Reduction& r) {
    const BufferInfo out = program_.buffer(loop.outputs[0]);
    const auto rank = static_cast<int>(out.sizes.size());
    const std::vector<Cut> pieces = cuts(work_of(loop, r), r);

    BufferInfo partial;
    partial.name = out.name + "_parts";
    partial.dtype = out.dtype == DType::f16 || out.dtype == DType::bf16 ? DType::f32 : out.dtype;  // parts are not rounded
    partial.sizes = out.sizes;
    for (const Cut& c : pieces) partial.sizes.push_back(pool().index(c.parts));
    partial.strides = strides_of_parts(r, out.sizes, partial.sizes);
    const BufferId id(program_.buffers.size());
    program_.buffers.push_back(partial);

    // Variables: the result's, the parts' numbers, then the reduced ones, those of cut dimensions within their parts.
    std::vector<Expr> vars;
    for (int v = 0; v < rank; ++v) vars.push_back(pool().var(v));
    const int first_reduced = rank + static_cast<int>(pieces.size());
    for (size_t d = 0; d < r.domain.size(); ++d) vars.push_back(pool().var(first_reduced + static_cast<int>(d)));
    Reduction first;
    first.op = r.op;
    first.domain = r.domain;
    Expr inside;
    for (size_t c = 0; c < pieces.size(); ++c) {
      const size_t d = pieces[c].dimension;
      const Expr length = r.domain[d], chunk = ceil_div(length, pool().index(pieces[c].parts));
      Expr& at = vars[static_cast<size_t>(rank) + d];
      at = pool().var(rank + static_cast<int>(c)) * chunk + at;
      first.domain[d] = chunk;
      if (!(chunk * pieces[c].parts == length)) inside = index_less(at, length);
    }
    first.body = substitute_vars(r.body, vars);
    if (inside) first.body = pool().op(ScalarOp::masked, {inside, first.body, identity_of(pool(), r.op, r.body->dtype)});
    Loop step;
    step.def = std::move(first);
    step.outputs = {id};
    step.op = loop.op + ".parts";
    step.origins = loop.origins;
    program_.loops.push_back(std::move(step));

    std::vector<Expr> coordinates(vars.begin(), vars.begin() + rank);
    r.domain.clear();
    for (size_t c = 0; c < pieces.size(); ++c) {
      coordinates.push_back(pool().var(rank + static_cast<int>(c)));
      r.domain.push_back(pool().index(pieces[c].parts));
    }
    r.body = pool().load(id, partial.dtype, coordinates);
  }

  LoopProgram program_;
  const TargetTraits& target_;
};

}  // namespace

LoopProgram split_reductions(LoopProgram program, const TargetTraits& target) { return Splitter(std::move(program), target).run(); }

}  // namespace coil
