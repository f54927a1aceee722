// The gradients of torchvision's roi_align and ps_roi_align: every sample adds to the four pixels around it.
#include <array>

#include "lower/detection.h"
#include "lower/row_sums.h"

namespace coil::lowering {
namespace {

// One of the two pixels around a sample in one direction.
struct Neighbour {
  Val at, share, counts;  // its place, a number of m's type; its share of the sample; whether there is one
};

// A sample up to a pixel outside of the image counts; behind the first and the last pixel these go on.
Neighbour neighbour(const Math& m, Val place, Expr pixels, Expr side) {
  const Val size = m.size(pixels), inside = min(max(place, 0.0), size - 1.0), low = floor(inside), high_share = inside - low;
  const Val is_high = m.p.op(ScalarOp::eq, {side, m.p.index(1)});
  const Val at = select(is_high, low + 1.0, low);
  return {at, select(is_high, high_share, 1.0 - high_share), both(both(place >= -1.0, place <= size), at < size)};
}

// A sample's write: region, row and column of the bin, row and column of the sample, and which of the pixels around it.
class SampleWrite {
 public:
  SampleWrite(const Regions& r, const Samples& samples, const TensorType& image, Coordinates k)
      : r_(r), samples_(samples), image_(image), k_(k.begin(), k.end()) {}

  // The number of the pixel among all images', i64; `none`: the sample is nowhere.
  Expr pixel(Expr none) const {
    ExprPool& p = r_.op.pool;
    Val number = p.cast(r_.image(k_[0], image_.sizes[0]), DType::i64), counts = samples_.has(r_, k_[0], k_[3], k_[4]);
    for (size_t i = 0; i < 2; ++i) {
      const Neighbour n = around(i);
      counts = both(counts.e, n.counts.e);
      number = number * Val(p.cast(image_.sizes[2 + i], DType::i64)) + Val(p.cast(select(n.counts, n.at, 0.0).e, DType::i64));
    }
    return select(counts, number, Val(p.cast(none, DType::i64))).e;
  }

  // The pixel's share of the bin's mean.
  Val share() const {
    const Val count = Val(samples_.count(r_, k_[0], 0)) * Val(samples_.count(r_, k_[0], 1));
    return around(0).share * around(1).share / max(count, 1.0);
  }

 private:
  Neighbour around(size_t i) const {
    const Expr place = r_.place(k_[0], k_[1 + i], r_.m.size(k_[3 + i]), samples_.count(r_, k_[0], i), i);
    return neighbour(r_.m, place, image_.sizes[2 + i], k_[5 + i]);
  }

  const Regions& r_;
  const Samples& samples_;
  const TensorType& image_;
  std::vector<Expr> k_;
};

// What the gradients start from: that of the bins, and the samples that spread it over the images.
struct Spread {
  TensorType out;
  View grad;
  Regions regions;
  Samples samples;

  explicit Spread(Op& op)
      : out((check_ranks(op, {{"grad", 4}, {"rois", 2}}, 4), op.out())),
        grad(op.tensor("grad")),
        regions(regions_of(op, {grad.sizes[2], grad.sizes[3]})),
        samples(samples_of(regions)) {}

  // All writes of the bins that `bins` counts.
  Sizes writes(Sizes bins) const {
    const Expr two = regions.op.pool.index(2);
    bins.insert(bins.end(), {samples.most[0], samples.most[1], two, two});
    return bins;
  }
  // Of region, row and column of the bin, and so on.
  SampleWrite write(Coordinates k) const { return {regions, samples, out, k}; }
  Expr element(const std::vector<Expr>& bin) const { return as(regions.op.rec.at(grad, bin), regions.m.type); }
};

Views roi_align_backward(Op& op) {
  ExprPool& p = op.pool;
  const Spread s(op);
  const View& grad = s.grad;
  const TensorType& out = s.out;
  const Expr rows = out.sizes[0] * out.sizes[2] * out.sizes[3];
  const Sizes domain = s.writes({grad.sizes[0], grad.sizes[2], grad.sizes[3]});
  const auto row = [&](Coordinates k) { return s.write(k).pixel(rows); };
  const auto value = [&](Coordinates k, Expr channel) { return (Val(s.element({k[0], channel, k[1], k[2]})) * s.write(k).share()).e; };
  RowSums sums{op.name + ".rows", s.regions.m.type, rows, out.sizes[1], domain, row, value};
  sums.any_order = true;
  const View table = summed_rows(op, sums);
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    const Expr pixel = row_major(p, std::vector<Expr>{c[0], c[2], c[3]}, {out.sizes[0], out.sizes[2], out.sizes[3]});
    return as(op.rec.at(table, std::vector<Expr>{pixel, c[1]}), out.dtype);
  })};
}

// Each bin of a channel of the result reads a channel of its own, so that every sample is for four single numbers.
Views ps_roi_align_backward(Op& op) {
  ExprPool& p = op.pool;
  const Spread s(op);
  const View& grad = s.grad;
  const TensorType& out = s.out;
  const Expr pixels = out.sizes[0] * out.sizes[2] * out.sizes[3], channels = out.sizes[1], numbers = pixels * channels;
  const Sizes domain = s.writes(grad.sizes);
  const auto write = [&](Coordinates k) { return s.write(std::vector<Expr>{k[0], k[2], k[3], k[4], k[5], k[6], k[7]}); };
  const auto row = [&](Coordinates k) {
    const Val pixel = write(k).pixel(pixels), channel = p.cast((k[1] * grad.sizes[2] + k[2]) * grad.sizes[3] + k[3], DType::i64);
    const Val number = pixel * Val(p.cast(channels, DType::i64)) + channel;
    return select(pixel < Val(p.cast(pixels, DType::i64)), number, Val(p.cast(numbers, DType::i64))).e;
  };
  const auto value = [&](Coordinates k, Expr) { return (Val(s.element({k[0], k[1], k[2], k[3]})) * write(k).share()).e; };
  RowSums sums{op.name + ".rows", s.regions.m.type, numbers, p.index(1), domain, row, value};
  sums.any_order = true;
  const View table = summed_rows(op, sums);
  return {op.rec.pointwise(op.name, out.dtype, out.sizes, [&](Coordinates c) {
    const std::vector<Expr> place{c[0], c[2], c[3], c[1]};
    const Expr number = row_major(p, place, {out.sizes[0], out.sizes[2], out.sizes[3], channels});
    return as(op.rec.at(table, std::vector<Expr>{number, p.index(0)}), out.dtype);
  })};
}

}  // namespace

void add_detection_backward(Table& table) {
  table["torchvision._roi_align_backward.default"] = roi_align_backward;
  table["torchvision._ps_roi_align_backward.default"] = ps_roi_align_backward;
}

}  // namespace coil::lowering
