#include "loop/narrow.h"

#include <algorithm>

#include "loop/guard_positions.h"
#include "loop/simplify_body.h"
#include "loop/templates/template.h"
#include "loop/visit.h"

namespace coil {
namespace {

// --- what a definition can be narrowed to

// The pieces of a concatenation that lie in the range, or nothing where their ends cannot be told.
std::optional<std::vector<Concat::Piece>> pieces_in(const Concat& d, const DimRange& r) {
  std::vector<Concat::Piece> kept;
  const Expr end = r.first + r.count;
  const auto at_most = [](Expr a, Expr b) { return provably_nonnegative(b - a); };
  const auto dim = static_cast<size_t>(d.dim);
  for (const Concat::Piece& piece : d.pieces) {
    const Expr piece_end = piece.begin + piece.size;
    if (at_most(piece_end, r.first) || at_most(end, piece.begin)) continue;
    const bool later = at_most(piece.begin, r.first), earlier = at_most(end, piece_end);
    if ((!later && !at_most(r.first, piece.begin)) || (!earlier && !at_most(piece_end, end))) return std::nullopt;
    const Expr from = later ? r.first : piece.begin, to = earlier ? end : piece_end;
    Concat::Piece part{from - r.first, to - from, piece.body};
    if (!provably_nonnegative(part.size)) return std::nullopt;
    if (later && !(from == piece.begin)) {
      std::vector<Expr> at;
      for (size_t i = 0; i <= dim; ++i) at.push_back(from->pool->var(static_cast<int32_t>(i)));
      at[dim] = at[dim] + (from - piece.begin);
      part.body = substitute_vars(part.body, at);
    }
    kept.push_back(std::move(part));
  }
  if (kept.empty()) return std::nullopt;
  return kept;
}

DimRange of_concat(const Concat& d, size_t dim, const DimRange& wanted, Expr size) {
  if (dim != static_cast<size_t>(d.dim)) return wanted;
  const DimRange r = without_steps(wanted, size);
  return pieces_in(d, r) ? r : whole_range(size);
}

}  // namespace

std::optional<std::vector<char>> checked_dims(const LoopProgram& program, const Loop& loop) {
  std::optional<std::vector<char>> found;
  const size_t rank = program.buffer(loop.outputs[0]).sizes.size();
  for (const BodyRef& ref : bodies(program, loop)) {
    visit(ref.body, [&](Expr e) {
      if (!e->is_op(ScalarOp::checked_index) || never_fails(e)) return;
      if (!found) found.emplace(rank);
      for (size_t d = 0; d < rank; ++d) found->at(d) = found->at(d) || depends_on_var(e, static_cast<int32_t>(d));
      if (const auto* concat = std::get_if<Concat>(&loop.def)) found->at(static_cast<size_t>(concat->dim)) = 1;  // there are others in other pieces
    });
  }
  return found;
}

DimRange narrowable(const LoopProgram& program, const Loop& loop, size_t dim, const DimRange& wanted) {
  const BufferInfo& out = program.buffer(loop.outputs[0]);
  const Expr size = out.sizes[dim];
  const DimRange whole = whole_range(size);
  const bool last = dim + 1 == out.sizes.size();
  // Steps along the last dimension would have neighbours read apart.
  const DimRange r = last ? without_steps(wanted, size) : wanted;
  if ((last && out.pairs) || !out.strides.empty()) return whole;
  return std::visit(Overload{
                        [&](const Pointwise&) { return r; },
                        [&](const Reduction&) { return r; },
                        [&](const Scan& d) {
                          if (dim != static_cast<size_t>(d.dim)) return r;
                          return DimRange{whole.first, whole.step, without_steps(r, size).end()};  // what comes before is summed up
                        },
                        [&](const Concat& d) { return of_concat(d, dim, r, size); },
                        [&](const Sort& d) { return dim == static_cast<size_t>(d.dim) ? whole : r; },
                        [&](const auto& d) {
                          if constexpr (Template<std::remove_cvref_t<decltype(d)>>) return narrowable(d, dim, r, size);
                          else return whole;
                        },
                    },
                    loop.def);
}

namespace {

// --- narrowing

using Ranges = std::vector<DimRange>;

// What each variable of the result becomes. Where all is wanted it stays: a body's variable may run further than the result's dimension (one of six
// sorted numbers is kept).
std::vector<Expr> elements(ExprPool& pool, const Ranges& ranges, const std::vector<Expr>& sizes) {
  std::vector<Expr> at;
  for (size_t d = 0; d < ranges.size(); ++d) {
    const Expr var = pool.var(static_cast<int32_t>(d));
    at.push_back(is_whole(ranges[d], sizes[d]) ? var : ranges[d].element(var));
  }
  return at;
}

// A part of one piece is no concatenation any more.
LoopDef narrowed_concat(Concat d, const Ranges& ranges, const std::vector<Expr>& sizes, ExprPool& pool) {
  const auto dim = static_cast<size_t>(d.dim);
  if (!is_whole(ranges[dim], sizes[dim])) d.pieces = *pieces_in(d, ranges[dim]);
  std::vector<Expr> at = elements(pool, ranges, sizes);
  at[dim] = pool.var(d.dim);
  for (Concat::Piece& piece : d.pieces) piece.body = substitute_vars(piece.body, at);
  if (d.pieces.size() == 1) return Pointwise{d.pieces[0].body};
  return d;
}

}  // namespace

void narrow(LoopProgram& program, Loop& loop, const std::vector<DimRange>& ranges) {
  ExprPool& pool = *program.pool;
  const std::vector<Expr> sizes = program.buffer(loop.outputs[0]).sizes, at = elements(pool, ranges, sizes);
  for (BufferId id : loop.outputs) {
    for (size_t d = 0; d < ranges.size(); ++d) program.buffer(id).sizes[d] = ranges[d].count;
  }
  if (const auto* concat = std::get_if<Concat>(&loop.def)) {
    loop.def = narrowed_concat(*concat, ranges, sizes, pool);
    return;
  }
  std::visit(Overload{
                 [&](Pointwise& d) { d.body = substitute_vars(d.body, at); },
                 [&](Reduction& d) { d.body = substitute_vars(d.body, at); },
                 [&](Scan& d) { d.body = substitute_vars(d.body, at); },
                 [&](Sort& d) { d.body = substitute_vars(d.body, at); },
                 [&](auto& d) {
                   if constexpr (Template<std::remove_cvref_t<decltype(d)>>) narrow(d, ranges, at);
                   else CHECK(false, "a definition that computes whole buffers was to be narrowed");
                 },
             },
             loop.def);
}

namespace {

// --- reads

// Calls f(expression, sizes of its variables) for everything that holds loads.
template <class F>
void each_body(const LoopProgram& program, Loop& loop, F&& f) {
  const std::vector<BodyRef> refs = bodies(program, loop);
  std::visit(Overload{
                 [&](Concat& d) {
                   for (size_t i = 0; i < d.pieces.size(); ++i) f(d.pieces[i].body, refs[i].domain);
                 },
                 [&](Compact& d) {
                   Expr* parts[] = {&d.keep, &d.start, &d.value};
                   for (size_t i = 0; i < 3; ++i) f(*parts[i], refs[i].domain);
                 },
                 [&](auto& d) {
                   if constexpr (requires { d.body; }) f(d.body, refs[0].domain);
                 },
             },
             loop.def);
}

// A coordinate of a dimension, in the range that is left of it.
Expr moved(Expr c, const DimRange& r, std::span<const Expr> domain) {
  if (r.count->is_constant() && r.count->as_int() == 1) return c->pool->index(0);
  Expr at = c - r.first;
  if (!r.is_unit_step()) at = floor_div(at, r.step);
  return simplify_index(at, {domain});
}

}  // namespace

std::vector<ReadAt> reads_at(const LoopProgram& program, const Loop& loop) {
  std::vector<ReadAt> found;
  for (const BodyRef& ref : bodies(program, loop)) {
    visit(ref.body, [&](Expr e) {
      if (e->kind == ExprKind::load) found.push_back({BufferId(e->id), e->args, ref.domain});
    });
  }
  for (TemplateParts::Read& read : parts_of(loop.def).operands) found.push_back({read.operand->buffer, read.operand->coordinates, std::move(read.domain)});
  return found;
}

void redirect_reads(Loop& loop, const LoopProgram& program, BufferId from, BufferId to, const DimRange& columns) {
  const Expr size = program.buffer(from).sizes.back();
  const auto inside = [&](Expr column, std::span<const Expr> domain) {
    const DimRange r = range_of(column, size, domain);
    return joined(r, columns, size) == columns;
  };
  each_body(program, loop, [&](Expr& body, const std::vector<Expr>& domain) {
    body = rewrite(body, [&](Expr e) {
      if (e->kind != ExprKind::load || !(BufferId(e->id) == from) || !inside(e->args.back(), domain)) return Expr();
      return e->pool->load(to, program.buffer(to).dtype, e->args);
    });
  });
  for (const TemplateParts::Read& read : parts_of(loop.def).operands) {
    if (read.operand->buffer == from && inside(read.operand->coordinates.back(), read.domain)) read.operand->buffer = to;
  }
}

void redirect_reads(Loop& loop, const LoopProgram& program, BufferId from, BufferId to, FunctionRef<std::vector<Expr>(const std::vector<Expr>&)> moved) {
  const auto is_read = [from](Expr e) { return e->kind == ExprKind::load && BufferId(e->id) == from; };
  each_body(program, loop, [&](Expr& body, const std::vector<Expr>& domain) {
    if (!any_of(body, is_read)) return;
    body = rewrite(body, [&](Expr e) { return is_read(e) ? e->pool->load(to, program.buffer(to).dtype, moved(e->args)) : Expr(); });
    body = simplify_body(body, domain);
  });
  for (const TemplateParts::Read& read : parts_of(loop.def).operands) {
    if (!(read.operand->buffer == from)) continue;
    *read.operand = {to, moved(read.operand->coordinates)};
    for (Expr& c : read.operand->coordinates) c = simplify_index(c, VarRanges{read.domain});
  }
}

void move_reads(const LoopProgram& program, Loop& loop, const NarrowedBuffers& narrowed) {
  const auto ranges_of = [&](BufferId id) { return narrowed[static_cast<size_t>(id.index)]; };
  const bool changed = std::any_of(loop.outputs.begin(), loop.outputs.end(), [&](BufferId id) { return ranges_of(id) != nullptr; });
  each_body(program, loop, [&](Expr& body, const std::vector<Expr>& domain) {
    const bool concerned = any_of(body, [&](Expr e) { return e->kind == ExprKind::load && ranges_of(BufferId(e->id)); });
    if (concerned) {
      body = rewrite(body, [&](Expr e) {
        const std::vector<DimRange>* ranges = e->kind == ExprKind::load ? ranges_of(BufferId(e->id)) : nullptr;
        if (!ranges) return Expr();
        std::vector<Expr> at = e->args;
        for (size_t d = 0; d < at.size(); ++d) at[d] = moved(at[d], (*ranges)[d], domain);
        return e->pool->load(BufferId(e->id), program.buffer(BufferId(e->id)).dtype, std::move(at));
      });
    }
    if (concerned || changed) body = simplify_body(body, domain);
  });
  for (const TemplateParts::Read& read : parts_of(loop.def).operands) {
    const std::vector<DimRange>* ranges = ranges_of(read.operand->buffer);
    std::vector<Expr>& at = read.operand->coordinates;
    for (size_t d = 0; ranges && d < at.size(); ++d) at[d] = moved(at[d], (*ranges)[d], read.domain);
  }
}

}  // namespace coil
