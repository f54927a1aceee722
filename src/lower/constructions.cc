// Tensors put together from small ones, and tables of positions: block_diag, cartesian_prod, combinations, triangles.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lower/constant_table.h"
#include "lower/formula.h"

namespace coil::lowering {

namespace {

View number_zero(Op& op, DType dtype) { return {dtype, {}, as(op.pool.constant_int(0, DType::i64), dtype)}; }

Views block_diag(Op& op) {
  const TensorType& out = op.out();
  Views pieces;
  Expr left = op.pool.index(0);
  for (View v : op.tensors("tensors")) {
    if (is_complex(out.dtype)) v = as_complex(v, out.dtype);
    while (v.rank() < 2) v = unsqueezed(op, v, 0);
    Sizes sizes{v.sizes[0], out.sizes[1]};
    std::vector<Expr> vars{op.pool.var(0), op.pool.var(1) - left};
    Expr body = masked(inside(vars[1], v.sizes[1]), as(op.rec.at(v, vars), out.dtype), number_zero(op, out.dtype).body);
    pieces.push_back({out.dtype, sizes, simplify_body(body, sizes)});
    left = left + v.sizes[1];
  }
  if (pieces.empty()) fail(ErrorCode::unsupported_feature, "block_diag of nothing");
  return {pieces.size() == 1 ? pieces[0] : op.rec.concat("block_diag", out.dtype, out.sizes, 0, pieces)};
}

Views cartesian_prod(Op& op) {
  Views given = op.tensors("tensors"), pieces;
  const TensorType& out = op.out();
  if (given.size() == 1) return {given[0]};
  Expr after = out.sizes[0];
  for (const View& v : given) {
    Expr n = v.sizes.at(0);
    after = floor_div(after, index_max(n, op.pool.index(1)));
    pieces.push_back(op.rec.view(v, {out.sizes[0], op.pool.index(1)}, [&](Coordinates c) { return std::vector<Expr>{floor_mod(floor_div(c[0], after), n)}; }));
  }
  return {op.rec.concat("cartesian_prod", out.dtype, out.sizes, 1, pieces)};
}

// All ways to choose r of n in ascending order.
std::vector<int64_t> choices(int64_t n, int64_t r, bool repeated) {
  std::vector<int64_t> rows, row(static_cast<size_t>(r));
  std::function<void(size_t, int64_t)> extend = [&](size_t depth, int64_t first) {
    if (depth == row.size()) {
      rows.insert(rows.end(), row.begin(), row.end());
      return;
    }
    for (int64_t i = first; i < n; ++i) {
      row[depth] = i;
      extend(depth + 1, repeated ? i : i + 1);
    }
  };
  extend(0, 0);
  return rows;
}

Views combinations(Op& op) {
  View x = op.tensor("self");
  const int64_t r = op.integer("r");
  const std::optional<int64_t> n = const_int(x.sizes.at(0));
  const TensorType& out = op.out();
  if (!n || *n > 64 || r > 6) fail(ErrorCode::unsupported_feature, "combinations of many or a dynamic number of elements");
  if (r == 0) return {View{out.dtype, out.sizes, number_zero(op, out.dtype).body}};
  std::vector<int64_t> rows = choices(*n, r, op.flag("with_replacement"));
  const int64_t ways = static_cast<int64_t>(rows.size()) / r;
  if (ways == 0) return {View{out.dtype, out.sizes, number_zero(op, out.dtype).body}};
  View table = constant_table(op, "combinations.table", {ways, r}, std::move(rows));
  return {op.rec.pointwise("combinations", out.dtype, out.sizes,
                           [&](Coordinates c) { return op.rec.at(x, std::vector<Expr>{op.pool.checked_index(op.rec.at(table, c), x.sizes[0])}); })};
}

// Row and column numbers of a triangle, row by row.
Views triangle_indices(Op& op, bool lower) {
  const int64_t rows = op.integer("row"), columns = op.integer("col"), offset = op.integer("offset");
  constexpr int64_t kMany = 1 << 22;
  if (rows < 0 || columns < 0 || rows > kMany || columns > kMany || rows * columns > kMany) {
    fail(ErrorCode::unsupported_feature, op.node.target + " of a large matrix");
  }
  std::vector<int64_t> numbers, second;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      if (lower ? c - r > offset : c - r < offset) continue;
      numbers.push_back(r);
      second.push_back(c);
    }
  }
  const int64_t n = static_cast<int64_t>(second.size());
  numbers.insert(numbers.end(), second.begin(), second.end());
  return {converted(op, constant_table(op, op.name, {2, n}, std::move(numbers)), op.out().dtype)};
}

// The places of the first nonzero elements, in order; -1 (the fill value) where there are no more.
Views nonzero_static(Op& op) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  ExprPool& p = op.pool;
  Expr n = count(p, x.sizes), rows = out.sizes.at(0);
  View flat = reshaped(op, x, {n});
  auto is_set = [&](Coordinates c) {
    const Complex z = parts_of(op.rec.at(flat, c));
    const Expr first = as(z.re, DType::boolean);
    return z.re == z.im ? first : p.op(ScalarOp::logical_or, {first, as(z.im, DType::boolean)});
  };
  View before = op.rec.scan("nonzero.count", ScanOp::sum, DType::i64, {n}, 0, [&](Coordinates c) { return as(is_set(c), DType::i64); });
  View place = op.rec.reduce("nonzero.place", ReduceOp::max, DType::i64, {rows}, {n}, [&](Coordinates c, Coordinates k) {
    Expr hit = both(is_set(k), p.op(ScalarOp::eq, {op.rec.at(before, k), p.cast(c[0] + 1, DType::i64)}));
    return p.select(hit, p.cast(k[0], DType::i64), p.constant_int(-1, DType::i64));
  });
  const int64_t fill = op.integer("fill_value");
  return {op.rec.pointwise("nonzero", out.dtype, out.sizes, [&](Coordinates c) {
    Val linear = op.rec.at(place, c.first(1)), result = linear.like(static_cast<double>(fill));
    Val rest = max(linear, 0.0);
    for (size_t d = x.rank(); d-- > 0;) {
      Val size = p.cast(index_max(x.sizes[d], p.index(1)), DType::i64);
      Expr own = p.op(ScalarOp::eq, {c[1], p.index(static_cast<int64_t>(d))});
      result = select(both(Val(own), linear >= 0.0), remainder(rest, size), result);
      rest = apply(ScalarOp::floor_div, rest, size);
    }
    return result.e;
  })};
}

// The distances of all pairs of rows, i < j.
Views pdist(Op& op) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  const std::optional<int64_t> n = const_int(x.sizes.at(0));
  if (!n || *n > 1024) fail(ErrorCode::unsupported_feature, op.node.target + " of many rows or of a dynamic number of rows");
  if (is_const(out.sizes.at(0), 0)) return {View{out.dtype, out.sizes, number_zero(op, out.dtype).body}};
  std::vector<int64_t> pairs = choices(*n, 2, false);
  const int64_t rows = static_cast<int64_t>(pairs.size()) / 2;
  View table = constant_table(op, "pdist.pairs", {rows, 2}, std::move(pairs));
  const double p = op.number("p");
  const bool extreme = std::isinf(p);
  const DType type = accumulate_type(out.dtype);
  View sum = op.rec.reduce("pdist.sum", extreme ? ReduceOp::max : ReduceOp::sum, type, out.sizes, {x.sizes.at(1)}, [&](Coordinates c, Coordinates k) {
    auto element = [&](int64_t side) {
      Expr row = op.pool.checked_index(op.rec.at(table, std::vector<Expr>{c[0], op.pool.index(side)}), x.sizes[0]);
      return Val(as(op.rec.at(x, std::vector<Expr>{row, k[0]}), type));
    };
    Val size = abs(element(0) - element(1));
    return (p == 0 ? select(equal(size, 0.0), size.like(0), size.like(1)) : p == 1 || extreme ? size : p == 2 ? size * size : pow(size, p)).e;
  });
  return {op.rec.pointwise("pdist", out.dtype, out.sizes, [&](Coordinates c) {
    Val s = op.rec.at(sum, c);
    return (p == 0 || p == 1 || extreme ? s : p == 2 ? sqrt(s) : pow(s, 1 / p)).e;
  })};
}

Views kron(Op& op) {
  View a = op.tensor("self"), b = op.tensor("other");
  const TensorType& out = op.out();
  while (a.rank() < b.rank()) a = unsqueezed(op, a, 0);
  while (b.rank() < a.rank()) b = unsqueezed(op, b, 0);
  const ScalarOp product = is_bool(out.dtype) ? ScalarOp::logical_and : ScalarOp::mul;
  Sizes sizes;  // of a and b in turns: so no coordinate has to be divided
  for (size_t i = 0; i < a.rank(); ++i) sizes.insert(sizes.end(), {a.sizes[i], b.sizes[i]});
  const View products = op.rec.pointwise("kron", out.dtype, sizes, [&](Coordinates c) {
    std::vector<Expr> in_a, in_b;
    for (size_t i = 0; i < c.size(); i += 2) in_a.push_back(c[i]), in_b.push_back(c[i + 1]);
    return op.pool.op(product, {as(op.rec.at(a, in_a), out.dtype), as(op.rec.at(b, in_b), out.dtype)});
  });
  return {reshaped(op, products, out.sizes)};
}

}  // namespace

void add_constructions(Table& table) {
  table["aten.block_diag.default"] = block_diag;
  table["aten.cartesian_prod.default"] = cartesian_prod;
  table["aten.combinations.default"] = combinations;
  table["aten.tril_indices.default"] = [](Op& op) { return triangle_indices(op, true); };
  table["aten.triu_indices.default"] = [](Op& op) { return triangle_indices(op, false); };
  table["aten.kron.default"] = kron;
  table["aten.nonzero_static.default"] = nonzero_static;
  for (const char* target : {"aten.pdist.default", "aten._pdist_forward.default"}) table[target] = pdist;
}

}  // namespace coil::lowering
