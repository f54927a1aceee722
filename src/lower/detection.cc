// Operators of torchvision that models for detection end in: regions of images, convolutions whose taps move, suppression of boxes that overlap.
#include <fmt/format.h>

#include "lower/detection.h"

#include "lower/data_checks.h"
#include "lower/size_checks.h"

namespace coil::lowering {
namespace {

constexpr int64_t kMostSamples = 1024;  // each way in a bin

}  // namespace

Expr largest(Op& op, const std::string& name, const View& counts, int64_t most_allowed) {
  const View most =
      op.rec.reduce(op.name + name, ReduceOp::max, DType::i64, {}, counts.sizes, [&](Coordinates, Coordinates c) { return op.rec.at(counts, c); });
  const Expr found = op.rec.at(most, {}), none = op.pool.constant_int(0, DType::i64);
  const std::string symbol = fmt::format("{}{}_{}", op.node.name, name, op.rec.program().data_sizes.size());
  const SymbolId id = op.pool.add_symbol({symbol, symbol, 0, most_allowed, true});
  op.rec.read_size(id, op.pool.op(ScalarOp::maximum, {found, none}), Expr());
  return op.pool.symbol(id);
}

void check_ranks(const Op& op, std::initializer_list<std::pair<const char*, size_t>> ranks, size_t result) {
  for (const auto& [name, rank] : ranks) {
    if (op.tensor(name).rank() != rank) sizes::refuse(op, fmt::format("'{}' is of rank {}, not {}", name, op.tensor(name).rank(), rank));
  }
  if (op.out().sizes.size() != result) sizes::refuse(op, fmt::format("the result is of rank {}, not {}", op.out().sizes.size(), result));
}

Regions regions_of(Op& op, Sizes bins) {
  const DType type = accumulate_type(op.out().dtype);
  const bool aligned = !op.node.find("aligned") || op.flag("aligned");  // without the argument: always
  return {op, {op.pool, type}, op.tensor("rois"), std::move(bins), op.number("spatial_scale"), aligned};
}

Expr Samples::count(const Regions& r, Expr region, size_t i) const {
  if (are_equal()) return r.m.c(static_cast<double>(most[i]->as_int()));
  return as(r.op.rec.at(i == 0 ? high : wide, std::vector<Expr>{region}), r.m.type);
}

Expr Samples::has(const Regions& r, Expr region, Expr row, Expr column) const {
  ExprPool& p = r.op.pool;
  const auto below = [&](Expr at, const View& counts) { return p.op(ScalarOp::lt, {p.cast(at, DType::i64), r.op.rec.at(counts, std::vector<Expr>{region})}); };
  return are_equal() ? p.boolean(true) : both(below(row, high), below(column, wide));
}

Samples samples_of(const Regions& r) {
  Op& op = r.op;
  ExprPool& p = op.pool;
  const Math& m = r.m;
  const int64_t given = op.integer("sampling_ratio");
  if (given > kMostSamples) fail(ErrorCode::unsupported_feature, fmt::format("roi_align with {} samples each way in a bin", given));
  if (given > 0) return {{p.index(given), p.index(given)}, {}, {}};
  const auto along = [&](const char* name, size_t i) {
    return op.rec.pointwise(op.name + name, DType::i64, {r.rois.sizes[0]}, [&](Coordinates c) {
      const Expr samples = p.op(ScalarOp::minimum, {m.f(ScalarOp::ceil, r.width(c[0], i)), m.c(kMostSamples + 1)});
      return p.cast(masked(p.op(ScalarOp::gt, {samples, m.c(0)}), samples, m.c(0)), DType::i64);
    });
  };
  const View high = along(".rows", 0), wide = along(".columns", 1);
  require(op, high.sizes, fmt::format("a region has more than {} pixels each way in a bin", kMostSamples), [&](Coordinates c) {
    const Expr more = p.op(ScalarOp::maximum, {op.rec.at(high, c), op.rec.at(wide, c)});
    return p.op(ScalarOp::le, {more, p.constant_int(kMostSamples, DType::i64)});
  });
  const int64_t allowed = kMostSamples + 1;  // more is another error
  return {{largest(op, "_rows", high, allowed), largest(op, "_columns", wide, allowed)}, high, wide};
}

Expr between_pixels(Op& op, const Math& m, const View& x, Expr row, Expr column, Border border, FunctionRef<std::vector<Expr>(Expr, Expr)> place) {
  ExprPool& p = op.pool;
  const bool repeated = border == Border::repeated;
  const Expr sizes[2] = {x.sizes[2], x.sizes[3]};
  Expr at[2] = {row, column}, low[2], share[2], counts = p.boolean(true);
  for (size_t i = 0; i < 2; ++i) {
    const Expr size = m.size(sizes[i]), last = m.sub(size, m.c(1));
    counts = both(counts, both(p.op(repeated ? ScalarOp::ge : ScalarOp::gt, {at[i], m.c(-1)}), p.op(repeated ? ScalarOp::le : ScalarOp::lt, {at[i], size})));
    if (repeated) at[i] = p.op(ScalarOp::minimum, {p.op(ScalarOp::maximum, {at[i], m.c(0)}), last});
    low[i] = m.f(ScalarOp::floor, at[i]);
    share[i] = m.sub(at[i], low[i]);
  }
  const auto inside = [&](Expr v, size_t i) { return both(p.op(ScalarOp::ge, {v, m.c(0)}), p.op(ScalarOp::lt, {v, m.size(sizes[i])})); };
  Expr total;
  for (size_t corner = 0; corner < 4; ++corner) {
    Expr whole[2], weight;
    for (size_t i = 0; i < 2; ++i) {
      const bool high = corner >> (1 - i) & 1;
      whole[i] = high ? m.add(low[i], m.c(1)) : low[i];
      const Expr part = high ? share[i] : m.sub(m.c(1), share[i]);
      weight = weight ? m.mul(weight, part) : part;
    }
    const auto index = [&](size_t i) { return p.checked_index(p.cast(whole[i], DType::i64), sizes[i]); };
    const Expr value = as(op.rec.at(x, place(index(0), index(1))), m.type);
    // Beyond the last pixel of a border that goes on, the share is 0.
    const Expr term = m.mul(masked(both(counts, both(inside(whole[0], 0), inside(whole[1], 1))), value, m.c(0)), weight);
    total = total ? m.add(total, term) : term;
  }
  return masked(counts, total, m.c(0));
}

namespace {

// torchvision.roi_align: the mean of samples in each of a region's bins.
Views roi_align(Op& op) {
  check_ranks(op, {{"input", 4}, {"rois", 2}}, 4);
  const TensorType& out = op.out();
  const View x = op.tensor("input");
  const Regions r = regions_of(op, {out.sizes[2], out.sizes[3]});
  const Samples samples = samples_of(r);
  const View sums = op.rec.reduce(op.name + ".sum", ReduceOp::sum, r.m.type, out.sizes, samples.most, [&](Coordinates c, Coordinates s) {
    const auto place = [&](size_t i) { return r.place(c[0], c[2 + i], r.m.size(s[i]), samples.count(r, c[0], i), i); };
    const Expr value = between_pixels(op, r.m, x, place(0), place(1), Border::repeated,
                                      [&](Expr y, Expr z) { return std::vector<Expr>{r.image(c[0], x.sizes[0]), c[1], y, z}; });
    return samples.are_equal() ? value : masked(samples.has(r, c[0], s[0], s[1]), value, r.m.c(0));
  });
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    const Expr count = r.m.mul(samples.count(r, c[0], 0), samples.count(r, c[0], 1));
    return as(r.m.div(op.rec.at(sums, c), op.pool.op(ScalarOp::maximum, {count, r.m.c(1)})), out.dtype);
  })};
}

}  // namespace

MovedTaps moved_taps(Op& op, Expr rows, Expr columns) {
  check_ranks(op, {{"input", 4}, {"weight", 4}, {"offset", 4}, {"bias", 1}}, 4);
  if (op.flag("use_mask")) check_ranks(op, {{"mask", 4}}, 4);
  MovedTaps t{op.tensor("input"),
              op.tensor("weight"),
              op.tensor("offset"),
              op.tensor("mask"),
              op.integer("groups"),
              op.integer("offset_groups"),
              {op.integer("stride_h"), op.integer("stride_w")},
              {op.integer("pad_h"), op.integer("pad_w")},
              {op.integer("dilation_h"), op.integer("dilation_w")},
              op.flag("use_mask"),
              {},
              0,
              0};
  const Expr channels = t.x.sizes[1];
  const bool whole = channels->is_constant() && t.weight.sizes[0]->is_constant() && t.groups > 0 && t.offset_groups > 0 && channels->as_int() % t.groups == 0 &&
                     channels->as_int() % t.offset_groups == 0 && t.weight.sizes[0]->as_int() % t.groups == 0;
  if (!whole) fail(ErrorCode::bad_program, op.node.target + ": the channels cannot be divided into the groups");
  t.per_group = channels->as_int() / t.groups;
  t.per_offset = channels->as_int() / t.offset_groups;
  t.sizes = {t.x.sizes[0], op.pool.index(t.groups), op.pool.index(t.per_group), t.weight.sizes[2], t.weight.sizes[3], rows, columns};
  return t;
}

Expr MovedTaps::position(Op& op, const Math& m, Expr image, Expr group, Coordinates at, size_t i) const {
  ExprPool& p = op.pool;
  const Expr number = (group * sizes[3] * sizes[4] + at[0] * sizes[4] + at[1]) * p.index(2) + p.index(static_cast<int64_t>(i));
  const Expr still = at[2 + i] * p.index(stride[i]) + at[i] * p.index(dilation[i]) - p.index(pad[i]);
  return m.add(m.size(still), as(op.rec.at(offset, std::vector<Expr>{image, number, at[2], at[3]}), m.type));
}

Expr MovedTaps::mask_at(Op& op, const Math& m, Expr image, Expr group, Coordinates at) const {
  if (!masks) return m.c(1);
  return as(op.rec.at(mask, std::vector<Expr>{image, group * sizes[3] * sizes[4] + at[0] * sizes[4] + at[1], at[2], at[3]}), m.type);
}

View moved_columns(Op& op, const Math& m, const MovedTaps& t, DType dtype) {
  return op.rec.pointwise(op.name + ".columns", dtype, t.sizes, [&](Coordinates c) {
    const Expr channel = t.channel(c), group = t.offset_group(channel);
    const auto position = [&](size_t i) { return t.position(op, m, c[0], group, c.subspan(3), i); };
    Expr value = between_pixels(op, m, t.x, position(0), position(1), Border::zeros, [&](Expr y, Expr z) { return std::vector<Expr>{c[0], channel, y, z}; });
    if (t.masks) value = m.mul(value, t.mask_at(op, m, c[0], group, c.subspan(3)));
    return as(value, dtype);
  });
}

namespace {

Views deform_conv2d(Op& op) {
  const TensorType& out = op.out();
  const MovedTaps t = moved_taps(op, out.sizes.at(2), out.sizes.at(3));
  ExprPool& p = op.pool;
  const Math m{p, accumulate_type(out.dtype)};
  const View bias = op.tensor("bias"), columns = moved_columns(op, m, t, out.dtype);
  const Expr groups = p.index(t.groups), terms = t.weight.sizes[1] * t.sizes[3] * t.sizes[4], filters = p.index(t.weight.sizes[0]->as_int() / t.groups);
  const Expr pixels = out.sizes[2] * out.sizes[3];
  const View flat = reshaped(op, columns, {t.x.sizes[0], groups, terms, pixels});
  const View weight = broadcast(op, reshaped(op, t.weight, {p.index(1), groups, filters, terms}), {t.x.sizes[0], groups, filters, terms});
  const View sums = reshaped(op, matrix_product(op, op.name, m.type, weight, flat, 2), out.sizes);
  return {op.rec.pointwise(op.name + ".bias", out.dtype, out.sizes,
                           [&](Coordinates c) { return as(m.add(as(op.rec.at(sums, c), m.type), as(op.rec.at(bias, c.subspan(1, 1)), m.type)), out.dtype); })};
}

// torchvision.nms: boxes by falling scores, without those that overlap an earlier one too much. One after the other, so a routine does it.
Views nms(Op& op) {
  check_ranks(op, {{"dets", 2}, {"scores", 1}}, 1);
  const View boxes = op.tensor("dets"), scores = op.tensor("scores");
  const DType type = boxes.dtype == DType::f64 ? DType::f64 : DType::f32;
  const Expr n = scores.sizes.at(0);
  Library call;
  call.routine = "box_suppression";
  call.subject = op.name;
  call.dtype = type;
  call.sizes = {n};
  // Four numbers for each score, whatever sizes the file tells: the routine reads so many.
  const View corners = op.rec.pointwise(op.name + ".boxes", type, {n, op.pool.index(4)}, [&](Coordinates c) { return as(op.rec.at(boxes, c), type); });
  const View threshold{DType::f64, {op.pool.index(1)}, op.pool.constant(op.number("iou_threshold"), DType::f64)};
  const Views found =
      op.rec.library(op.name, std::move(call), {corners, converted(op, scores, type), threshold}, {{DType::i64, {n}}, {DType::i64, {op.pool.index(1)}}});
  const TensorType& out = op.out();
  bind_size(op, out.sizes.at(0), op.rec.at(found[1], std::vector<Expr>{op.pool.index(0)}), n);
  return {op.rec.pointwise(op.name + ".kept", DType::i64, out.sizes,
                           [&](Coordinates c) { return op.rec.at(found[0], std::vector<Expr>{op.pool.checked_index(op.pool.cast(c[0], DType::i64), n)}); })};
}

}  // namespace

void add_detection(Table& table) {
  table["torchvision.roi_align.default"] = roi_align;
  table["torchvision.deform_conv2d.default"] = deform_conv2d;
  table["torchvision.nms.default"] = nms;
}

}  // namespace coil::lowering
