// Gradients of pools and of windows (Tensor.unfold): each pixel looks at the few windows that can show it (pool_windows.h), so the time is that of the
// images.
#include <algorithm>

#include <fmt/format.h>

#include "lower/families.h"
#include "lower/pool_windows.h"
#include "lower/row_sums.h"

namespace coil::lowering {
namespace {

// A window that may show a pixel: where it is, whether it is one at all and, as far as its number does not say so by itself, shows the pixel.
struct Candidate {
  Expr window, exists, shows;
};

// Of each spatial dimension: how many candidates a pixel has, and number k of them.
struct Candidates {
  size_t first;  // spatial dimension
  Sizes domain;
  std::function<Candidate(size_t i, Expr pixel, Expr k)> at;
};

// Whose windows are outputs of these sizes.
Candidates candidates(Op& op, const Window& w, const Sizes& outputs) {
  std::vector<WindowsOver> over;
  Candidates c{w.first, {}, {}};
  for (size_t i = 0; i < w.kernel.size(); ++i) {
    over.emplace_back(w.kernel[i], w.stride[i], w.padding[i], w.dilation[i]);
    c.domain.push_back(op.pool.index(over[i].count()));
  }
  c.at = [over, outputs, first = w.first](size_t i, Expr pixel, Expr k) {
    const WindowsOver::Candidate found = over[i].candidate(pixel, k);
    return Candidate{found.window, inside(found.window, outputs[first + i]), found.shows};
  };
  return c;
}

Candidates adaptive_candidates(Op& op, const Sizes& image, const Sizes& outputs, size_t first) {
  Candidates c{first, {}, {}};
  for (size_t d = first; d < image.size(); ++d) c.domain.push_back(adaptive_dim(op.pool, op.pool.var(0), outputs[d], image[d]).widest);
  c.at = [&pool = op.pool, image, outputs, first](size_t i, Expr pixel, Expr k) {
    const AdaptiveDim a = adaptive_dim(pool, pixel, outputs[first + i], image[first + i]);
    const Expr window = a.begin + k;
    return Candidate{window, a.end - a.begin == a.widest ? pool.boolean(true) : index_less(window, a.end), pool.boolean(true)};
  };
  return c;
}

// Of a fractional pool window o begins at o * alpha, alpha = (in - kernel) / (out - 1) >= 1, but for less than one and what rounding in float32 makes of it:
// one more.
Candidates fractional_candidates(Op& op, const Sizes& image, const Sizes& outputs, size_t first) {
  CheckedList<int64_t> kernel = op.integers("kernel_size");
  kernel.resize(image.size() - first, kernel.at(0));
  ExprPool& p = op.pool;
  Candidates c{first, {}, {}};
  for (size_t i = 0; i < kernel.size(); ++i) {
    const Expr span = index_max(image[first + i] - kernel[i], p.index(1));
    const Expr reached = floor_div((outputs[first + i] - 1) * (kernel[i] + 3) + span - 1, span);
    c.domain.push_back(index_max(index_min(outputs[first + i], index_min(reached, p.index(kernel[i] + 3))), p.index(1)));
  }
  c.at = [&p, image, outputs, first, kernel, domain = c.domain](size_t i, Expr pixel, Expr k) {
    const Expr span = index_max(image[first + i] - kernel[i], p.index(1)), steps = outputs[first + i] - 1;
    const Expr low = floor_div((pixel - kernel[i] - 1) * steps + span - 1, span);
    const Expr begin = index_max(index_min(low, outputs[first + i] - domain[i]), p.index(0));
    return Candidate{begin + k, p.boolean(true), p.boolean(true)};
  };
  return c;
}

// Sums of gradients over the candidates: of(at, k's candidates, whether it counts) adds up.
View gathered(Op& op, const Candidates& from, DType dtype, const Sizes& image,
              FunctionRef<Expr(Coordinates pixel, Coordinates at, const std::vector<Candidate>&)> value) {
  return op.rec.reduce(op.name, ReduceOp::sum, dtype, image, from.domain, [&](Coordinates c, Coordinates k) {
    std::vector<Expr> at(c.begin(), c.end());
    std::vector<Candidate> found;
    for (size_t i = 0; i < k.size(); ++i) {
      found.push_back(from.at(i, c[from.first + i], k[i]));
      at[from.first + i] = found.back().window;
    }
    return value(c, at, found);
  });
}

// Whether the pixels' channels lie side by side, so that all of a vector look at the same windows.
bool has_channels_last(const TensorType& image, size_t first) {
  return first > 0 && image.strides.size() == image.sizes.size() && is_const(image.strides[first - 1], 1) && !is_const(image.sizes[first - 1], 1);
}

// The outputs' gradients go to the pixels that they were, one after the other, which is less work for a processor than to look from the pixels.
View handed_out(Op& op, const View& grad, const View& indices, size_t first) {
  const TensorType& out = op.out();
  ExprPool& p = op.pool;
  const Sizes planes(out.sizes.begin(), out.sizes.begin() + static_cast<long>(first)), image(out.sizes.begin() + static_cast<long>(first), out.sizes.end());
  const Expr pixels = product(p, image), rows = product(p, planes) * pixels;
  RowSums sums{op.name, out.dtype, rows, p.index(1), grad.sizes, {}, [&](Coordinates c, Expr) { return as(op.rec.at(grad, c), out.dtype); }};
  sums.row = [&](Coordinates c) {
    const Expr place = as(op.rec.at(indices, c), DType::i64), plane = p.cast(row_major(p, c.first(first), planes) * pixels, DType::i64);
    const Expr inside = both(p.op(ScalarOp::ge, {place, p.constant_int(0, DType::i64)}), p.op(ScalarOp::lt, {place, p.cast(pixels, DType::i64)}));
    return p.select(inside, p.op(ScalarOp::add, {plane, place}), p.cast(rows, DType::i64));
  };
  return reshaped(op, summed_rows(op, sums), out.sizes);
}

// The outputs' gradients go to the pixels that they were: a window that exists and has the pixel's number showed it.
View of_chosen(Op& op, const Candidates& from) {
  const View grad = op.tensor("grad_output"), indices = op.tensor("indices");
  const bool several = std::any_of(from.domain.begin(), from.domain.end(), [](Expr n) { return !is_const(n, 1); });
  if (several && !has_channels_last(op.out(), from.first) && adds_rows(op, op.out().dtype)) return handed_out(op, grad, indices, from.first);
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  ExprPool& p = op.pool;
  return gathered(op, from, out.dtype, out.sizes, [&](Coordinates c, Coordinates at, const std::vector<Candidate>& found) {
    Expr exists = p.boolean(true), shows = p.boolean(true);
    for (const Candidate& candidate : found) {
      exists = both(exists, candidate.exists);
      shows = both(shows, candidate.shows);
    }
    const Sizes image(out.sizes.begin() + static_cast<long>(from.first), out.sizes.end());
    const Expr number = p.cast(row_major(p, c.subspan(from.first), image), DType::i64);
    const Expr chosen = p.op(ScalarOp::eq, {as(op.rec.at(indices, at), DType::i64), number}), none = op.constant(0, type);
    return masked(both(shows, exists), p.op(ScalarOp::select, {chosen, as(op.rec.at(grad, at), type), none}), none);
  });
}

size_t first_of(const Op& op, size_t dims) { return op.out().sizes.size() - dims; }

Views max_pool_backward(Op& op, size_t dims) {
  const View grad = op.tensor("grad_output");
  return {of_chosen(op, candidates(op, pool_window(op, grad, dims), grad.sizes))};
}

Views adaptive_max_pool_backward(Op& op, size_t dims) {
  return {of_chosen(op, adaptive_candidates(op, op.out().sizes, op.tensor("grad_output").sizes, first_of(op, dims)))};
}

Views fractional_max_pool_backward(Op& op, size_t dims) {
  return {of_chosen(op, fractional_candidates(op, op.out().sizes, op.tensor("grad_output").sizes, first_of(op, dims)))};
}

// The gradient of each output, divided as the average was, at every pixel that its window showed: by `elements` of the window along each dimension.
View of_averages(Op& op, const Candidates& from, FunctionRef<Sizes(Coordinates window)> elements) {
  const View grad = op.tensor("grad_output");
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const View share = op.rec.pointwise(op.name + ".share", type, grad.sizes, [&](Coordinates c) {
    Expr n = op.pool.constant_int(1, DType::i64);  // not a product of indices, which would be multiplied out
    for (Expr along : elements(c)) n = op.pool.op(ScalarOp::mul, {n, op.pool.cast(along, DType::i64)});
    return op.pool.op(ScalarOp::div, {as(op.rec.at(grad, c), type), as(n, type)});
  });
  return gathered(op, from, out.dtype, out.sizes, [&](Coordinates, Coordinates at, const std::vector<Candidate>& found) {
    Expr counts = op.pool.boolean(true);
    for (const Candidate& candidate : found) counts = both(counts, both(candidate.shows, candidate.exists));
    return masked(counts, op.rec.at(share, at), op.constant(0, type));
  });
}

Views avg_pool_backward(Op& op, size_t dims) {
  const View x = op.tensor("self");
  const Window w = pool_window(op, x, dims);
  const bool count_padding = op.flag("count_include_pad");
  return {of_averages(op, candidates(op, w, op.tensor("grad_output").sizes), [&](Coordinates window) {
    return op.has("divisor_override") ? Sizes{op.pool.index(op.integer("divisor_override"))} : window_extents(op, x, w, window, count_padding, {});
  })};
}

Views adaptive_avg_pool_backward(Op& op, size_t dims) {
  const Sizes outputs = op.tensor("grad_output").sizes, &image = op.out().sizes;
  const size_t first = first_of(op, dims);
  return {of_averages(op, adaptive_candidates(op, image, outputs, first), [&](Coordinates window) {
    Sizes extents;
    for (size_t d = first; d < image.size(); ++d) {
      const AdaptiveDim a = adaptive_dim(op.pool, window[d], image[d], outputs[d]);
      extents.push_back(a.end - a.begin);
    }
    return extents;
  })};
}

// Of Tensor.unfold: the windows lie along one dimension, and their points are the gradient's last one. A place adds up what the windows that show it have.
Views unfold_backward(Op& op) {
  const View grad = op.tensor("grad_in");
  const TensorType& out = op.out();
  const DType type = accumulate_type(out.dtype);
  const int64_t size = op.integer("size");
  if (out.sizes.empty()) {  // of a number: one window of it, or of nothing
    const std::vector<Expr> first = {op.pool.index(0)};
    return {op.rec.pointwise(op.name, out.dtype, {}, [&](Coordinates) { return size == 0 ? op.constant(0, out.dtype) : op.rec.at(grad, first); })};
  }
  const size_t dim = wrap_dim(op.integer("dim"), out.sizes.size());
  const WindowsOver over(size, op.integer("step"), 0, 1);
  return {op.rec.reduce(op.name, ReduceOp::sum, out.dtype, out.sizes, {op.pool.index(over.count())}, [&](Coordinates c, Coordinates k) {
    const WindowsOver::Candidate found = over.candidate(c[dim], k[0]);
    std::vector<Expr> at(c.begin(), c.end());
    at[dim] = found.window;
    at.push_back(found.point);
    return masked(both(found.shows, inside(found.window, grad.sizes[dim])), as(op.rec.at(grad, at), type), op.constant(0, type));
  })};
}

}  // namespace

void add_pool_gradients(Table& table) {
  const auto add = [&](const char* name, size_t dims, Views (*gradient)(Op&, size_t)) {
    table[fmt::format(fmt::runtime(name), dims)] = [dims, gradient](Op& op) { return gradient(op, dims); };
  };
  for (size_t dims = 1; dims <= 3; ++dims) {
    add("aten.avg_pool{}d_backward.default", dims, avg_pool_backward);
    add("aten._adaptive_avg_pool{}d_backward.default", dims, adaptive_avg_pool_backward);
    if (dims == 1) continue;
    add("aten.max_pool{}d_with_indices_backward.default", dims, max_pool_backward);
    add("aten.adaptive_max_pool{}d_backward.default", dims, adaptive_max_pool_backward);
    add("aten.fractional_max_pool{}d_backward.default", dims, fractional_max_pool_backward);
  }
  table["aten.unfold_backward.default"] = unfold_backward;
}

}  // namespace coil::lowering
