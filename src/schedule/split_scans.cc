// Scans of few long rows in parts: each part is reduced, what is before each part follows from these, and the parts are scanned side by side, each from
// there on. The order of a sum then depends on sizes and the target only.
#include <algorithm>

#include "loop/reduced_span.h"
#include "loop/simplify_body.h"
#include "schedule/inline_producers.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

class ScanSplitter {
 public:
  ScanSplitter(LoopProgram program, const TargetTraits& target) : program_(std::move(program)), target_(target) {}

  LoopProgram run() {
    if (target_.scan_part == 0) return std::move(program_);
    std::vector<Loop> loops = std::move(program_.loops);
    program_.loops.clear();
    for (Loop& loop : loops) {
      const auto* scan = std::get_if<Scan>(&loop.def);
      if (scan && wanted(loop, *scan)) split(loop, *scan);
      else program_.loops.push_back(std::move(loop));
    }
    return std::move(program_);
  }

 private:
  static constexpr int64_t kFewestParts = 8;  // that pay for reading the row twice and storing its scan once more
  // Elements of a part where as many rows lie side by side: a unit takes those of one row one after another, neighbours those of the next rows.
  static constexpr int64_t kColumnPart = 128, kColumns = 32;

  ExprPool& pool() { return *program_.pool; }

  // Of halves the parts are not rounded.
  static DType wide(DType type) { return type == DType::f16 || type == DType::bf16 ? DType::f32 : type; }
  static ScalarOp joining(ScanOp op) {
    return op == ScanOp::prod ? ScalarOp::mul : op == ScanOp::max ? ScalarOp::maximum : op == ScanOp::min ? ScalarOp::minimum : ScalarOp::add;
  }

  int64_t part_of(const std::vector<Expr>& sizes, int dim) const {
    int64_t columns = 1;
    for (size_t d = static_cast<size_t>(dim) + 1; d < sizes.size(); ++d) columns *= typical(sizes[d]);
    return columns >= kColumns ? kColumnPart : target_.scan_part;
  }

  bool wanted(const Loop& loop, const Scan& scan) {
    const BufferInfo& out = program_.buffer(loop.outputs[0]);
    if (out.sizes.empty() || scan.op == ScanOp::log_sum || out.dtype == DType::boolean || scan.body->dtype != wide(out.dtype)) return false;
    int64_t rows = 1;
    for (size_t d = 0; d < out.sizes.size(); ++d) rows *= static_cast<int>(d) == scan.dim ? 1 : std::max<int64_t>(typical(out.sizes[d]), 1);
    // In place of kFewestParts times as many units as there are rows, or groups of columns, at most.
    if (part_of(out.sizes, scan.dim) == kColumnPart) rows = (rows + kColumns - 1) / kColumns;
    return rows * kFewestParts <= target_.parallel_points && typical(out.sizes[static_cast<size_t>(scan.dim)]) >= kFewestParts * part_of(out.sizes, scan.dim);
  }

  // A buffer beside `out` with other sizes.
  BufferId buffer(const BufferInfo& out, const char* suffix, const std::vector<Expr>& sizes) {
    BufferInfo b;
    b.name = out.name + suffix;
    b.dtype = wide(out.dtype);
    b.sizes = sizes;
    b.strides = contiguous_strides(pool(), sizes);
    program_.buffers.push_back(std::move(b));
    return BufferId(program_.buffers.size() - 1);
  }
  void add(const Loop& of, const char* suffix, BufferId output, LoopDef def) {
    Loop loop;
    loop.def = std::move(def);
    loop.outputs = {output};
    loop.op = of.op + suffix;
    loop.origins = of.origins;
    program_.loops.push_back(std::move(loop));
  }

  void split(const Loop& loop, const Scan& scan) {
    const BufferInfo out = program_.buffer(loop.outputs[0]);
    const auto dim = static_cast<size_t>(scan.dim);
    const Expr n = out.sizes[dim], length = pool().index(part_of(out.sizes, scan.dim)), parts = ceil_div(n, length);
    const DType type = wide(out.dtype);
    const ReduceOp step = step_of(scan.op);
    const Expr none = identity_of(pool(), step, type);

    // The parts' numbers take the place of the scanned dimension; the places in a part are one more variable, the last.
    std::vector<Expr> at = variables(pool(), out.sizes.size());
    const Expr part = at[dim], place = pool().var(static_cast<int32_t>(at.size()));
    std::vector<Expr> elements = at, sizes = out.sizes;
    elements[dim] = part * length + place;
    sizes[dim] = parts;
    const Expr value = masked(index_less(elements[dim], n), substitute_vars(scan.body, elements), none);

    const BufferId totals = buffer(out, "_totals", sizes), sums = buffer(out, "_before", sizes);
    add(loop, ".totals", totals, Reduction{step, {length}, value});
    add(loop, ".before", sums, Scan{scan.op, scan.dim, pool().load(totals, type, at)});

    std::vector<Expr> previous = at;
    previous[dim] = part - 1;
    const Expr first = pool().op(ScalarOp::logical_and, {index_less(pool().index(0), part), index_less(place, pool().index(1))});
    const Expr before = masked(first, pool().load(sums, type, previous), none);
    // As the result lies, with whole parts.
    sizes.push_back(length);
    const BufferId scanned = buffer(out, "_scanned", sizes);
    std::vector<Expr> whole = out.sizes;
    whole[dim] = parts * length;
    std::vector<Expr> strides = contiguous_strides(pool(), whole);
    strides.push_back(strides[dim]);
    strides[dim] = strides[dim] * length;
    program_.buffers.back().strides = std::move(strides);
    add(loop, ".parts", scanned, Scan{scan.op, static_cast<int>(at.size()), pool().op(joining(scan.op), {before, value})});

    std::vector<Expr> from = at;
    from[dim] = floor_div(part, length);
    from.push_back(floor_mod(part, length));
    const Expr result = pool().load(scanned, type, from);
    add(loop, "", loop.outputs[0], Pointwise{result});
  }

  Expr masked(Expr where, Expr value, Expr otherwise) { return pool().op(ScalarOp::masked, {where, value, otherwise}); }

  LoopProgram program_;
  const TargetTraits& target_;
};

}  // namespace

LoopProgram split_scans(LoopProgram program, const TargetTraits& target) { return ScanSplitter(std::move(program), target).run(); }

}  // namespace coil
