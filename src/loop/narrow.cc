#include "loop/narrow.h"

#include <algorithm>

#include "loop/guard_positions.h"
#include "loop/simplify_body.h"
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

// Row i of a causal attention sees the keys up to i, counted from the first row: either rows are kept from the first on, or there is one,
// which sees what it sees.
DimRange of_attention(const Attention& d, size_t dim, const DimRange& wanted, Expr size) {
  if (dim == 0 || (dim == 1 && d.heads == d.kv_heads)) return wanted;
  if (dim != 2) return whole_range(size);
  if (!d.causal || (wanted.count->is_constant() && wanted.count->as_int() == 1)) return wanted;
  const DimRange r = without_steps(wanted, size);
  return {size->pool->index(0), r.step, r.first + r.count};
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
                        [&](const Gemm& d) { return dim >= d.batch.size() + d.m.size() && d.quantised ? whole : r; },
                        [&](const Conv2d&) { return dim == 0 ? r : whole; },
                        [&](const Attention& d) { return of_attention(d, dim, r, size); },
                        [&](const auto&) { return whole; },
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

void narrow_operand(Operand& o, const std::vector<Expr>& at) {
  for (Expr& c : o.coordinates) c = substitute_vars(c, at);
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

void narrow_gemm(Gemm& d, const Ranges& ranges, const std::vector<Expr>& at) {
  size_t i = 0;
  for (auto* part : {&d.batch, &d.m, &d.n}) {
    for (Expr& size : *part) size = ranges[i++].count;
  }
  narrow_operand(d.a, at);
  narrow_operand(d.b, at);
}

void narrow_attention(Attention& d, const Ranges& ranges, const std::vector<Expr>& at) {
  if (d.causal && !is_whole(ranges[2], d.q_len)) {
    const Expr seen = ranges[2].first + ranges[2].count;
    const bool one_row = ranges[2].count->is_constant() && ranges[2].count->as_int() == 1;
    if (one_row || provably_nonnegative(d.kv_len - seen)) d.kv_len = simplify_index(index_min(d.kv_len, seen), {});
    if (one_row) d.causal = false;  // it sees all keys that are left
  }
  d.batch = ranges[0].count;
  if (d.heads == d.kv_heads) d.kv_heads = ranges[1].count;
  d.heads = ranges[1].count;
  d.q_len = ranges[2].count;
  narrow_operand(d.q, at);
  if (d.mask) narrow_operand(*d.mask, at);
  const std::vector<Expr> of_keys(at.begin(), at.begin() + 2);  // their rows are not the queries'
  narrow_operand(d.k, of_keys);
  narrow_operand(d.v, of_keys);
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
                 [&](Gemm& d) { narrow_gemm(d, ranges, at); },
                 [&](Conv2d& d) {
                   narrow_operand(d.x, {at[0]});
                   d.x_sizes[0] = ranges[0].count;
                 },
                 [&](Attention& d) { narrow_attention(d, ranges, at); },
                 [](auto&) { CHECK(false, "a definition that computes whole buffers was to be narrowed"); },
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

// Calls f(operand, sizes of its variables) for what templates read by coordinates.
template <class LoopOf, class F>
void each_operand(LoopOf& loop, F&& f) {
  std::visit(Overload{
                 [&](auto& d) {
                   if constexpr (requires { d.kv_len; }) {
                     f(d.q, std::vector<Expr>{d.batch, d.heads, d.q_len, d.dim});
                     f(d.k, std::vector<Expr>{d.batch, d.kv_heads, d.kv_len, d.dim});
                     f(d.v, std::vector<Expr>{d.batch, d.kv_heads, d.kv_len, d.v_dim});
                     if (d.mask) f(*d.mask, std::vector<Expr>{d.batch, d.heads, d.q_len, d.kv_len});
                   } else if constexpr (requires { d.x_sizes; }) {
                     f(d.x, d.x_sizes);
                   } else if constexpr (requires { d.ends; }) {
                     f(d.a, std::vector<Expr>{d.groups, d.m, d.n, d.k});
                     f(d.b, std::vector<Expr>{d.groups, d.m, d.n, d.k});
                   } else if constexpr (requires { d.quantised; }) {
                     const std::vector<Expr> domain = joined_sizes({&d.batch, &d.m, &d.n, &d.k});
                     f(d.a, domain);
                     f(d.b, domain);
                   }
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
  each_operand(loop, [&](const Operand& o, std::vector<Expr> domain) { found.push_back({o.buffer, o.coordinates, std::move(domain)}); });
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
  each_operand(loop, [&](Operand& o, const std::vector<Expr>& domain) {
    if (o.buffer == from && inside(o.coordinates.back(), domain)) o.buffer = to;
  });
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
  each_operand(loop, [&](Operand& o, const std::vector<Expr>& domain) {
    const std::vector<DimRange>* ranges = ranges_of(o.buffer);
    for (size_t d = 0; ranges && d < o.coordinates.size(); ++d) o.coordinates[d] = moved(o.coordinates[d], (*ranges)[d], domain);
  });
}

}  // namespace coil
