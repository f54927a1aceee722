// cat, stack, and writes of a part of a tensor expressed as a choice over coordinates.
#include <algorithm>

#include <fmt/format.h>

#include "lower/lowering.h"

namespace coil::lowering {
namespace {

bool has_loads(Expr e) {
  return any_of(e, [](Expr x) { return x->kind == ExprKind::load; });
}

// Pieces of size 1 before a last one whose formula gives their values, too (-1 before 0, 1, 2...): that formula.
std::optional<View> one_formula(Op& op, DType dtype, const Sizes& sizes, size_t dim, const Views& pieces) {
  if (byte_size(dtype) == 2 || is_complex(dtype)) return std::nullopt;
  Expr begin = op.pool.index(0);
  for (const View& v : pieces) {
    if (has_loads(v.body) || v.dtype != dtype) return std::nullopt;
    if (&v != &pieces.back() && !is_const(v.sizes[dim], 1)) return std::nullopt;
    if (&v != &pieces.back()) begin = begin + 1;
  }
  auto with = [&](Expr e, Expr coordinate) {
    std::vector<Expr> at;
    for (size_t i = 0; i < sizes.size(); ++i) at.push_back(i == dim ? coordinate : op.pool.var(static_cast<int32_t>(i)));
    return simplify_body(substitute_vars(e, at), sizes);
  };
  Expr formula = with(pieces.back().body, op.pool.var(static_cast<int32_t>(dim)) - begin);
  for (size_t k = 0; k + 1 < pieces.size(); ++k) {
    if (with(formula, op.pool.index(static_cast<int64_t>(k))) != with(pieces[k].body, op.pool.index(0))) return std::nullopt;
  }
  return View{dtype, sizes, formula};
}

// The pieces fill the result, and are as wide as it is in the other dimensions.
void check_pieces(const Op& op, const Sizes& sizes, size_t dim, const Views& pieces) {
  Expr sum = op.pool.index(0);
  for (const View& v : pieces) {
    if (v.rank() != sizes.size() || dim >= sizes.size())
      fail(ErrorCode::bad_program, fmt::format("{}: tensors of {} and {} dimensions are joined", op.node.target, v.rank(), sizes.size()));
    sum = sum + v.sizes[dim];
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (d == dim || !v.sizes[d]->is_constant() || !sizes[d]->is_constant() || v.sizes[d] == sizes[d]) continue;
      fail(ErrorCode::bad_program,
           fmt::format("{}: dimension {} of a joined tensor is {}, the result's {}", op.node.target, d, to_string(v.sizes[d]), to_string(sizes[d])));
    }
  }
  if (sum->is_constant() && sizes[dim]->is_constant() && sum != sizes[dim]) {
    fail(ErrorCode::bad_program,
         fmt::format("{}: dimension {} of the joined tensors is {} in all, the result's {}", op.node.target, dim, to_string(sum), to_string(sizes[dim])));
  }
}

View joined_as(Op& op, const std::string& name, DType dtype, const Sizes& sizes, size_t dim, const Views& pieces) {
  check_pieces(op, sizes, dim, pieces);
  if (pieces.size() == 1) return converted(op, pieces[0], dtype);
  if (std::optional<View> v = one_formula(op, dtype, sizes, dim, pieces)) return *v;
  Views same = pieces;
  for (View& v : same) v = is_complex(dtype) ? converted(op, v, dtype) : v;
  return op.rec.concat(name, dtype, sizes, static_cast<int>(dim), same);
}

View joined(Op& op, const Views& pieces, size_t dim) { return joined_as(op, op.name, op.out().dtype, op.out().sizes, dim, pieces); }

Views cat(Op& op) {
  const size_t rank = op.out().sizes.size();
  Views pieces;
  for (View& v : op.tensors("tensors")) {
    const bool legacy_empty = v.rank() == 1 && rank != 1 && is_const(v.sizes[0], 0);
    if (!legacy_empty) pieces.push_back(std::move(v));
  }
  return {joined(op, pieces, wrap_dim(op.integer("dim"), rank))};
}

Views stack(Op& op) {
  const size_t dim = wrap_dim(op.integer("dim"), op.out().sizes.size());
  Views pieces;
  for (const View& v : op.tensors("tensors")) pieces.push_back(unsqueezed(op, v, dim));
  return {joined(op, pieces, dim)};
}

// hstack, vstack, dstack: tensors of low rank get dimensions of size 1 first.
Views stack_along(Op& op, size_t dim, size_t min_rank) {
  Views pieces;
  for (View v : op.tensors("tensors")) {
    if (v.rank() == 0) v = unsqueezed(op, v, 0);
    if (v.rank() < min_rank && min_rank >= 2 && v.rank() == 1) v = unsqueezed(op, v, 0);
    if (v.rank() < min_rank) v = unsqueezed(op, v, 2);  // dstack of matrices
    pieces.push_back(v);
  }
  return {joined(op, pieces, pieces[0].rank() == 1 ? 0 : dim)};
}

Views column_stack(Op& op) {
  Views pieces;
  for (const View& v : op.tensors("tensors")) pieces.push_back(v.rank() < 2 ? reshaped(op, v, {count(op.pool, v.sizes), op.pool.index(1)}) : v);
  return {joined(op, pieces, 1)};
}

// Each tensor in equally many chunks along a dimension, filled up with zeros; the chunks' elements side by side.
Views chunk_cat(Op& op) {
  const TensorType& out = op.out();
  const size_t dim = wrap_dim(op.integer("dim"), op.tensors("tensors").at(0).rank());
  const int64_t chunks = op.integer("num_chunks");
  Views pieces;
  for (View v : op.tensors("tensors")) {
    if (is_complex(out.dtype)) v = as_complex(v, out.dtype);
    Expr length = floor_div(v.sizes[dim] + (chunks - 1), op.pool.index(chunks));
    Sizes rest(v.sizes.begin() + static_cast<long>(dim) + 1, v.sizes.end()), sizes(v.sizes.begin(), v.sizes.begin() + static_cast<long>(dim));
    Expr each = count(op.pool, rest);
    sizes.push_back(op.pool.index(chunks));
    sizes.push_back(length * each);
    std::vector<Expr> at;
    for (size_t i = 0; i < dim; ++i) at.push_back(op.pool.var(static_cast<int32_t>(i)));
    Expr chunk = op.pool.var(static_cast<int32_t>(dim)), element = op.pool.var(static_cast<int32_t>(dim + 1));
    at.push_back(chunk * length + floor_div(element, each));
    Expr there = index_less(at[dim], v.sizes[dim]);
    const Sizes inner = from_row_major(floor_mod(element, each), rest);
    at.insert(at.end(), inner.begin(), inner.end());
    Expr body = masked(there, as(op.rec.at(v, at), out.dtype), as(op.pool.constant_int(0, DType::i64), out.dtype));
    pieces.push_back({out.dtype, sizes, simplify_body(body, sizes)});
  }
  return {joined_as(op, "chunk_cat", out.dtype, out.sizes, dim + 1, pieces)};
}

// x[i + 1] - x[i] along a dimension, n times, after joining what stands before and after.
Views diff(Op& op) {
  View x = op.tensor("self");
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  const TensorType& out = op.out();
  if (op.integer("n") == 0) return {x};  // whatever stands before and after
  if (is_const(out.sizes[dim], 0)) return {View{out.dtype, out.sizes, as(op.pool.constant_int(0, DType::i64), out.dtype)}};
  Views pieces;
  if (op.has("prepend")) pieces.push_back(op.tensor("prepend"));
  pieces.push_back(x);
  if (op.has("append")) pieces.push_back(op.tensor("append"));
  if (pieces.size() > 1) {
    Sizes sizes = x.sizes;
    sizes[dim] = op.pool.index(0);
    for (const View& v : pieces) sizes[dim] = sizes[dim] + v.sizes.at(dim);
    x = joined_as(op, "diff.joined", out.dtype, sizes, dim, pieces);
  }
  const ScalarOp difference = is_bool(out.dtype) ? ScalarOp::logical_xor : ScalarOp::sub;
  for (int64_t n = op.integer("n"); n > 0; --n) {
    Sizes sizes = x.sizes;
    sizes[dim] = n == 1 ? out.sizes[dim] : sizes[dim] - 1;
    x = op.rec.pointwise("diff", out.dtype, sizes, [&](Coordinates c) {
      std::vector<Expr> next(c.begin(), c.end());
      next[dim] = next[dim] + 1;
      return op.pool.op(difference, {as(op.rec.at(x, next), out.dtype), as(op.rec.at(x, c), out.dtype)});
    });
  }
  return {x};
}

// Whether a point lies on the diagonal of dimensions a and b, and its coordinates there: the others, then along the diagonal.
std::pair<Expr, std::vector<Expr>> on_diagonal(Op& op, Coordinates c, size_t a, size_t b, int64_t offset) {
  const Expr hit = op.pool.op(ScalarOp::eq, {c[b] - c[a], op.pool.index(offset)});
  std::vector<Expr> at;
  for (size_t i = 0; i < c.size(); ++i) {
    if (i != a && i != b) at.push_back(c[i]);
  }
  at.push_back(offset >= 0 ? c[a] : c[b]);
  return {hit, at};
}

// A diagonal of x in zeros.
Views diag_embed(Op& op, const View& x, size_t a, size_t b, int64_t offset) {
  const TensorType& out = op.out();
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    const auto [hit, at] = on_diagonal(op, c, a, b, offset);
    return masked(hit, op.rec.at(x, at), as(op.pool.constant_int(0, DType::i64), out.dtype));
  })};
}

// x with src at positions start + step * k, k < count, of dimension dim.
View overwritten(Op& op, const View& x, const View& src, size_t dim, Expr start, Expr n, int64_t step) {
  const TensorType& out = op.out();
  return op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    const VarRanges ranges{out.sizes};
    Expr distance = c[dim] - start, step_index = op.pool.index(step);
    Expr k = floor_div(distance, step_index);
    Expr hit = both(index_at_least(distance, op.pool.index(0), ranges), index_less(k, n, ranges));
    if (step != 1) {
      Expr on_grid = op.pool.op(ScalarOp::eq, {floor_mod(distance, step_index), op.pool.index(0)});
      hit = both(hit, on_grid);
    }
    std::vector<Expr> at(c.begin(), c.end());
    at[dim] = k;
    Expr written = as(read(src, at), out.dtype);
    return masked(hit, written, as(op.rec.at(x, c), out.dtype));
  });
}

Expr wrapped(Expr start, Expr size) {
  if (!provably_less(start, start->pool->index(0))) return start;
  return index_max(size + start, start->pool->index(0));
}

Views slice_scatter(Op& op) {
  View x = op.tensor("self"), src = op.tensor("src");
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  Expr start = op.has("start") ? wrapped(op.index("start"), x.sizes[dim]) : op.pool.index(0);
  return {overwritten(op, x, src, dim, start, src.sizes.at(dim), op.integer("step"))};
}

Views select_scatter(Op& op) {
  View x = op.tensor("self"), src = op.tensor("src");
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  if (!op.is_scalar("index")) {  // a number that is read from data
    const Expr position = position_from_data(op, "index", x.sizes.at(dim));
    const TensorType& out = op.out();
    return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
      std::vector<Expr> at(c.begin(), c.end());
      at.erase(at.begin() + static_cast<std::ptrdiff_t>(dim));
      return masked(op.pool.op(ScalarOp::eq, {c[dim], position}), as(read(src, at), out.dtype), as(op.rec.at(x, c), out.dtype));
    })};
  }
  return {overwritten(op, x, unsqueezed(op, src, dim), dim, wrapped(op.index("index"), x.sizes[dim]), op.pool.index(1), 1)};
}

Views diagonal_scatter(Op& op) {
  View x = op.tensor("self"), src = op.tensor("src");
  const size_t a = wrap_dim(op.integer("dim1"), x.rank()), b = wrap_dim(op.integer("dim2"), x.rank());
  const int64_t offset = op.integer("offset");
  const TensorType& out = op.out();
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    const auto [hit, at] = on_diagonal(op, c, a, b, offset);
    return masked(hit, as(op.rec.at(src, at), out.dtype), as(op.rec.at(x, c), out.dtype));
  })};
}

// With `wrap` the diagonal of a high matrix begins anew, a row left out, at each of its ends: in memory, where eager counts, each (columns + 1)th element.
Views fill_diagonal(Op& op) {
  const View x = op.tensor("self"), value = op.operand("fill_value");
  const TensorType& out = op.out();
  if (x.rank() < 2) fail(ErrorCode::bad_program, op.node.target + " of a tensor of fewer than two dimensions");
  const Expr rows = x.sizes[0], columns = x.sizes[1];
  for (size_t d = 1; x.rank() > 2 && d < x.rank(); ++d) {
    const Expr same = op.pool.op(ScalarOp::eq, {x.sizes[d], rows});
    if (!same->is_constant()) op.rec.check(op.name, op.node.target + ": dimensions of different sizes (" + where(op.node) + ")", same);
    else if (same->as_int() == 0) fail(ErrorCode::bad_program, op.node.target + ": more than two dimensions have to be of one size");
  }
  const bool wraps = x.rank() == 2 && op.flag("wrap") && !provably_nonnegative(columns + 1 - rows);
  const TensorType& type = op.graph.value(std::get<ValueId>(*op.node.find("self"))).tensor();
  if (wraps && (type.strides.size() != 2 || !provably_equal(type.strides[0], columns) || !is_const(type.strides[1], 1)))
    fail(ErrorCode::unsupported_feature, op.node.target + " that wraps around in a matrix whose rows do not follow each other in memory", "make it contiguous");
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr hit = op.pool.op(ScalarOp::eq, {wraps ? floor_mod(c[0] - c[1], columns + 1) : c[0] - c[1], op.pool.index(0)});
    for (size_t d = 2; d < c.size(); ++d) hit = both(hit, op.pool.op(ScalarOp::eq, {c[0], c[d]}));
    return masked(hit, as(op.rec.at(value, {}), out.dtype), as(op.rec.at(x, c), out.dtype));
  })};
}

// torch.nn.utils.rnn.pad_sequence: sequences side by side, filled up to the length of the longest, behind their elements or before them.
Views pad_sequence(Op& op) {
  ExprPool& p = op.pool;
  const TensorType& out = op.out();
  const bool batch_first = op.flag("batch_first"), left = op.text("padding_side") == "left";
  const size_t batch = batch_first ? 0 : 1, time = 1 - batch;
  if (out.sizes.size() < 2) fail(ErrorCode::bad_program, op.node.target + ": sequences have at least one dimension");
  Sizes sizes = out.sizes;
  sizes[batch] = p.index(1);
  const View number{DType::f32, {}, p.constant(op.number("padding_value"), DType::f64)};
  Views pieces;
  for (const View& v : op.tensors("sequences")) {
    if (v.rank() + 1 != sizes.size()) fail(ErrorCode::bad_program, op.node.target + ": a sequence has other dimensions than the result");
    std::vector<Expr> at;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (d != batch) at.push_back(p.var(static_cast<int32_t>(d)));
    }
    const VarRanges ranges{sizes};
    at[0] = left ? at[0] - (sizes[time] - v.sizes[0]) : at[0];
    const Expr inside = both(index_at_least(at[0], p.index(0), ranges), index_less(at[0], v.sizes[0], ranges));
    const Expr fill = is_complex(out.dtype) ? as_complex(number, out.dtype).body : as(number.body, out.dtype);
    const View same = converted(op, v, out.dtype);
    pieces.push_back({out.dtype, sizes, simplify_body(masked(inside, op.rec.at(same, at), fill), sizes)});
  }
  return {joined(op, pieces, batch)};
}

}  // namespace

void add_joins(Table& table) {
  for (const char* target : {"aten.cat.default", "aten.concat.default", "aten.concatenate.default"}) table[target] = cat;
  table["aten.stack.default"] = stack;
  table["aten.hstack.default"] = [](Op& op) { return stack_along(op, 1, 1); };
  table["aten.vstack.default"] = [](Op& op) { return stack_along(op, 0, 2); };
  table["aten.dstack.default"] = [](Op& op) { return stack_along(op, 2, 3); };
  table["aten.column_stack.default"] = column_stack;
  table["aten.diff.default"] = diff;
  table["aten.pad_sequence.default"] = pad_sequence;
  table["aten._chunk_cat.default"] = chunk_cat;
  table["aten.diag_embed.default"] = [](Op& op) {
    const size_t rank = op.out().sizes.size();
    return diag_embed(op, op.tensor("self"), wrap_dim(op.integer("dim1"), rank), wrap_dim(op.integer("dim2"), rank), op.integer("offset"));
  };
  table["aten.diagflat.default"] = [](Op& op) {
    View x = op.tensor("self");
    return diag_embed(op, reshaped(op, x, {count(op.pool, x.sizes)}), 0, 1, op.integer("offset"));
  };
  table["aten.diag.default"] = [](Op& op) {
    View x = op.tensor("self");
    const int64_t offset = op.integer("diagonal");
    if (x.rank() == 1) return diag_embed(op, x, 0, 1, offset);
    return Views{op.rec.view(x, op.out().sizes,
                             [&](Coordinates c) { return std::vector<Expr>{c[0] + std::max<int64_t>(-offset, 0), c[0] + std::max<int64_t>(offset, 0)}; })};
  };
  table["aten.slice_scatter.default"] = slice_scatter;
  table["aten.select_scatter.default"] = select_scatter;
  table["aten.diagonal_scatter.default"] = diagonal_scatter;
  table["aten.fill_diagonal.default"] = fill_diagonal;
}

}  // namespace coil::lowering
