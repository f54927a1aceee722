// What undoes pooling and windows: max_unpool, gradients of max pools, im2col, col2im; and pools over random windows.
#include <fmt/format.h>

#include "lower/formula.h"
#include "lower/pool_windows.h"
#include "lower/row_sums.h"
#include "lower/written_positions.h"

namespace coil::lowering {
namespace {

// The last `dims` dimensions as one.
View flat_image(Op& op, const View& v, size_t dims) {
  Sizes sizes(v.sizes.begin(), v.sizes.end() - static_cast<long>(dims)), image(v.sizes.end() - static_cast<long>(dims), v.sizes.end());
  sizes.push_back(count(op.pool, image));
  return reshaped(op, v, sizes);
}

// Whether element k of an image's pooled values came from position `at`.
Expr came_from(Op& op, const View& indices, Coordinates c, Expr k, Expr size) {
  std::vector<Expr> point(c.begin(), c.end());
  point.back() = k;
  Expr index = op.pool.checked_index(as(op.rec.at(indices, point), DType::i64), index_max(size, op.pool.index(1)));
  return op.pool.op(ScalarOp::eq, {index, c.back()});
}

// For each element of images of these sizes (the last dimension) what reduce makes of value(at), at the coordinates of a pooled value, over
// those that came from it; `none` where there are none. A few are looked at by each element.
View joined_at(Op& op, const std::string& name, ReduceOp reduce, DType type, const View& indices, const Sizes& sizes, Expr none,
               FunctionRef<Expr(Coordinates)> value) {
  ExprPool& p = op.pool;
  const Expr n = indices.sizes.back(), all = count(p, sizes);
  if (const_int(n).value_or(INT64_MAX) > 8 && many_rows(op, all, p.index(1), n, joins_atomically(op, reduce, type, true))) {
    RowSums sums{name, type, all, p.index(1), indices.sizes, {}, {}, reduce, none};
    sums.any_order = true;
    sums.row = [&](Coordinates from) {
      Sizes image(from.begin(), from.end());
      image.back() = p.index(0);
      const Expr index = p.cast(p.checked_index(as(op.rec.at(indices, from), DType::i64), index_max(sizes.back(), p.index(1))), DType::i64);
      return p.op(ScalarOp::add, {p.cast(row_major(p, image, sizes), DType::i64), index});
    };
    sums.value = [&](Coordinates k, Expr) { return as(value(k), type); };
    return reshaped(op, summed_rows(op, sums), sizes);
  }
  return op.rec.reduce(name, reduce, type, sizes, {n}, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at(c.begin(), c.end());
    at.back() = k[0];
    return masked(came_from(op, indices, c, k[0], sizes.back()), as(value(at), type), none);
  });
}

// Each value goes where its index says; of several the last one.
Views max_unpool(Op& op, size_t dims) {
  const TensorType& out = op.out();
  View x = flat_image(op, op.tensor("self"), dims), indices = flat_image(op, op.tensor("indices"), dims);
  Sizes sizes(out.sizes.begin(), out.sizes.end() - static_cast<long>(dims)), image(out.sizes.end() - static_cast<long>(dims), out.sizes.end());
  sizes.push_back(count(op.pool, image));
  Expr n = x.sizes.back();
  View writer = joined_at(op, "max_unpool.writer", ReduceOp::max, DType::i64, indices, sizes, i64(op, -1),
                          [&](Coordinates at) { return op.pool.cast(at.back(), DType::i64); });
  View result = op.rec.pointwise("max_unpool", out.dtype, sizes, [&](Coordinates c) {
    Expr w = op.rec.at(writer, c);
    std::vector<Expr> at(c.begin(), c.end());
    at.back() = op.pool.checked_index(op.pool.op(ScalarOp::maximum, {w, i64(op, 0)}), index_max(n, op.pool.index(1)));
    return masked(op.pool.op(ScalarOp::ge, {w, i64(op, 0)}), op.rec.at(x, at), as(i64(op, 0), out.dtype));
  });
  return {reshaped(op, result, out.sizes)};
}

// Windows along two dimensions: of an image of the given sizes.
struct Windows {
  std::vector<int64_t> kernel, dilation, padding, stride;
  std::vector<Expr> steps;  // windows along each dimension

  Windows(Op& op, const Sizes& image)
      : kernel(op.integers("kernel_size")), dilation(op.integers("dilation")), padding(op.integers("padding")), stride(op.integers("stride")) {
    for (auto* v : {&kernel, &dilation, &padding, &stride}) v->resize(2, v->at(0));
    for (size_t i = 0; i < 2; ++i) {
      steps.push_back(floor_div(image.at(i) + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1, op.pool.index(stride[i])) + 1);
    }
  }
};

// [n, channels * kh * kw, windows]
Views im2col(Op& op) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  const bool single = x.rank() == 3;
  if (single) x = unsqueezed(op, x, 0);
  const Windows w(op, Sizes(x.sizes.begin() + 2, x.sizes.end()));
  Sizes sizes = out.sizes;
  if (single) sizes.insert(sizes.begin(), op.pool.index(1));
  View columns = op.rec.pointwise("im2col", out.dtype, sizes, [&](Coordinates c) {
    Expr kw = op.pool.index(w.kernel[1]), kh = op.pool.index(w.kernel[0]);
    Expr row = floor_div(c[2], w.steps[1]) * w.stride[0] + floor_mod(floor_div(c[1], kw), kh) * w.dilation[0] - w.padding[0];
    Expr column = floor_mod(c[2], w.steps[1]) * w.stride[1] + floor_mod(c[1], kw) * w.dilation[1] - w.padding[1];
    Expr ok = both(inside(row, x.sizes[2]), inside(column, x.sizes[3]));
    return masked(ok, op.rec.at(x, std::vector<Expr>{c[0], floor_div(c[1], op.pool.index(w.kernel[0] * w.kernel[1])), row, column}), as(i64(op, 0), out.dtype));
  });
  return {single ? squeezed(op, columns, 0) : columns};
}

// The sum of all window elements that stand on a pixel.
Views col2im(Op& op) {
  View x = op.tensor("self");
  const TensorType& out = op.out();
  const bool single = x.rank() == 2;
  if (single) x = unsqueezed(op, x, 0);
  Sizes sizes = out.sizes;
  if (single) sizes.insert(sizes.begin(), op.pool.index(1));
  const Windows w(op, Sizes(sizes.begin() + 2, sizes.end()));
  const DType type = is_float(out.dtype) ? accumulate_type(out.dtype) : out.dtype;
  std::vector<WindowsOver> over;
  for (size_t i = 0; i < 2; ++i) over.emplace_back(w.kernel[i], w.stride[i], w.padding[i], w.dilation[i]);
  View image = op.rec.reduce(
      "col2im", ReduceOp::sum, out.dtype, sizes, {op.pool.index(over[0].count()), op.pool.index(over[1].count())}, [&](Coordinates c, Coordinates k) {
        Expr ok = op.pool.boolean(true);
        std::vector<Expr> window, point;
        for (size_t i = 0; i < 2; ++i) {
          const WindowsOver::Candidate found = over[i].candidate(c[2 + i], k[i]);
          window.push_back(found.window);
          point.push_back(found.point);
          ok = both(ok, both(found.shows, inside(found.window, w.steps[i])));
        }
        Expr channel = c[1] * (w.kernel[0] * w.kernel[1]) + point[0] * w.kernel[1] + point[1];
        return masked(ok, as(op.rec.at(x, std::vector<Expr>{c[0], channel, window[0] * w.steps[1] + window[1]}), type), as(i64(op, 0), type));
      });
  return {single ? squeezed(op, image, 0) : image};
}

// Windows of a fixed size whose places follow from one random number in [0, 1) for each dimension of an image.
Views fractional_max_pool(Op& op, size_t dims) {
  View x = op.tensor("self"), random = op.tensor("random_samples");
  const TensorType& out = op.out();
  const bool single = x.rank() == dims + 1;
  if (single) x = unsqueezed(op, x, 0);
  Sizes sizes = out.sizes;
  if (single) sizes.insert(sizes.begin(), op.pool.index(1));
  CheckedList<int64_t> kernel = op.integers("kernel_size");
  kernel.resize(dims, kernel.at(0));
  const DType type = x.dtype == DType::f64 ? DType::f64 : DType::f32;
  ExprPool& p = op.pool;
  // The samples of dimension i of the image: of two dimensions the last one comes first, of three the first.
  auto begin = [&](Coordinates c, size_t i) {
    Expr in = x.sizes[2 + i], outs = sizes[2 + i];
    auto number = [&](Expr index) { return Val(as(p.cast(index, DType::i64), type)); };
    Val sample = as(op.rec.at(random, std::vector<Expr>{c[0], c[1], p.index(static_cast<int64_t>(dims == 2 ? 1 - i : i))}), type);
    Val alpha = number(in - kernel[i]) / max(number(outs - 1), 1.0);
    Val place = trunc((number(c[2 + i]) + sample) * alpha) - trunc(sample * alpha);
    Val last = number(in - kernel[i]);
    Expr is_last = p.op(ScalarOp::eq, {c[2 + i], outs - 1});
    return p.checked_index(as(select(is_last, last, place).e, DType::i64), in - kernel[i] + 1);
  };
  Sizes domain;
  for (int64_t k : kernel) domain.push_back(p.index(k));
  auto pixel = [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at{c[0], c[1]};
    for (size_t i = 0; i < dims; ++i) at.push_back(begin(c, i) + k[i]);
    return op.rec.at(x, at);
  };
  View values = op.rec.reduce("max_pool", ReduceOp::max, out.dtype, sizes, domain, pixel);
  View best = winning_point(op, x.dtype, sizes, domain, pixel);
  View indices = op.rec.pointwise("max_pool.indices", DType::i64, sizes, [&](Coordinates c) {
    const std::vector<Expr> k = point_coordinates(op, op.rec.at(best, c), domain, DType::i64);
    Expr result = i64(op, 0);
    for (size_t i = 0; i < dims; ++i) {
      Expr at = p.op(ScalarOp::add, {p.cast(begin(c, i), DType::i64), k[i]});
      result = p.op(ScalarOp::add, {p.op(ScalarOp::mul, {result, p.cast(x.sizes[2 + i], DType::i64)}), at});
    }
    return result;
  });
  return {single ? squeezed(op, values, 0) : values, single ? squeezed(op, indices, 0) : indices};
}

Views dropout_backward(Op& op) {
  const double scale = op.number("scale");
  return {map2(op, op.tensor("grad_output"), op.tensor("mask"), [&](Expr g, Expr m) { return (Val(g) * Val(m) * scale).e; })};
}

}  // namespace

void add_unpooling(Table& table) {
  for (size_t dims : {size_t{2}, size_t{3}}) {
    table[fmt::format("aten.max_unpool{}d.default", dims)] = [dims](Op& op) { return max_unpool(op, dims); };
    table[fmt::format("aten.fractional_max_pool{}d.default", dims)] = [dims](Op& op) { return fractional_max_pool(op, dims); };
  }
  table["aten.im2col.default"] = im2col;
  table["aten.col2im.default"] = col2im;
  table["aten.native_dropout_backward.default"] = dropout_backward;
}

}  // namespace coil::lowering
