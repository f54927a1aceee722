// Writes at positions that are data. Each result element looks for the write that reaches it: a loop over the positions finds
// it (the last one wins, so results repeat), which is right for every size and quick for few positions.
#include <fmt/format.h>

#include "lower/lowering.h"

namespace coil::lowering {
namespace {

Expr i64(Op& op, int64_t v) { return op.pool.constant_int(v, DType::i64); }

// Whether the position (data) is the coordinate; positions outside [0, size) fail the call.
Expr reaches(Op& op, Expr position, Expr coordinate, Expr size, bool wrap) {
  Expr p = as(position, DType::i64);
  if (wrap) {
    Expr from_end = op.pool.op(ScalarOp::add, {p, op.pool.cast(size, DType::i64)});
    p = op.pool.select(op.pool.op(ScalarOp::lt, {p, i64(op, 0)}), from_end, p);
  }
  return op.pool.op(ScalarOp::eq, {checked_position(op, p, size), coordinate});
}

// A found number as an index, where it was found.
Expr found_index(Op& op, Expr number, Expr bound) {
  Expr safe = op.pool.op(ScalarOp::maximum, {number, i64(op, 0)});
  return op.pool.checked_index(safe, index_max(bound, op.pool.index(1)));
}

// Coordinates of scatter's index tensor: the result's, with j in dimension dim. Others may lie outside: `valid` says.
struct ScatterPoint {
  std::vector<Expr> at;
  Expr valid;
};

ScatterPoint scatter_point(Op& op, Coordinates c, const View& index, const Sizes& sizes, size_t dim, Expr j) {
  ScatterPoint p{std::vector<Expr>(c.begin(), c.end()), op.pool.boolean(true)};
  p.at[dim] = j;
  for (size_t i = 0; i < c.size(); ++i) {
    if (i != dim && index.sizes[i] != sizes[i]) p.valid = both(p.valid, index_less(c[i], index.sizes[i]));
  }
  return p;
}

Views scatter(Op& op) {
  View x = op.tensor("self"), index = op.tensor("index");
  View src = op.has("src") ? op.tensor("src") : op.operand("value");
  const TensorType& out = op.out();
  if (x.rank() == 0) return {converted(op, reshaped(op, src, {}), out.dtype)};
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  if (index.rank() != x.rank()) fail(ErrorCode::unsupported_feature, op.node.target + " with an index of another rank");
  auto hit = [&](Coordinates c, Expr j) {
    ScatterPoint p = scatter_point(op, c, index, out.sizes, dim, j);
    return masked(p.valid, reaches(op, op.rec.at(index, p.at), c[dim], out.sizes[dim], false), op.pool.boolean(false));
  };
  auto chosen = [&](Coordinates c, Expr is_hit, Expr j) {
    std::vector<Expr> at(c.begin(), c.end());
    at[dim] = j;
    Expr value = as(src.rank() == 0 ? src.body : op.rec.at(src, at), out.dtype);
    return masked(is_hit, value, as(op.rec.at(x, c), out.dtype));
  };
  Expr writes = index.sizes[dim];
  if (is_const(writes, 1)) {
    return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
      return chosen(c, hit(c, op.pool.index(0)), op.pool.index(0));
    })};
  }
  View winner = op.rec.reduce(op.name + ".writer", ReduceOp::max, DType::i64, out.sizes, {writes}, [&](Coordinates c, Coordinates j) {
    return op.pool.select(hit(c, j[0]), op.pool.cast(j[0], DType::i64), i64(op, -1));
  });
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr w = op.rec.at(winner, c);
    return chosen(c, op.pool.op(ScalarOp::ge, {w, i64(op, 0)}), found_index(op, w, writes));
  })};
}

Expr identity(Op& op, ReduceOp reduce, DType type) {
  if (reduce == ReduceOp::max) return lowest(op.pool, type);
  if (reduce == ReduceOp::min) return highest(op.pool, type);
  return as(i64(op, reduce == ReduceOp::prod ? 1 : 0), type);
}

ScalarOp pairwise(ReduceOp reduce) {
  switch (reduce) {
    case ReduceOp::prod: return ScalarOp::mul;
    case ReduceOp::max: return ScalarOp::maximum;
    case ReduceOp::min: return ScalarOp::minimum;
    default: return ScalarOp::add;
  }
}

Views scatter_reduced(Op& op, ReduceOp reduce) {
  View x = op.tensor("self"), index = op.tensor("index"), src = op.tensor("src");
  const TensorType& out = op.out();
  const DType type = is_float(out.dtype) ? accumulate_type(out.dtype) : out.dtype;
  if (x.rank() == 0 || index.rank() != x.rank()) fail(ErrorCode::unsupported_feature, op.node.target + " with an index of another rank");
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  View total = op.rec.reduce(op.name + ".total", reduce, type, out.sizes, {index.sizes[dim]}, [&](Coordinates c, Coordinates j) {
    ScatterPoint p = scatter_point(op, c, index, out.sizes, dim, j[0]);
    Expr none = identity(op, reduce, type);
    Expr is_hit = masked(p.valid, reaches(op, op.rec.at(index, p.at), c[dim], out.sizes[dim], false), op.pool.boolean(false));
    return masked(is_hit, as(op.rec.at(src, p.at), type), none);
  });
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    return op.pool.op(pairwise(reduce), {as(op.rec.at(x, c), type), op.rec.at(total, c)});
  })};
}

Views scatter_reduce(Op& op) {
  const std::string how = op.text("reduce");
  if (op.has("include_self") && !op.flag("include_self")) fail(ErrorCode::unsupported_feature, "scatter_reduce without include_self");
  if (how == "sum" || how == "add") return scatter_reduced(op, ReduceOp::sum);
  if (how == "prod" || how == "multiply") return scatter_reduced(op, ReduceOp::prod);
  if (how == "amax") return scatter_reduced(op, ReduceOp::max);
  if (how == "amin") return scatter_reduced(op, ReduceOp::min);
  fail(ErrorCode::unsupported_feature, fmt::format("scatter_reduce with reduce='{}'", how));
}

// x[mask] = value
Views put_masked(Op& op, const View& x, const View& mask, const View& value) {
  const TensorType& out = op.out();
  if (value.rank() != 0 && !(value.rank() == 1 && is_const(value.sizes[0], 1))) {
    fail(ErrorCode::unsupported_feature, op.node.target + " with a mask and several values: which goes where depends on data", "use torch.where");
  }
  return {op.rec.pointwise("index_put", out.dtype, out.sizes, [&](Coordinates c) {
    Expr v = as(reshaped(op, value, {}).body, out.dtype);
    return op.pool.select(op.rec.at(mask, c.first(mask.rank())), v, as(op.rec.at(x, c), out.dtype));
  })};
}

// The index tensors of index_put, broadcast together.
struct PutIndices {
  std::vector<size_t> dims;  // indexed dimensions of self
  Views tensors;
  Sizes sizes;               // of the broadcast indices
  size_t place = 0;          // where these dimensions stand in `values`
};

PutIndices put_indices(Op& op, const View& x) {
  PutIndices r;
  std::vector<std::optional<View>> given = op.maybe_tensors("indices");
  for (size_t i = 0; i < given.size(); ++i) {
    if (!given[i]) continue;
    if (is_bool(given[i]->dtype)) fail(ErrorCode::unsupported_feature, op.node.target + " with a mask among other indices");
    r.dims.push_back(i);
    r.tensors.push_back(*given[i]);
    const Sizes& s = given[i]->sizes;
    if (s.size() > r.sizes.size()) r.sizes.insert(r.sizes.begin(), s.size() - r.sizes.size(), op.pool.index(1));
    for (size_t k = 0; k < s.size(); ++k) {
      Expr& size = r.sizes[r.sizes.size() - s.size() + k];
      if (is_const(size, 1)) size = s[k];
    }
  }
  if (r.dims.empty() || r.dims.back() >= x.rank()) fail(ErrorCode::bad_program, op.node.target + ": wrong indices");
  const bool adjacent = r.dims.back() - r.dims.front() + 1 == r.dims.size();
  r.place = adjacent ? r.dims.front() : 0;
  return r;
}

Views index_put(Op& op) {
  View x = op.tensor("self"), values = op.tensor("values");
  const TensorType& out = op.out();
  const bool accumulate = op.has("accumulate") && op.flag("accumulate");
  const std::vector<std::optional<View>> given = op.maybe_tensors("indices");
  if (given.size() == 1 && given[0] && is_bool(given[0]->dtype) && !accumulate) return put_masked(op, x, *given[0], values);
  const PutIndices put = put_indices(op, x);
  auto hit = [&](auto coordinate_of, Coordinates b) {
    Expr all = op.pool.boolean(true);
    for (size_t t = 0; t < put.dims.size(); ++t) {
      all = both(all, reaches(op, read(put.tensors[t], b), coordinate_of(t), x.sizes[put.dims[t]], true));
    }
    return all;
  };
  // The element of `values` for result element c and broadcast position b.
  auto value_at = [&](Coordinates c, Coordinates b) {
    std::vector<Expr> at;
    size_t t = 0;
    for (size_t i = 0; i < c.size(); ++i) {
      if (t < put.dims.size() && put.dims[t] == i) ++t;
      else at.push_back(c[i]);
    }
    at.insert(at.begin() + static_cast<long>(put.place), b.begin(), b.end());
    return as(read(values, at), out.dtype);
  };
  if (accumulate) {
    const DType type = is_float(out.dtype) ? accumulate_type(out.dtype) : out.dtype;
    View total = op.rec.reduce("index_put.total", ReduceOp::sum, type, out.sizes, put.sizes, [&](Coordinates c, Coordinates b) {
      return masked(hit([&](size_t t) { return c[put.dims[t]]; }, b), as(value_at(c, b), type), as(i64(op, 0), type));
    });
    return {op.rec.pointwise("index_put", out.dtype, out.sizes, [&](Coordinates c) {
      return op.pool.op(ScalarOp::add, {as(op.rec.at(x, c), type), op.rec.at(total, c)});
    })};
  }
  Sizes indexed;
  for (size_t d : put.dims) indexed.push_back(x.sizes[d]);
  View winner = op.rec.reduce("index_put.writer", ReduceOp::max, DType::i64, indexed, put.sizes, [&](Coordinates c, Coordinates b) {
    Expr number = op.pool.cast(row_major(op.pool, b, put.sizes), DType::i64);
    return op.pool.select(hit([&](size_t t) { return c[t]; }, b), number, i64(op, -1));
  });
  return {op.rec.pointwise("index_put", out.dtype, out.sizes, [&](Coordinates c) {
    std::vector<Expr> at;
    for (size_t d : put.dims) at.push_back(c[d]);
    Expr w = op.rec.at(winner, at);
    Sizes b = from_row_major(found_index(op, w, count(op.pool, put.sizes)), put.sizes);
    return masked(op.pool.op(ScalarOp::ge, {w, i64(op, 0)}), value_at(c, b), as(op.rec.at(x, c), out.dtype));
  })};
}

// index_copy, index_add, index_fill: one vector of positions along a dimension.
Views along_dim(Op& op, const char* source_arg, bool add) {
  View x = op.tensor("self"), index = op.tensor("index"), src = op.operand(source_arg);
  const TensorType& out = op.out();
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  if (x.rank() == 0) fail(ErrorCode::unsupported_feature, op.node.target + " of a tensor of rank 0");
  if (index.rank() == 0) index = unsqueezed(op, index, 0);
  Expr n = index.sizes[0];
  auto value_at = [&](Coordinates c, Expr j) {
    std::vector<Expr> at(c.begin(), c.end());
    at[dim] = j;
    return as(src.rank() == 0 ? src.body : op.rec.at(src, at), out.dtype);
  };
  auto hit = [&](Expr coordinate, Expr j) { return reaches(op, op.rec.at(index, std::vector<Expr>{j}), coordinate, x.sizes[dim], false); };
  if (add) {
    const DType type = is_float(out.dtype) ? accumulate_type(out.dtype) : out.dtype;
    View total = op.rec.reduce(op.name + ".total", ReduceOp::sum, type, out.sizes, {n}, [&](Coordinates c, Coordinates j) {
      return masked(hit(c[dim], j[0]), as(value_at(c, j[0]), type), as(i64(op, 0), type));
    });
    return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
      Expr t = op.rec.at(total, c);
      if (op.has("alpha") && !op.is_number("alpha", 1)) t = op.pool.op(ScalarOp::mul, {t, op.scalar("alpha", type)});
      return op.pool.op(ScalarOp::add, {as(op.rec.at(x, c), type), t});
    })};
  }
  View winner = op.rec.reduce(op.name + ".writer", ReduceOp::max, DType::i64, {x.sizes[dim]}, {n}, [&](Coordinates c, Coordinates j) {
    return op.pool.select(hit(c[0], j[0]), op.pool.cast(j[0], DType::i64), i64(op, -1));
  });
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr w = op.rec.at(winner, std::vector<Expr>{c[dim]});
    return masked(op.pool.op(ScalarOp::ge, {w, i64(op, 0)}), value_at(c, found_index(op, w, n)), as(op.rec.at(x, c), out.dtype));
  })};
}

}  // namespace

void add_scatter(Table& table) {
  for (const char* target : {"aten.scatter.src", "aten.scatter.value"}) table[target] = scatter;
  table["aten.scatter_add.default"] = [](Op& op) { return scatter_reduced(op, ReduceOp::sum); };
  table["aten.scatter_reduce.two"] = scatter_reduce;
  for (const char* target : {"aten.index_put.default", "aten._unsafe_index_put.default"}) table[target] = index_put;
  table["aten.index_copy.default"] = [](Op& op) { return along_dim(op, "source", false); };
  table["aten.index_add.default"] = [](Op& op) { return along_dim(op, "source", true); };
  for (const char* target : {"aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor"}) {
    table[target] = [](Op& op) { return along_dim(op, "value", false); };
  }
}

}  // namespace coil::lowering
