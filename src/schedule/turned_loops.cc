#include "schedule/turned_loops.h"

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

}  // namespace

bool stores_turned(const LoopProgram& program, const Loop& loop) {
  const auto* pointwise = std::get_if<Pointwise>(&loop.def);
  if (!pointwise || loop.outputs.size() != 1) return false;
  const BufferInfo& out = program.buffer(loop.outputs[0]);
  if (out.pairs) return false;
  int64_t elements = 1;
  std::vector<Expr> own;
  for (size_t d = 0; d < out.sizes.size(); ++d) {
    own.push_back(program.pool->var(static_cast<int32_t>(d)));
    elements *= known_or(out.sizes[d], kLeastElements);
    if (elements > kLeastElements) elements = kLeastElements;
  }
  const Expr lane = along(out, own);
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

}  // namespace coil
