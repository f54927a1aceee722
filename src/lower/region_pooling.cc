// torchvision's roi_pool, ps_roi_pool and ps_roi_align, and their gradients: bins of whole pixels, or of samples, the "position sensitive" ones each of a
// channel of its own.
#include <cmath>

#include "lower/detection.h"
#include "lower/families.h"
#include "lower/row_sums.h"

namespace coil::lowering {
namespace {

constexpr int64_t kMostPixels = 1 << 16;  // of an image, each way

// To the nearest integer, halves away from 0.
Val nearest_whole(Val v) {
  const Val whole = trunc(v);
  return select(abs(v - whole) >= 0.5, whole + sign(v), whole);
}

// The pixels of each bin, from `begin` to before `end`; both i64 [regions, bins], for rows and columns.
struct PixelBins {
  View begin[2], end[2];

  Val first(Op& op, Expr region, Expr bin, size_t i) const { return op.rec.at(begin[i], std::vector<Expr>{region, bin}); }
  Val last(Op& op, Expr region, Expr bin, size_t i) const { return op.rec.at(end[i], std::vector<Expr>{region, bin}); }
  Val count(Op& op, Expr region, Expr bin, size_t i) const { return max(last(op, region, bin, i) - first(op, region, bin, i), 0.0); }
};

// `inclusive`: a region's last pixel belongs to it. `limits`: what no bin goes beyond.
PixelBins pixel_bins(const Regions& r, const Sizes& limits, bool inclusive) {
  Op& op = r.op;
  PixelBins bins;
  for (size_t i = 0; i < 2; ++i) {
    const auto edge = [&](Coordinates c, int64_t column) { return nearest_whole(Val(r.number(c[0], column)) * r.scale); };
    const auto length = [&](Coordinates c) {
      const Val span = edge(c, i == 0 ? 4 : 3) - edge(c, i == 0 ? 2 : 1);
      return max(inclusive ? span + 1.0 : span, 1.0) / Val(r.m.size(r.bins[i]));
    };
    const auto place = [&](Val at, Coordinates c) {
      const Val limit = r.m.size(limits[i]);
      return as(min(max(at + edge(c, i == 0 ? 2 : 1), 0.0), limit).e, DType::i64);
    };
    const Sizes sizes{r.rois.sizes[0], r.bins[i]};
    bins.begin[i] = op.rec.pointwise(op.name + ".begin", DType::i64, sizes, [&](Coordinates c) { return place(floor(Val(r.m.size(c[1])) * length(c)), c); });
    bins.end[i] = op.rec.pointwise(op.name + ".end", DType::i64, sizes, [&](Coordinates c) { return place(ceil((Val(r.m.size(c[1])) + 1.0) * length(c)), c); });
  }
  return bins;
}

// The most pixels that a bin has each way.
Sizes most_pixels(Op& op, const PixelBins& bins) {
  Sizes most;
  for (size_t i = 0; i < 2; ++i) {
    const View counts = op.rec.pointwise(op.name + ".pixels", DType::i64, bins.begin[i].sizes, [&](Coordinates c) { return bins.count(op, c[0], c[1], i).e; });
    most.push_back(largest(op, i == 0 ? "_rows" : "_columns", counts, kMostPixels));
  }
  return most;
}

// Pixel k of a bin: its row or column as an index of the image, and whether there is one.
struct BinPixel {
  Expr at[2], has;
};
BinPixel bin_pixel(Op& op, const PixelBins& bins, const Sizes& image, Expr region, Expr row, Expr column, Coordinates k) {
  ExprPool& p = op.pool;
  BinPixel found{{}, p.boolean(true)};
  const Expr bin[2] = {row, column};
  for (size_t i = 0; i < 2; ++i) {
    const Val number = p.cast(k[i], DType::i64);
    found.at[i] = p.checked_index(min(bins.first(op, region, bin[i], i) + number, Val(p.cast(image[i] - 1, DType::i64))).e, image[i]);
    found.has = both(found.has, (number < bins.count(op, region, bin[i], i)).e);
  }
  return found;
}

Sizes image_of(const View& x) { return {x.sizes[2], x.sizes[3]}; }

// The largest pixel of each bin, and its number in the image, -1: none is larger than the smallest number.
Views roi_pool(Op& op) {
  check_ranks(op, {{"input", 4}, {"rois", 2}}, 4);
  const View x = op.tensor("input");
  const TensorType& out = op.out();
  ExprPool& p = op.pool;
  const Regions r = regions_of(op, {out.sizes[2], out.sizes[3]});
  const Sizes image = image_of(x);
  const PixelBins bins = pixel_bins(r, image, true);
  const Sizes most = most_pixels(op, bins);
  const Val smallest = op.constant(out.dtype == DType::f16 ? -HUGE_VAL : -3.4028234663852886e38, r.m.type);  // of float32 for double precision too
  const auto value = [&](Coordinates c, const BinPixel& pixel) {
    return Val(as(op.rec.at(x, std::vector<Expr>{r.image(c[0], x.sizes[0]), c[1], pixel.at[0], pixel.at[1]}), r.m.type));
  };
  const View top = op.rec.reduce(op.name + ".max", ReduceOp::max, r.m.type, out.sizes, most, [&](Coordinates c, Coordinates k) {
    const BinPixel pixel = bin_pixel(op, bins, image, c[0], c[2], c[3], k);
    const Val v = masked(pixel.has, value(c, pixel).e, smallest.e);
    return select(v > smallest, v, smallest).e;
  });
  const Expr pixels = image[0] * image[1], none = p.cast(pixels, DType::i64);
  const View place = op.rec.reduce(op.name + ".place", ReduceOp::min, DType::i64, out.sizes, most, [&](Coordinates c, Coordinates k) {
    const BinPixel pixel = bin_pixel(op, bins, image, c[0], c[2], c[3], k);
    const Val v = masked(pixel.has, value(c, pixel).e, smallest.e), is_top = both(v > smallest, equal(v, Val(op.rec.at(top, c))));
    return p.select(is_top.e, p.cast(pixel.at[0] * image[1] + pixel.at[1], DType::i64), none);
  });
  const auto empty = [&](Coordinates c) { return either(equal(bins.count(op, c[0], c[2], 0), 0.0), equal(bins.count(op, c[0], c[3], 1), 0.0)); };
  // Without a pixel in any bin the reductions ran over nothing.
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) { return select(empty(c), 0.0, Val(op.rec.at(top, c))).e; }),
          op.rec.pointwise(op.name + ".argmax", op.out(1).dtype, out.sizes, [&](Coordinates c) {
            const Val at = op.rec.at(place, c);
            return as(select(either(empty(c), at >= Val(none)), at.like(-1), at).e, op.out(1).dtype);
          })};
}

// Sums of values for single pixels of all channels: row(k) is the pixel's number among all, the number of them for none.
View summed_pixels(Op& op, DType type, const Sizes& domain, FunctionRef<Expr(Coordinates)> row, FunctionRef<Expr(Coordinates)> value) {
  const Sizes& sizes = op.out().sizes;
  RowSums sums{op.name + ".rows",
               type,
               count(op.pool, sizes),
               op.pool.index(1),
               domain,
               [&](Coordinates k) { return row(k); },
               [&](Coordinates k, Expr) { return value(k); }};
  sums.any_order = true;
  return converted(op, reshaped(op, summed_rows(op, sums), sizes), op.out().dtype);
}

// The number of a pixel among those of all images and channels, where it is one.
Expr pixel_number(const Regions& r, Expr region, Expr channel, const Expr (&at)[2], Expr has) {
  ExprPool& p = r.op.pool;
  const Sizes& sizes = r.op.out().sizes;
  const std::vector<Expr> place{r.image(region, sizes[0]), channel, at[0], at[1]};
  return p.select(has, p.cast(row_major(p, place, sizes), DType::i64), p.cast(count(p, sizes), DType::i64));
}

Views roi_pool_backward(Op& op) {
  check_ranks(op, {{"grad", 4}, {"rois", 2}, {"argmax", 4}}, 4);
  const View grad = op.tensor("grad"), argmax = op.tensor("argmax");
  const Regions r = regions_of(op, image_of(grad));
  const Sizes& sizes = op.out().sizes;
  ExprPool& p = op.pool;
  const Expr pixels = sizes[2] * sizes[3];
  const auto row = [&](Coordinates k) {
    const Val place = as(op.rec.at(argmax, k), DType::i64);
    const Expr at = p.checked_index(max(place, 0.0).e, pixels);
    const Expr where_it_is[2] = {floor_div(at, sizes[3]), floor_mod(at, sizes[3])};
    return pixel_number(r, k[0], k[1], where_it_is, (place >= 0.0).e);
  };
  return {summed_pixels(op, r.m.type, grad.sizes, row, [&](Coordinates k) { return as(op.rec.at(grad, k), r.m.type); })};
}

// Which channel of the image a bin of a channel of the result reads.
Expr channel_of(const Regions& r, Expr channel, Expr row, Expr column) { return (channel * r.bins[0] + row) * r.bins[1] + column; }

View channel_mapping(const Regions& r) {
  const TensorType& out = r.op.out(1);
  return r.op.rec.pointwise(r.op.name + ".channels", out.dtype, out.sizes,
                            [&](Coordinates c) { return as(r.op.pool.cast(channel_of(r, c[1], c[2], c[3]), DType::i64), out.dtype); });
}

// The mean of each bin's pixels. torchvision leaves the last row and column of the image out, but not in the gradient.
Views ps_roi_pool(Op& op) {
  check_ranks(op, {{"input", 4}, {"rois", 2}}, 4);
  const View x = op.tensor("input");
  const TensorType& out = op.out();
  const Regions r = regions_of(op, {out.sizes[2], out.sizes[3]});
  const Sizes image = image_of(x);
  const PixelBins bins = pixel_bins(r, {image[0] - 1, image[1] - 1}, false);
  const View sums = op.rec.reduce(op.name + ".sum", ReduceOp::sum, r.m.type, out.sizes, most_pixels(op, bins), [&](Coordinates c, Coordinates k) {
    const BinPixel pixel = bin_pixel(op, bins, image, c[0], c[2], c[3], k);
    const std::vector<Expr> at{r.image(c[0], x.sizes[0]), op.pool.checked_index(op.pool.cast(channel_of(r, c[1], c[2], c[3]), DType::i64), x.sizes[1]),
                               pixel.at[0], pixel.at[1]};
    return masked(pixel.has, as(op.rec.at(x, at), r.m.type), r.m.c(0));
  });
  return {op.rec.pointwise(op.name, out.dtype, out.sizes,
                           [&](Coordinates c) {
                             const Val area = as((bins.count(op, c[0], c[2], 0) * bins.count(op, c[0], c[3], 1)).e, r.m.type);
                             return (Val(op.rec.at(sums, c)) / max(area, 1.0)).e;
                           }),
          channel_mapping(r)};
}

Views ps_roi_pool_backward(Op& op) {
  check_ranks(op, {{"grad", 4}, {"rois", 2}}, 4);
  const View grad = op.tensor("grad");
  const Regions r = regions_of(op, image_of(grad));
  const Sizes& sizes = op.out().sizes;
  const Sizes image{sizes[2], sizes[3]};
  const PixelBins bins = pixel_bins(r, image, false);
  Sizes domain = grad.sizes;
  for (Expr pixels : most_pixels(op, bins)) domain.push_back(pixels);
  const auto row = [&](Coordinates k) {
    const BinPixel pixel = bin_pixel(op, bins, image, k[0], k[2], k[3], k.subspan(4));
    return pixel_number(r, k[0], op.pool.checked_index(op.pool.cast(channel_of(r, k[1], k[2], k[3]), DType::i64), sizes[1]), pixel.at, pixel.has);
  };
  const auto value = [&](Coordinates k) {
    const Val area = as((bins.count(op, k[0], k[2], 0) * bins.count(op, k[0], k[3], 1)).e, r.m.type);
    return (Val(as(op.rec.at(grad, k.first(4)), r.m.type)) / max(area, 1.0)).e;
  };
  return {summed_pixels(op, r.m.type, domain, row, value)};
}

// The mean of samples in each bin, as roi_align has them.
Views ps_roi_align(Op& op) {
  check_ranks(op, {{"input", 4}, {"rois", 2}}, 4);
  const View x = op.tensor("input");
  const TensorType& out = op.out();
  const Regions r = regions_of(op, {out.sizes[2], out.sizes[3]});
  const Samples samples = samples_of(r);
  const View sums = op.rec.reduce(op.name + ".sum", ReduceOp::sum, r.m.type, out.sizes, samples.most, [&](Coordinates c, Coordinates s) {
    const Expr channel = op.pool.checked_index(op.pool.cast(channel_of(r, c[1], c[2], c[3]), DType::i64), x.sizes[1]);
    const auto place = [&](size_t i) { return r.place(c[0], c[2 + i], r.m.size(s[i]), samples.count(r, c[0], i), i); };
    const Expr value = between_pixels(op, r.m, x, place(0), place(1), Border::repeated,
                                      [&](Expr y, Expr z) { return std::vector<Expr>{r.image(c[0], x.sizes[0]), channel, y, z}; });
    return masked(samples.has(r, c[0], s[0], s[1]), value, r.m.c(0));
  });
  return {op.rec.pointwise(op.name, out.dtype, out.sizes,
                           [&](Coordinates c) {
                             const Val count = Val(samples.count(r, c[0], 0)) * Val(samples.count(r, c[0], 1));
                             return (Val(op.rec.at(sums, c)) / count).e;
                           }),
          channel_mapping(r)};
}

}  // namespace

void add_region_pooling(Table& table) {
  table["torchvision.roi_pool.default"] = roi_pool;
  table["torchvision._roi_pool_backward.default"] = roi_pool_backward;
  table["torchvision.ps_roi_pool.default"] = ps_roi_pool;
  table["torchvision._ps_roi_pool_backward.default"] = ps_roi_pool_backward;
  table["torchvision.ps_roi_align.default"] = ps_roi_align;
}

}  // namespace coil::lowering
