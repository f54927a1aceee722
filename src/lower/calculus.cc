// Differences, areas and statistics between rows: gradient, trapezoid, cov, corrcoef, dist, renorm, trace.
#include <cmath>

#include "lower/formula.h"

namespace coil::lowering {
namespace {

std::vector<double> numbers(const Op& op, std::string_view arg) {
  const Argument* a = op.node.find(arg);
  if (const auto* list = a ? std::get_if<std::vector<double>>(a) : nullptr) return *list;
  std::vector<double> result;
  for (int64_t v : op.integers(arg)) result.push_back(static_cast<double>(v));
  return result;
}

Expr clamped(Expr i, Expr size) { return index_min(index_max(i, i->pool->index(0)), index_max(size - 1, i->pool->index(0))); }

// Differences along a dimension, for a fixed step or for coordinates of the elements.
struct Slope {
  Op& op;
  View f;
  size_t dim;
  int64_t order;  // of the one-sided differences at the ends
  DType type;
  double step = 1;
  View places{};

  Val at(Coordinates c, Expr i) const {
    std::vector<Expr> point(c.begin(), c.end());
    point[dim] = clamped(i, f.sizes[dim]);
    return as(op.rec.at(f, point), type);
  }
  Val place(Expr i) const { return as(op.rec.at(places, std::vector<Expr>{clamped(i, f.sizes[dim])}), type); }

  Val even(Coordinates c) const {
    Expr i = c[dim], n = f.sizes[dim];
    Val middle = (at(c, i + 1) - at(c, i - 1)) / (2 * step);
    Val first = order == 1 ? (at(c, i + 1) - at(c, i)) / step : (-1.5 * at(c, i) + 2.0 * at(c, i + 1) - 0.5 * at(c, i + 2)) / step;
    Val last = order == 1 ? (at(c, i) - at(c, i - 1)) / step : (1.5 * at(c, i) - 2.0 * at(c, i - 1) + 0.5 * at(c, i - 2)) / step;
    return ends(i, n, first, middle, last);
  }

  // a, b: the distances to the left and to the right
  Val uneven(Coordinates c) const {
    Expr i = c[dim], n = f.sizes[dim];
    Val left = place(i) - place(i - 1), right = place(i + 1) - place(i), next = place(i + 2) - place(i + 1), previous = place(i - 1) - place(i - 2);
    Val middle = -right / (left * (left + right)) * at(c, i - 1) + (right - left) / (left * right) * at(c, i) + left / (right * (left + right)) * at(c, i + 1);
    Val first = (at(c, i + 1) - at(c, i)) / right, last = (at(c, i) - at(c, i - 1)) / left;
    if (order == 2) {
      first = -(2.0 * right + next) / (right * (right + next)) * at(c, i) + (right + next) / (right * next) * at(c, i + 1) -
              right / (next * (right + next)) * at(c, i + 2);
      last = left / (previous * (previous + left)) * at(c, i - 2) - (left + previous) / (previous * left) * at(c, i - 1) +
             (2.0 * left + previous) / (left * (previous + left)) * at(c, i);
    }
    return ends(i, n, first, middle, last);
  }

  Val ends(Expr i, Expr n, Val first, Val middle, Val last) const {
    Val at_start = op.pool.op(ScalarOp::eq, {i, op.pool.index(0)}), at_end = op.pool.op(ScalarOp::eq, {i, n - 1});
    return select(at_start, first, select(at_end, last, middle));
  }
};

Views gradient(Op& op) {
  View x = op.tensor("self");
  std::vector<int64_t> dims;
  if (op.has("dim")) dims = op.integers("dim");
  if (dims.empty()) {
    for (size_t i = 0; i < x.rank(); ++i) dims.push_back(static_cast<int64_t>(i));
  }
  const Argument* spacing = op.node.find("spacing");
  const bool coordinates = spacing && std::holds_alternative<std::vector<ValueId>>(*spacing);
  const Views places = coordinates ? op.tensors("spacing") : Views{};
  std::vector<double> steps;
  if (op.has("spacing") && !coordinates) {
    const bool list = std::holds_alternative<std::vector<double>>(*spacing) || std::holds_alternative<std::vector<Expr>>(*spacing);
    steps = list ? numbers(op, "spacing") : std::vector<double>{op.number("spacing")};
  }
  Views results;
  for (size_t k = 0; k < dims.size(); ++k) {
    const TensorType& out = op.out(k);
    Slope slope{op, x, wrap_dim(dims[k], x.rank()), op.integer("edge_order"), is_float(out.dtype) ? accumulate_type(out.dtype) : DType::f64};
    if (!steps.empty()) slope.step = steps.size() == 1 ? steps[0] : steps.at(k);
    if (coordinates) slope.places = places.at(k);
    results.push_back(
        op.rec.pointwise("gradient", out.dtype, out.sizes, [&](Coordinates c) { return as((coordinates ? slope.uneven(c) : slope.even(c)).e, out.dtype); }));
  }
  return results;
}

// (y[i] + y[i + 1]) / 2 times the distance of the points.
Views trapezoid(Op& op, bool cumulative) {
  View y = op.tensor("y");
  const TensorType& out = op.out();
  const size_t dim = wrap_dim(op.integer("dim"), y.rank());
  const DType type = is_float(out.dtype) ? accumulate_type(out.dtype) : out.dtype;
  const bool points = op.has("x");
  View x = points ? op.tensor("x") : View{};
  auto area = [&](Coordinates c) {
    std::vector<Expr> here(c.begin(), c.end()), next = here;
    next[dim] = next[dim] + 1;
    Val sum = Val(as(op.rec.at(y, here), type)) + Val(as(op.rec.at(y, next), type));
    if (!points) return sum;
    auto place = [&](const std::vector<Expr>& at) { return Val(as(x.rank() == 1 ? op.rec.at(x, Coordinates(at).subspan(dim, 1)) : read(x, at), type)); };
    return sum * (place(next) - place(here));
  };
  Sizes sizes = y.sizes;
  sizes[dim] = index_max(sizes[dim] - 1, op.pool.index(0));
  const double factor = points ? 0.5 : op.number("dx") * 0.5;
  auto scaled = [&](const View& sums) {
    return op.rec.pointwise(op.name, out.dtype, sums.sizes, [&](Coordinates c) {
      Val s = op.rec.at(sums, c);
      return as((is_float(type) ? s * factor : Val(as(s.e, DType::f64)) * factor).e, out.dtype);
    });
  };
  if (cumulative) return {scaled(op.rec.scan(op.name + ".sum", ScanOp::sum, type, sizes, static_cast<int>(dim), [&](Coordinates c) { return area(c).e; }))};
  Sizes kept = y.sizes;
  kept.erase(kept.begin() + static_cast<long>(dim));
  View sums = op.rec.reduce(op.name + ".sum", ReduceOp::sum, type, kept, {sizes[dim]}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at(c.begin(), c.end());
    at.insert(at.begin() + static_cast<long>(dim), k[0]);
    return area(at).e;
  });
  return {scaled(sums)};
}

// Covariances of the rows of x [variables, observations], with weights of the observations.
View covariance(Op& op, double correction, const std::optional<View>& counts, const std::optional<View>& shares) {
  View x = op.tensor("self");
  const DType stored = op.out().dtype, type = accumulate_type(stored);
  while (x.rank() < 2) x = unsqueezed(op, x, 0);
  const Expr n = x.sizes[1], variables = x.sizes[0];
  auto weight = [&](Expr k) {
    Val w = op.constant(1, type);
    if (counts) w = w * Val(as(read(*counts, std::vector<Expr>{k}), type));
    if (shares) w = w * Val(as(read(*shares, std::vector<Expr>{k}), type));
    return w;
  };
  auto share = [&](Expr k) { return shares ? Val(as(read(*shares, std::vector<Expr>{k}), type)) : Val(op.constant(1, type)); };
  auto total = [&](const char* name, FunctionRef<Val(Expr)> f) {
    return op.rec.reduce(name, ReduceOp::sum, type, {}, {n}, [&](Coordinates, Coordinates k) { return f(k[0]).e; });
  };
  View weights = total("cov.weights", weight);
  View squares = shares ? total("cov.shares", [&](Expr k) { return weight(k) * share(k); }) : weights;
  View means = op.rec.reduce("cov.mean", ReduceOp::sum, type, {variables}, {n}, [&](Coordinates c, Coordinates k) {
    return (Val(as(op.rec.at(x, std::vector<Expr>{c[0], k[0]}), type)) * weight(k[0]) / Val(op.rec.at(weights, {}))).e;
  });
  auto centred = [&](Expr v, Expr k) { return Val(as(op.rec.at(x, std::vector<Expr>{v, k}), type)) - Val(op.rec.at(means, std::vector<Expr>{v})); };
  View sums = op.rec.reduce("cov.sum", ReduceOp::sum, type, {variables, variables}, {n},
                            [&](Coordinates c, Coordinates k) { return (centred(c[0], k[0]) * weight(k[0]) * centred(c[1], k[0])).e; });
  return op.rec.pointwise("cov", type, sums.sizes, [&](Coordinates c) {
    Val w = op.rec.at(weights, {});
    Val norm = shares ? w - correction * Val(op.rec.at(squares, {})) / w : w - correction;
    return (Val(op.rec.at(sums, c)) / max(norm, 0.0)).e;
  });
}

Views cov(Op& op) {
  View c = covariance(op, op.number("correction"), op.maybe_tensor("fweights"), op.maybe_tensor("aweights"));
  return {reshaped(op, converted(op, c, op.out().dtype), op.out().sizes)};
}

Views corrcoef(Op& op) {
  View c = covariance(op, 1, {}, {});
  View r = op.rec.pointwise("corrcoef", op.out().dtype, c.sizes, [&](Coordinates at) {
    auto deviation = [&](Expr v) { return sqrt(Val(op.rec.at(c, std::vector<Expr>{v, v}))); };
    return min(max(Val(op.rec.at(c, at)) / deviation(at[0]) / deviation(at[1]), -1.0), 1.0).e;
  });
  return {reshaped(op, r, op.out().sizes)};
}

Val power_term(Val size, double p) {
  if (p == 0) return select(equal(size, 0.0), size.like(0), size.like(1));
  return p == 1 || std::isinf(p) ? size : p == 2 ? size * size : pow(size, p);
}
Val root_of(Val sum, double p) { return p == 0 || p == 1 || std::isinf(p) ? sum : p == 2 ? sqrt(sum) : pow(sum, 1 / p); }
ReduceOp norm_reduce(double p) { return !std::isinf(p) ? ReduceOp::sum : p > 0 ? ReduceOp::max : ReduceOp::min; }

Views dist(Op& op) {
  View a = op.tensor("self"), b = op.tensor("other");
  Sizes sizes = (a.rank() >= b.rank() ? a : b).sizes;
  const Sizes& fewer = (a.rank() >= b.rank() ? b : a).sizes;
  for (size_t i = 0; i < fewer.size(); ++i) {
    Expr& s = sizes[sizes.size() - fewer.size() + i];
    if (is_const(s, 1)) s = fewer[i];
  }
  const double p = op.number("p");
  const DType type = accumulate_type(op.out().dtype);
  View sum = op.rec.reduce("dist.sum", norm_reduce(p), type, {}, sizes,
                           [&](Coordinates, Coordinates k) { return power_term(abs(Val(as(read(a, k), type)) - Val(as(read(b, k), type))), p).e; });
  return {op.rec.pointwise("dist", op.out().dtype, {}, [&](Coordinates c) { return root_of(op.rec.at(sum, c), p).e; })};
}

// Slices along a dimension whose norm is above maxnorm are scaled down to it.
Views renorm(Op& op) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  const size_t dim = wrap_dim(op.integer("dim"), x.rank());
  const double p = op.number("p"), limit = op.number("maxnorm");
  const DType type = accumulate_type(out.dtype);
  std::vector<size_t> others;
  for (size_t i = 0; i < x.rank(); ++i) {
    if (i != dim) others.push_back(i);
  }
  View sum = reduced(op, "renorm.sum", norm_reduce(p), type, x, others, true, [&](Expr e, Coordinates) { return power_term(abs(Val(as(e, type))), p).e; });
  return {op.rec.pointwise("renorm", out.dtype, out.sizes, [&](Coordinates c) {
    Val norm = root_of(read(sum, c), p), factor = select(norm > limit, limit / (norm + 1e-7), norm.like(1));
    return (Val(as(op.rec.at(x, c), type)) * factor).e;
  })};
}

Views trace(Op& op) {
  View x = op.tensor("self");
  Expr n = index_min(x.sizes.at(0), x.sizes.at(1));
  const DType type = op.out().dtype;
  return {
      op.rec.reduce("trace", ReduceOp::sum, type, {}, {n}, [&](Coordinates, Coordinates k) { return as(op.rec.at(x, std::vector<Expr>{k[0], k[0]}), type); })};
}

Views sum_to_size(Op& op) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  std::vector<size_t> dims;
  const size_t skip = x.rank() - out.sizes.size();
  for (size_t i = 0; i < x.rank(); ++i) {
    if (i < skip || (is_const(out.sizes[i - skip], 1) && !is_const(x.sizes[i], 1))) dims.push_back(i);
  }
  if (dims.empty()) return {is_complex(out.dtype) ? x : converted(op, x, out.dtype)};
  return {reshaped(op, reduced(op, "sum_to_size", ReduceOp::sum, out.dtype, x, dims, true, [&](Expr e, Coordinates) { return as(e, out.dtype); }), out.sizes)};
}

}  // namespace

void add_calculus(Table& table) {
  for (const char* overload : {"array", "scalararray", "scalarint", "scalarrayarray", "scalarrayint", "tensorarray", "tensorarrayint"}) {
    table[std::string("aten.gradient.") + overload] = gradient;
  }
  for (const char* overload : {".dx", ".x"}) {
    table[std::string("aten.trapezoid") + overload] = [](Op& op) { return trapezoid(op, false); };
    table[std::string("aten.trapz") + overload] = [](Op& op) { return trapezoid(op, false); };
    table[std::string("aten.cumulative_trapezoid") + overload] = [](Op& op) { return trapezoid(op, true); };
  }
  table["aten.cov.default"] = cov;
  table["aten.corrcoef.default"] = corrcoef;
  table["aten.dist.default"] = dist;
  table["aten.renorm.default"] = renorm;
  table["aten.trace.default"] = trace;
  table["aten.sum_to_size.default"] = sum_to_size;
}

}  // namespace coil::lowering
