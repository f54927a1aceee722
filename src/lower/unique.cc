// unique, unique_dim and unique_consecutive: the first element (or slice) of each run of equal ones, which sorting brings together for the first two.
// How many there are only the data decides (data_sizes.cc).
#include <fmt/format.h>

#include "lower/data_terms.h"

namespace coil::lowering {
namespace {

// What the three variants of unique share: runs of equal elements among n in order, of which `begins` tells the first ones.
struct Runs {
  View positions;  // where each begins
  View numbers;    // of element i its run's number; empty without inverse
};

Runs find_runs(Op& op, Expr size, Expr n, bool inverse, FunctionRef<Expr(Expr)> begins) {
  Runs runs;
  runs.positions = kept_positions(op, size, n, begins);
  if (!inverse) return runs;
  const View order = op.rec.scan(op.name + ".numbers", ScanOp::sum, DType::i64, {n}, 0, [&](Coordinates c) { return number(begins(c[0])); });
  runs.numbers = op.rec.view(order, order.sizes, [&](Coordinates c) { return std::vector<Expr>(c.begin(), c.end()); });
  return runs;
}

Expr run_number(Op& op, const Runs& runs, Expr i) { return op.pool.op(ScalarOp::sub, {at(op, runs.numbers, i), one_of(op.pool)}); }

View run_lengths(Op& op, const Runs& runs, const Sizes& sizes, Expr n) {
  return op.rec.pointwise(op.name + ".counts", DType::i64, sizes, [&](Coordinates c) {
    const Expr next = masked(inside(c[0] + 1, sizes[0]), at(op, runs.positions, c[0] + 1), op.pool.cast(n, DType::i64));
    return op.pool.op(ScalarOp::sub, {next, at(op, runs.positions, c[0])});
  });
}

View nothing(Op& op, size_t i) { return {op.out(i).dtype, op.out(i).sizes, zero_of(op.pool)}; }
bool wants(const Op& op, std::string_view flag) { return op.node.find(flag) && op.flag(flag); }
bool has_result(const Op& op, size_t i) { return i < op.node.outputs.size() && op.graph.value(op.node.outputs[i]).is_tensor(); }

// Results 1 and 2, where they are wanted.
void add_inverse_and_counts(Op& op, Views& results, const Runs& runs, Expr n, FunctionRef<Expr(Coordinates)> inverse) {
  const bool counts = wants(op, "return_counts");
  if (has_result(op, 1)) {
    results.push_back(inverse ? op.rec.pointwise(op.name + ".inverse", DType::i64, op.out(1).sizes, inverse) : nothing(op, 1));
  }
  if (has_result(op, 2)) results.push_back(counts ? run_lengths(op, runs, op.out(2).sizes, n) : nothing(op, 2));
}

Views unique(Op& op) {
  const View given = op.tensor("self");
  const Expr n = count(op.pool, given.sizes);
  const DType sorted_as = is_bool(given.dtype) ? DType::u8 : given.dtype;
  View x = reshaped(op, given, {n});
  if (sorted_as != x.dtype) x = op.rec.pointwise("as_u8", sorted_as, {n}, [&](Coordinates c) { return as(op.rec.at(x, c), sorted_as); });
  const auto [values, order] = op.rec.sort(op.name + ".sort", x, 0, n, false);
  const View sorted = values, from = order;
  const auto begins = [&](Expr i) {
    const Expr differs = masked(inside(i - 1, n), op.pool.op(ScalarOp::ne, {at(op, sorted, i), at(op, sorted, i - 1)}), op.pool.boolean(true));
    return differs;
  };
  const bool inverse = wants(op, "return_inverse");
  const TensorType& out = op.out();
  const Runs runs = find_runs(op, out.sizes.at(0), n, inverse, begins);
  Views results = {op.rec.pointwise(op.name, out.dtype, out.sizes,
                                    [&](Coordinates c) { return as(at(op, sorted, op.pool.checked_index(at(op, runs.positions, c[0]), n)), out.dtype); })};
  std::function<Expr(Coordinates)> inverse_of;
  View back;
  if (inverse) {  // where each element went: the order, sorted
    back = op.rec.sort(op.name + ".back", from, 0, n, false).second;
    const Sizes sizes = op.out(1).sizes;
    inverse_of = [&, sizes](Coordinates c) { return run_number(op, runs, op.pool.checked_index(at(op, back, row_major(op.pool, c, sizes)), n)); };
  }
  add_inverse_and_counts(op, results, runs, n, inverse_of);
  return results;
}

// Of slices along a dimension, in the order of their elements from the first to the last: sorted by the last one first, each time
// stably.
Views unique_dim(Op& op) {
  const View given = op.tensor("self");
  const size_t dim = wrap_dim(op.integer("dim"), given.rank());
  const Expr n = given.sizes.at(dim);
  Sizes others = given.sizes;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(dim));
  constexpr int64_t kLongest = 64;
  const std::optional<int64_t> length = const_int(count(op.pool, others));
  if (!length || *length < 1 || *length > kLongest)
    fail(ErrorCode::unsupported_feature, fmt::format("{} of slices with not 1 to {} elements", op.node.target, kLongest));
  const DType type = is_bool(given.dtype) ? DType::u8 : given.dtype;
  const View x = op.rec.pointwise(op.name + ".rows", type, {n, op.pool.index(*length)}, [&](Coordinates c) {
    Sizes place = from_row_major(c[1], others);
    place.insert(place.begin() + static_cast<std::ptrdiff_t>(dim), c[0]);
    return as(op.rec.at(given, place), type);
  });
  View order{DType::i64, {n}, op.pool.cast(op.pool.var(0), DType::i64)};
  const auto slice = [&](Expr i) { return op.pool.checked_index(at(op, order, i), n); };
  for (int64_t k = *length; k-- > 0;) {
    const View keys = op.rec.pointwise(op.name + ".keys", type, {n}, [&](Coordinates c) { return op.rec.at(x, Sizes{slice(c[0]), op.pool.index(k)}); });
    const View moved = op.rec.sort(op.name + ".sort", keys, 0, n, false).second;
    order = op.rec.pointwise(op.name + ".order", DType::i64, {n}, [&](Coordinates c) { return at(op, order, op.pool.checked_index(at(op, moved, c[0]), n)); });
  }
  const View differs = op.rec.reduce(op.name + ".differs", ReduceOp::any, DType::boolean, {n}, {x.sizes[1]}, [&](Coordinates c, Coordinates k) {
    const auto element = [&](Expr i) { return op.rec.at(x, Sizes{slice(i), k[0]}); };
    return masked(inside(c[0] - 1, n), op.pool.op(ScalarOp::ne, {element(c[0]), element(c[0] - 1)}), op.pool.boolean(true));
  });
  const bool inverse = wants(op, "return_inverse");
  const TensorType& out = op.out();
  const Runs runs = find_runs(op, out.sizes.at(dim), n, inverse, [&](Expr i) { return as(at(op, differs, i), DType::boolean); });
  Views results = {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    std::vector<Expr> place(c.begin(), c.end());
    place[dim] = slice(op.pool.checked_index(at(op, runs.positions, c[dim]), n));
    return op.rec.at(given, place);
  })};
  std::function<Expr(Coordinates)> inverse_of;
  View back;
  if (inverse) {
    back = op.rec.sort(op.name + ".back", order, 0, n, false).second;
    inverse_of = [&](Coordinates c) { return run_number(op, runs, op.pool.checked_index(at(op, back, c[0]), n)); };
  }
  add_inverse_and_counts(op, results, runs, n, inverse_of);
  return results;
}

Views unique_consecutive(Op& op) {
  View x = op.tensor("self");
  const bool by_slices = op.node.find("dim") && op.has("dim");
  if (!by_slices) x = reshaped(op, x, {count(op.pool, x.sizes)});
  const size_t dim = by_slices ? wrap_dim(op.integer("dim"), x.rank()) : 0;
  if (op.out().sizes.size() != x.rank()) {  // torch.export does so for negative dimensions
    fail(ErrorCode::bad_program, op.node.target + ": the program gives the result other dimensions than the operator has",
         "name the dimension by a number that is not negative");
  }
  const Expr n = x.sizes.at(dim);
  Sizes others = x.sizes;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(dim));
  const auto element = [&](Coordinates rest, Expr i) {
    std::vector<Expr> place(rest.begin(), rest.end());
    place.insert(place.begin() + static_cast<std::ptrdiff_t>(dim), i);
    return op.rec.at(x, place);
  };
  const View differs = op.rec.reduce(op.name + ".differs", ReduceOp::any, DType::boolean, {n}, others, [&](Coordinates c, Coordinates rest) {
    return masked(inside(c[0] - 1, n), op.pool.op(ScalarOp::ne, {element(rest, c[0]), element(rest, c[0] - 1)}), op.pool.boolean(true));
  });
  const bool inverse = wants(op, "return_inverse");
  const TensorType& out = op.out();
  // The first one begins a run even where slices have no elements.
  const Runs runs = find_runs(op, out.sizes.at(dim), n, inverse,
                              [&](Expr i) { return op.pool.op(ScalarOp::logical_or, {negation(inside(i - 1, n)), as(at(op, differs, i), DType::boolean)}); });
  Views results = {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    std::vector<Expr> place(c.begin(), c.end());
    place[dim] = op.pool.checked_index(at(op, runs.positions, c[dim]), n);
    return op.rec.at(x, place);
  })};
  std::function<Expr(Coordinates)> inverse_of;
  if (inverse) {
    const Sizes sizes = op.out(1).sizes;
    inverse_of = [&, sizes](Coordinates c) { return run_number(op, runs, row_major(op.pool, c, sizes)); };
  }
  add_inverse_and_counts(op, results, runs, n, inverse_of);
  return results;
}

}  // namespace

void add_unique(Table& table) {
  for (const char* target : {"aten._unique2.default", "aten._unique.default"}) table[target] = unique;
  table["aten.unique_dim.default"] = unique_dim;
  table["aten.unique_consecutive.default"] = unique_consecutive;
}

}  // namespace coil::lowering
