// histc, histogram, histogramdd: for each bin the elements are counted (or their weights summed up). On the CPU each element finds its bin
// (row_sums.h), elsewhere each bin looks at all elements.
#include "lower/data_checks.h"
#include "lower/formula.h"
#include "lower/row_sums.h"

namespace coil::lowering {
namespace {

// The range of the bins of one dimension, as views of rank 0; and their edges.
struct BinRange {
  View low, high;
};

View scalar(Op& op, double v, DType type) { return {type, {}, op.pool.constant(v, type)}; }

// The smallest and largest of `values`, moved apart by `apart` where they are equal.
BinRange data_range(Op& op, const View& values, DType type) {
  auto extreme = [&](const char* name, ReduceOp reduce) {
    return op.rec.reduce(name, reduce, type, {}, values.sizes, [&](Coordinates, Coordinates k) { return as(op.rec.at(values, k), type); });
  };
  return {extreme("histogram.min", ReduceOp::min), extreme("histogram.max", ReduceOp::max)};
}

BinRange moved_apart(Op& op, const BinRange& r, double apart) {
  auto moved = [&](const char* name, const View& v, double by) {
    return op.rec.pointwise(name, v.dtype, {}, [&](Coordinates) {
      return select(equal(Val(op.rec.at(r.low, {})), Val(op.rec.at(r.high, {}))), Val(op.rec.at(v, {})) + by, Val(op.rec.at(v, {}))).e;
    });
  };
  return {moved("histogram.low", r.low, -apart), moved("histogram.high", r.high, apart)};
}

// By the place within the range; what lies outside is not counted.
Views histc(Op& op) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const double low = op.number("min"), high = op.number("max");
  View flat = reshaped(op, x, {count(op.pool, x.sizes)});
  const bool empty = is_const(flat.sizes[0], 0);
  BinRange r = low == high && !empty ? data_range(op, flat, type) : BinRange{scalar(op, low, type), scalar(op, high, type)};
  if (low == high && !empty) {
    const double most = std::numeric_limits<double>::infinity();
    require(op, {}, "the range of the data is not finite",
            [&](Coordinates) { return both(Val(op.rec.at(r.low, {})) > -most, Val(op.rec.at(r.high, {})) < most).e; });
  }
  r = moved_apart(op, r, 1);
  const int64_t bins = op.integer("bins");
  const auto counts = [&](Val v) { return both(v >= Val(op.rec.at(r.low, {})), v <= Val(op.rec.at(r.high, {}))); };
  const auto bin_of = [&](Val v) {
    Val first = op.rec.at(r.low, {}), last = op.rec.at(r.high, {});
    return min(trunc((v - first) / (last - first) * static_cast<double>(bins)), static_cast<double>(bins - 1));
  };
  RowSums sums{
      "histc.count", DType::i64, out.sizes.at(0), op.pool.index(1), flat.sizes, {}, [&](Coordinates, Expr) { return op.pool.constant_int(1, DType::i64); }};
  sums.row = [&](Coordinates k) {
    const Val v = as(op.rec.at(flat, k), type), bin = bin_of(v);
    return as(select(counts(v), bin, static_cast<double>(bins)).e, DType::i64);
  };
  return {converted(op, reshaped(op, summed_rows(op, sums), out.sizes), out.dtype)};
}

View even_edges(Op& op, const BinRange& r, int64_t bins, DType stored) {
  const DType type = r.low.dtype;
  Expr n = op.pool.index(bins + 1);
  return op.rec.pointwise("histogram.edges", stored, {n}, [&](Coordinates c) {
    Val i = as(op.pool.cast(c[0], DType::i64), type), low = op.rec.at(r.low, {}), high = op.rec.at(r.high, {});
    Val step = (high - low) / static_cast<double>(bins);
    return select(i < static_cast<double>((bins + 1) / 2), low + step * i, high - (static_cast<double>(bins) - i) * step).e;
  });
}

// Points [n, dims] and the edges of each dimension's bins. A point on the last edge is in the last bin.
struct Points {
  View points;
  Views edges;
  std::optional<View> weight;
  DType type;  // of the sums
};

// Each point finds its bin between the edges.
View counted_by_points(Op& op, const Points& in, const Sizes& sizes) {
  ExprPool& p = op.pool;
  const DType type = in.weight ? in.type : DType::i64;
  RowSums sums{"histogram.count", type, count(p, sizes), p.index(1), {in.points.sizes[0]}, {}, {}};
  sums.row = [&](Coordinates k) {
    Val row = p.constant_int(0, DType::i64), hit = p.boolean(true);
    for (size_t d = 0; d < in.edges.size(); ++d) {
      const View& edges = in.edges[d];
      const Val v = as(op.rec.at(in.points, std::vector<Expr>{k[0], p.index(static_cast<int64_t>(d))}), in.type), bins = p.cast(sizes[d], DType::i64);
      const auto edge = [&](Expr i) { return Val(as(op.rec.at(edges, std::vector<Expr>{i}), in.type)); };
      hit = both(hit, both(v >= edge(p.index(0)), v <= edge(sizes[d])));
      row = row * bins + max(min(Val(count_up_to(op, edges, v.e)) - 1.0, bins - 1.0), 0.0);
    }
    return select(hit, row, Val(p.cast(count(p, sizes), DType::i64))).e;
  };
  sums.value = [&](Coordinates k, Expr) { return in.weight ? as(op.rec.at(*in.weight, k), type) : p.constant_int(1, type); };
  return reshaped(op, summed_rows(op, sums), sizes);
}

// Each bin looks at all points.
View counted_by_bins(Op& op, const Points& in, const Sizes& sizes) {
  const DType type = in.type;
  return op.rec.reduce("histogram.count", ReduceOp::sum, type, sizes, {in.points.sizes[0]}, [&](Coordinates c, Coordinates k) {
    Val hit = op.pool.boolean(true);
    for (size_t d = 0; d < in.edges.size(); ++d) {
      Val v = as(op.rec.at(in.points, std::vector<Expr>{k[0], op.pool.index(static_cast<int64_t>(d))}), type);
      Val low = as(op.rec.at(in.edges[d], c.subspan(d, 1)), type), high = as(op.rec.at(in.edges[d], std::vector<Expr>{c[d] + 1}), type);
      Val last = op.pool.op(ScalarOp::eq, {c[d], sizes[d] - 1});
      hit = both(hit, both(v >= low, either(v < high, both(last, equal(v, high)))));
    }
    Val one = in.weight ? Val(as(op.rec.at(*in.weight, k), type)) : Val(op.constant(1, type));
    return select(hit, one, 0.0).e;
  });
}

View counted(Op& op, const Points& in, bool density, DType stored, const Sizes& sizes) {
  const DType type = in.type;
  const View counts =
      op.session.options.library || (op.session.options.atomics && !in.weight) ? counted_by_points(op, in, sizes) : counted_by_bins(op, in, sizes);
  if (!density) return converted(op, counts, stored);
  View total = op.rec.reduce("histogram.total", ReduceOp::sum, type, {}, sizes, [&](Coordinates, Coordinates k) { return as(op.rec.at(counts, k), type); });
  return op.rec.pointwise("histogram.density", stored, sizes, [&](Coordinates c) {
    Val v = Val(as(op.rec.at(counts, c), type)) / Val(op.rec.at(total, {}));
    for (size_t d = 0; d < in.edges.size(); ++d) {
      v = v / (Val(as(op.rec.at(in.edges[d], std::vector<Expr>{c[d] + 1}), type)) - Val(as(op.rec.at(in.edges[d], c.subspan(d, 1)), type)));
    }
    return v.e;
  });
}

std::vector<double> given_range(const Op& op) {
  const Argument* a = op.node.find("range");
  const auto* list = a ? std::get_if<std::vector<double>>(a) : nullptr;
  return list ? *list : std::vector<double>{};
}

// Points of the node's input: `dims` of them 1 for histogram.
Views histogram(Op& op, bool many) {
  View x = op.tensor("self");
  const DType stored = op.out().dtype, type = accumulate_type(stored);
  Expr dims = many ? x.sizes.back() : op.pool.index(1);
  Sizes shape(x.sizes.begin(), many ? x.sizes.end() - 1 : x.sizes.end());
  Expr n = count(op.pool, shape);
  View points = reshaped(op, x, {n, dims});
  std::optional<View> weight = op.maybe_tensor("weight");
  if (weight) weight = reshaped(op, *weight, {n});
  const Argument* bins = op.node.find("bins");
  Views edges;
  if (std::holds_alternative<ValueId>(*bins)) edges = {op.tensor("bins")};
  else if (std::holds_alternative<std::vector<ValueId>>(*bins)) edges = op.tensors("bins");
  if (edges.empty()) {
    CheckedList<int64_t> counts = op.integers("bins");
    const std::optional<int64_t> number = const_int(dims);
    if (!number) fail(ErrorCode::unsupported_feature, op.node.target + " in a dynamic number of dimensions");
    counts.resize(static_cast<size_t>(*number), counts.at(0));
    const std::vector<double> range = given_range(op);
    for (size_t d = 0; d < counts.size(); ++d) {
      View column = op.rec.view(points, {n}, [&](Coordinates c) { return std::vector<Expr>{c[0], op.pool.index(static_cast<int64_t>(d))}; });
      BinRange r = range.empty() ? data_range(op, column, type) : BinRange{scalar(op, range.at(2 * d), type), scalar(op, range.at(2 * d + 1), type)};
      if (is_const(n, 0) && range.empty()) r = {scalar(op, 0, type), scalar(op, 1, type)};
      edges.push_back(even_edges(op, moved_apart(op, r, 0.5), counts[d], stored));
    }
  }
  if (op.name == "histogramdd_bin_edges") return edges;
  Sizes sizes;
  for (const View& e : edges) sizes.push_back(e.sizes[0] - 1);
  Views results{counted(op, {points, edges, weight, type}, op.flag("density"), stored, sizes)};
  if (op.node.outputs.size() > 1) results.insert(results.end(), edges.begin(), edges.end());
  return results;
}

}  // namespace

void add_histograms(Table& table) {
  table["aten.histc.default"] = histc;
  for (const char* overload : {"bin_ct", "bins_tensor"}) table[std::string("aten.histogram.") + overload] = [](Op& op) { return histogram(op, false); };
  for (const char* target : {"aten.histogramdd.default", "aten.histogramdd.int_bins", "aten.histogramdd.TensorList_bins", "aten._histogramdd_bin_edges.default",
                             "aten._histogramdd_from_bin_cts.default", "aten._histogramdd_from_bin_tensors.default"}) {
    table[target] = [](Op& op) { return histogram(op, true); };
  }
}

}  // namespace coil::lowering
