// Reads at positions that are data: gather, index_select, embedding, index. Every position goes through checked_index.
#include <algorithm>

#include "lower/written_positions.h"

namespace coil::lowering {

Expr checked_position(Op& op, Expr position, Expr size) {
  Expr p = as(position, DType::i64);
  for (Expr taken : op.session.taken) p = op.pool.select(taken, p, op.pool.constant_int(0, DType::i64));
  return op.pool.checked_index(p, size);
}

Expr wrapped_position(Op& op, Expr position, Expr size) {
  Expr p = as(position, DType::i64), zero = op.pool.constant_int(0, DType::i64);
  Expr from_end = op.pool.op(ScalarOp::add, {p, op.pool.cast(size, DType::i64)});
  return checked_position(op, op.pool.select(op.pool.op(ScalarOp::lt, {p, zero}), from_end, p), size);
}

Expr position_from_data(Op& op, const char* name, Expr size) {
  const View position = op.tensor(name);
  if (position.rank() != 0) fail(ErrorCode::bad_program, op.node.target + ": the " + name + " has dimensions");
  return wrapped_position(op, position.body, size);
}

namespace {

// x at positions(c) for each c. A view that is the same along a dimension says nothing of the positions there: they are checked on their own then.
View read_at(Op& op, const std::string& name, const Sizes& sizes, const View& x, FunctionRef<std::vector<Expr>(Coordinates)> positions) {
  Expr lost;
  const View result = op.rec.pointwise(name, op.out().dtype, sizes, [&](Coordinates c) {
    const std::vector<Expr> at = positions(c);
    const Expr element = op.rec.at(x, at);
    for (Expr position : at) {
      visit(position, [&](Expr check) {
        if (!check->is_op(ScalarOp::checked_index) || any_of(element, [&](Expr n) { return n == check; })) return;
        const Expr number = op.pool.cast(check, DType::i64);
        lost = lost ? op.pool.op(ScalarOp::add, {lost, number}) : number;
      });
    }
    return element;
  });
  if (lost) check_all(op, sizes, [&](Coordinates) { return lost; });
  return result;
}

Views index_select(Op& op) {
  View x = op.tensor("self"), index = op.tensor("index");
  if (x.rank() == 0) return {x};
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  const TensorType& out = op.out();
  return {read_at(op, op.name, out.sizes, x, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    at[dim] = checked_position(op, read(index, c.subspan(dim, 1)), x.sizes[dim]);
    return at;
  })};
}

Views gather(Op& op) {
  View x = op.tensor("self"), index = op.tensor("index");
  const TensorType& out = op.out();
  for (Expr n : out.sizes) {
    if (is_const(n, 0)) return {View{out.dtype, out.sizes, as(op.pool.constant_int(0, DType::i64), out.dtype)}};
  }
  if (x.rank() == 0) return {broadcast(op, x, out.sizes)};
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  if (index.rank() == 0) index = unsqueezed(op, index, 0);
  if (index.rank() != x.rank()) fail(ErrorCode::bad_program, op.node.target + ": the index has another number of dimensions");
  View taken = read_at(op, op.name, index.sizes, x, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    at[dim] = checked_position(op, op.rec.at(index, c), x.sizes[dim]);
    return at;
  });
  return {reshaped(op, taken, out.sizes)};
}

Views take_along_dim(Op& op) {
  View x = op.tensor("self"), index = op.tensor("indices");
  const TensorType& out = op.out();
  if (!op.has("dim")) {
    x = reshaped(op, x, {count(op.pool, x.sizes)});
    index = reshaped(op, index, {count(op.pool, index.sizes)});
  }
  const size_t dim = op.has("dim") ? wrap_dim(op.integer("dim"), x.rank()) : 0;
  return {read_at(op, op.name, out.sizes, x, [&](Coordinates c) {
    std::vector<Expr> at(c.begin(), c.end());
    for (size_t i = 0; i < at.size(); ++i) {
      if (i != dim && is_const(x.sizes[i], 1)) at[i] = op.pool.index(0);
    }
    at[dim] = wrapped_position(op, read(index, c), x.sizes[dim]);
    return at;
  })};
}

Views take(Op& op) {
  View x = op.tensor("self"), index = op.tensor("index");
  View flat = reshaped(op, x, {count(op.pool, x.sizes)});
  const TensorType& out = op.out();
  return {read_at(op, op.name, out.sizes, flat, [&](Coordinates c) { return std::vector<Expr>{wrapped_position(op, op.rec.at(index, c), flat.sizes[0])}; })};
}

Views embedding(Op& op) {
  View weight = op.tensor("weight"), index = op.tensor("indices");
  const TensorType& out = op.out();
  return {read_at(op, "embedding", out.sizes, weight, [&](Coordinates c) {
    Expr row = checked_position(op, op.rec.at(index, c.first(c.size() - 1)), weight.sizes[0]);
    return std::vector<Expr>{row, c.back()};
  })};
}

// Where the dimensions of index tensors stand in the result: in place of the indexed ones where those are adjacent, else in front.
struct IndexPlace {
  size_t indexed = 0, place = 0, rank = 0;  // indexed dimensions, the first of the result's and how many they are

  explicit IndexPlace(const std::vector<std::optional<View>>& indices) {
    size_t first = indices.size(), last = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      if (!indices[i]) continue;
      first = std::min(first, i);
      last = i;
      ++indexed;
      rank = std::max(rank, indices[i]->rank());
    }
    if (indexed && last - first + 1 == indexed) place = first;
  }

  // x's coordinates at c of the result; position(i, value) is what the index of dimension i says.
  std::vector<Expr> source(const std::vector<std::optional<View>>& indices, Coordinates c, FunctionRef<Expr(size_t, Expr)> position) const {
    std::vector<Expr> at;
    size_t next = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      if (next == place) next += rank;
      at.push_back(indices[i] ? position(i, read(*indices[i], c.subspan(place, rank))) : c[next++]);
    }
    return at;
  }
};

// index where the mask is true (there the positions are inside), `fill` elsewhere.
Views masked_index(Op& op) {
  View x = op.tensor("self"), mask = op.tensor("mask"), fill = op.operand("fill");
  std::vector<std::optional<View>> indices = op.maybe_tensors("indices");
  indices.resize(x.rank());
  const TensorType& out = op.out();
  const IndexPlace where(indices);
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    Expr use = as(read(mask, c), DType::boolean), zero = op.pool.constant_int(0, DType::i64);
    const std::vector<Expr> at = where.source(
        indices, c, [&](size_t i, Expr position) { return wrapped_position(op, op.pool.select(use, as(position, DType::i64), zero), x.sizes[i]); });
    return masked(use, op.rec.at(x, at), as(fill.body, out.dtype));
  })};
}

bool is_mask(const std::optional<View>& v) { return v && (is_bool(v->dtype) || v->dtype == DType::u8); }

// A mask stands for as many index tensors as it has dimensions: the positions where it is true.
std::vector<std::optional<View>> without_masks(Op& op, const View& x, const std::vector<std::optional<View>>& indices) {
  const auto masks = std::count_if(indices.begin(), indices.end(), is_mask);
  if (masks == 0) return indices;
  if (masks > 1) fail(ErrorCode::unsupported_feature, "indexing with several masks", "combine them to one, or use torch.where");
  std::vector<std::optional<View>> all;
  const Sizes& out = op.out().sizes;
  for (const std::optional<View>& v : indices) {
    if (!is_mask(v)) {
      all.push_back(v);
      continue;
    }
    for (size_t d = 0; d < v->rank(); ++d) {
      const Expr have = v->sizes[d], wanted = x.sizes.at(all.size() + d);
      if (provably_equal(have, wanted)) continue;
      if (!depends_on_data(have) && !depends_on_data(wanted))
        fail(ErrorCode::bad_program, op.node.target + ": the mask has other sizes than what it selects from");
      // Each has a symbol of its own. A position out of range is found where it is used.
      op.rec.check("mask", "assertion failed: the mask has another size than what it selects from (" + where(op.node) + ")",
                   op.pool.op(ScalarOp::eq, {op.pool.cast(have, DType::i64), op.pool.cast(wanted, DType::i64)}));
    }
    // Without a symbol of its own the export knows the size: where the index tensors' dimension stands.
    size_t place = 0;
    for (size_t i = 0; i < all.size() && all[i] == std::nullopt; ++i) ++place;
    const Expr size = op.node.binds.empty() ? out.at(place) : op.pool.symbol(op.node.binds[0]);
    const View mask = *v;
    const Expr count_all = count(op.pool, mask.sizes);
    const View positions = kept_positions(op, size, count_all, [&](Expr p) { return as(op.rec.at(mask, from_row_major(p, mask.sizes)), DType::boolean); });
    for (size_t d = 0; d < mask.rank(); ++d) {
      const Expr at = op.pool.checked_index(op.rec.at(positions, std::vector<Expr>{op.pool.var(0)}), count_all);
      all.push_back(View{DType::i64, {size}, simplify_body(op.pool.cast(from_row_major(at, mask.sizes)[d], DType::i64), std::vector<Expr>{size})});
    }
    if (mask.rank() == 0) fail(ErrorCode::unsupported_feature, "indexing with a mask of rank 0", "use torch.where");
  }
  return all;
}

// x[i0, :, i2]: the index tensors broadcast together; their dimensions stand where the first one stood if the indexed
// dimensions are adjacent, else in front.
Views index(Op& op) {
  View x = op.tensor("self");
  std::vector<std::optional<View>> indices = without_masks(op, x, op.maybe_tensors("indices"));
  indices.resize(x.rank());
  const TensorType& out = op.out();
  const IndexPlace where(indices);
  if (where.indexed == 0) return {x};
  return {read_at(op, "index", out.sizes, x, [&](Coordinates c) {
    return where.source(indices, c, [&](size_t i, Expr position) { return wrapped_position(op, position, x.sizes[i]); });
  })};
}

}  // namespace

void add_indexing(Table& table) {
  table["aten.index_select.default"] = index_select;
  table["aten.gather.default"] = gather;
  table["aten.take_along_dim.default"] = take_along_dim;
  table["aten.take.default"] = take;
  table["aten.embedding.default"] = embedding;
  table["aten._unsafe_masked_index.default"] = masked_index;
  for (const char* target : {"aten.index.Tensor", "aten._unsafe_index.Tensor"}) table[target] = index;
}

}  // namespace coil::lowering
