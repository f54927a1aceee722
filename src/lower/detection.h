// Regions of images as torchvision's operators are told of them, for the mean of their samples and its gradient.
#pragma once

#include <initializer_list>
#include <utility>

#include "lower/formula.h"
#include "lower/grid_sampling.h"

namespace coil::lowering {

// Refuses a node whose tensors have other ranks: the file says of which rank they are. `result`: that of the first result.
void check_ranks(const Op& op, std::initializer_list<std::pair<const char*, size_t>> ranks, size_t result);

// Regions [number of the image, left, top, right, bottom], each divided into bins.
struct Regions {
  Op& op;
  Math m;
  View rois;
  Sizes bins;  // rows, columns
  double scale;
  bool aligned;

  Expr number(Expr region, int64_t i) const { return as(op.rec.at(rois, std::vector<Expr>{region, op.pool.index(i)}), m.type); }
  Expr edge(Expr region, int64_t column) const { return m.sub(m.mul(number(region, column), m.c(scale)), m.c(aligned ? 0.5 : 0)); }
  // Of one direction (0: rows): where the region begins, and how wide a bin is.
  Expr first(Expr region, size_t i) const { return edge(region, i == 0 ? 2 : 1); }
  Expr width(Expr region, size_t i) const {
    Expr length = m.sub(edge(region, i == 0 ? 4 : 3), first(region, i));
    if (!aligned) length = op.pool.op(ScalarOp::maximum, {length, m.c(1)});
    return m.div(length, m.size(bins[i]));
  }
  // Where a sample of a bin lies, of `samples` (a number of m's type) in this direction.
  Expr place(Expr region, Expr bin, Expr sample, Expr samples, size_t i) const {
    const Expr step = width(region, i);
    return m.add(m.add(first(region, i), m.mul(m.size(bin), step)), m.div(m.mul(m.add(sample, m.c(0.5)), step), samples));
  }
  // The region's image, of so many.
  Expr image(Expr region, Expr images) const { return op.pool.checked_index(op.pool.cast(number(region, 0), DType::i64), images); }
};

// The largest of what is counted (at most `most_allowed`), as a size.
Expr largest(Op& op, const std::string& name, const View& counts, int64_t most_allowed);

// A sample up to a pixel outside of an image counts. Behind its last pixel the outer one goes on, or there are zeros: torchvision has a sampler of each kind.
enum class Border { repeated, zeros };

// The image's value between the four pixels around (row, column), positions in pixels; `place` gives the index in `x` of a whole one.
Expr between_pixels(Op& op, const Math& m, const View& x, Expr row, Expr column, Border border, FunctionRef<std::vector<Expr>(Expr, Expr)> place);

// What the arguments of a convolution whose taps move say.
struct MovedTaps {
  View x, weight, offset, mask;
  int64_t groups, offset_groups, stride[2], pad[2], dilation[2];
  bool masks;
  Sizes sizes;                    // of the columns: image, group, channel of the group, row and column of the weight, row and column of the result
  int64_t per_group, per_offset;  // channels

  Expr channel(Coordinates c) const { return c[1] * sizes[2] + c[2]; }
  Expr offset_group(Expr channel) const { return floor_div(channel, channel->pool->index(per_offset)); }
  // Where a tap of `group` reads, in pixels, and its factor; `at`: row and column of the weight, row and column of the result.
  Expr position(Op& op, const Math& m, Expr image, Expr group, Coordinates at, size_t i) const;
  Expr mask_at(Op& op, const Math& m, Expr image, Expr group, Coordinates at) const;
};
// Of the node's arguments, with so many rows and columns of results.
MovedTaps moved_taps(Op& op, Expr rows, Expr columns);
// The taps' values as the columns of a product.
View moved_columns(Op& op, const Math& m, const MovedTaps& t, DType dtype);

// Of the node's arguments, with so many bins.
Regions regions_of(Op& op, Sizes bins);

// How many samples each way the bins of a region have.
struct Samples {
  Sizes most;       // rows, columns: of any region's bins
  View high, wide;  // i64 [regions]; without bodies: all have the most

  bool are_equal() const { return !high.body; }
  // Of a region, in one direction, as a number of m's type.
  Expr count(const Regions& r, Expr region, size_t i) const;
  // Whether a region has the sample.
  Expr has(const Regions& r, Expr region, Expr row, Expr column) const;
};

// As many as the argument says, or as a region's bins are wide and high in pixels.
Samples samples_of(const Regions& r);

}  // namespace coil::lowering
