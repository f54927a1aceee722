#include "schedule/turned_loops.h"

#include <algorithm>
#include <map>

namespace coil {
namespace {

constexpr int64_t kLeastSide = 16;           // of both axes: less is not worth a tile
constexpr int64_t kLeastElements = 1 << 16;  // less is in the caches, and a launch of its own costs more

// Coordinates of an access, by the dimension in which neighbours lie side by side; null where no dimension is known to.
Expr along(const BufferInfo& b, std::span<const Expr> coordinates) {
  for (size_t d = b.sizes.size(); d-- > 0;) {
    if (b.sizes[d]->is_constant() && b.sizes[d]->as_int() == 1) continue;
    if (b.strides.empty() || (b.strides[d]->is_constant() && b.strides[d]->as_int() == 1)) return coordinates[d];
  }
  return {};
}

// The variable that a coordinate follows one by one, from wherever it begins (a half of a buffer that was split); null: another form.
Expr variable_of(Expr coordinate, size_t variables) {
  for (size_t v = 0; v < variables; ++v) {
    const Expr var = coordinate->pool->var(static_cast<int32_t>(v));
    if (depends_on_var(coordinate, static_cast<int32_t>(v))) return coordinate == var || (coordinate - var)->is_constant() ? var : Expr();
  }
  return {};
}

int64_t known_or(Expr size, int64_t otherwise) { return size->is_constant() ? size->as_int() : otherwise; }

std::vector<Expr> variables_of(const LoopProgram& program, const BufferInfo& b) {
  std::vector<Expr> own;
  for (size_t d = 0; d < b.sizes.size(); ++d) own.push_back(program.pool->var(static_cast<int32_t>(d)));
  return own;
}

// A copy whose neighbours lie apart in what it reads.
bool copies_turned(const LoopProgram& program, const Loop& loop) {
  const auto* pointwise = std::get_if<Pointwise>(&loop.def);
  if (!pointwise || loop.outputs.size() != 1 || pointwise->body->kind != ExprKind::load) return false;
  const BufferInfo &out = program.buffer(loop.outputs[0]), &in = program.buffer(BufferId(pointwise->body->id));
  if (out.pairs || in.pairs) return false;
  const Expr lane = along(out, variables_of(program, out)), read = along(in, pointwise->body->args);
  return lane && read && depends_on_var(pointwise->body, lane->id) && !depends_on_var(read, lane->id);
}

// Buffers of which the loop adds up several rows that data names, each read whole along the last dimension.
void add_rows_by_data(const LoopProgram& program, const Loop& loop, std::set<int>& found) {
  const int least = std::holds_alternative<Reduction>(loop.def) ? 1 : 2;  // short sums are written out
  std::map<int, int> rows;
  for (const BodyRef& ref : bodies(program, loop)) {
    visit(ref.body, [&](Expr e) {
      if (e->kind != ExprKind::load || e->args.empty() || e->args.back()->kind != ExprKind::var) return;
      if (any_of(e, [](Expr part) { return part->is_op(ScalarOp::checked_index); }) && ++rows[e->id] >= least) found.insert(e->id);
    });
  }
}

}  // namespace

bool stores_turned(const LoopProgram& program, const Loop& loop) {
  const auto* pointwise = std::get_if<Pointwise>(&loop.def);
  if (!pointwise || loop.outputs.size() != 1) return false;
  const BufferInfo& out = program.buffer(loop.outputs[0]);
  if (out.pairs) return false;
  int64_t elements = 1;
  for (const Expr size : out.sizes) elements = std::min(elements * std::min(known_or(size, kLeastElements), kLeastElements), kLeastElements);
  const Expr lane = along(out, variables_of(program, out));
  if (elements < kLeastElements || !lane || known_or(out.sizes[static_cast<size_t>(lane->id)], kLeastSide) < kLeastSide) return false;
  bool turned = false;
  visit(pointwise->body, [&](Expr e) {
    if (e->kind != ExprKind::load || turned) return;
    const BufferInfo& in = program.buffer(BufferId(e->id));
    if (in.pairs || in.sizes.size() < 2) return;
    const Expr at = along(in, e->args), read = at ? variable_of(at, out.sizes.size()) : at;
    // Along another axis, while the lane's is somewhere else in the same buffer.
    if (!read || read == lane || !depends_on_var(e, lane->id)) return;
    turned = known_or(out.sizes[static_cast<size_t>(read->id)], kLeastSide) >= kLeastSide;
  });
  return turned;
}

std::set<int> turned_for_rows(const LoopProgram& program) {
  std::set<int> read, found;
  for (const Loop& loop : program.loops) add_rows_by_data(program, loop, read);
  for (size_t row = 0; !read.empty() && row < program.loops.size(); ++row) {
    if (copies_turned(program, program.loops[row]) && read.contains(program.loops[row].outputs[0].index)) found.insert(static_cast<int>(row));
  }
  return found;
}

}  // namespace coil
